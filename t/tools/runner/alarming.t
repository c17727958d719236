# All assertions pass, yet the runner in t/lib must fail the file: an error.log
# has lines which no section expects. Test::Nginx itself does not mind. The
# section "alarm" is for t/tools/runner/check.

use Test::Nginx::Socket 'no_plan';

$ENV{TEST_NGINX_HTML_DIR} ||= html_dir();

no_shuffle();

add_test_cleanup_handler(sub {
    my $block = shift;

    return unless defined $block->kills_nginx;

    open my $in, '<', server_root() . '/logs/nginx.pid' or die;
    kill 'SEGV', <$in> + 0;
    sleep 1;
});

run_tests();

__DATA__

=== TEST 1: a line of level crit
--- config
    location /t { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/none.sock; }
--- request
GET /t
--- error_code: 502
--- alarm: [crit]



=== TEST 2: another one than the one which is expected
--- config
    location /t { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/none.sock; }
--- request
GET /t
--- error_code: 502
--- expect_log_alarm
other.sock failed
--- alarm: none.sock failed



=== TEST 3: nothing alarming
--- config
    location /t { return 200; }
--- request
GET /t



=== TEST 4: what a sanitizer says
--- config
    location /t { return 200; }
--- init
open my $log, '>>', "$ENV{TEST_NGINX_SERVER_ROOT}/logs/error.log" or die;
print $log "src/file.c:1:2: runtime error: signed integer overflow\n";
close $log;
--- request
GET /t
--- alarm: runtime error



=== TEST 5: nginx is killed after its last response
--- config
    location /t { return 200; }
--- request
GET /t
--- kills_nginx
--- alarm: ended by signal 11
