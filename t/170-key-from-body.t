# Key, source and scope from anywhere: headers, arguments, cookies, maps, and
# fields of the body. Where fields are used the body is read first, wherever
# it is kept; a body that is not what it claims to be executes nothing. What
# is not there is empty, and an empty key is a missing one.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our $HttpConfig;

our $Fields = <<'_EOC_' . $HttpConfig;
    idempotency_json_set $json_order    order_no;
    idempotency_json_set $json_merchant merchant id;
    idempotency_json_set $json_deep     a b c d;
    idempotency_json_set $json_case     orderNo;
    idempotency_form_set $form_order    order_no;
    idempotency_form_set $form_merchant merchant;

    map $json_order $mapped {
        ""        "";
        default   "order-$json_order";
    }

    map "$json_merchant$form_merchant" $either {
        default   $json_merchant$form_merchant;
    }
_EOC_

our $Big = '"filler":"' . 'x' x 60_000 . '"';

sub json { return "Content-Type: application/json" . join '', map { "\n$_" } @_ }
sub form {
    return "Content-Type: application/x-www-form-urlencoded"
           . join '', map { "\n$_" } @_;
}

run_tests();

__DATA__

=== TEST 1: an argument, a cookie, a map, and several in one value
--- config
    location /arg {
        idempotency main;
        idempotency_key $arg_id;
        idempotency_fingerprint off;
        proxy_pass http://up;
    }

    location /cookie {
        idempotency main;
        idempotency_key $cookie_id;
        proxy_pass http://up;
    }

    location /both {
        idempotency main;
        idempotency_key $http_source-$http_seq;
        proxy_pass http://up;
    }
--- request eval
["POST /arg?id=1", "POST /arg?id=1", "POST /arg?id=2", "POST /arg",
 "POST /cookie", "POST /cookie", "POST /both", "POST /both", "POST /both"]
--- more_headers eval
["X: x", "X: x", "X: x", "X: x", "Cookie: id=7", "Cookie: a=b; id=7",
 "Source: a\nSeq: 1", "Source: a\nSeq: 1", "Source: a\nSeq: 2"]
--- error_code eval
[200, 200, 200, 400, 200, 200, 200, 200, 200]
--- executions: a a b - c c d d e



=== TEST 2: a field of a JSON body
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $json_order;
        proxy_pass http://up;
    }

    location /deep {
        idempotency main;
        idempotency_key $json_deep;
        proxy_pass http://up;
    }

    location /case {
        idempotency main;
        idempotency_key $json_case;
        proxy_pass http://up;
    }
--- request eval
['POST /pay
{"order_no":"A1","amount":1}',
'POST /pay
{"order_no":"A1","amount":1}',
'POST /pay
{"order_no":"A1","amount":2}',
'POST /pay
{"order_no":"A2","amount":1}',
'POST /deep
{"x":0,"a":{"b":{"c":{"d":"D"}}}}',
'POST /deep
{"x":0,"a":{"b":{"c":{"d":"D"}}}}',
'POST /case
{"orderNo":"1","orderno":"2"}',
'POST /case
{"orderNo":"1","orderno":"2"}']
--- more_headers eval: main::json()
--- error_code eval
[200, 200, 422, 200, 200, 200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true", "!Idempotent-Replayed",
 "!Idempotent-Replayed", "!Idempotent-Replayed", "Idempotent-Replayed: true",
 "!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a - b c c d d



=== TEST 3: numbers in all their forms are one key, strings are decoded
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $json_order;
        idempotency_fingerprint off;
        proxy_pass http://up;
    }
--- request eval
['POST /pay
{"order_no":1000}',
'POST /pay
{"order_no":1e3}',
'POST /pay
{"order_no":1000.0}',
'POST /pay
{"order_no":"1000"}',
'POST /pay
{"order_no":"\u0041b"}',
'POST /pay
{"order_no":"Ab"}',
'POST /pay
{"order_no":9007199254740993}',
'POST /pay
{"order_no":9007199254740992}',
'POST /pay
{"order\u005fno":"Ab"}']
--- more_headers eval: main::json()
--- error_code eval
[(200) x 9]
--- executions: a a a a b b c d b



=== TEST 4: absent, null, empty, and what is neither number nor string
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $json_order;
        proxy_pass http://up;
    }
--- request eval
[map { "POST /pay\n$_" } '{}', '{"order_no":null}', '{"order_no":""}',
 '{"order_no":{}}', '{"order_no":["A"]}', '{"order_no":true}', '[]', '"A"',
 '{"a":{"order_no":"A"}}', '{"ORDER_NO":"A"}']
--- more_headers eval: main::json()
--- error_code eval
[(400) x 10]
--- response_body_like eval
[('"code":"key_missing"') x 10]



=== TEST 5: no body, and no key required
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $json_order;
        proxy_pass http://up;
    }

    location /free {
        idempotency main;
        idempotency_key $json_order;
        idempotency_required off;
        proxy_pass http://up;
    }
