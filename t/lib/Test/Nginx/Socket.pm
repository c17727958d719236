package Test::Nginx::Socket;

# A runner for test files in the language of Test::Nginx::Socket, for machines
# on which Test::Nginx is not installed. The same files must run under both
# with the same result; t/tools/runner has the tests of that.
#
# This file has the order of events. The rest:
#
#     Test::Nginx::Util               settings, environment, verdicts
#     Test::Nginx::Runner::Config     server root and nginx.conf
#     Test::Nginx::Runner::Process    start and stop of nginx
#     Test::Nginx::Runner::Request    from sections to bytes
#     Test::Nginx::Runner::Client     the connection, and the response
#     Test::Nginx::Runner::Check      assertions on the response
#     Test::Nginx::Runner::Log        assertions on the logs, the alarm
#     Test::Nginx::Runner::Mock       the server of tcp_listen
#
# Not supported: HTTP/2 and HTTP/3, curl, stream, UDP, HTTP/0.9, systemtap,
# benchmarks, leak checks, HUP mode, skip_nginx2, skip_openssl, LWP.
#
# Where the result differs from that of Test::Nginx:
#
#   - A file fails when an error.log has lines of level alert, crit or emerg,
#     words of a sanitizer, or a process which "exited on signal"; or when nginx
#     itself ends badly. A block which expects that says so with error_log,
#     grep_error_log, must_die, or with a section "expect_log_alarm", empty or
#     with patterns; Test::Nginx ignores that section.
#   - Perl which is not valid in a section with "eval" always bails out. There
#     it becomes the value of the section, and may even pass for it.
#   - If nginx does not start, or has gone, that is said at once, and not after
#     30 seconds.
#   - A pattern of error_log or access_log may appear up to 0.25 seconds after
#     the response.
#   - The response to HEAD within pipelined_requests has no body. There the
#     first bytes of the next response are taken for it.
#   - shutdown_error_log of a block is not lost when a skipped block comes next,
#     and means nothing in a block which is skipped or must die.
#   - The failure of a broken chunked body has other words, as have bail outs.
#   - Cleanup handlers are called once, not twice.

use strict;
use warnings;

use Test::Base -base;

use List::Util ();
use Time::HiRes ();

use Test::Nginx::Util @Test::Nginx::Util::SETTINGS, qw(
    expand_env_in_text fail_test full_name parse_time
    run_cleanup_handlers trim verbose
);
use Test::Nginx::Runner::Check qw(check_response);
use Test::Nginx::Runner::Client qw(exchange parse_responses);
use Test::Nginx::Runner::Config qw(prepare_server_root write_nginx_conf
                                   write_user_files);
use Test::Nginx::Runner::Log qw(add_alarm check_access_log check_error_log
                                check_shutdown_error_log collect_alarms
                                limit_alarms note_block report_alarms
                                reset_logs);
use Test::Nginx::Runner::Mock qw(finish_mock start_mock stop_mock);
use Test::Nginx::Runner::Process qw(kill_leftover nginx_is_running
                                    nginx_version start_nginx stop_nginx
                                    version_compare);
use Test::Nginx::Runner::Request qw(exchanges_of);

our @EXPORT = (@Test::Nginx::Util::SETTINGS, qw(run_tests));

my $last_config;        # of the nginx which is running
my $last_block;         # the last one it has served


# ---- the run ----

sub run_tests {
    my @blocks = Test::Base::blocks();

    @blocks = List::Util::shuffle(@blocks)
        if Test::Nginx::Util::setting('shuffle');

    kill_leftover();
    run_block($_) for @blocks;

    return if $ENV{TEST_NGINX_NO_CLEAN};

    finish_block_nginx();
    report_alarms();
    run_cleanup_handlers();
}

