# Every block here must end the whole run with "Bail out!", under Test::Nginx
# and under the runner in t/lib alike. So they cannot run one after the other:
# t/tools/runner/check and t/tools/runner/compare --split make a file of each.

use Test::Nginx::Socket 'no_plan';

run_tests();

__DATA__

=== TEST 1: nginx does not start
--- config
    no_such_directive;
--- request
GET /t



=== TEST 2: one value for the status of many requests
--- config
    location /t { return 200 "hello"; }
--- request eval
["GET /t", "GET /t"]
--- error_code: 200



=== TEST 3: one body for many requests
--- config
    location /t { return 200 "hello"; }
--- request eval
["GET /t", "GET /t"]
--- response_body: hello



=== TEST 4: one set of response headers for many requests
--- config
    location /t { return 200 "hello"; }
--- request eval
["GET /t", "GET /t"]
--- response_headers
Content-Type: text/plain



=== TEST 5: not enough of more_headers
--- config
    location /t { return 200 "hello"; }
--- request eval
["GET /t", "GET /t"]
--- more_headers eval
["X: 1"]



=== TEST 6: no config
--- request
GET /t



=== TEST 7: no request
--- config
    location /t { return 200 "hello"; }
--- response_body



=== TEST 8: no request line
--- config
    location /t { return 200 "hello"; }
--- request
GET /t HTTP/1.1 and more



=== TEST 9: a variable which is not in the environment
--- config
    location /t { return 200 "$TEST_NGINX_NO_SUCH_VARIABLE"; }
--- request
GET /t



=== TEST 10: Perl which is not valid, in a section
--- config
    location /t { return 200 "hello"; }
--- request eval
"GET /t" .



=== TEST 11: init dies
--- config
    location /t { return 200 "hello"; }
--- init
die "on purpose";
--- request
GET /t



=== TEST 12: skip_eval dies
--- config
    location /t { return 200 "hello"; }
--- skip_eval: 2: die "on purpose"
--- request
GET /t



=== TEST 13: grep_error_log without grep_error_log_out
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- grep_error_log: http uri



=== TEST 14: bail_out
--- config
    location /t { return 200 "hello"; }
--- init
bail_out("on purpose");
--- request
GET /t
