# The language itself: each block uses a feature and passes, under Test::Nginx
# and under the runner in t/lib alike. The blocks which must fail are in
# failing.t, the settings of a whole file in settings.t.

use Test::Nginx::Socket 'no_plan';

$ENV{TEST_NGINX_HTML_DIR} ||= html_dir();
$ENV{TEST_NGINX_WORD} = 'expanded';

our $Preprocessed = 0;
our $Initialized = 0;

repeat_each(2);
no_long_string();
no_shuffle();

add_block_preprocessor(sub {
    my $block = shift;

    $Preprocessed++;
    $block->set_value('config', "location /t { return 200 'default\\n'; }")
        if defined $block->default_config;
});

add_response_body_check(sub {
    my ($block, $body, $request, $repeat, $dry_run) = @_;

    Test::More::is(length $body, $block->body_length,
                   $block->name . " - body_length (req $request)")
        if defined $block->body_length;
});

add_test_cleanup_handler(sub {
    my $block = shift;

    Test::More::is($block->name =~ /own cleanup/, 1, 'cleanup of the block')
        if defined $block->cleaned;
});

run_tests();

__DATA__

=== TEST 1: config, request, response_body
--- config
    location /t { return 200 "hello\n"; }
--- request
GET /t
--- response_body
hello



=== TEST 2: a section on one line, chomp, chop, eval
--- config
    location /t { return 200 "hello"; }
--- request: GET /t
--- response_body chomp
hello
--- error_code eval
100 + 100



=== TEST 3: description
This text is not a section and means nothing.

--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- response_body chop
hello
--- a_section_nobody_knows
whatever



=== TEST 4: skipped by SKIP
--- SKIP
--- config
    no such thing;
--- request
GET /t



=== TEST 5: http_config, main_config, post_main_config
--- main_config
    env TEST_OF_MAIN_CONFIG=1;
--- http_config
    map $uri $mapped { default "mapped"; }
--- post_main_config
    env TEST_OF_POST_MAIN_CONFIG=1;
--- config
    location /t { return 200 "$mapped\n"; }
--- request
GET /t
--- response_body
mapped



=== TEST 6: $TEST_NGINX_* is expanded
--- http_config
    map $uri $word { default "$TEST_NGINX_WORD"; }
--- config
    location /t { return 200 "$word $TEST_NGINX_WORD $server_port\n"; }
--- request
GET /t
--- response_body
expanded $TEST_NGINX_WORD $TEST_NGINX_SERVER_PORT



=== TEST 7: no config: the nginx of the block before
--- request
GET /t
--- response_body
expanded expanded $TEST_NGINX_SERVER_PORT



=== TEST 8: the scaffold
--- config
    location /t { return 200 "$content_type$server_name"; }
--- request eval
["GET", "GET /t", "POST /t\n" . "x" x 2000000]
--- response_headers eval
["Content-Type: text/html", "Content-Type: text/plain",
 "Content-Type: text/plain"]
--- response_body_like eval
["It works", '^localhost$', '^localhost$']



=== TEST 9: the request which is sent
--- config
    location /t {
        return 200 "$request|$http_host|$http_connection|$http_content_length";
    }
--- request eval
["GET /t", "GET /t?a=1 HTTP/1.0", "POST /t\nabc", "PUT /t\n  abc \n\n",
 "DELETE /t"]
--- response_body eval
["GET /t HTTP/1.1|localhost|close|", "GET /t?a=1 HTTP/1.0|localhost|close|",
 "POST /t HTTP/1.1|localhost|close|3", "PUT /t HTTP/1.1|localhost|close|3",
 "DELETE /t HTTP/1.1|localhost|close|"]



=== TEST 10: comments before the request line
--- config
    location /t { return 200 "$request_method $args"; }
--- request
# one
  # two

    GET   /t?a=1
--- response_body chomp
GET a=1



=== TEST 11: more_headers
--- config
    location /t { return 200 "$http_x_one,$http_x_two,$http_x_three"; }
--- request
GET /t
--- more_headers
X-One: 1
X-Two:   two words
X-Three:
--- response_body chomp
1,two words,



=== TEST 12: more_headers instead of those which are sent anyway
--- config
    location /t { return 200 "$http_host|$http_connection"; }