sub run_block {
    my $block = shift;

    $_->($block) for @{ Test::Nginx::Util::setting('preprocessors') };

    # the name of every assertion begins with the name of the file
    $block->set_value('name', join ' ', $0, trim($block->name));

    my $skip = skip_reason($block);

    if (!defined $skip && Test::Nginx::Util::setting('nginx_manager')) {
        if (defined $block->must_die) {
            run_dying_block($block);
            run_test_cleanup($block);
            return;
        }

        provide_nginx($block);
    }

    run_perl($block, 'init');

    for my $repeat (0 .. repeat_each() - 1) {
        if (defined $skip) {
            skip_block($skip);
        } else {
            run_requests($block, $repeat);
        }
    }

    run_test_cleanup($block);
}

sub run_test_cleanup {
    my $block = shift;

    $_->($block) for @{ Test::Nginx::Util::setting('test_cleanup') };
}

# "init" and "post_setup_server_root"
sub run_perl {
    my ($block, $section) = @_;
    my $code = $block->$section;

    return unless defined $code;

    eval "package Test::Nginx::Util; $code; 1"
        or bail_out(full_name($block) . " - $section failed: $@");
}


# ---- nginx for a block ----

# A block without a config runs on the nginx of the block before.
sub provide_nginx {
    my $block = shift;
    my $name = full_name($block);

    if (!defined $block->config) {
        bail_out("$name - there is no config, nor a block before with one")
            unless defined $last_config;

        if (nginx_is_running()) {
            $last_block = $block;
            note_block($block);
            return;
        }
    }

    prepare_nginx($block);

    my ($up, $code, $message) = start_nginx();
    return if $up;

    chomp $message;
    bail_out("$name - nginx has not started, exit code $code: $message");
}

sub prepare_nginx {
    my $block = shift;

    finish_block_nginx();

    $last_block = $block;
    note_block($block);
    $last_config = $block->config if defined $block->config;

    prepare_server_root();
    write_user_files($block);
    run_perl($block, 'post_setup_server_root');
    write_nginx_conf($block, $last_config);
    reset_logs();
}

sub finish_block_nginx {
    finish_nginx();

    check_shutdown_error_log($last_block)
        if $last_block && !defined $last_block->must_die;

    collect_alarms();
    undef $last_block;
}

# Also called when the test dies or is interrupted.
sub finish_nginx {
    stop_mock();

    my $bad_end = stop_nginx(\&limit_alarms);
    add_alarm($bad_end) if defined $bad_end;
}

sub run_dying_block {
    my $block = shift;
    my $name = full_name($block);
    my $expected = trim($block->must_die);

    for my $repeat (0 .. repeat_each() - 1) {
        prepare_nginx($block);

        my ($up, $code) = start_nginx(quiet => defined $block->suppress_stderr);

        if (length $expected) {
            is($code, $expected, "$name - die with the expected exit code");
        } else {
            isnt($code, 0, "$name - die as expected");
        }

        check_error_log($block, $repeat);
    }

    finish_block_nginx();
    undef $last_config;
}


# ---- the requests of a block ----

sub run_requests {
    my ($block, $repeat) = @_;
    my @exchanges = exchanges_of($block);
    my $requests = List::Util::sum(map { scalar @{ $_->{methods} } }
                                   @exchanges);
    my $request = 0;

    start_mock($block);

    for my $exchange (@exchanges) {
        my @responses = responses_to($block, $exchange);

        for my $response (@responses) {
            my $at = { request => $request++, requests => $requests,
                       repeat => $repeat };

            check_response($block, $response, $at)
                unless defined $block->ignore_response;

            my $wait = parse_time($block->wait);
            Time::HiRes::sleep($wait) if $wait;

            check_error_log($block, $repeat);
            check_access_log($block, $repeat)
                unless defined $block->ignore_response;
        }
    }

    finish_mock($block);
}

