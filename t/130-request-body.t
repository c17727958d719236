# The request body and the connection: a claim is made only when the body is
# complete. A body which is too large, or stops half way, leaves nothing
# behind, and the retry with the same key executes. Requests which are not
# protected pass untouched, and one connection may carry all kinds in turn.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

# a request as it goes over the wire, "$fields" being further header lines
sub raw {
    my ($key, $fields, $body) = @_;

    return "POST /pay HTTP/1.1\r\nHost: localhost\r\n"
           . (defined $key ? "Idempotency-Key: $key\r\n" : '')
           . join('', map { "$_\r\n" } @$fields) . "\r\n$body";
}

run_tests();

__DATA__

=== TEST 1: a sized body over client_max_body_size leaves no claim
--- config
    location /pay {
        client_max_body_size 10;
        client_body_timeout 500ms;
        lingering_timeout 200ms;
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\n12345678901", "POST /pay\n1234567890", "POST /pay\n1234567890",
 "POST /pay\n12345678901"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[413, 200, 200, 413]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed", "Idempotent-Replayed: true",
 "!Idempotent-Replayed"]
--- executions: - a a -



=== TEST 2: a chunked body over client_max_body_size
--- raw_request eval
main::raw("k2", ["Transfer-Encoding: chunked", "Connection: close"],
          "b\r\n12345678901\r\n0\r\n\r\n")
--- error_code: 413
--- error_log
client intended to send too large chunked body



=== TEST 3: a chunked body which becomes too large later
--- raw_request eval
[main::raw("k2", ["Transfer-Encoding: chunked", "Connection: close"],
           "5\r\n12345\r\n"), "5\r\n67890\r\n", "1\r\n1\r\n0\r\n\r\n"]
--- raw_request_middle_delay
0.1
--- error_code: 413
--- error_log
client intended to send too large chunked body



=== TEST 4: both have left no claim
--- raw_request eval
main::raw("k2", ["Transfer-Encoding: chunked", "Connection: close"],
          "a\r\n1234567890\r\n0\r\n\r\n")
--- response_headers
!Idempotent-Replayed
--- response_body_like: POST /pay



=== TEST 5: a sized body stops half way and the client leaves
--- raw_request eval
main::raw("k5", ["Content-Length: 10"], "12345")
--- timeout: 0.2
--- abort
--- ignore_response



=== TEST 6: a chunked body stops half way and the client leaves
--- raw_request eval
main::raw("k6", ["Transfer-Encoding: chunked"], "5\r\n12")
--- timeout: 0.2
--- abort
--- ignore_response



=== TEST 7: a body stops half way and the client waits
--- raw_request eval
main::raw("k7", ["Content-Length: 10"], "12345")
--- ignore_response
--- wait: 0.2



=== TEST 8: a chunk is malformed
--- raw_request eval
main::raw("k8", ["Transfer-Encoding: chunked"], "x\r\n12\r\n0\r\n\r\n")
--- error_code: 400
--- response_body_like: <center>nginx



=== TEST 9: the retries of all of them execute
--- request eval
[("POST /pay\n1234567890") x 8]
--- more_headers eval
[map { ("Idempotency-Key: k$_") x 2 } 5 .. 8]
--- error_code eval
[(200) x 8]
--- response_headers eval
[("!Idempotent-Replayed", "Idempotent-Replayed: true") x 4]
--- executions: a a b b c c d d



=== TEST 10: Expect: 100-continue, and the answer
--- raw_request eval
[main::raw("k10", ["Content-Length: 5", "Expect: 100-continue",
                   "Connection: close"], ""), "12345"]
--- raw_request_middle_delay
0.2
--- error_code: 100
--- response_body_like eval
qr{^HTTP/1.1\ 200\ OK\r\n.*\r\n\r\nPOST\ /pay\ \w+\n$}sx



=== TEST 11: Expect: 100-continue, and the replay
--- raw_request eval
[main::raw("k10", ["Content-Length: 5", "Expect: 100-continue",
                   "Connection: close"], ""), "12345"]
--- raw_request_middle_delay
0.2
--- error_code: 100
--- response_body_like eval
qr{^HTTP/1.1\ 200\ OK\r\n.*Idempotent-Replayed:\ true\r\n.*\r\nPOST}sx