--- request
GET /t
--- more_headers
host: other
connection: Close
--- response_body chomp
other|Close



=== TEST 13: more_headers with a length, and with a transfer encoding
--- config
    location /t {
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/echo;
    }
    location /echo { return 200 "$http_content_length"; }
--- request eval
["POST /t\nabcdef", "POST /t\n3\r\nabc\r\n0\r\n\r\n"]
--- more_headers eval
["Content-Length: 3", "Transfer-Encoding: chunked"]
--- response_body eval
["3", "3"]



=== TEST 14: many requests, one set of headers for all
--- config
    location /t { return 200 "$http_x$args"; }
--- request eval
["GET /t?1", "GET /t?2"]
--- more_headers
X: x
--- response_body eval
["x1", "x2"]



=== TEST 15: many requests, each on its own connection, one after the other
--- config
    location /t { return 200 "$connection_requests"; }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- error_code eval
[200, 200, 200]
--- response_body eval
["1", "1", "1"]



=== TEST 16: a request in packets
--- config
    location /t {
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/echo;
    }
    location /echo { return 200 "$http_content_length"; }
--- request eval
[["POST /t\nabc", "def", { value => "ghi", delay_before => 0.1 }], "GET /t"]
--- response_body eval
["9", ""]



=== TEST 17: error_code
--- config
    location /t { return 404; }
--- request
GET /t
--- error_code: 404
--- response_body_like: 404 Not Found



=== TEST 18: error_code_like
--- config
    location /t { return 503; }
--- request
GET /t
--- error_code_like: ^50[0-9]$



=== TEST 19: error_code_like of many requests
--- config
    location /204 { return 204; }
    location /404 { return 404; }
--- request eval
["GET /204", "GET /404"]
--- error_code_like eval
["^2", qr/^4/]



=== TEST 20: response_headers
--- config
    location /t {
        add_header X-One "a b";
        add_header X-Two 1;
        add_header X-Two 2;
        add_header X-Zero 0;
        return 200 "hello";
    }
--- request
GET /t
--- response_headers
X-One: a b
x-one: a b
X-Two: 1, 2
X-Zero: 0
!X-Three
! X-Four
X-Five:



=== TEST 21: response_headers_like
--- config
    location /t { add_header X-One "a 17"; return 200 "hello"; }
--- request
GET /t
--- response_headers_like
X-One: a \d+
Content-Type: text/.*
X-Not-There: .*



=== TEST 22: headers of many requests
--- config
    location /t { add_header X $arg_x; return 200 "hello"; }
--- request eval
["GET /t?x=1", "GET /t?x=2", "GET /t"]
--- response_headers eval
["X: 1", "X: 2", "!X"]



=== TEST 23: raw_response_headers_like, raw_response_headers_unlike
--- config
    location /t { add_header X-One 1; return 200 "hello"; }
--- request
GET /t
--- raw_response_headers_like: ^HTTP/1\.1 200 OK\r\n.*X-One: 1\r\n
--- raw_response_headers_unlike: X-Two



=== TEST 24: response_body_like, of a string and of a regular expression
--- config
    location /t { return 200 "one\ntwo\n"; }
--- request eval
["GET /t", "GET /t"]
--- response_body_like eval
['one.two', qr/^two$/m]



=== TEST 25: response_body_unlike
--- config
    location /t { return 200 "one\ntwo\n"; }
--- request
GET /t
--- response_body_unlike: three



=== TEST 26: response_body by a regular expression
--- config
    location /t { return 200 "one\ntwo\n"; }
--- request
GET /t
--- response_body eval
qr/two/



=== TEST 27: a chunked response
--- config
    location /t {
        sub_filter_types *;
        sub_filter one three;
        return 200 "one\ntwo\n";
    }
--- request
GET /t
--- response_headers
Transfer-Encoding: chunked
!Content-Length
--- response_body
three
two



=== TEST 28: responses without a body
--- config
    location /t { return 204; }
    location /h { return 200 "hello"; }
--- request eval
["GET /t", "HEAD /h"]
--- error_code eval
[204, 200]
--- response_headers eval
["!Content-Length", "Content-Length: 5"]
--- response_body eval
["", ""]



=== TEST 29: error_log, no_error_log
--- config
    location /t { return 200 "hello"; }
