# What must be equal in a duplicate: the body as it was sent and, unless told
# otherwise, the arguments. Where the body was kept, how it was framed and how
# it arrived makes no difference. Of a multipart body the boundary does not
# count, since clients make a new one with each try, and everything else does.
#
# A mismatch is told as such even while the first request is in flight (422,
# not 409), it never executes anything, and it leaves the record as it was.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our $HttpConfig;
our $Body = join '', map { chr(ord('a') + $_ % 26) } 0 .. 39_999;
our $Megabyte = 'm' x 1_048_576;

our $InFlight = $HttpConfig . <<'_EOC_';
    server {
        listen unix:$TEST_NGINX_HTML_DIR/gateway.sock;

        location / {
            idempotency main;
            proxy_pass http://unix:$TEST_NGINX_HTML_DIR/slow.sock:;
        }
    }

    server {
        listen unix:$TEST_NGINX_HTML_DIR/slow.sock;
        limit_rate 200;

        location / {
            return 200 "executed:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
";
        }
    }
_EOC_

# a request with a multipart body that is written down with B for the boundary
sub parts {
    my ($key, $boundary, $body) = @_;

    $body =~ s/--B\b/--$boundary/g;

    return "POST /pay HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
           . "Idempotency-Key: $key\r\n"
           . "Content-Type: multipart/form-data; boundary=$boundary\r\n"
           . 'Content-Length: ' . length($body) . "\r\n\r\n$body";
}

our $Parts = "--B\r\nContent-Disposition: form-data; name=a\r\n\r\none\r\n"
             . "--B\r\n\r\ntwo\r\n--B--\r\n";

run_tests();

__DATA__

=== TEST 1: another body with the same key
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\none", "POST /pay\ntwo", "POST /pay\none", "POST /pay\none1",
 "POST /pay\non", "POST /pay", "POST /pay\none"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 422, 200, 422, 422, 422, 200]
--- response_headers eval
["!Idempotent-Replayed",
 "Content-Type: application/problem+json\nIdempotency-Retry: same-key"
 . "\n!Retry-After\n!Idempotent-Replayed",
 "Idempotent-Replayed: true",
 "Idempotency-Retry: same-key", "Idempotency-Retry: same-key",
 "Idempotency-Retry: same-key", "Idempotent-Replayed: true"]
--- executions: a - a - - - a



=== TEST 2: the answer tells nothing about the first body
--- request eval
["POST /pay\nsecret-of-the-first", "POST /pay\ntwo"]
--- more_headers
Idempotency-Key: k2
--- error_code eval
[200, 422]
--- response_body_like eval
['POST /pay', '^\{"type":"about:blank","title":"[^"]+","status":422,'
              . '"detail":"[^"]+","code":"key_reused"\}\s*$']
--- response_body_unlike eval
['two', 'secret|first-|original_status']



=== TEST 3: no body, without a word about it
--- raw_request eval
"POST /pay HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k3\r\n"
. "Connection: close\r\n\r\n"
--- response_headers
!Idempotent-Replayed



=== TEST 4: no body, sized
--- raw_request eval
"POST /pay HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k3\r\n"
. "Connection: close\r\nContent-Length: 0\r\n\r\n"
--- response_headers
Idempotent-Replayed: true



=== TEST 5: no body, chunked
--- raw_request eval
"POST /pay HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k3\r\n"
. "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
--- response_headers
Idempotent-Replayed: true



=== TEST 6: no body is not any body
--- request eval
["POST /pay\nx", "POST /pay"]
--- more_headers
Idempotency-Key: k3
--- error_code eval
[422, 200]
--- response_headers eval
["Idempotency-Retry: same-key", "Idempotent-Replayed: true"]



=== TEST 7: a sized body
--- raw_request eval
"POST /pay HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k7\r\n"
. "Connection: close\r\nContent-Length: 10\r\n\r\n0123456789"
--- response_headers
!Idempotent-Replayed



