# idempotency_fingerprint json: two bodies are the same request if they are
# the same document, however it is written: the order of names, white space,
# escapes and the forms of numbers make no difference; null, an absent name,
# the order of an array and every digit of a number do. The facts are those
# of RFC 8785 and its test data. A text that different readers may read
# differently is refused.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our $HttpConfig;

our $Pay = <<'_EOC_';
    location /pay {
        idempotency main;
        idempotency_fingerprint json;
        proxy_pass http://up;
    }
_EOC_

# the first is executed, the others are equal to it
sub equal { return [map { "POST /pay\n$_" } @_] }

our $Deep = '[' x 100 . ']' x 100;
our $Deeper = '[' x 101 . ']' x 101;
our @Names = map { "\"name-$_\":{\"value\":$_,\"x\":[$_,null]}" } 1 .. 3000;
our $Many = '{' . join(',', @Names) . '}';
our $ManyBack = '{ ' . join(" ,\n", reverse @Names) . '}';
our $Big = 'x' x 10_000_000;

run_tests();

__DATA__

=== TEST 1: the sample of RFC 8785
--- config eval: $main::Pay
--- request eval
main::equal(
'{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3,
              0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA\'\u0042\u0022\u005c\\\\\"\/",
  "literals": [null, true, false]
}',
'{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],"string":"' . "\xe2\x82\xac" . '$\u000f\nA\'B\"\\\\\\\\\"/"}',
'{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-26],"string":"' . "\xe2\x82\xac" . '$\u000f\nA\'B\"\\\\\\\\\"/"}')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true", "!Idempotent-Replayed"]
--- executions: a a -



=== TEST 2: the order of names and white space
--- config eval: $main::Pay
--- request eval
main::equal('{"a":1,"b":{"c":[1,2],"d":"x y"}}',
 '{"b":{"d":"x y","c":[1,2]},"a":1}',
 " {\t\"b\" : {\n\"d\":\"x y\" , \"c\" :[ 1 ,2 ]\r\n} ,\"a\":1 }",
 '{"\u0061":1,"b":{"\u0063":[1,2],"d":"x\u0020y"}}',
 '{"a":1,"b":{"c":[2,1],"d":"x y"}}', '{"a":1,"b":{"c":[1,2],"d":"xy"}}',
 '{"a":1,"b":{"c":[1,2]},"d":"x y"}')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 200, 422, 422, 422]
--- executions: a a a a - - -



=== TEST 3: names beyond ASCII, in either order
--- config eval: $main::Pay
--- request eval
main::equal('{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}',
 '{"\ufb33":3,"\ud83d\ude00":5,"\u20ac":1,"\u00f6":7,"\u0080":6,"1":4,"\r":2}',
 "{\"\\r\":2,\"1\":4,\"\xc2\x80\":6,\"\xc3\xb6\":7,\"\xe2\x82\xac\":1,"
 . "\"\xf0\x9f\x98\x80\":5,\"\xef\xac\xb3\":3}",
 '{"\u20ac":1,"\r":2,"\ufb33":5,"1":4,"\ud83d\ude00":3,"\u0080":6,"\u00f6":7}')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 422]
--- executions: a a a -



=== TEST 4: forms of numbers
--- config eval: $main::Pay
--- request eval
main::equal('[1, 1000, 0.001, 0, 1.5, 100000000000000000000]',
 '[1.0, 1e3, 1E-3, -0, 15e-1, 1e20]', '[1e0, 1000.00, 1e-3, 0.0, 1.50, 1.0e+20]',
 '[1, 1000, 0.001, 0, 1.5, 100000000000000000001]',
 '["1", 1000, 0.001, 0, 1.5, 1e20]')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 422, 422]
--- executions: a a a - -



=== TEST 5: two numbers that are one double are two numbers
--- config eval: $main::Pay
--- request eval
main::equal('{"amount":9007199254740993}', '{"amount":9007199254740992}',
 '{"amount":9007199254740993.0}', '{"amount":9.007199254740993e15}',
 '{"amount":0.1}')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 422, 200, 200, 422]
--- executions: a - a a -



=== TEST 6: null is not absent, and nothing is not something else
--- config eval: $main::Pay
--- request eval
main::equal('{"a":null}', '{}', '{"a":""}', '{"a":0}', '{"a":false}',
 '{"a":[]}', '{"a":{}}', '{"a":"null"}', '[]', '"a"', '{"b":null}',
 '{"a":null,"b":null}', '{ "a" : null }')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, (422) x 11, 200]
