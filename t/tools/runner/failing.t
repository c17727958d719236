# Every block here must fail, under Test::Nginx and under the runner in t/lib
# alike: each kind of assertion is shown to be able to fail.
#
# The section "fails", which means nothing to either of the two, names what
# fails: each assertion whose name has one of its lines, and no other.
# t/tools/runner/check sees to that.

use Test::Nginx::Socket 'no_plan';

$ENV{TEST_NGINX_HTML_DIR} ||= html_dir();

no_shuffle();

add_response_body_check(sub {
    my ($block, $body) = @_;

    Test::More::is(length $body, $block->body_length,
                   $block->name . " - body_length")
        if defined $block->body_length;
});

run_tests();

__DATA__

=== TEST 1: status 200 is asserted without being asked for
--- config
    location /t { return 404; }
--- request
GET /t
--- fails
status code ok



=== TEST 2: error_code
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- error_code: 404
--- response_body chomp
hello
--- fails
status code ok



=== TEST 3: error_code of the second request
--- config
    location /t { return 200 "hello"; }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 404]
--- fails
status code ok



=== TEST 4: error_code where there is no response
--- config
    location /t { return 444; }
--- request
GET /t
--- fails
status code ok



=== TEST 5: error_code_like
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- error_code_like: ^5
--- fails
status code ok



=== TEST 6: response_headers, another value
--- config
    location /t { add_header X-One 1; add_header X-Two 2; return 200; }
--- request
GET /t
--- response_headers
X-One: 1
X-Two: 3
--- fails
header X-Two ok



=== TEST 7: response_headers, only a part of the value
--- config
    location /t { add_header X-One 12; return 200; }
--- request
GET /t
--- response_headers
X-One: 1
--- fails
header X-One ok



=== TEST 8: response_headers, one of two of the same name
--- config
    location /t { add_header X-One 1; add_header X-One 2; return 200; }
--- request
GET /t
--- response_headers
X-One: 1
--- fails
header X-One ok



=== TEST 9: response_headers, not there
--- config
    location /t { return 200; }
--- request
GET /t
--- response_headers
X-One: 1
--- fails
header X-One ok



=== TEST 10: response_headers, there but should not be
--- config
    location /t { add_header X-One 1; return 200; }
--- request
GET /t
--- response_headers
!X-One
--- fails
header X-One not present in the raw headers



=== TEST 11: response_headers, of the second request
--- config
    location /t { add_header X-One $arg_x; return 200; }
--- request eval
["GET /t?x=1", "GET /t?x=2"]
--- response_headers eval
["X-One: 1", "X-One: 1"]
--- fails
header X-One ok



=== TEST 12: response_headers_like, anchored at both ends
--- config
    location /t { add_header X-One abc; add_header X-Two abc; return 200; }
--- request
GET /t
--- response_headers_like
X-One: b
X-Two: a\w+
--- fails
header X-One like ok



=== TEST 13: raw_response_headers_like
--- config
    location /t { return 200; }
--- request
GET /t
--- raw_response_headers_like: X-One
--- fails
raw resp headers like



=== TEST 14: raw_response_headers_unlike
--- config
    location /t { return 200; }
--- request
GET /t
--- raw_response_headers_unlike: Server
--- fails
raw resp headers unlike



=== TEST 15: response_body, one byte differs
--- config
    location /t { return 200 "hello\n"; }
--- request
GET /t
--- response_body
hellO
--- fails
response_body - response is expected



=== TEST 16: response_body, more than expected
--- config
    location /t { return 200 "hello\nworld\n"; }
--- request
GET /t
--- response_body
hello
--- fails
response_body - response is expected



=== TEST 17: response_body, no newline at the end
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- response_body
hello
--- fails
response_body - response is expected



=== TEST 18: response_body, none expected
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- response_body
--- fails
response_body - response is expected



=== TEST 19: response_body, of the second request
--- config
    location /t { return 200 "$args"; }
--- request eval
["GET /t?1", "GET /t?2", "GET /t?3"]
--- response_body eval
["1", "1", "3"]
--- fails
response_body - response is expected (repeated req 0, req 1)



=== TEST 20: response_body, in a pipeline
--- config
    location /t { return 200 "$args"; }
--- pipelined_requests eval
["GET /t?1", "GET /t?2", "GET /t?3"]
--- response_body eval
["1", "2", "2"]
--- fails
response_body - response is expected (repeated req 0, req 2)



=== TEST 21: response_body, of a regular expression
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- response_body eval
qr/bye/
--- fails
response_body - like



=== TEST 22: response_body_like
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- response_body_like: bye
--- fails
response_body_like - response is expected



=== TEST 23: response_body_unlike
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- response_body_unlike: hel+o
--- fails
response_body_unlike - response is expected



=== TEST 24: response_body_filters
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- response_body_filters: uc
--- response_body chomp
hello
--- fails
response_body - response is expected



=== TEST 25: add_response_body_check
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- body_length: 4
--- fails
body_length



=== TEST 26: error_log
--- config
    location /t { return 200; }
--- request
GET /t
--- error_log
http uri
no such line
--- fails
pattern "no such line" should match a line in error.log



