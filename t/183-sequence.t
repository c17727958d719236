# Sequences: the key is a number, and each source counts.
#
# A number below the mark is a duplicate if it is known, and refused if it is
# not: it may have been executed long ago. Above the mark, "increasing" takes
# any number and "strict" the next one only. A number that was released may be
# claimed again, and a higher epoch begins anew. Nothing is executed that was
# refused. How all this stands many at a time is in 184-sequence-race.py.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our ($HttpConfig, $Upstream);

our $Config = <<'_EOC_';
    idempotency main;
    idempotency_scope $arg_scope;

    location /strict {
        idempotency_sequence strict;
        proxy_pass http://up;
        add_header X-Result $idempotency_result always;
    }

    location /increasing {
        idempotency_sequence increasing;
        proxy_pass http://up;
    }

    location /epoch {
        idempotency_sequence strict;
        idempotency_epoch $http_epoch;
        proxy_pass http://up;
    }

    location /nobody {
        idempotency_sequence strict;
        idempotency_fingerprint off;
        proxy_pass http://127.0.0.1:1;
    }

    location /off {
        idempotency_sequence strict;
        idempotency_fingerprint off;
        proxy_pass http://up/off;
    }
_EOC_

our @Bad = ('a', '-1', '+1', '01', '00', '1.0', '1e3', '0x1', '"1 "', '1_0',
            '9223372036854775808', '18446744073709551616', '1' x 40, '""');

run_tests();

__DATA__

=== TEST 1: strict: one after the other, and duplicates of them
--- config eval: $main::Config
--- request eval
[map { "POST /strict\nx" } 1 .. 6]
--- more_headers eval
[map { "Idempotency-Key: $_" } 1, 2, 2, 3, 1, 3]
--- error_code eval
[(200) x 6]
--- response_headers eval
["X-Result: new", "X-Result: new", "X-Result: replayed", "X-Result: new",
 "X-Result: replayed", "X-Result: replayed"]
--- executions: a b b c a c



=== TEST 2: strict: a gap, with the number that is expected
--- request eval
["POST /strict\nx", "POST /strict\nx", "POST /strict\nx", "POST /strict\nx"]
--- more_headers eval
[map { "Idempotency-Key: $_" } 5, 4, 5, '"5"']
--- error_code eval
[409, 200, 200, 200]
--- response_headers eval
["Content-Type: application/problem+json\nCache-Control: no-store\n"
 . "Idempotency-Retry: never\nX-Result: out_of_order",
 "X-Result: new", "X-Result: new", "X-Result: replayed"]
--- response_body_like eval
['"code":"out_of_order","expected":4\}$', 'POST', 'POST', 'POST']
--- executions: - a b b



=== TEST 3: strict: below what was the first, and never known
--- request eval
["POST /strict\nx", "POST /strict\nx"]
--- more_headers eval
["Idempotency-Key: 0", "Idempotency-Key: 6"]
--- error_code eval
[409, 200]
--- response_body_like eval
['"code":"out_of_order","expected":6\}$', 'POST']



=== TEST 4: another body is still a mismatch
--- request
POST /strict
y
--- more_headers
Idempotency-Key: 6
--- error_code: 422
--- response_body_like: "code":"key_reused"



=== TEST 5: increasing: any number above the mark
--- request eval
[map { "POST /increasing\nx" } 1 .. 7]
--- more_headers eval
[map { "Idempotency-Key: $_" } 5, 9, 7, 9, 5, 10, 0]
--- error_code eval
[200, 200, 409, 200, 200, 200, 409]
--- response_body_like eval
['POST', 'POST', '"code":"out_of_order"\}$', 'POST', 'POST', 'POST',
 '"code":"out_of_order"\}$']
--- executions: a b - b a c -



=== TEST 6: each source counts, and each scope
--- request eval
["POST /strict?scope=a\nx", "POST /strict?scope=a\nx",
 "POST /strict?scope=b\nx", "POST /strict?scope=a\nx",
 "POST /strict?scope=b\nx"]
--- more_headers eval
["Idempotency-Key: 7\nClient: c1", "Idempotency-Key: 100\nClient: c2",
 "Idempotency-Key: 100\nClient: c1", "Idempotency-Key: 8\nClient: c1",
 "Idempotency-Key: 8\nClient: c1"]
--- error_code eval
[200, 200, 200, 200, 409]
--- executions: a b c d -



=== TEST 7: what is not a number
--- request eval
[map { "POST /strict?scope=bad\nx" } @main::Bad]
--- more_headers eval
[map { "Idempotency-Key: $_" } @main::Bad]
--- error_code eval
[map { 400 } @main::Bad]
--- response_body_like eval
[map { '"code":"key_invalid"' } @main::Bad]



=== TEST 8: numbers beyond what a double can say, up to the last
--- request eval
[map { "POST /strict?scope=" . ($_ < 4 ? "big" : "last") . "\nx" } 0 .. 7]
--- more_headers eval
[map { "Idempotency-Key: $_" }
     "9007199254740992", "9007199254740994", "9007199254740993",
     "9007199254740994", "9223372036854775806", "9223372036854775807",
     "9223372036854775807", "9223372036854775805"]
