# The key of a request: what is one, what is not, and where it may come from.
#
# A key that is missing or malformed is refused with 400 before anything else
# happens, so that a client's mistake never becomes an execution that cannot
# be repeated. A quoted key and a bare one of the same characters are one key.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our $Big = 'k' x 100_000;

# every byte value in the middle of a key, but for LF, which ends the line; NUL
# and CR are refused by nginx itself
our @Refused = grep { $_ != 10 } 0 .. 0x20, 0x7f .. 0xff;
our @Good    = 0x21 .. 0x7e;

sub raw {
    my $value = shift;

    return "POST /pay HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
           . "Idempotency-Key: $value\r\nContent-Length: 1\r\n\r\nx";
}

run_tests();

__DATA__

=== TEST 1: a key makes the second request a replay
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: one
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 2: other keys are other executions
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
["Idempotency-Key: 2a", "Idempotency-Key: 2b"]
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed"]
--- executions: a b



=== TEST 3: keys are told apart by the case of their letters
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
["Idempotency-Key: key3", "Idempotency-Key: KEY3"]
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed"]
--- executions: a b



=== TEST 4: no key
--- request
POST /pay
x
--- error_code: 400
--- response_headers
Content-Type: application/problem+json
Idempotency-Retry: new-key
--- response_body_like: "code":"key_missing"



=== TEST 5: an empty header is a malformed key, not a missing one
--- raw_request eval
main::raw("")
--- error_code: 400
--- response_headers
Idempotency-Retry: new-key
--- response_body_like: "code":"key_invalid"



=== TEST 6: nothing but blanks
--- raw_request eval
main::raw("   \t ")
--- error_code: 400
--- response_body_like: "code":"key_invalid"



=== TEST 7: a quoted key with nothing in it
--- request
POST /pay
x
--- more_headers
Idempotency-Key: ""
--- error_code: 400
--- response_body_like: "code":"key_invalid"



=== TEST 8: a key of 1 byte
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 9: a key of 255 bytes
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
"Idempotency-Key: " . "k" x 255
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 10: a key of 256 bytes
--- request
POST /pay
x
--- more_headers eval
"Idempotency-Key: " . "k" x 256
--- error_code: 400
--- response_body_like: "code":"key_invalid"



=== TEST 11: the quotes do not count
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
'Idempotency-Key: "' . "q" x 255 . '"'
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 12: a quoted key of 256 bytes
--- request
POST /pay
x
--- more_headers eval
'Idempotency-Key: "' . "q" x 256 . '"'
--- error_code: 400
--- response_body_like: "code":"key_invalid"



=== TEST 13: escapes do not count, only what they stand for
--- request
POST /pay
x
--- more_headers eval
'Idempotency-Key: "' . '\\\\' x 255 . '"'



=== TEST 14: a quoted key and a bare one are one key
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
["Idempotency-Key: k-14", 'Idempotency-Key: "k-14"', "idempotency-key: k-14"]
--- error_code eval
[200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true",
 "Idempotent-Replayed: true"]
--- executions: a a a