--- request eval
["POST /pay", "POST /free", "POST /free", "POST /free\n{}",
 "POST /free\n{", 'POST /free
{"order_no":1}', 'POST /free
{"order_no":1}']
--- more_headers eval: main::json()
--- error_code eval
[400, 200, 200, 200, 400, 200, 200]
--- response_body_like eval
['"code":"key_missing"', '^POST', '^POST', '^POST', '"code":"body_invalid"',
 '^POST', '^POST']
--- executions: - a b c - d d



=== TEST 6: a body which is not what it claims to be
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $json_order;
        proxy_pass http://up;
    }
--- request eval
[map { "POST /pay\n$_" } '{', '{"order_no":"A"', '{"order_no":"A"}}',
 '{"order_no":"A","order_no":"A"}', '{"order_no":"A","x":{"y":1,"y":2}}',
 "{'order_no':'A'}", '{"order_no":"\ud800"}', "{\"order_no\":\"\xff\"}",
 "\xef\xbb\xbf{\"order_no\":\"A\"}", '{"order_no":01}', '{"order_no":1e999}',
 'order_no=A']
--- more_headers eval: main::json()
--- error_code eval
[(400) x 12]
--- response_headers eval
[("Content-Type: application/problem+json\nIdempotency-Retry: new-key") x 12]
--- response_body_like eval
[('"code":"body_invalid"') x 12]



=== TEST 7: the log says what is wrong, and nothing of the body
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $json_order;
        proxy_pass http://up;
    }
--- request
POST /pay
{"order_no":"secret-number"
--- more_headers eval: main::json()
--- error_code: 400
--- error_log
idempotency request body is not JSON: unexpected end at byte 27
--- no_error_log
secret-number
[error]



=== TEST 8: the type decides which variables a body has
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $json_order$form_order;
        idempotency_fingerprint off;
        proxy_pass http://up;
    }
--- request eval
['POST /pay
{"order_no":"A"}',
"POST /pay\norder_no=A",
'POST /pay
{"order_no":"A"}',
'POST /pay
{"order_no":"A"}',
'POST /pay
{"order_no":"A"}',
'POST /pay
{"order_no":"A"}',
"POST /pay\norder_no=A"]
--- more_headers eval
[main::json(), main::form(), "X: x", "Content-Type: text/json; charset=utf-8",
 "Content-Type: application/vnd.api+JSON", "Content-Type: text/plain",
 "Content-Type: text/plain"]
--- error_code eval
[200, 200, 200, 200, 200, 400, 400]
--- response_body_like eval
['^POST', '^POST', '^POST', '^POST', '^POST', '"code":"key_missing"',
 '"code":"key_missing"']
--- executions: a a a a a - -



=== TEST 9: a field of a form
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $form_order;
        idempotency_fingerprint off;
        proxy_pass http://up;
    }
