package Test::Nginx::Runner::Check;

# The assertions on one response. The names of the assertions are part of the
# language: they are the same as those of Test::Nginx.

use strict;
use warnings;

use Exporter 'import';
use Test::More ();
use Test::Nginx::Util qw(bail_out expand_env_in_text fail_test full_name
                         is_str trim);
use Test::Nginx::Runner::Client qw(header_value);

our @EXPORT_OK = qw(check_response expected_of);

# $at tells which one it is: { request => index within the block,
# requests => how many there are, repeat => index of the repetition }
sub check_response {
    my ($block, $response, $at) = @_;
    my $name = full_name($block);

    if ($response->{broken}) {
        fail_test("$name - the chunked body is broken: $response->{broken}");
    }

    Test::More::diag("$name - $response->{note}") if $response->{note};

    check_status($block, $response, $at);
    check_raw_headers($block, $response, $at);
    check_headers($block, $response, $at);
    check_body($block, $response, $at);
}

# The value of a section for one of several requests. With more than one
# request the section must be an array.
sub expected_of {
    my ($block, $section, $at) = @_;
    my $value = $block->$section;

    return undef unless defined $value;
    return $value->[ $at->{request} ] if ref $value eq 'ARRAY';

    bail_out(full_name($block) . " - there are $at->{requests} requests,"
             . " so $section must be an array")
        if $at->{requests} > 1;

    return $value;
}


# ---- status ----

sub check_status {
    my ($block, $response, $at) = @_;
    my $name = full_name($block) . ' - status code ok';

    if (defined $block->error_code_like) {
        my $pattern = expected_of($block, 'error_code_like', $at);

        $pattern = '' unless defined $pattern;
        Test::More::like($response->{code}, qr/$pattern/ms, $name);
        return;
    }

    my $expected = 200;

    if (defined $block->error_code) {
        $expected = expected_of($block, 'error_code', $at);
    }

    Test::More::is($response->{code}, $expected, $name);
}


# ---- headers ----

sub check_raw_headers {
    my ($block, $response, $at) = @_;
    my $name = full_name($block);

    if (defined $block->raw_response_headers_like) {
        my $pattern = expected_of($block, 'raw_response_headers_like', $at);
        Test::More::like($response->{head}, qr/$pattern/s,
                         "$name - raw resp headers like");
    }

    if (defined $block->raw_response_headers_unlike) {
        my $pattern = expected_of($block, 'raw_response_headers_unlike', $at);
        Test::More::unlike($response->{head}, qr/$pattern/s,
                           "$name - raw resp headers unlike");
    }
}

sub check_headers {
    my ($block, $response, $at) = @_;
    my $name = full_name($block);

    if (defined $block->response_headers) {
        for (parse_expected(expected_of($block, 'response_headers', $at))) {
            my ($header, $value) = @$_;

            if (defined $value) {
                Test::More::is(received($response, $header), $value,
                               "$name - header $header ok");
            } else {
                check_absent($name, $response, $header);
            }
        }

    } elsif (defined $block->response_headers_like) {
        my $text = expected_of($block, 'response_headers_like', $at);

        for (parse_expected($text)) {
            my ($header, $pattern) = @$_;

            $pattern = '' unless defined $pattern;
            Test::More::like(received($response, $header), qr/^$pattern$/,
                             "$name - header $header like ok");
        }
    }
}

sub received {
    my ($response, $header) = @_;
    my $value = header_value($response, $header);

    return defined $value ? $value : '';
}

# The letters must have the case of the header: as Test::Nginx has it. Since
# such an assertion then holds for no reason, it is at least pointed out.
sub check_absent {
    my ($name, $response, $header) = @_;

    Test::More::unlike($response->{head}, qr/^\s*\Q$header\E\s*:/ms,
                       "$name - header $header not present"
                       . " in the raw headers")
        or return;

    Test::More::diag("$name - a header \"$header\" is there,"
                     . " but in other letters")
        if defined header_value($response, $header);
}

# [ name, value ], the value being undef for "!Name". A header which is named
# twice counts once, with what is said last.
sub parse_expected {
    my $text = shift;
    my (@names, %value);

    return unless defined $text;

    for my $line (split /\n/, $text) {
        next unless $line =~ /\S/;

        my ($name, $value);

        if ($line =~ /^\s*!\s*(\S+?):?\s*$/) {
            $name = $1;

        } else {
            ($name, $value) = split /:/, $line, 2;
            $name = trim($name);
            $value = defined $value ? trim($value) : '';
        }

        push @names, $name unless exists $value{$name};
        $value{$name} = $value;
    }

    return map { [ $_, $value{$_} ] } @names;
}


# ---- body ----

sub check_body {
    my ($block, $response, $at) = @_;
    my $name = full_name($block);
    my $body = filtered_body($block, $response->{body}, $at);

    if (defined $block->response_body) {
        my $expected = expected_of($block, 'response_body', $at);

        my $what = ref $expected ? 'like' : 'response is expected';

        $expected = expand_env_in_text($expected, $name);
        is_str($body, $expected, "$name - response_body - $what"
               . " (repeated req $at->{repeat}, req $at->{request})");

    } elsif (defined $block->response_body_like) {
        my $pattern = pattern_of($block, 'response_body_like', $at);

        Test::More::like($body, $pattern, "$name - response_body_like -"
                         . " response is expected (" . on_one_line($body)
                         . ")");

    } elsif (defined $block->response_body_unlike) {
        my $pattern = pattern_of($block, 'response_body_unlike', $at);

        Test::More::unlike($body, $pattern, "$name - response_body_unlike -"
                           . " response is expected (" . on_one_line($body)
                           . ")");
    }

    for my $check (@{ Test::Nginx::Util::setting('body_checks') }) {
        $check->($block, $body, $at->{request}, $at->{repeat}, 0);
    }
}

sub pattern_of {
    my ($block, $section, $at) = @_;
    my $pattern = expected_of($block, $section, $at);

    $pattern = '' unless defined $pattern;
    return qr/$pattern/s;
}

sub on_one_line {
    my $text = shift;

    return '' unless defined $text;
    $text =~ s/\s+/ /g;
    return trim($text);
}


# ---- response_body_filters ----

my %FILTER = (
    md5_hex  => sub { require Digest::MD5; Digest::MD5::md5_hex($_[0]) },
    sha1_hex => sub { require Digest::SHA; Digest::SHA::sha1_hex($_[0]) },
    length   => sub { length $_[0] },
    uc       => sub { uc $_[0] },
    lc       => sub { lc $_[0] },
    ucfirst  => sub { ucfirst $_[0] },
    lcfirst  => sub { lcfirst $_[0] },
);

sub filtered_body {
    my ($block, $body, $at) = @_;
    my $filters = $block->response_body_filters;

    return $body unless defined $filters && defined $body;

    $filters = $filters->[ $at->{request} ]
        if ref $filters eq 'ARRAY' && ref $filters->[0] eq 'ARRAY';

    for my $filter (ref $filters eq 'ARRAY' ? @$filters
                    : ref $filters ? $filters : split ' ', $filters)
    {
        my $function = ref $filter ? $filter : $FILTER{$filter}
            or bail_out(full_name($block) . " - no such filter: $filter");

        $body = $function->($body);
    }

    return $body;
}

1;