=== TEST 15: escaped characters are the characters
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
['Idempotency-Key: "a\\"b\\\\c"', 'Idempotency-Key: a"b\\c']
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 16: a blank may be quoted, and is part of the key
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
['Idempotency-Key: "a b"', 'Idempotency-Key: "a b"', 'Idempotency-Key: "a  b"']
--- error_code eval
[200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true", "!Idempotent-Replayed"]
--- executions: a a b



=== TEST 17: malformed strings: unterminated, wrong escapes, more behind them
--- request eval
[("POST /pay\nx") x 9]
--- more_headers eval
['Idempotency-Key: "',
 'Idempotency-Key: "abc',
 'Idempotency-Key: "abc\\',
 'Idempotency-Key: "abc\\"',
 'Idempotency-Key: "a\\bc"',
 'Idempotency-Key: "abc"d',
 'Idempotency-Key: "abc" "def"',
 'Idempotency-Key: "abc";',
 'Idempotency-Key: "abc";P=1']
--- error_code eval
[(400) x 9]
--- response_headers eval
[("Idempotency-Retry: new-key") x 9]
--- response_body_like eval
[('"code":"key_invalid"') x 9]



=== TEST 18: a list of two keys
--- request eval
[("POST /pay\nx") x 2]
--- more_headers eval
['Idempotency-Key: a, b', 'Idempotency-Key: "a", "b"']
--- error_code eval
[400, 400]
--- response_body_like eval
[('"code":"key_invalid"') x 2]



=== TEST 19: two header lines, even with one and the same key
--- request eval
[("POST /pay\nx") x 3]
--- more_headers eval
["Idempotency-Key: a\nIdempotency-Key: b",
 "Idempotency-Key: a\nidempotency-key: a",
 "Idempotency-Key: a\nX-Other: x\nIdempotency-Key:"]
--- error_code eval
[400, 400, 400]
--- response_headers eval
[("Idempotency-Retry: new-key") x 3]
--- response_body_like eval
[('"code":"key_invalid"') x 3]



=== TEST 20: every byte value which a bare key must not have
--- request eval
[map { "POST /pay\nx" } @main::Refused]
--- more_headers eval
[map { "Idempotency-Key: a" . chr($_) . "b" } @main::Refused]
--- error_code eval
[map { 400 } @main::Refused]
--- response_body_like eval
[map { $_ == 0 || $_ == 13 ? '<center>nginx' : '"code":"key_invalid"' }
     @main::Refused]



=== TEST 21: every byte value which a quoted key must not have
--- request eval
[map { "POST /pay\nx" } grep { $_ != 0x20 } @main::Refused]
--- more_headers eval
[map { "Idempotency-Key: \"a" . chr($_) . "b\"" }
     grep { $_ != 0x20 } @main::Refused]
--- error_code eval
[map { 400 } grep { $_ != 0x20 } @main::Refused]
--- response_body_like eval
[map { $_ == 0 || $_ == 13 ? '<center>nginx' : '"code":"key_invalid"' }
     grep { $_ != 0x20 } @main::Refused]



=== TEST 22: every byte value which a key may have, sent twice
--- request eval
[map { ("POST /pay\nx") x 2 } @main::Good]
--- more_headers eval
[map { ("Idempotency-Key: a" . chr($_) . "b") x 2 } @main::Good]
--- error_code eval
[map { (200) x 2 } @main::Good]
--- response_headers eval
[map { ("!Idempotent-Replayed", "Idempotent-Replayed: true") } @main::Good]
--- executions eval
CORE::join(" ", map { ("c$_") x 2 } @main::Good)



=== TEST 23: the same characters, quoted, are found again
--- request eval
[map { "POST /pay\nx" } @main::Good]
--- more_headers eval
[map { my $c = chr; $c = "\\$c" if $c =~ /["\\]/;
       "Idempotency-Key: \"a${c}b\"" } @main::Good]
--- error_code eval
[map { 200 } @main::Good]
--- response_headers eval
[map { "Idempotent-Replayed: true" } @main::Good]



=== TEST 24: a key of 100000 bytes, where nginx takes such headers
--- config
    large_client_header_buffers 4 128k;

    location /pay {
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x 2]
--- more_headers eval
["Idempotency-Key: $main::Big", "Idempotency-Key: \"$main::Big\""]
--- error_code eval
[400, 400]
--- response_body_like eval
[('"code":"key_invalid"') x 2]



=== TEST 25: a key of 65536 bytes, where it is allowed
--- config
    large_client_header_buffers 4 256k;

    location /pay {
        idempotency main;
        idempotency_max_key 65536;
        proxy_pass http://up;
        proxy_set_header Idempotency-Key "";
    }
--- request eval
[("POST /pay\nx") x 4]
--- more_headers eval
["Idempotency-Key: " . "k" x 65536, "Idempotency-Key: " . "k" x 65536,
 "Idempotency-Key: " . "k" x 65535, "Idempotency-Key: " . "k" x 65537]
--- error_code eval
[200, 200, 200, 400]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true",
 "!Idempotent-Replayed", "Idempotency-Retry: new-key"]
--- executions: a a b -



=== TEST 26: a shorter limit
--- config
    location /pay {
        idempotency main;
        idempotency_max_key 3;
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x 3]
--- more_headers eval
["Idempotency-Key: abc", 'Idempotency-Key: "abc"', "Idempotency-Key: abcd"]
--- error_code eval
[200, 200, 400]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true",
 "Idempotency-Retry: new-key"]