=== TEST 8: the same body, chunked
--- raw_request eval
"POST /pay HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k7\r\n"
. "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
. "3\r\n012\r\n6;x=y\r\n345678\r\n1\r\n9\r\n0\r\n\r\n"
--- response_headers
Idempotent-Replayed: true



=== TEST 9: another body, chunked
--- raw_request eval
"POST /pay HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k7\r\n"
. "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
. "a\r\n0123456780\r\n0\r\n\r\n"
--- error_code: 422
--- response_body_like: "code":"key_reused"



=== TEST 10: a chunked body in many packets
--- raw_request eval
["POST /pay HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k7\r\n"
 . "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
 "3\r\n012\r\n", "6\r", "\n34", "5678\r\n1\r\n9\r\n", "0\r\n\r", "\n"]
--- raw_request_middle_delay
0.05
--- response_headers
Idempotent-Replayed: true



=== TEST 11: a sized body in many packets
--- raw_request eval
["POST /pay HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k7\r\n"
 . "Content-Length: 10\r\nConnection: close\r\n\r\n0",
 "123", "45", "6789"]
--- raw_request_middle_delay
0.05
--- response_headers
Idempotent-Replayed: true



=== TEST 12: a body of 40000 bytes in a temporary file
--- config
    client_body_buffer_size 1k;

    location /pay {
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\n$main::Body", "POST /pay\n$main::Body", "POST /pay\n${main::Body}x",
 "POST /pay\nx" . substr($main::Body, 1),
 "POST /pay\n" . substr($main::Body, 0, -1), "POST /pay\n$main::Body"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422, 422, 422, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true",
 ("!Idempotent-Replayed") x 3, "Idempotent-Replayed: true"]
--- error_log
a client request body is buffered to a temporary file
--- executions: a a - - - a



=== TEST 13: in memory or in a file, it is the same body
--- config
    idempotency_scope "";

    location /memory {
        idempotency main;
        client_body_buffer_size 128k;
        proxy_pass http://up;
    }

    location /single {
        idempotency main;
        client_body_buffer_size 128k;
        client_body_in_single_buffer on;
        proxy_pass http://up;
    }

    location /file {
        idempotency main;
        client_body_buffer_size 1k;
        proxy_pass http://up;
    }

    location /only {
        idempotency main;
        client_body_in_file_only clean;
        proxy_pass http://up;
    }
--- request eval
["POST /memory\n$main::Body", "POST /single\n$main::Body",
 "POST /file\n$main::Body", "POST /only\n$main::Body",
 "POST /memory\n${main::Body}x", "POST /single\n${main::Body}x",
 "POST /file\n${main::Body}x", "POST /only\n${main::Body}x"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 200, 422, 422, 422, 422]
--- executions: a a a a - - - -



=== TEST 14: a body of one megabyte
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\n$main::Megabyte", "POST /pay\n$main::Megabyte",
 "POST /pay\n${main::Megabyte}x"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true", "!Idempotent-Replayed"]
--- executions: a a -



=== TEST 15: the body which was read for the fingerprint reaches the upstream
--- http_config eval
$main::HttpConfig . <<'_EOC_';
    server {
        listen unix:$TEST_NGINX_HTML_DIR/see.sock;
        client_body_buffer_size 128k;

        location / {
            proxy_pass http://up;
            add_header X-Body $request_body;
            add_header X-Length $content_length;
        }
    }
_EOC_
--- config
    location /memory {
        idempotency main;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/see.sock:;
    }

    location /file {
        idempotency main;
        client_body_buffer_size 1k;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/see.sock:;
    }
--- request eval
["POST /memory\nabc", "POST /file\n" . substr($main::Body, 0, 3000),
 "POST /memory"]
--- more_headers eval
["Idempotency-Key: a", "Idempotency-Key: b", "Idempotency-Key: c"]
--- error_code eval
[200, 200, 200]
--- response_headers eval
["X-Body: abc\nX-Length: 3",
 "X-Body: " . substr($main::Body, 0, 3000) . "\nX-Length: 3000",
 "!X-Body"]