=== TEST 12: Expect: 100-continue is not encouraged without a key
--- raw_request eval
main::raw(undef, ["Content-Length: 5", "Expect: 100-continue",
                  "Connection: close"], "")
--- error_code: 400
--- response_body_like: ^\{"type".*"code":"key_missing"



=== TEST 13: pipelined duplicates
--- pipelined_requests eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\ny", "GET /pay", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k13
--- error_code eval
[200, 200, 422, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true", "!Idempotent-Replayed",
 "!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- response_body_like eval
['^POST', '^POST', '"code":"key_reused"', '^GET', '^POST']
--- executions: a a - b a



=== TEST 14: a refused request does not spoil the connection for the next
--- pipelined_requests eval
["POST /pay\n1234567890", "POST /pay\n0123456789", "POST /pay\nx"]
--- more_headers eval
["X: x", "Idempotency-Key: \"", "Idempotency-Key: k14"]
--- error_code eval
[400, 400, 200]
--- response_body_like eval
['"code":"key_missing"', '"code":"key_invalid"', '^POST']



=== TEST 15: a body which comes after the refusal is thrown away
--- raw_request eval
[main::raw(undef, ["Content-Length: 10"], "1234"), "567890"
 . "GET /pay HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]
--- raw_request_middle_delay
0.1
--- error_code: 400
--- response_body_like: "code":"key_missing"



=== TEST 16: a chunked body which comes after the refusal
--- raw_request eval
[main::raw(undef, ["Transfer-Encoding: chunked"], "4\r\n12"), "34\r\n0\r\n\r\n"
 . "GET /pay HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]
--- raw_request_middle_delay
0.1
--- error_code: 400
--- response_body_like: "code":"key_missing"



=== TEST 17: GET and HEAD are not protected, with a key or without
--- request eval
["GET /pay", "GET /pay", "HEAD /pay", "GET /pay"]
--- more_headers eval
[("Idempotency-Key: k17") x 3, "X: x"]
--- error_code eval
[200, 200, 200, 200]
--- response_headers eval
[("!Idempotent-Replayed") x 4]
--- executions: a b - c



=== TEST 18: GET and HEAD, where they are protected
--- config
    location /pay {
        idempotency main;
        idempotency_methods GET HEAD;
        proxy_pass http://up;
    }
--- request eval
["GET /pay", "GET /pay", "HEAD /pay", "HEAD /pay", "GET /pay", "HEAD /pay"]
--- more_headers eval
[("Idempotency-Key: k") x 4, "X: x", "X: x"]
--- error_code eval
[200, 200, 200, 200, 400, 400]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true",
 "!Idempotent-Replayed\nContent-Length: 43",
 "Idempotent-Replayed: true\nContent-Length: 43",
 "Content-Type: application/problem+json",
 "Content-Type: application/problem+json"]
--- executions: a a - - - -



=== TEST 19: HEAD and GET in one scope: the record of one serves the other
--- config
    location /pay {
        idempotency main;
        idempotency_scope "";
        idempotency_methods GET HEAD;
        proxy_pass http://up;
    }
--- request eval
["GET /pay", "HEAD /pay", "GET /pay"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed\nContent-Length: 42",
 "Idempotent-Replayed: true\nContent-Length: 42",
 "Idempotent-Replayed: true\nContent-Length: 42"]
--- executions: a - a



=== TEST 20: HTTP/1.0
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;
    }
--- raw_request eval
"POST /pay HTTP/1.0\r\nIdempotency-Key: k20\r\nContent-Length: 1\r\n\r\nx"
--- response_headers
!Idempotent-Replayed
--- response_body_like: ^POST



=== TEST 21: HTTP/1.0 again
--- raw_request eval
"POST /pay HTTP/1.0\r\nIdempotency-Key: k20\r\nContent-Length: 1\r\n\r\nx"
--- response_headers
Idempotent-Replayed: true
--- response_body_like: ^POST



=== TEST 22: proxy_request_buffering off changes nothing
--- config
    location /pay {
        idempotency main;
        proxy_request_buffering off;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\ny"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422]
--- executions: a a -



=== TEST 23: a body which somebody has read before
--- config
    location /pay {
        idempotency main;
        mirror /mirror;
        proxy_pass http://up;
    }

    location = /mirror {
        internal;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\ny"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422]
--- executions: a a -
