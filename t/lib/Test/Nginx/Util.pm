package Test::Nginx::Util;

# What every part of the runner shares: the settings a test file may change,
# where things are on this machine, and how a run is ended.
#
# The sections "init" and "post_setup_server_root" are evaluated in this
# package, so the names a test may use there are the ones defined here.

use strict;
use warnings;

use Cwd ();
use IO::Socket::INET ();
use IO::Socket::UNIX ();
use Test::Builder ();
use Test::More ();

use Exporter 'import';

our @SETTINGS = qw(
    repeat_each workers worker_connections master_on master_off
    master_process_enabled log_level timeout no_shuffle no_root_location
    no_long_string no_diff no_nginx_manager check_accum_error_log
    config_preamble env_to_nginx use_hup server_name server_addr server_root
    html_dir server_port server_port_for_client add_block_preprocessor
    add_cleanup_handler add_test_cleanup_handler add_response_body_check
    bail_out is_str
);

our @EXPORT_OK = (@SETTINGS, qw(
    expand_env_in_text parse_time trim quoted verbose
    run_cleanup_handlers full_name fail_test
));


# ---- settings ----

my %setting = (
    repeat_each        => 1,
    workers            => 1,
    worker_connections => 64,
    log_level          => $ENV{TEST_NGINX_LOG_LEVEL} || 'debug',
    timeout            => $ENV{TEST_NGINX_TIMEOUT} || 3,
    master_process     => $ENV{TEST_NGINX_MASTER_PROCESS} || 'off',
    shuffle            => !$ENV{TEST_NGINX_NO_SHUFFLE},
    root_location      => 1,
    nginx_manager      => !$ENV{TEST_NGINX_NO_NGINX_MANAGER},
    accumulate         => 0,
    preamble           => '',
    server_name        => 'localhost',
    server_addr        => '127.0.0.1',
    environment        => [],
    preprocessors      => [],
    cleanup            => [],
    test_cleanup       => [],
    body_checks        => [],
);

sub setting { return $setting{$_[0]} }

sub accessor {
    my $key = shift;

    $setting{$key} = $_[0] if @_;
    return $setting{$key};
}

sub repeat_each        { return accessor('repeat_each', @_) }
sub workers            { return accessor('workers', @_) }
sub worker_connections { return accessor('worker_connections', @_) }
sub log_level          { return accessor('log_level', @_) }
sub timeout            { return accessor('timeout', @_) }
sub server_name        { return accessor('server_name', @_) }
sub server_addr        { return accessor('server_addr', @_) }
sub config_preamble    { return accessor('preamble', @_) }

sub master_on              { $setting{master_process} = 'on' }
sub master_off             { $setting{master_process} = 'off' }
sub master_process_enabled { return accessor('master_process', @_) }

sub no_shuffle            { $setting{shuffle} = 0 }
sub no_root_location      { $setting{root_location} = 0 }
sub no_nginx_manager      { $setting{nginx_manager} = 0 }
sub check_accum_error_log { $setting{accumulate} = 1 }

# The real Test::Nginx chooses between two ways to print a difference with
# these; this runner has only one.
sub no_long_string { }
sub no_diff        { }

sub use_hup { bail_out("use_hup() is not supported by this runner") }

sub env_to_nginx             { push @{ $setting{environment} }, @_ }
# the last one added is the first one called
sub add_block_preprocessor   { unshift @{ $setting{preprocessors} }, @_ }
sub add_cleanup_handler      { unshift @{ $setting{cleanup} }, @_ }
sub add_test_cleanup_handler { unshift @{ $setting{test_cleanup} }, @_ }
sub add_response_body_check  { push @{ $setting{body_checks} }, @_ }


# ---- where things are ----

our $ServRoot = find_server_root();
our $HtmlDir  = "$ServRoot/html";
our $PidFile  = "$ServRoot/logs/nginx.pid";

my @held;
my $server_port = find_server_port();
my %random_port;

$ENV{TEST_NGINX_SERVER_PORT} = $server_port;
$ENV{TEST_NGINX_SERVER_ROOT} = $ServRoot;

sub server_root { return $ServRoot }
sub html_dir    { return $HtmlDir }

sub server_port {
    $ENV{TEST_NGINX_SERVER_PORT} = $server_port = $_[0] if @_;
    return $server_port;
}

sub server_port_for_client {
    return $ENV{TEST_NGINX_CLIENT_PORT} || $server_port;
}

sub find_server_root {
    my $root = $ENV{TEST_NGINX_SERVROOT} || Cwd::cwd() . '/t/servroot';

    $root .= "_$$" if $ENV{TEST_NGINX_RANDOMIZE};
    return Cwd::cwd() . "/$root" unless $root =~ m{^/};
    return $root;
}