--- request
GET /t?mark
--- error_log
http uri: "/t"
http args: "mark"
--- no_error_log
[error]
[alert]



=== TEST 30: error_log, no_error_log by eval
--- config
    location /t { return 200 "hello"; }
--- request
GET /t?mark
--- error_log eval
["http uri", qr/http args: "m\w+k"/]
--- no_error_log eval
qr/\[(?:alert|crit)\]/



=== TEST 31: only the lines since the last request count
--- config
    location /t { return 200 "hello"; }
--- request eval
["GET /t?mark1", "GET /t?mark2"]
--- error_log eval
qr/http args: "mark[12]"/
--- grep_error_log eval
qr/http args: "\w+"/
--- grep_error_log_out eval
qr/\Ahttp args: "mark\d"\n\z/



=== TEST 32: grep_error_log, of a string and with several matches
--- config
    location /t { return 200 "hello"; }
--- request
GET /t?mark
--- grep_error_log chop
http args: "mark"
--- grep_error_log_out
http args: "mark"



=== TEST 33: grep_error_log_out for each repetition, expanded
--- config
    location /t { return 200 "hello"; }
--- request
GET /t?mark=expanded
--- grep_error_log eval
qr/http args: "mark=\w+|http uri/
--- grep_error_log_out
http uri
http args: "mark=$TEST_NGINX_WORD



=== TEST 34: grep_error_log_out as an array
--- config
    location /t { return 200 "$connection"; }
--- request
GET /t
--- grep_error_log eval
qr/\*[12] http args|\*[12] http uri/
--- grep_error_log_out eval
["*1 http uri\n*1 http args\n", "*2 http uri\n*2 http args\n"]



=== TEST 35: grep_error_log which finds nothing
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- grep_error_log eval
qr/no such line/
--- grep_error_log_out



=== TEST 36: access_log, no_access_log
--- config
    location /t { return 200 "hello"; }
--- request eval
["GET /t?1", "GET /t?2"]
--- access_log eval
["GET /t?1", qr{GET /t\?\d HTTP}]
--- no_access_log
GET /t?3



=== TEST 37: log_level
--- log_level: error
--- config
    location /t { return 200 "hello"; }
--- request
GET /t
--- no_error_log
[debug]
[info]



=== TEST 38: timeout which is not reached
--- config
    location /t { limit_rate 3000; return 200 "hello"; }
--- request
GET /t
--- timeout: 5s
--- response_body chomp
hello



=== TEST 39: abort, and the requests after it
--- config
    location /t { return 200 "hello"; }
    location /slow { limit_rate 1; return 200 "hello"; }
--- request eval
["GET /t", "GET /slow", "GET /t"]
--- timeout: 200ms
--- abort
--- error_code eval
[200, "", 200]
--- response_body eval
["hello", "", "hello"]



=== TEST 40: a connection which is closed without a response
--- config
    location /t { return 444; }
--- request
GET /t
--- error_code:
--- response_body



=== TEST 41: ignore_response: neither the response nor access.log
--- config
    location /t { limit_rate 1; return 200 "hello"; }
--- request
GET /t
--- timeout: 0.2
--- abort
--- ignore_response
--- response_body
something else
--- access_log
no such line
--- error_log
http args



=== TEST 42: wait
--- config
    location /t { limit_rate 10; return 200 "hello"; }
--- request
GET /t
--- timeout: 0.1
--- abort
--- ignore_response
--- wait: 0.2
--- error_log
http close request



=== TEST 43: raw_request
--- config
    location /t { return 200 "$http_x"; }
--- raw_request eval
"GET /t HTTP/1.1\r\nHost: a\r\nX: raw\r\nConnection: close\r\n\r\n"
--- response_body chomp
raw



=== TEST 44: raw_request in packets
--- config
    location /t {
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/echo;
    }
    location /echo { return 200 "$http_content_length"; }
--- raw_request eval
["POST /t HTTP/1.1\r\nHo", "st: a\r\nConnection: close\r\n",
 "Content-Length: 4\r\n\r\na\n", "b\n"]
--- raw_request_middle_delay: 0.05
--- response_body chomp
4



=== TEST 45: raw_request which is no HTTP
--- config
    location /t { return 200; }