--- executions: a - - - - - - - - - - - a



=== TEST 7: no body at all is a request as well
--- config eval: $main::Pay
--- request eval
["POST /pay", "POST /pay", "POST /pay\n{}", "POST /pay\nnull"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422, 422]
--- executions: a a - -



=== TEST 8: not JSON, or not one document
--- config eval: $main::Pay
--- request eval
main::equal('{', '{"a":1,}', '{"a":1}x', '{"a":1}{}', '{"a":NaN}', '{a:1}',
 'a=1', '{"a":1,"a":1}', '{"a":1,"\u0061":2}', '[{"b":{"c":1,"d":2,"c":3}}]',
 '{"a":"\ud800"}', '{"\udfff":1}', "{\"a\":\"\xc3\x28\"}",
 "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\xc0\xaf\"}", '{"a":01}', '{"a":1e400}',
 '{"a":-1e999999999999}', '{"a":1e-400}', "{\"a\":\"\t\"}", '// c', 'nul')
--- more_headers
Idempotency-Key: k
--- error_code eval
[(400) x 22]
--- response_body_like eval
[('"code":"body_invalid"') x 22]
--- response_headers eval
[("Idempotency-Retry: new-key\n!Retry-After") x 22]



=== TEST 9: nothing of that was executed, or claimed
--- request
POST /pay
{"a":1}
--- more_headers
Idempotency-Key: k
--- response_headers
!Idempotent-Replayed



=== TEST 10: the log says where, and nothing of the body
--- config eval: $main::Pay
--- request
POST /pay
{"card":"4242","card":"4343"}
--- more_headers
Idempotency-Key: k
--- error_code: 400
--- error_log
idempotency request body is not JSON: a name occurs twice at byte 15
--- no_error_log
4242
[error]



=== TEST 11: a hundred levels, and one more
--- config eval: $main::Pay
--- request eval
main::equal($main::Deep, $main::Deep, $main::Deeper, '[' x 9000, '{"a":' x 5000)
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 400, 400, 400]
--- executions: a a - - -



=== TEST 12: thousands of names in the opposite order, in a file
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint json;
        client_body_buffer_size 1k;
        proxy_pass http://up;
    }
--- request eval
main::equal($main::Many, $main::ManyBack,
            $main::ManyBack =~ s/"value":1500,/"value":1501,/r)
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422]
--- executions: a a -



=== TEST 13: ten megabytes
--- config eval: $main::Pay
--- request eval
main::equal("{\"a\":\"$main::Big\",\"b\":1}", "{\"b\":1,\"a\":\"$main::Big\"}",
            "{\"b\":1,\"a\":\"${main::Big}x\"}",
            '[' . '1,' x 2_000_000 . '1]')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422, 400]
--- executions: a a - -
--- timeout: 20



=== TEST 14: what changes on a retry is excluded
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint json exclude=nonce,meta.sent_at,items.trace exclude=sign;
        proxy_pass http://up;
    }
--- request eval
main::equal(
 '{"nonce":1,"amount":5,"meta":{"sent_at":"12:00","v":1},"items":[{"id":1,"trace":"x"}],"sign":"s"}',
 '{"nonce":2,"amount":5,"meta":{"sent_at":"12:01","v":1},"items":[{"id":1,"trace":"y"}]}',
 '{"amount":5,"meta":{"v":1},"items":[{"id":1}]}',
 '{"amount":6,"meta":{"v":1},"items":[{"id":1}]}',
 '{"amount":5,"meta":{"v":2},"items":[{"id":1}]}',
 '{"amount":5,"meta":{"v":1},"items":[{"id":2}]}',
 '{"amount":5,"meta":{"v":1,"nonce":1},"items":[{"id":1}]}',
 '{"nonce":1,"nonce":2,"amount":5,"meta":{"v":1},"items":[{"id":1}]}')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 422, 422, 422, 422, 400]
--- executions: a a a - - - - -



=== TEST 15: only what is included counts
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint json include=amount,payer.id exclude=payer.id.check;
        proxy_pass http://up;
    }
--- request eval
main::equal('{"amount":5,"payer":{"id":{"n":1,"check":2},"name":"A"},"x":1}',
 '{"payer":{"name":"B","id":{"n":1}},"amount":5.0}',
 '{"amount":5,"payer":{"id":{"n":2}}}', '{"amount":6,"payer":{"id":{"n":1}}}',
 '{"amount":5,"payer":{}}', '{"amount":null,"payer":{"id":{"n":1}}}',
 '{"payer":{"id":{"n":1}}}')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422, 422, 422, 422, 422]
