# Settings of a whole file: a master and two workers, a log level, no location
# of the scaffold, error logs which accumulate, a plan, several handlers.

use Test::Nginx::Socket;

repeat_each(2);

plan tests => repeat_each() * 18 + 5;

workers(2);
master_on();
log_level('notice');
worker_connections(128);
no_root_location();
check_accum_error_log();
env_to_nginx('RUNNER_TEST', 'RUNNER_TEST_TOO=1');
timeout(2);
no_shuffle();

our @Calls;

# the last one added is called first, except for the checks of bodies
for my $i (1, 2) {
    add_block_preprocessor(sub { push @Calls, "preprocessor $i" });
    add_response_body_check(sub { push @Calls, "body $i" });
    add_test_cleanup_handler(sub { push @Calls, "cleanup $i" });
}

add_test_cleanup_handler(sub {
    my $block = shift;

    Test::More::is("@Calls", 'preprocessor 2 preprocessor 1 body 1 body 2'
                   . ' body 1 body 2', 'the order of the handlers')
        if defined $block->order;
    @Calls = ();
});

add_block_preprocessor(sub { @Calls = () });

run_tests();

__DATA__

=== TEST 1: a root location of its own
--- config
    location / { return 200 "root"; }
--- request
GET /
--- response_body chomp
root



=== TEST 2: one master, two workers
--- config
    location / { return 200 "root"; }
--- request
GET /
--- grep_error_log eval
qr/start worker process(?= )/
--- grep_error_log_out
start worker process
start worker process
--- wait: 1



=== TEST 3: the log level
--- config
    location / { return 200 "root"; }
--- request eval
["GET /", "GET /"]
--- error_log
start worker processes
--- no_error_log
[debug]
[info]



=== TEST 4: worker_connections
--- config
    location / { return 200 "root"; }
--- request
GET /
--- no_error_log
worker_connections are not enough



=== TEST 5: shutdown_error_log, no_shutdown_error_log
--- config
    location / { return 200 "root"; }
--- request
GET /
--- shutdown_error_log
gracefully shutting down
exiting
--- no_shutdown_error_log
[alert]



=== TEST 6: the settings can be read, the handlers have an order
--- order
--- config
    location / { return 200 "root"; }
--- init
Test::More::is(workers(), 2, 'workers');
--- request
GET /



=== TEST 7: must_die with a master
--- config
    no_such_directive;
--- must_die
--- suppress_stderr
--- error_log
unknown directive
