package Test::Nginx::Runner::Log;

# The assertions on error.log and access.log, and the alarm: unexpected
# lines that must not be in any error.log.

use strict;
use warnings;

use Time::HiRes ();

use Exporter 'import';
use Test::More ();
use Test::Nginx::Util qw(bail_out expand_env_in_text fail_test full_name
                         is_str quoted server_root trim);

our @EXPORT_OK = qw(reset_logs check_error_log check_access_log
                    check_shutdown_error_log note_block collect_alarms
                    report_alarms add_alarm limit_alarms);

# nginx may write a line just after the client has seen the end of the
# response: a pattern which is missing is looked for a little longer.
use constant {
    PATIENCE => 0.25,
    POLL     => 0.01,
};

my $position = 0;       # of error.log, where the next check begins


sub reset_logs { $position = 0 }

sub read_log {
    my ($file, $from) = @_;
    my $path = server_root() . "/logs/$file";

    open my $in, '<', $path or return '';
    binmode $in;
    seek $in, $from, 0;

    local $/;
    my $text = <$in>;
    return defined $text ? $text : '';
}

# The patterns of a section: one per line, or what an eval made of it.
sub patterns_of {
    my ($block, $section) = @_;
    my $value = $block->$section;

    return unless defined $value;
    return @$value if ref $value eq 'ARRAY';
    return $value if ref $value;

    return grep { /\S/ } split /\n/, $value;
}

sub line_matches {
    my ($line, $pattern) = @_;

    return $line =~ $pattern if ref $pattern;
    return index($line, $pattern) >= 0;
}

# The lines of the log, once they have all the patterns or patience has ended.
sub lines_with {
    my ($read, @patterns) = @_;
    my $give_up = Time::HiRes::time() + PATIENCE;

    while (1) {
        my @lines = split /\n/, $read->();
        my @missing = grep { my $pattern = $_;
                             !grep { line_matches($_, $pattern) } @lines }
                      @patterns;

        return @lines if !@missing || Time::HiRes::time() > $give_up;
        Time::HiRes::sleep(POLL);
    }
}


# ---- error_log, no_error_log, grep_error_log ----

sub check_error_log {
    my ($block, $repeat) = @_;
    my $from = Test::Nginx::Util::setting('accumulate') ? 0 : $position;
    my @patterns = patterns_of($block, 'error_log');
    my $grep = grep_pattern($block);
    my $text = '';

    my @lines = lines_with(
        sub { $text = read_log('error.log', $from) },
        @patterns, (defined $grep && expects_something($block) ? $grep : ()));

    $position = $from + length $text;

    check_grep($block, $repeat, $grep, $text) if defined $grep;
    check_lines($block, $repeat, 'error.log', \@lines, \@patterns,
                [ patterns_of($block, 'no_error_log') ]);
}

sub grep_pattern {
    my $block = shift;
    my $pattern = $block->grep_error_log;

    return undef unless defined $pattern;
    return ref $pattern ? $pattern : qr/\Q$pattern\E/;
}

sub expects_something {
    my $block = shift;
    my $expected = $block->grep_error_log_out;

    return defined $expected && (ref $expected || length $expected);
}

sub check_grep {
    my ($block, $repeat, $pattern, $text) = @_;
    my $name = full_name($block);
    my $expected = $block->grep_error_log_out;
    my $found = '';

    bail_out("$name - grep_error_log needs grep_error_log_out")
        unless defined $expected;

    $expected = $expected->[$repeat] if ref $expected eq 'ARRAY';
    $expected = expand_env_in_text($expected, $name);

    $found .= "$&\n" while $text =~ /$pattern/g;

    is_str($found, $expected, "$name - grep_error_log_out (req $repeat)");
}


# ---- access_log, no_access_log ----

sub check_access_log {
    my ($block, $repeat) = @_;
    my @wanted = patterns_of($block, 'access_log');
    my @unwanted = patterns_of($block, 'no_access_log');

    return unless @wanted || @unwanted;

    my @lines = lines_with(sub { read_log('access.log', 0) }, @wanted);

    check_lines($block, $repeat, 'access.log', \@lines, \@wanted, \@unwanted);
}

