package Blocks;

# Test files taken apart, for check and compare.

use strict;
use warnings;

use File::Basename ();

use Exporter 'import';

our @EXPORT_OK = qw(blocks_of split_file run_file);

# ( { name, text, preamble } ... )
sub blocks_of {
    my $file = shift;

    open my $in, '<', $file or die "$file: $!\n";
    my $source = do { local $/; <$in> };

    my ($preamble, $data) = split /^__DATA__\n/m, $source, 2;
    my (undef, @texts) = split /^(?==== )/m, $data;

    return map { { name => /^===\s+(.*?)\s*$/m, text => $_,
                   preamble => $preamble } } @texts;
}

# Writes each block of a file to a file of its own, returns their names.
sub split_file {
    my ($file, $directory) = @_;
    my $base = File::Basename::basename($file, '.t');
    my @files;

    for my $block (blocks_of($file)) {
        my $name = sprintf '%s/%s-%02d.t', $directory, $base, 1 + @files;

        open my $out, '>', $name or die "$name: $!\n";
        print $out $block->{preamble}, "__DATA__\n\n", $block->{text};
        close $out or die "$name: $!\n";
        push @files, $name;
    }

    return @files;
}

# The output of a test file, and its wait status.
sub run_file {
    my ($file, @options) = @_;

    # without PERL5LIB: it may lead to another Test::Nginx
    local %ENV = %ENV;
    delete $ENV{PERL5LIB};

    my $command = join ' ', map { "'$_'" } $^X, @options, $file;
    my $output = `$command 2>&1`;

    return ($output, $?);
}

1;