=== TEST 16: arguments count
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
["POST /pay?a=1\nx", "POST /pay?a=2\nx", "POST /pay\nx", "POST /pay?\nx",
 "POST /pay?a=1&b\nx", "POST /pay?a=1\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 422, 422, 422, 422, 200]
--- response_headers eval
["!Idempotent-Replayed", ("Idempotency-Retry: same-key") x 4,
 "Idempotent-Replayed: true"]



=== TEST 17: a value of one's own instead of the arguments
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint raw with=$http_content_type;
        proxy_pass http://up;
    }
--- request eval
["POST /pay?a=1\nx", "POST /pay?a=2\nx", "POST /pay\nx", "POST /pay\ny"]
--- more_headers eval
["Idempotency-Key: k\nContent-Type: a/b", "Idempotency-Key: k\nContent-Type: a/b",
 "Idempotency-Key: k\nContent-Type: a/c",
 "Idempotency-Key: k\nContent-Type: a/b"]
--- error_code eval
[200, 200, 422, 422]



=== TEST 18: nothing but the body
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint raw with=;
        proxy_pass http://up;
    }
--- request eval
["POST /pay?a=1\nx", "POST /pay?a=2\nx", "POST /pay\nx", "POST /pay\ny"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 422]
--- executions: a a a -



=== TEST 19: the value and the body do not run into each other
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint raw with=$http_v;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nbc", "POST /pay\nc", "POST /pay\nabc", "POST /pay\nbc"]
--- more_headers eval
["Idempotency-Key: k\nV: a", "Idempotency-Key: k\nV: ab",
 "Idempotency-Key: k", "Idempotency-Key: k\nV: a"]
--- error_code eval
[200, 422, 422, 200]
--- executions: a - - a



=== TEST 20: no fingerprint: every body is a duplicate
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint off;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\none", "POST /pay?a=1\ntwo", "POST /pay"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", ("Idempotent-Replayed: true") x 2]
--- executions: a a a



=== TEST 21: a record made without a fingerprint, and the other way round
--- config
    idempotency_scope "";

    location /off {
        idempotency main;
        idempotency_fingerprint off;
        proxy_pass http://up;
    }

    location /raw {
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
["POST /off\none", "POST /raw\ntwo", "POST /raw\none", "POST /off\ntwo"]
--- more_headers eval
[("Idempotency-Key: a") x 2, ("Idempotency-Key: b") x 2]
--- error_code eval
[200, 200, 200, 200]
--- executions: a a b b



=== TEST 22: in flight: a duplicate is told so, a mismatch is told first
--- http_config eval: $main::InFlight
--- config
    location = /t {
        ssi on;
        ssi_types text/plain;
        default_type text/plain;
        alias $TEST_NGINX_HTML_DIR/page;
    }

    location /c/ {
        internal;
        set $body $arg_body;
        rewrite ^ /pay? break;
        proxy_method POST;
        proxy_set_header Idempotency-Key k;
        proxy_set_body $body;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/gateway.sock:;
    }

    location = /pay {
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/gateway.sock:;
    }
--- user_files
>>> page
1 <!--#include virtual="/c/1?body=one" -->
2 <!--#include virtual="/c/2?body=one" -->
3 <!--#include virtual="/c/3?body=two" -->
4 <!--#include virtual="/c/4?body=one" -->
--- request
GET /t
--- timeout: 10
--- response_body_like eval
qr/^1\ executed:[a\n]+
   2\ [^\n]+"status":409,[^\n]+"code":"in_progress"[^\n]*\n\n
   3\ [^\n]+"status":422,[^\n]+"code":"key_reused"[^\n]*\n\n
   4\ [^\n]+"status":409,[^\n]+"code":"in_progress"/x



=== TEST 23: afterwards the record is that of the first
--- request eval
["POST /pay\none", "POST /pay\ntwo"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 422]
--- response_headers eval
["Idempotent-Replayed: true", "!Idempotent-Replayed"]
--- response_body_like eval
["^executed:", '"code":"key_reused"']



=== TEST 24: a multipart body
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;
    }