sub check_lines {
    my ($block, $repeat, $file, $lines, $wanted, $unwanted) = @_;
    my $name = full_name($block);
    my $which = defined $repeat ? "$file (req $repeat)" : $file;

    for my $pattern (@$wanted) {
        if (grep { line_matches($_, $pattern) } @$lines) {
            Test::More::pass("$name - pattern \"$pattern\" matches a line"
                             . " in $which");
        } else {
            fail_test("$name - pattern \"$pattern\" should match a line"
                      . " in $which");
        }
    }

    for my $pattern (@$unwanted) {
        my @found = grep { line_matches($_, $pattern) } @$lines;

        # each line is a failure of its own
        for my $line (@found) {
            fail_test("$name - pattern \"" . quoted($pattern) . "\" should"
                      . " not match any line in $file but matches line \""
                      . quoted($line) . '"'
                      . (defined $repeat ? " (req $repeat)" : ''));
        }

        Test::More::pass("$name - pattern \"" . quoted($pattern) . "\" does"
                         . " not match a line in $which") unless @found;
    }
}


# ---- shutdown_error_log, no_shutdown_error_log ----

# The lines since the last check, once nginx has gone.
sub check_shutdown_error_log {
    my $block = shift;
    my @wanted = patterns_of($block, 'shutdown_error_log');
    my @unwanted = patterns_of($block, 'no_shutdown_error_log');

    return unless @wanted || @unwanted;

    my $from = Test::Nginx::Util::setting('accumulate') ? 0 : $position;
    my @lines = split /\n/, read_log('error.log', $from);

    check_lines($block, undef, 'error.log', \@lines, \@wanted, \@unwanted);
}


# ---- the alarm ----

my $ALARM = qr/\[(?:alert|crit|emerg)\]|Sanitizer|runtime\ error:
               |exited\ on\ signal/x;

my @blocks;             # those the running nginx has served
my @alarms;
my $limit;              # where error.log ceases to be of interest

sub note_block { push @blocks, $_[0] }

sub add_alarm {
    my $line = shift;

    return if grep { excuses($_, $line) } @blocks;
    push @alarms, join(', ', map { full_name($_) } @blocks) . ": $line";
}

# To be called when nginx has gone and its logs are still there.
sub collect_alarms {
    return unless @blocks;

    my $error_log = read_log('error.log', 0);
    $error_log = substr $error_log, 0, $limit if defined $limit;

    add_alarm($_) for grep { $_ =~ $ALARM }
                      split /\n/, $error_log . read_log('stderr.log', 0);

    # the reports of a sanitizer, if its log_path leads here
    for my $path (glob server_root() . '/logs/*san*') {
        my ($file) = $path =~ m{([^/]+)$};

        add_alarm("$file: $_") for grep { $_ =~ $ALARM }
                                   split /\n/, read_log($file, 0);
    }

    keep_error_log() if $ENV{TEST_NGINX_ERROR_LOG};
    @blocks = ();
    undef $limit;
}

# To be called before nginx is ended by force: the connections it leaves open
# then are not its fault.
sub limit_alarms {
    $limit = length read_log('error.log', 0);
    Test::More::diag('nginx has not quit by itself: ',
                     join ', ', map { full_name($_) } @blocks);
}

# Of all blocks, one after the other, in one file.
sub keep_error_log {
    open my $out, '>>', $ENV{TEST_NGINX_ERROR_LOG}
        or bail_out("cannot write $ENV{TEST_NGINX_ERROR_LOG}: $!");

    print $out map({ "==> " . full_name($_) . "\n" } @blocks),
               read_log('error.log', 0);
    close $out;
}

# A block expects an alarm when it must die, when it asserts the line with
# error_log or grep_error_log, or when it has a section expect_log_alarm,
# which may be empty or have patterns as error_log has.
sub excuses {
    my ($block, $line) = @_;

    return 1 if defined $block->must_die
                && $line =~ /\[emerg\]|nginx has exited with code/;

    if (defined $block->expect_log_alarm) {
        my @patterns = patterns_of($block, 'expect_log_alarm');
        return 1 unless @patterns;
        return 1 if grep { line_matches($line, $_) } @patterns;
    }

    return 1 if grep { line_matches($line, $_) }
                patterns_of($block, 'error_log'),
                patterns_of($block, 'shutdown_error_log');

    my $grep = grep_pattern($block);
    return defined $grep && $line =~ $grep;
}

sub report_alarms {
    return unless @alarms;

    Test::More::ok(0, "$0 - nothing alarming in any error.log");
    Test::More::diag($_) for @alarms;
    @alarms = ();
}

1;