--- raw_request
@@@ /t
--- error_code: 400
--- response_body_like: 400



=== TEST 46: pipelined_requests
--- config
    location /t { return 200 "$connection_requests$http_x$args"; }
--- pipelined_requests eval
["GET /t?a", "POST /t?b\nabc", "GET /t?c"]
--- more_headers
X: x
--- error_code eval
[200, 200, 200]
--- response_headers eval
["Connection: keep-alive", "Connection: keep-alive", "Connection: close"]
--- response_body eval
["1xa", "2xb", "3xc"]



=== TEST 47: pipelined_requests with chunked responses, headers for each
--- config
    location /t {
        sub_filter_types *;
        sub_filter hello bye;
        return 200 "hello $http_x";
    }
--- pipelined_requests eval
["GET /t", "GET /t"]
--- more_headers eval
["X: 1", "X: 2"]
--- response_body eval
["bye 1", "bye 2"]



=== TEST 48: user_files
--- config
    location /t/ { alias html/; }
--- user_files
>>> one.txt 199801171935.33
one
>>> dir/two.txt
two $TEST_NGINX_WORD

end
--- request eval
["GET /one.txt", "GET /dir/two.txt"]
--- response_body eval
["one\n", "two expanded\n\nend\n"]
--- response_headers_like eval
["Last-Modified: Sat, 1[678] Jan 1998 .*:33 GMT", "Content-Type: text/plain"]



=== TEST 49: user_files by eval
--- config
--- user_files eval
[["a.txt", "one"], ["b.txt", "t\0wo", "199801171935.33"]]
--- request eval
["GET /a.txt", "GET /b.txt"]
--- response_body eval
["one", "t\0wo"]



=== TEST 50: must_die
--- config
    no_such_directive;
--- must_die
--- suppress_stderr
--- error_log
unknown directive "no_such_directive"
--- no_error_log
[alert]



=== TEST 51: must_die with an exit code, the request does not matter
--- config
    return 200 a b;
--- must_die: 1
--- suppress_stderr
--- request
GET /t
--- response_body
never seen
--- grep_error_log eval
qr/invalid number of arguments/
--- grep_error_log_out
invalid number of arguments



