# idempotency_fingerprint form: two bodies are the same request if they have
# the same pairs. The order of different names, the way in which a character
# is written, and empty pairs make no difference; the order of one name's
# values does.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our $HttpConfig;

our $Pay = <<'_EOC_';
    location /pay {
        idempotency main;
        idempotency_fingerprint form;
        proxy_pass http://up;
    }
_EOC_

our @Pairs = map { "name$_=value+$_" } 1 .. 5000;
our $Pairs = join '&', @Pairs;
our $Back = join '&', reverse @Pairs;

sub bodies { return [map { "POST /pay\n$_" } @_] }

run_tests();

__DATA__

=== TEST 1: the order of pairs
--- config eval: $main::Pay
--- request eval
main::bodies('a=1&b=2&c=3', 'c=3&a=1&b=2', '&b=2&&a=1&c=3&', 'a=1&b=2&c=4',
             'a=1&b=2', 'a=1&b=2&c=3&d=4', 'a=1&b=2&c=3&c=3', 'A=1&b=2&c=3')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, (422) x 5]
--- executions: a a a - - - - -



=== TEST 2: a name that is repeated keeps its order
--- config eval: $main::Pay
--- request eval
main::bodies('a=1&a=2&b=3', 'a=1&b=3&a=2', 'b=3&a=1&a=2', 'a=2&a=1&b=3',
             'a=1&b=3', 'a=2&b=3&a=1')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 422, 422, 422]
--- executions: a a a - - -



=== TEST 3: how a character is written
--- config eval: $main::Pay
--- request eval
main::bodies('na+me=a+b%26c&e=%C3%A9', 'na%20me=a%20b%26c&e=%c3%a9',
             "%6e%61+me=%61+%62%26c&e=\xc3\xa9", 'na+me=a+b&c&e=%C3%A9',
             'na+me=a%2Bb%26c&e=%C3%A9', 'na%2Bme=a+b%26c&e=%C3%A9')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 422, 422, 422]
--- executions: a a a - - -



=== TEST 4: values and names do not run into each other
--- config eval: $main::Pay
--- request eval
main::bodies('a=b&c=d', 'a=b%26c%3Dd', 'ab=&c=d', 'a=bc&=d', 'a=b&cd=',
             'a=b%22,%22c%22:%22d', 'a=&b=&c=d', 'c=d&a=b')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, (422) x 6, 200]
--- executions: a - - - - - - a



=== TEST 5: without a value is an empty value, no body is no pair
--- config eval: $main::Pay
--- request eval
["POST /pay\na&b=", "POST /pay\na=&b", "POST /pay\na", "POST /pay"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422, 422]
--- executions: a a - -



=== TEST 6: not a form
--- config eval: $main::Pay
--- request eval
main::bodies('a=%', 'a=%1', 'a=%GG', 'a=1&%zz=2', 'a=%1&b=%20')
--- more_headers
Idempotency-Key: k
--- error_code eval
[(400) x 5]
--- response_body_like eval
[('"code":"body_invalid"') x 5]



=== TEST 7: the log says so
--- request
POST /pay
card=4242&b=%zz
--- more_headers
Idempotency-Key: k
--- error_code: 400
--- error_log
idempotency request body is not a form: % without two hexadecimal digits at byte 12
--- no_error_log
4242
[error]



=== TEST 8: thousands of pairs in the opposite order, in a file
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint form;
        client_body_buffer_size 1k;
        proxy_pass http://up;
    }
--- request eval
main::bodies($main::Pairs, $main::Back, "$main::Back&x")
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422]
--- executions: a a -



=== TEST 9: include and exclude, by the whole name
--- config
    location /out {
        idempotency main;
        idempotency_fingerprint form exclude=sign,time.sent,meta[n];
        proxy_pass http://up;
    }

    location /in {
        idempotency main;
        idempotency_fingerprint form include=amount,to;
        proxy_pass http://up;
    }
--- request eval
[(map { "POST /out\n$_" } 'sign=1&a=2&time.sent=3&meta[n]=4', 'a=2&sign=2',
  'a=2&%73ign=3&sign=4', 'a=2&time=1', 'a=3'),
 (map { "POST /in\n$_" } 'amount=1&to=a&x=1', 'to=a&amount=1&x=2',
  'to=b&amount=1', 'amount=1&to=a&to=b', 'amount=1')]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 422, 422, 200, 200, 422, 422, 422]
--- executions: a a a - - b b - - -



=== TEST 10: a compressed body cannot be read
--- config eval: $main::Pay
--- request eval
main::bodies(('a=1') x 3)
--- more_headers eval
["Idempotency-Key: k\nContent-Encoding: gzip",
 "Idempotency-Key: k\nContent-Encoding: identity", "Idempotency-Key: k"]
--- error_code eval
[400, 200, 200]
--- executions: - a a



=== TEST 11: ten megabytes
--- config eval: $main::Pay
--- request eval
["POST /pay\na=" . 'x' x 10_000_000, "POST /pay\n&a=" . 'x' x 10_000_000,
 "POST /pay\n" . 'a&' x 2_000_000]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 400]
--- executions: a a -
--- timeout: 20