sub find_server_port {
    return unused_port() if $ENV{TEST_NGINX_RANDOMIZE};
    return $ENV{TEST_NGINX_SERVER_PORT} || $ENV{TEST_NGINX_PORT} || 1984;
}

# Below the ports which the kernel gives to clients.  A name that goes with
# this process keeps a port from other tests while nothing listens there.
sub unused_port {
    for (1 .. 1000) {
        my $port = 10240 + int rand 20000;
        my $name = IO::Socket::UNIX->new(
            Local => "\0idempotency-port-$port", Listen => 1) or next;

        IO::Socket::INET->new(
            LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 1) or next;

        push @held, $name;
        return $port;
    }

    die "no port is free: $!\n";
}


# ---- text ----

# Replaces $TEST_NGINX_NAME and ${TEST_NGINX_NAME} by the environment, and
# TEST_NGINX_RAND_PORT_n by a port which stays the same within the file.
sub expand_env_in_text {
    my ($text, $name) = @_;

    return $text if !defined $text || ref $text;

    $text =~ s{\$(?:(TEST_NGINX_[_A-Z0-9]+)|\{(TEST_NGINX_[_A-Z0-9]+)\})}
              {environment_value($1 || $2, $name)}ge;

    return $text;
}

sub environment_value {
    my ($variable, $name) = @_;

    if ($variable =~ /^TEST_NGINX_RAND_PORT_\d+$/) {
        return $random_port{$variable} ||= unused_port();
    }

    bail_out("$name - \$$variable is not in the environment")
        unless defined $ENV{$variable};

    return $ENV{$variable};
}

# Seconds, from "2", "0.5s" or "50ms".
sub parse_time {
    my $text = trim(shift);

    return undef unless defined $text;
    return $1 / 1000 if $text =~ /^([\d.]+)ms$/;
    return $1 if $text =~ /^([\d.]+)s?$/;

    bail_out("\"$text\" is not a time");
}

sub trim {
    my $text = shift;

    return undef unless defined $text;
    $text =~ s/^\s+//;
    $text =~ s/\s+$//;
    return $text;
}

# As text from a log or a pattern stands in the name of an assertion.
sub quoted {
    my $text = shift;

    $text =~ s/"/\\"/g;
    $text =~ s/\r/\\r/g;
    $text =~ s/\n/\\n/g;
    return $text;
}

sub full_name {
    my $block = shift;

    return trim($block->name);
}

sub verbose {
    Test::More::diag(@_) if $ENV{TEST_NGINX_VERBOSE};
}


# ---- verdicts ----

sub fail_test {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return Test::More::ok(0, $_[0]);
}

# Compares strings, or matches when a regular expression is expected. Says
# where two strings begin to differ, with everything unprintable made visible.
sub is_str {
    my ($got, $expected, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return Test::More::like($got, $expected, $name)
        if ref $expected eq 'Regexp';

    return Test::More::ok(1, $name)
        if defined $got && defined $expected && $got eq $expected;

    Test::More::ok(0, $name);

    if (!defined $got || !defined $expected) {
        Test::More::diag("     got: ", defined $got ? "a string" : "undef");
        Test::More::diag("expected: ",
                         defined $expected ? "a string" : "undef");
        return 0;
    }

    my $same = common_length($got, $expected);
    my $from = $same > 40 ? $same - 40 : 0;

    Test::More::diag("differ after $same bytes of "
                     . length($got) . " got, "
                     . length($expected) . " expected");
    Test::More::diag("     got: ", excerpt($got, $from));
    Test::More::diag("expected: ", excerpt($expected, $from));

    return 0;
}

sub common_length {
    my ($left, $right) = @_;
    my $mask = $left ^ $right;

    $mask =~ /^(\0*)/;

    my $length = length $1;
    for ($left, $right) {
        $length = length $_ if length $_ < $length;
    }
    return $length;
}

# As it would be written between double quotes in Perl.
sub visible {
    my $text = shift;
    my %short = ("\n" => '\n', "\r" => '\r', "\t" => '\t');

    $text =~ s/([\\"])/\\$1/g;
    $text =~ s/([\n\r\t])/$short{$1}/g;
    $text =~ s/([^\x20-\x7e])/sprintf('\x{%02x}', ord $1)/ge;
    return $text;
}

sub excerpt {
    my ($text, $from) = @_;
    my $shown = substr $text, $from, 200;

    return ($from ? '...' : '') . '"' . visible($shown) . '"'
           . ($from + 200 < length $text ? '...' : '');
}

# Ends the whole run of prove, leaving nothing behind.
sub bail_out {
    my $reason = shift;

    run_cleanup_handlers();
    Test::Builder->new->BAIL_OUT($reason);
}

sub run_cleanup_handlers {
    while (my $handler = shift @{ $setting{cleanup} }) {
        eval { $handler->(); 1 } or warn "cleanup handler failed: $@";
    }
}

1;