--- executions: a a - - - - -



=== TEST 16: names with a dot or a comma
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint json exclude=a\.b,c\,d;
        proxy_pass http://up;
    }
--- request eval
main::equal('{"a.b":1,"c,d":2,"a":{"b":3}}', '{"a.b":2,"c,d":3,"a":{"b":3}}',
 '{"a.b":1,"c,d":2,"a":{"b":4}}')
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 422]
--- executions: a a -



=== TEST 17: with= counts as it does for raw
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint json with=$http_x_tenant;
        proxy_pass http://up;
    }

    location /args {
        idempotency main;
        idempotency_fingerprint json;
        proxy_pass http://up;
    }
--- request eval
['POST /pay?a=1
{"a":1}', 'POST /pay?a=2
{ "a":1}', 'POST /pay?a=1
{"a":1}', 'POST /args?a=1
{"a":1}', 'POST /args?a=2
{"a":1}']
--- more_headers eval
["Idempotency-Key: k\nX-Tenant: t", "Idempotency-Key: k\nX-Tenant: t",
 "Idempotency-Key: k\nX-Tenant: u", "Idempotency-Key: k", "Idempotency-Key: k"]
--- error_code eval
[200, 200, 422, 200, 422]
--- executions: a a - b -



=== TEST 18: a compressed body cannot be read
--- config eval: $main::Pay
--- request eval
main::equal(('{"a":1}') x 4)
--- more_headers eval
["Idempotency-Key: k\nContent-Encoding: gzip",
 "Idempotency-Key: k\nContent-Encoding: zstd",
 "Idempotency-Key: k\nContent-Encoding: Identity", "Idempotency-Key: k"]
--- error_code eval
[400, 400, 200, 200]
--- response_body_like eval
[('"code":"body_invalid"') x 2, ('^POST') x 2]
--- executions: - - a a



=== TEST 19: whatever type the request says
--- config eval: $main::Pay
--- request eval
main::equal('{"a":1}', '{"a": 1}', '{"a":1 }', 'a=1')
--- more_headers eval
["Idempotency-Key: k", "Idempotency-Key: k\nContent-Type: text/plain",
 "Idempotency-Key: k\nContent-Type: application/json",
 "Idempotency-Key: k\nContent-Type: application/x-www-form-urlencoded"]
--- error_code eval
[200, 200, 200, 400]
--- executions: a a a -



=== TEST 20: the body reaches the upstream as it was sent
--- http_config eval
$main::HttpConfig . <<'_EOC_';
    server {
        listen unix:$TEST_NGINX_HTML_DIR/see.sock;

        location / {
            proxy_pass http://up;
            add_header X-Body $request_body;
        }
    }
_EOC_
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint json;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/see.sock:;
    }
--- request
POST /pay
{ "b":1.0, "a":"\u0041" }
--- more_headers
Idempotency-Key: k
--- response_headers
X-Body: { "b":1.0, "a":"\u0041" }



=== TEST 21: with key and fingerprint of the body
--- http_config eval
"idempotency_json_set \$order order_no;\n" . $main::HttpConfig
--- config
    location /pay {
        idempotency main;
        idempotency_key $order;
        idempotency_fingerprint json exclude=sent;
        proxy_pass http://up;
    }
--- request eval
main::equal('{"order_no":7,"sent":1,"amount":5}', '{"amount":5,"order_no":7}',
 '{"amount":6,"order_no":7}', '{"amount":5,"order_no":8}')
--- error_code eval
[200, 200, 422, 200]
--- executions: a a - b



=== TEST 22: an unknown kind
--- http_config eval: $main::HttpConfig
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint xml;
    }
--- must_die
--- error_log
invalid value "xml" in "idempotency_fingerprint", it must be "raw", "json", "form", "multipart" or "off"



=== TEST 23: paths without fields
--- http_config eval: $main::HttpConfig
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint raw include=a;
    }
--- must_die
--- error_log
invalid parameter "include=a" in "idempotency_fingerprint"



=== TEST 24: empty names
--- http_config eval: $main::HttpConfig
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint json exclude=a..b;
    }
--- must_die
--- error_log
invalid path "a..b" in "idempotency_fingerprint", write names as in "exclude=nonce,meta.sent_at"



=== TEST 25: no path at all
--- http_config eval: $main::HttpConfig
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint json include=;
    }
--- must_die
--- error_log
invalid path "" in "idempotency_fingerprint"