=== TEST 52: tcp_listen
--- config
    location /t {
        proxy_set_header Host upstream;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query eval
"GET /t HTTP/1.0\r\nHost: upstream\r\nConnection: close\r\n\r\n"
--- tcp_reply eval
"HTTP/1.0 200 OK\r\nX-Up: 1\r\n\r\nhello"
--- request
GET /t
--- response_headers
X-Up: 1
--- response_body chomp
hello



=== TEST 53: tcp_query_len, a reply of several parts, a delay
--- config
    location /t {
        proxy_set_header Host upstream;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query_len: 54
--- tcp_reply eval
["HTTP/1.0 200 OK\r\n", "\r\n", "hello"]
--- tcp_reply_delay: 50ms
--- request
GET /t
--- response_body chomp
hello



=== TEST 54: tcp_reply by a function, tcp_query by a regular expression
--- config
    location /t {
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query eval
qr/^POST .*\r\n\r\nabc\z/s
--- tcp_reply eval
sub {
    my $query = shift;
    return ["HTTP/1.0 200 OK\r\n\r\n", uc substr $query, -3];
}
--- request
POST /t
abc
--- response_body chomp
ABC



=== TEST 55: tcp_listen on a unix socket
--- config
    location /t {
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/mock.sock;
    }
--- tcp_listen: $TEST_NGINX_HTML_DIR/mock.sock
--- tcp_reply eval
"HTTP/1.0 200 OK\r\n\r\nhello"
--- request
GET /t
--- response_body chomp
hello



=== TEST 56: tcp_no_close
--- config
    location /t {
        proxy_read_timeout 200ms;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_no_close
--- tcp_reply eval
"HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\nhello"
--- request
GET /t
--- error_log
upstream timed out



=== TEST 57: tcp_shutdown
--- config
    location /t {
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_shutdown: 1
--- tcp_reply: nobody hears it
--- request
GET /t
--- error_code: 502
--- error_log
upstream prematurely closed connection



=== TEST 58: a second connection to tcp_listen is never answered
--- config
    location /t {
        proxy_read_timeout 300ms;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_reply eval
"HTTP/1.0 200 OK\r\n\r\nhello"
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 504]



=== TEST 59: init runs once, before the requests, when nginx is up
--- config
    location /t { root html; }
--- user_files
>>> t
0
--- init
$main::Initialized++;
Test::More::is(-s server_root() . '/logs/nginx.pid' ? 1 : 0, 1, 'nginx is up');
Test::More::is($main::Initialized, 1, 'init runs once');
--- request
GET /t
--- response_body
0



=== TEST 60: init runs in a block which is skipped too
--- config
    no_such_directive;
--- init
$main::Initialized++;
Test::More::is($main::Initialized, 2, 'init of a skipped block');
--- skip_eval: 2: 1
--- request
GET /t



=== TEST 61: skip_eval which does not hold
--- config
    location /t { return 200 "hello"; }
--- skip_eval: 2: $^O eq 'no such system'
--- request
GET /t



=== TEST 62: skip_nginx
--- config
    no_such_directive;
--- skip_nginx: 3: > 1.0.0
--- request
GET /t



=== TEST 63: skip_nginx which does not hold
--- config
    location /t { return 200 "hello"; }
--- skip_nginx
3: <= 1.0.0
--- request
GET /t



=== TEST 64: todo
--- config
    location /t { return 200 "hello"; }
--- todo: 2: this cannot be done yet
--- request
GET /t
--- response_body
something else



=== TEST 65: sections and values from a preprocessor
--- default_config
--- init
Test::More::ok($main::Preprocessed > 60, 'one call for each block');
--- request
GET /t
--- response_body
default



=== TEST 66: add_response_body_check
--- config
    location /t { return 200 "$args"; }
--- request eval
["GET /t?abc", "GET /t?def"]
--- body_length chomp
3



=== TEST 67: add_test_cleanup_handler, own cleanup
--- config
    location /t { return 200 "hello"; }
--- cleaned
--- request
GET /t



=== TEST 68: the functions of the scaffold
--- config
    location /t { return 200 "hello"; }
--- init
Test::More::is(server_port(), $ENV{TEST_NGINX_SERVER_PORT}, 'server_port');
Test::More::is(html_dir(), server_root() . '/html', 'html_dir');
Test::More::is(repeat_each(), 2, 'repeat_each');
is_str("a", "a", "is_str of strings");
is_str("abc", qr/b/, "is_str of a regular expression");
--- request
GET /t



=== TEST 69: response_body_filters
--- config
    location /t { return 200 "Hello"; }
--- request
GET /t
--- response_body_filters
uc length
--- response_body chomp
5



=== TEST 70: response_body_filters for each request
--- config
    location /t { return 200 "Hello"; }
--- request eval
["GET /t", "GET /t"]
--- response_body_filters eval
[[sub { lc shift }], [sub { uc shift }, sub { "<$_[0]>" }]]
--- response_body eval
["hello", "<HELLO>"]



=== TEST 71: shutdown of the sending side
--- config
    location /t { proxy_ignore_client_abort on; return 200 "hello"; }
--- request
GET /t
--- shutdown: 1
--- ignore_response
--- no_error_log
[error]



=== TEST 72: server_name
--- server_name: other
--- config
    location /t { return 200 "$server_name"; }
--- request
GET /t
--- response_body chomp
other



=== TEST 73: an early response to a large body
--- config
    location /t { client_max_body_size 1k; return 200 "x"; }
--- request eval
"POST /t\n" . "x" x 1000000
--- error_code: 413
--- response_body_like: 413
--- error_log
too large body



=== TEST 74: an alarm which error_log asks for
--- config
    location /t { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/none.sock; }
--- request
GET /t
--- error_code: 502
--- error_log
[crit]



=== TEST 75: an alarm which is expected
--- config
    location /t { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/none.sock; }
--- request
GET /t
--- error_code: 502
--- expect_log_alarm
none.sock failed



=== TEST 76: post_setup_server_root
--- post_setup_server_root
open my $out, '>', "$ENV{TEST_NGINX_SERVER_ROOT}/conf/extra.conf" or die;
print $out "return 200 extra;\n";
close $out;
--- config
    location /t { include extra.conf; }
--- request
GET /t
--- response_body chomp
extra