--- executions: a a -



=== TEST 27: the key from another header
--- config
    location /pay {
        idempotency main;
        idempotency_key $http_x_request_id;
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x 6]
--- more_headers eval
["X-Request-Id: r1", "X-Request-ID: r1", 'X-Request-Id: "r1"',
 "Idempotency-Key: r1", "X-Request-Id: r1\nX-Request-Id: r1",
 "X-Request-Id:"]
--- error_code eval
[200, 200, 200, 400, 400, 400]
--- response_body_like eval
['POST', 'POST', 'POST', '"code":"key_missing"', '"code":"key_invalid"',
 '"code":"key_invalid"']
--- executions: a a a - - -



=== TEST 28: the key from an argument
--- config
    location /pay {
        idempotency main;
        idempotency_key $arg_key;
        proxy_pass http://up;
    }
--- request eval
["POST /pay?key=a1\nx", "POST /pay?key=a1\nx", "POST /pay?key=a2\nx",
 "POST /pay\nx", "POST /pay?key=\nx", "POST /pay?key=a%20b\nx"]
--- error_code eval
[200, 200, 200, 400, 400, 200]
--- response_body_like eval
['POST', 'POST', 'POST', '"code":"key_missing"', '"code":"key_missing"',
 'POST']
--- executions: a a b - - c



=== TEST 29: the key from a cookie
--- config
    location /pay {
        idempotency main;
        idempotency_key $cookie_order;
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x 4]
--- more_headers eval
["Cookie: order=o1", "Cookie: a=b; order=o1", "Cookie: order=o2",
 "Cookie: a=b"]
--- error_code eval
[200, 200, 200, 400]
--- response_body_like eval
['POST', 'POST', 'POST', '"code":"key_missing"']
--- executions: a a b -



=== TEST 30: the key from a map over several headers
--- http_config eval
$main::HttpConfig . <<'_EOC_';
    map $http_idempotency_key $key {
        ""       $http_x_request_id;
        default  $http_idempotency_key;
    }
_EOC_
--- config
    location /pay {
        idempotency main;
        idempotency_key $key;
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x 5]
--- more_headers eval
["X-Request-Id: m1", "Idempotency-Key: m1", "Idempotency-Key: m2",
 "X-Other: m1", "Idempotency-Key: \"m"]
--- error_code eval
[200, 200, 200, 400, 400]
--- response_body_like eval
['POST', 'POST', 'POST', '"code":"key_missing"', '"code":"key_invalid"']
--- executions: a a b - -



=== TEST 31: a key of several parts
--- config
    location /pay {
        idempotency main;
        idempotency_key "$http_a.$http_b";
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x 3]
--- more_headers eval
["A: 1\nB: 2", "A: 1\nB: 2", "A: 1\nB: 3"]
--- error_code eval
[200, 200, 200]
--- executions: a a b



=== TEST 32: not required: without a key the request passes, each time
--- config
    location /pay {
        idempotency main;
        idempotency_required off;
        proxy_pass http://up;
        add_header X-Result $idempotency_result;
    }
--- request eval
[("POST /pay\nx") x 2]
--- error_code eval
[200, 200]
--- response_headers eval
[("X-Result: bypassed\n!Idempotent-Replayed") x 2]
--- executions: a b



=== TEST 33: not required: with a key it is protected
--- request eval
[("POST /pay\nx") x 2]
--- more_headers
Idempotency-Key: k33
--- error_code eval
[200, 200]
--- response_headers eval
["X-Result: new", "X-Result: replayed"]
--- executions: a a



=== TEST 34: not required: a malformed key is refused all the same
--- request eval
[("POST /pay\nx") x 4]
--- more_headers eval
['Idempotency-Key: "', 'Idempotency-Key:', "Idempotency-Key: a b",
 "Idempotency-Key: a\nIdempotency-Key: b"]
--- error_code eval
[400, 400, 400, 400]
--- response_body_like eval
[('"code":"key_invalid"') x 4]