--- request eval
[map { "POST /pay\n$_" } 'order_no=A', 'amount=1&order_no=A&x', 'order_no=%41',
 'order%5fno=A', 'order_no=B', 'order_no=', 'order_no', 'x=1',
 'order_no=A&order_no=A', 'order_no=%', 'a=1&b=%zz&order_no=A',
 'order_no=A&x=1&x=2']
--- more_headers eval: main::form()
--- error_code eval
[(200) x 5, (400) x 6, 200]
--- response_body_like eval
[('^POST') x 5, ('"code":"key_missing"') x 3, ('"code":"body_invalid"') x 3,
 '^POST']
--- executions: a a a a b - - - - - - a



=== TEST 10: the source of the body, through a map, and the scope, too
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_source $either;
        idempotency_scope "$json_order$form_order";
        idempotency_fingerprint off;
        proxy_pass http://up;
    }
--- request eval
['POST /pay
{"merchant":{"id":"M1"},"order_no":1}',
'POST /pay
{"order_no":1,"merchant":{"id":"M1"}}',
'POST /pay
{"merchant":{"id":"M2"},"order_no":1}',
'POST /pay
{"merchant":{"id":"M1"},"order_no":2}',
"POST /pay\nmerchant=M1&order_no=1",
'POST /pay
{"merchant":{},"order_no":2}',
"POST /pay\nmerchant=&order_no=1",
"POST /pay\nmerchant=M1&merchant=M2&order_no=1"]
--- more_headers eval
[(main::json("Idempotency-Key: k")) x 4, main::form("Idempotency-Key: k"),
 main::json("Idempotency-Key: k"), (main::form("Idempotency-Key: k")) x 2]
--- error_code eval
[(200) x 5, 400, 400, 400]
--- response_body_like eval
[('^POST') x 5, ('"code":"source_missing"') x 2, '"code":"body_invalid"']
--- executions: a a b c a - - -



=== TEST 11: through a map
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $mapped;
        add_header X-Key $idempotency_key always;
        proxy_pass http://up;
    }
--- request eval
['POST /pay
{"order_no":"A1"}',
'POST /pay
{"order_no":"A1"}',
'POST /pay
{"order_no":"A2"}',
'POST /pay
{}']
--- more_headers eval: main::json()
--- error_code eval
[200, 200, 200, 400]
--- response_headers eval
["X-Key: order-A1", "X-Key: order-A1\nIdempotent-Replayed: true",
 "X-Key: order-A2", "!X-Key"]
--- executions: a a b -



=== TEST 12: in a file, in pieces, in memory
--- http_config eval: $main::Fields
--- config
    location /memory {
        idempotency main;
        idempotency_scope "";
        idempotency_key $json_order;
        client_body_buffer_size 128k;
        proxy_pass http://up;
    }

    location /file {
        idempotency main;
        idempotency_scope "";
        idempotency_key $json_order;
        client_body_buffer_size 1k;
        proxy_pass http://up;
    }

    location /only {
        idempotency main;
        idempotency_scope "";
        idempotency_key $json_order;
        client_body_in_file_only clean;
        proxy_pass http://up;
    }
--- request eval
[(map { "POST /$_\n{$main::Big,\"order_no\":\"A1\"}" } qw(memory file only)),
 (map { "POST /$_\n{$main::Big,\"order_no\":\"A1\"" } qw(memory file only)),
 (map { "POST /$_\n{$main::Big,\"order_no\":\"A2\"}" } qw(file only))]
--- more_headers eval: main::json()
--- error_code eval
[200, 200, 200, 400, 400, 400, 200, 200]
--- executions: a a a - - - b b



=== TEST 13: in many packets
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $json_order;
        proxy_pass http://up;
    }
--- raw_request eval
["POST /pay HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
 . "Content-Type: application/json\r\nConnection: close\r\n\r\n",
 "4\r\n{\"or\r\n", "9\r\nder_no\":\"\r\n", "4\r\nA1\"}\r\n", "0\r\n\r\n"]