sub responses_to {
    my ($block, $exchange) = @_;
    my $name = full_name($block);
    my $timeout = parse_time($block->timeout);
    my $shutdown = trim($block->shutdown);

    $shutdown = 1 if defined $shutdown && $shutdown eq '';

    my $result = exchange(
        $exchange,
        address  => trim($block->server_addr_for_client) || server_addr(),
        timeout  => $timeout || timeout(),
        shutdown => $shutdown,
    );

    verbose("$name - response: $result->{bytes}");

    fail_test("$name - $result->{error} (aborted)") if $result->{error};
    fail_test("ERROR: client socket timed out - $name")
        if $result->{timed_out} && !defined $block->abort;

    return parse_responses($result->{bytes}, @{ $exchange->{methods} });
}


# ---- skip and todo ----

# { count, reason, todo } or undef
sub skip_reason {
    my $block = shift;

    return skip_by_version($block) || skip_by_eval($block) || skip_todo($block);
}

sub parse_skip {
    my ($block, $section) = @_;
    my $text = trim($block->$section);

    return unless defined $text;

    $text =~ /^(\d+)\s*:\s*(.+)$/s
        or bail_out(full_name($block) . " - invalid --- $section: $text");

    return ($1, $2);
}

sub skip_by_version {
    my $block = shift;
    my ($count, $condition) = parse_skip($block, 'skip_nginx') or return;
    my $compare = qr/(<=|>=|<|>|==)\s*([\d.]+)/;

    $condition =~ /^$compare$/
        or bail_out(full_name($block)
                    . " - invalid --- skip_nginx: $condition");

    my ($operator, $version) = ($1, $2);
    my $order = version_compare(nginx_version(), $version);
    my %holds = ('<' => $order < 0, '<=' => $order <= 0, '>' => $order > 0,
                 '>=' => $order >= 0, '==' => $order == 0);

    return unless $holds{$operator};

    return { count => $count, reason => full_name($block)
                              . " - nginx version $operator $version" };
}

sub skip_by_eval {
    my $block = shift;
    my ($count, $code) = parse_skip($block, 'skip_eval') or return;
    my $true = eval $code;

    bail_out(full_name($block) . " - skip_eval: $@") if $@;

    return unless $true;
    return { count => $count, reason => full_name($block) . " - skip_eval" };
}

sub skip_todo {
    my $block = shift;
    my ($count, $reason) = parse_skip($block, 'todo') or return;

    return { count => $count, todo => 1,
             reason => full_name($block) . " - $reason" };
}

# The reasons are the names of these assertions.
sub skip_block {
    my $skip = shift;

    if ($skip->{todo}) {
        TODO: { todo_skip($skip->{reason}, $skip->{count}) }
    } else {
        SKIP: { skip($skip->{reason}, $skip->{count}) }
    }
}


# ---- the end, however it comes ----

my $owner = $$;         # children of the test must not end its nginx

for my $signal (qw(INT TERM HUP)) {
    $SIG{$signal} = sub {
        exit 1 if $$ != $owner;
        finish_nginx();
        run_cleanup_handlers();
        $SIG{$signal} = 'DEFAULT';
        kill $signal, $$;
    };
}

END {
    if ($$ == $owner && !$ENV{TEST_NGINX_NO_CLEAN}) {
        my $status = $?;

        finish_nginx();
        run_cleanup_handlers();
        remove_random_root() if $status == 0;
        $? = $status;
    }
}


# What TEST_NGINX_RANDOMIZE has made; of use only when something went wrong.
sub remove_random_root {
    require File::Path;
    File::Path::remove_tree(server_root()) if $ENV{TEST_NGINX_RANDOMIZE};
}


# ---- filters ----

package Test::Nginx::Socket::Filter;

use base 'Test::Base::Filter';

# Test::Base would take the message of a failed eval as the value of the
# section.
sub eval {
    my ($self, $code) = @_;
    my @value = CORE::eval("package Test::Base::Filter; no strict; $code");

    Test::Nginx::Util::bail_out($self->current_block->name
                                . " - eval of a section failed: $@") if $@;

    return @value;
}

1;