=== TEST 27: error_log by eval
--- config
    location /t { return 200; }
--- request
GET /t
--- error_log eval
["http uri", qr/no s\wch line/]
--- fails
pattern "(?^:no s\wch line)" should match a line in error.log



=== TEST 28: error_log is a string, not a regular expression
--- config
    location /t { return 200; }
--- request
GET /t
--- error_log
http.uri
--- fails
pattern "http.uri" should match a line in error.log



=== TEST 29: error_log, only at the first of two requests
--- config
    location /t { return 200; }
--- request eval
["GET /t?one", "GET /t?two"]
--- error_log
http args: "one"
--- fails
pattern "http args: "one"" should match a line in error.log



=== TEST 30: no_error_log
--- config
    location /t { return 200; }
--- request
GET /t
--- no_error_log
[alert]
http uri
--- fails
pattern "http uri" should not match any line in error.log



=== TEST 31: no_error_log, one failure for each line
--- config
    location /t { return 200; }
--- request
GET /t
--- no_error_log eval
qr/http (?:uri|args):/
--- fails
should not match any line in error.log



=== TEST 32: no_error_log of the second request
--- config
    location /t { return 200; }
--- request eval
["GET /t?one", "GET /t?two"]
--- no_error_log
http args: "two"
--- fails
should not match any line in error.log



=== TEST 33: grep_error_log_out
--- config
    location /t { return 200; }
--- request
GET /t
--- grep_error_log eval
qr/http uri: \S+/
--- grep_error_log_out
http uri: "/u"
--- fails
grep_error_log_out



=== TEST 34: grep_error_log_out, nothing expected
--- config
    location /t { return 200; }
--- request
GET /t
--- grep_error_log eval
qr/http uri: \S+/
--- grep_error_log_out
--- fails
grep_error_log_out



=== TEST 35: access_log
--- config
    location /t { return 200; }
--- request
GET /t
--- access_log
GET /t
no such line
--- fails
pattern "no such line" should match a line in access.log



=== TEST 36: no_access_log
--- config
    location /t { return 200; }
--- request
GET /t
--- no_access_log
GET /t
--- fails
should not match any line in access.log



=== TEST 37: a timeout
--- config
    location /t { limit_rate 1; return 200 "hello"; }
--- request
GET /t
--- timeout: 200ms
--- fails
ERROR: client socket timed out
status code ok



=== TEST 38: a timeout, when the response is complete
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- more_headers
Connection: keep-alive
--- timeout: 200ms
--- response_body chomp
hello
--- fails
ERROR: client socket timed out



=== TEST 39: abort, but a response is expected
--- config
    location /t { limit_rate 1; return 200 "hello"; }
--- request
GET /t
--- timeout: 200ms
--- abort
--- response_body chomp
hello
--- fails
status code ok
response_body - response is expected



=== TEST 40: must_die, but it lives
--- config
    location /t { return 200 "hello"; }
--- must_die
--- fails
die as expected



=== TEST 41: must_die, another exit code
--- config
    no_such_directive;
--- must_die: 2
--- suppress_stderr
--- fails
die with the expected exit code



=== TEST 42: must_die, another message
--- config
    no_such_directive;
--- must_die
--- suppress_stderr
--- error_log
no such message
--- fails
pattern "no such message" should match a line in error.log



=== TEST 43: must_die, a message which should not be there
--- config
    no_such_directive;
--- must_die
--- suppress_stderr
--- no_error_log
unknown directive
--- fails
should not match any line in error.log



=== TEST 44: tcp_query
--- config
    location /t {
        proxy_set_header Host upstream;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query eval
"GET /T HTTP/1.0\r\nHost: upstream\r\nConnection: close\r\n\r\n"
--- tcp_reply eval
"HTTP/1.0 200 OK\r\n\r\nhello"
--- request
GET /t
--- fails
tcp_query ok



=== TEST 45: tcp_query_len
--- config
    location /t {
        proxy_set_header Host upstream;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query_len: 53
--- tcp_reply eval
"HTTP/1.0 200 OK\r\n\r\nhello"
--- request
GET /t
--- fails
TCP query length ok



=== TEST 46: tcp_query, nobody has connected
--- config
    location /t { return 200; }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query: hello
--- tcp_query_len: 5
--- tcp_reply: hello
--- request
GET /t
--- fails
tcp_query ok
TCP query length ok



=== TEST 47: an assertion in init
--- config
    location /t { return 200; }
--- init
Test::More::is(1, 2, 'an assertion in init (TEST 47:)');
--- request
GET /t
--- fails
an assertion in init



=== TEST 48: is_str
--- config
    location /t { return 200; }
--- init
is_str("abc", "abd", 'is_str in init (TEST 48:)');
--- request
GET /t
--- fails
is_str in init



=== TEST 49: shutdown_error_log
--- config
    location /t { return 200; }
--- request
GET /t
--- shutdown_error_log
no such line
--- fails
pattern "no such line" should match a line in error.log



=== TEST 50: no_shutdown_error_log
--- config
    location /t { return 200; }
--- request
GET /t
--- no_shutdown_error_log
exit
--- fails
should not match any line in error.log