--- error_code eval
[200, 409, 200, 200, 200, 200, 200, 409]
--- response_body_like eval
['POST', '"expected":9007199254740993\}$', 'POST', 'POST', 'POST', 'POST',
 'POST', '"expected":9223372036854775808\}$']
--- executions: a - b c d e e -



=== TEST 9: an epoch begins anew, and ends the ones before it
--- request eval
[map { "POST /epoch?scope=e\nx" } 1 .. 9]
--- more_headers eval
["Idempotency-Key: 7\nEpoch: 1", "Idempotency-Key: 8\nEpoch: 1",
 "Idempotency-Key: 3\nEpoch: 2", "Idempotency-Key: 1\nEpoch: 2",
 "Idempotency-Key: 2\nEpoch: 2", "Idempotency-Key: 9\nEpoch: 1",
 "Idempotency-Key: 8\nEpoch: 1", "Idempotency-Key: 1\nEpoch: 2",
 "Idempotency-Key: 0\nEpoch: 9223372036854775807"]
--- error_code eval
[200, 200, 409, 200, 200, 409, 409, 200, 200]
--- response_body_like eval
['POST', 'POST', '"code":"out_of_order","expected":0\}$', 'POST', 'POST',
 '"code":"out_of_order"\}$', '"code":"out_of_order"\}$', 'POST', 'POST']
--- executions: a b - c d - - c e



=== TEST 10: what is not an epoch
--- request eval
[map { "POST /epoch?scope=f\nx" } 1 .. 4]
--- more_headers eval
["Idempotency-Key: 1", "Idempotency-Key: 1\nEpoch: x",
 "Idempotency-Key: 1\nEpoch: -1", "Idempotency-Key: 1\nEpoch: 01"]
--- error_code eval
[400, 400, 400, 400]
--- response_body_like eval
[('"code":"key_invalid"') x 4]



=== TEST 11: the last number is released: it is expected again
--- request eval
["POST /off?scope=r\nx", "POST /nobody?scope=r\nx", "POST /off?scope=r\nx",
 "POST /nobody?scope=r\nx", "POST /off?scope=r\nx", "POST /off?scope=r\nx",
 "POST /off?scope=r\nx"]
--- more_headers eval
[map { "Idempotency-Key: $_" } 1, 2, 3, 2, 2, 3, 2]
--- error_code eval
[200, 502, 409, 502, 200, 200, 200]
--- response_body_like eval
['POST', '502', '"code":"out_of_order","expected":2\}$', '502', 'POST',
 'POST', 'POST']
--- executions: a - - - b c b
--- no_error_log
[alert]



=== TEST 12: so is the first
--- request eval
["POST /nobody?scope=s\nx", "POST /off?scope=s\nx", "POST /off?scope=s\nx",
 "POST /off?scope=s\nx"]
--- more_headers eval
[map { "Idempotency-Key: $_" } 0, 1, 0, 1]
--- error_code eval
[502, 409, 200, 200]
--- response_body_like eval
['502', '"expected":0\}$', 'POST', 'POST']
--- executions: - - a b
--- no_error_log
[alert]



=== TEST 13: a number past its ttl
--- config
    location /pay {
        idempotency main;
        idempotency_sequence increasing;
        idempotency_ttl 1s;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
["Idempotency-Key: 1", "Idempotency-Key: 2"]
--- error_code eval
[200, 200]
--- executions: a b



=== TEST 14: is not known any more, and not executed again
--- init
Time::HiRes::sleep(2.1)
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
["Idempotency-Key: 1", "Idempotency-Key: 2", "Idempotency-Key: 3"]
--- error_code eval
[409, 409, 200]
--- response_body_like eval
['"code":"out_of_order"', '"code":"out_of_order"', 'POST']



=== TEST 15: in the words of a profile
--- config
    location /pay {
        idempotency main;
        idempotency_profile stripe;
        idempotency_sequence strict;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
["Idempotency-Key: 1", "Idempotency-Key: 3"]
--- error_code eval
[200, 409]
--- response_body_like eval
['POST', '^\{"error":\{"type":"invalid_request_error","code":"out_of_order",.*'
         . '"expected":2\}\}$']



=== TEST 16: no such order
--- config
    location /pay {
        idempotency main;
        idempotency_sequence decreasing;
    }
--- must_die
--- error_log
invalid value "decreasing" in "idempotency_sequence", it must be "off", "increasing" or "strict"



=== TEST 17: a key is a token or a number
--- config
    location /pay {
        idempotency main;
        idempotency_sequence strict;
        idempotency_issued on;
    }
--- must_die
--- error_log
"idempotency_issued" and "idempotency_sequence" are both on in location "/pay"



=== TEST 18: without a sequence an epoch is a part of the name
--- config
    location /pay {
        idempotency main;
        idempotency_epoch $http_epoch;
        proxy_pass http://up;
    }
--- request eval
[map { "POST /pay\nx" } 1 .. 5]
--- more_headers eval
["Idempotency-Key: k\nEpoch: a", "Idempotency-Key: k\nEpoch: b",
 "Idempotency-Key: k", "Idempotency-Key: k\nEpoch: a", "Idempotency-Key: k"]
--- raw_response_headers_unlike eval
[('Idempotent-Replayed') x 3, 'Never', 'Never']
--- raw_response_headers_like eval
[('Server') x 3, 'Idempotent-Replayed', 'Idempotent-Replayed']