--- raw_request_middle_delay
0.05
--- response_headers
!Idempotent-Replayed



=== TEST 14: and once more in one
--- request
POST /pay
{"order_no":"A1"}
--- more_headers eval: main::json()
--- response_headers
Idempotent-Replayed: true



=== TEST 15: a compressed body has no fields, one that is not compressed has
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $json_order;
        proxy_pass http://up;
    }
--- request eval
[('POST /pay
{"order_no":"A1"}') x 4]
--- more_headers eval
[main::json("Content-Encoding: gzip"), main::json("Content-Encoding: br"),
 main::json("Content-Encoding: identity"), main::json()]
--- error_code eval
[400, 400, 200, 200]
--- response_body_like eval
[('"code":"body_invalid"') x 2, ('^POST') x 2]
--- executions: - - a a



=== TEST 16: the key of the body is a key: what it may be made of
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $json_order;
        idempotency_max_key 5;
        proxy_pass http://up;
    }
--- request eval
[map { "POST /pay\n{\"order_no\":\"$_\"}" } '123456', 'a b', '\u00e9', '\u0000',
 '\n', '12345']
--- more_headers eval: main::json()
--- error_code eval
[400, 400, 400, 400, 400, 200]
--- response_body_like eval
[('"code":"key_invalid"') x 5, '^POST']



=== TEST 17: access comes first, a key header that is missing comes before it
--- http_config eval: $main::Fields
--- config
    location /denied {
        idempotency main;
        idempotency_key $json_order;
        deny all;
        proxy_pass http://up;
    }

    location /header {
        idempotency main;
        idempotency_scope $json_order;
        deny all;
        proxy_pass http://up;
    }
--- request eval
["POST /denied\n{", "POST /header\n{", 'POST /header
{"order_no":1}']
--- more_headers eval
[main::json(), main::json(), main::json("Idempotency-Key: k")]
--- error_code eval
[403, 400, 403]
--- response_body_like eval
['403 Forbidden', '"code":"key_missing"', '403 Forbidden']



=== TEST 18: where nothing is protected they are empty
--- http_config eval: $main::Fields
--- config
    location /plain {
        add_header X-Field "<$json_order>";
        proxy_pass http://up;
    }

    location /pay {
        idempotency main;
        idempotency_key $http_key;
        add_header X-Field "<$json_order>";
        proxy_set_header X-Order $json_order;
        proxy_pass http://up;
    }
--- request eval
['POST /plain
{"order_no":"A1"}',
'POST /pay
{"order_no":"A1"}',
'POST /pay
{"order_no":"A1"}',
"GET /pay"]
--- more_headers eval
[(main::json("Key: k")) x 3, main::json()]
--- error_code eval
[200, 200, 200, 200]
--- response_headers eval
["X-Field: <>", "X-Field: <A1>",
 "X-Field: <A1>\nIdempotent-Replayed: true", "X-Field: <>"]



=== TEST 19: an error of the body is what error_page gets
--- http_config eval: $main::Fields
--- config
    location /pay {
        idempotency main;
        idempotency_key $json_order;
        error_page 400 = @bad;
        proxy_pass http://up;
    }

    location @bad {
        return 418 "$idempotency_result\n";
    }
--- request
POST /pay
{
--- more_headers eval: main::json()
--- error_code: 418
--- response_body
invalid



=== TEST 20: a wrong name
--- http_config
    idempotency_json_set order order_no;
--- config
--- must_die
--- error_log
invalid variable name "order" in "idempotency_json_set", write it with its dollar, as in "idempotency_json_set $order order_no;"



=== TEST 21: a variable that exists
--- http_config
    idempotency_form_set $order a;
    idempotency_json_set $order a;
--- config
--- must_die
--- error_log
the duplicate "order" variable



=== TEST 22: no name
--- http_config
    idempotency_json_set $order;
--- config
--- must_die
--- error_log
invalid number of arguments in "idempotency_json_set" directive
