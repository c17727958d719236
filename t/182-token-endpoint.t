# Tokens: what the endpoint that gives them out answers, and what a location
# that takes nothing else refuses. What becomes of a token that is used is in
# 186-token-spent-once.py.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

run_tests();

__DATA__

=== TEST 1: a token, by POST and by GET
--- config
    location = /token {
        idempotency_token main;
        idempotency_scope pay;
    }
--- request eval
["POST /token\nx=1", "GET /token", "POST /token"]
--- error_code eval
[200, 200, 200]
--- response_headers eval
[("Content-Type: application/json\nCache-Control: no-store") x 3]
--- response_body_like eval
[('^\{"token":"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-'
  . '[0-9a-f]{12}","expires_in":3600\}$') x 3]
--- executions: a b c



=== TEST 2: no other method
--- request eval
["PUT /token\nx", "DELETE /token", "HEAD /token"]
--- error_code eval
[405, 405, 405]
--- response_headers eval
[("Content-Type: application/problem+json\nAllow: GET, POST") x 3]
--- response_body_like eval
[('"code":"method_not_allowed"') x 2, '^$']



=== TEST 3: the time and version 7
--- config
    location = /token {
        idempotency_token main format=uuid7 ttl=90s;
        idempotency_scope pay;
    }
--- request eval
["POST /token", "POST /token"]
--- error_code eval
[200, 200]
--- response_body_like eval
[('^\{"token":"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-'
  . '[0-9a-f]{12}","expires_in":90\}$') x 2]
--- executions: a b



=== TEST 4: a number, as a string that JavaScript does not round
--- config
    location = /token {
        idempotency_token main format=snowflake node=1023;
        idempotency_scope pay;
    }
--- request eval
[("GET /token") x 3]
--- error_code eval
[200, 200, 200]
--- response_body_like eval
[('^\{"token":"\d{15,19}","expires_in":3600\}$') x 3]
--- executions: a b c



=== TEST 5: nobody asks for it
--- config
    location = /token {
        idempotency_token main;
        idempotency_scope pay;
        idempotency_source $http_client;
    }
--- request eval
["POST /token", "POST /token"]
--- more_headers eval
["X-Other: x", "Client: c"]
--- error_code eval
[400, 200]
--- response_body_like eval
['"code":"source_missing"', '"token"']



=== TEST 6: a server that protects everything still gives tokens
--- config
    idempotency main;
    idempotency_issued on;
    idempotency_scope pay;

    location = /token {
        if ($http_x_never) { return 404; }
        if ($http_x_if) { set $x 1; }
        idempotency_token main;
    }

    location /pay {
        proxy_pass http://up;
        add_header X-Result $idempotency_result;
    }
--- request eval
["POST /token", "POST /token", "POST /pay\nx"]
--- more_headers eval
["X-Other: x", "X-If: 1", "Idempotency-Key: mine"]
--- error_code eval
[200, 200, 403]
--- response_body_like eval
['"token"', '"token"', '"code":"not_issued"']
--- response_headers eval
["!Idempotency-Retry", "!Idempotency-Retry",
 "Content-Type: application/problem+json\nCache-Control: no-store\n"
 . "Idempotency-Retry: new-key"]



=== TEST 7: what the variable says of it
--- config
    location /pay {
        idempotency main;
        idempotency_issued on;
        error_page 403 = @said;
        proxy_pass http://up;
    }

    location @said {
        return 418 $idempotency_result;
    }
--- request
POST /pay
x
--- more_headers
Idempotency-Key: mine
--- error_code: 418
--- response_body: not_issued



=== TEST 8: a location that gives tokens needs their scope
--- config
    location = /token {
        idempotency_token main;
    }
--- must_die
--- error_log
location "/token" with "idempotency_token" needs "idempotency_scope"



=== TEST 9: and a source
--- http_config
    idempotency_store main shm:4m;
--- config
    location = /token {
        idempotency_token main;
        idempotency_scope pay;
    }
--- must_die
--- error_log
location "/token" with "idempotency_token" needs "idempotency_source"



=== TEST 10: no such format
--- config
    location = /token {
        idempotency_token main format=ulid;
        idempotency_scope pay;
    }
--- must_die
--- error_log
invalid parameter "format=ulid" in "idempotency_token"



=== TEST 11: no such node
--- config
    location = /token {
        idempotency_token main format=snowflake node=1024;
        idempotency_scope pay;
    }
--- must_die
--- error_log
invalid parameter "node=1024" in "idempotency_token"



=== TEST 12: a token that never was
--- config
    location = /token {
        idempotency_token main ttl=0;
        idempotency_scope pay;
    }
--- must_die
--- error_log
invalid parameter "ttl=0" in "idempotency_token"



=== TEST 13: two in one location
--- config
    location = /token {
        idempotency_token main;
        idempotency_token main;
        idempotency_scope pay;
    }
--- must_die
--- error_log
"idempotency_token" directive is duplicate