--- raw_request eval
main::parts('m', 'x', $main::Parts)
--- response_headers
!Idempotent-Replayed



=== TEST 25: with another boundary
--- raw_request eval
main::parts('m', '----y1234', $main::Parts)
--- response_headers
Idempotent-Replayed: true



=== TEST 26: and another content
--- raw_request eval
main::parts('m', 'z', $main::Parts =~ s/one/ones/r)
--- error_code: 422



=== TEST 27: another line in the header of a part
--- raw_request eval
main::parts('m', 'z', $main::Parts =~ s/name=a/name=a\r\nX: y/r)
--- error_code: 422



=== TEST 28: a preamble
--- raw_request eval
main::parts('m', 'z', "\r\n$main::Parts")
--- error_code: 422



=== TEST 29: an epilogue
--- raw_request eval
main::parts('m', 'z', "$main::Parts.")
--- error_code: 422



=== TEST 30: no line end behind the last delimiter
--- raw_request eval
main::parts('m', 'z', substr($main::Parts, 0, -2))
--- error_code: 422



=== TEST 31: one part instead of two
--- raw_request eval
main::parts('m', 'z', $main::Parts =~ s/\r\n--B\r\n/\r\n--C\r\n/r)
--- error_code: 422



=== TEST 32: the parts in another place
--- raw_request eval
main::parts('m', 'z', $main::Parts =~ s/one/on/r =~ s/two/etwo/r)
--- error_code: 422



=== TEST 33: the same bytes as something else
--- raw_request eval
main::parts('m', 'x', $main::Parts)
=~ s{multipart/form-data}{text/plain}r
--- error_code: 422



=== TEST 34: still the first one
--- raw_request eval
main::parts('m', 'last', $main::Parts)
--- response_headers
Idempotent-Replayed: true



=== TEST 35: text that looks like a boundary in the content
--- raw_request eval
main::parts('l', 'x', "--B\r\n\r\n--y\r\n --x\r\n--B--")
--- response_headers
!Idempotent-Replayed



=== TEST 36: with that very boundary it is not this body
--- raw_request eval
main::parts('l', 'y', "--B\r\n\r\n--y\r\n --x\r\n--B--")
--- error_code: 422



=== TEST 37: with a third one it is
--- raw_request eval
main::parts('l', 'z', "--B\r\n\r\n--y\r\n --x\r\n--B--")
--- response_headers
Idempotent-Replayed: true



=== TEST 38: not well-formed: byte by byte
--- raw_request eval
main::parts('f', 'x', "--B\r\n\r\none\r\n")
--- response_headers
!Idempotent-Replayed



=== TEST 39: the same bytes
--- raw_request eval
main::parts('f', 'x', "--B\r\n\r\none\r\n")
--- response_headers
Idempotent-Replayed: true



=== TEST 40: another boundary is another body then
--- raw_request eval
main::parts('f', 'y', "--B\r\n\r\none\r\n")
--- error_code: 422



=== TEST 41: well-formed is another body, too
--- raw_request eval
main::parts('f', 'x', "--B\r\n\r\none\r\n--B--")
--- error_code: 422



=== TEST 42: in a temporary file
--- config
    location /pay {
        idempotency main;
        client_body_buffer_size 1k;
        proxy_pass http://up;
    }
--- raw_request eval
main::parts('t', 'x', $main::Parts =~ s/one/$main::Body/r)
--- response_headers
!Idempotent-Replayed



=== TEST 43: in a temporary file, another boundary
--- raw_request eval
main::parts('t', 'yyy', $main::Parts =~ s/one/$main::Body/r)
--- response_headers
Idempotent-Replayed: true



=== TEST 44: in a temporary file, another content
--- raw_request eval
main::parts('t', 'x', $main::Parts =~ s/one/$main::Body./r)
--- error_code: 422
