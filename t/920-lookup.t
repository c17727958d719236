# Lookups: what a caller is told about its own key, and how a location that
# tells it is configured. What operators may do is in 921-operator-changes.py.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our $Locations = <<'_EOC_';
    idempotency_scope pay;

    location /pay {
        idempotency main;
        proxy_pass http://up;
    }

    location = /look {
        idempotency_lookup main;
    }
_EOC_

run_tests();

__DATA__

=== TEST 1: nothing is known, then it was executed
--- config eval: $::Locations
--- request eval
["GET /look", "POST /pay\nx", "GET /look", "HEAD /look"]
--- more_headers
Idempotency-Key: k-1
--- error_code eval
[404, 200, 200, 200]
--- response_headers eval
["Content-Type: application/problem+json\nCache-Control: no-store\n"
 . "Idempotency-Retry: same-key", "",
 ("Content-Type: application/json\nCache-Control: no-store") x 2]
--- response_body_like eval
['^\{"type":"about:blank","title":"[^"]+","status":404,"detail":"[^"]+",'
 . '"code":"not_found"\}$', 'POST /pay',
 '^\{"record":"[0-9a-f]{64}","state":"done","fence":\d{16},'
 . '"created":\d{10},"age":\d+,"attempts":1,"ttl":(?:863\d\d|86400),'
 . '"status":200\}$', '^$']



=== TEST 2: each sees its own
--- config eval: $::Locations
--- request eval
["POST /pay\nx", "GET /look", "GET /look"]
--- more_headers eval
["Client: alice\nIdempotency-Key: k-2", "Client: bob\nIdempotency-Key: k-2",
 "Client: alice\nIdempotency-Key: k-2"]
--- error_code eval
[200, 404, 200]



=== TEST 3: a key as anywhere else
--- config eval: $::Locations
--- request eval
["POST /pay\nx", 'GET /look', "GET /look", "GET /look"]
--- more_headers eval
['Idempotency-Key: "k-3"', "Idempotency-Key: k-3", "X-Other: x",
 "Idempotency-Key: a b"]
--- error_code eval
[200, 200, 400, 400]
--- response_body_like eval
['POST /pay', '"state":"done"', '"code":"key_missing"',
 '"code":"key_invalid"']



=== TEST 4: no other method, and nothing that is for operators
--- config eval: $::Locations
--- request eval
["POST /pay\nx", "DELETE /look?fence=1", "POST /look?resolve=executed&fence=1",
 "PUT /look\nx", "GET /look?state=done", "GET /look?record=" . "0" x 64]
--- more_headers
Idempotency-Key: k-4
--- error_code eval
[200, 405, 405, 405, 200, 200]
--- response_headers eval
["", ("Allow: GET, HEAD\nContent-Type: application/problem+json") x 3, "", ""]
--- response_body_like eval
['POST /pay', ('"code":"method_not_allowed"') x 3,
 ('^\{"record":"[0-9a-f]{64}","state":"done"') x 2]



=== TEST 5: who asks
--- config eval
$::Locations =~ s/scope pay;/scope pay; idempotency_source \$http_client;/r
--- request
GET /look
--- more_headers
Idempotency-Key: k-5
--- error_code: 400
--- response_body_like: "code":"source_missing"



=== TEST 6: key, source and scope are those of the location
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;
    }

    location /status/ {
        idempotency_lookup main;
        idempotency_scope "POST /pay";
        idempotency_key $arg_key;
        idempotency_source $arg_who;
    }
--- request eval
["POST /pay\nx", "GET /status/?key=k-6&who=somebody",
 "GET /status/?key=k-6&who=else"]
--- more_headers
Idempotency-Key: k-6
--- error_code eval
[200, 200, 404]



=== TEST 7: an error page, as for any other answer
--- config eval
$::Locations . 'error_page 404 = @none; location @none { return 418; }'
--- request
GET /look
--- more_headers
Idempotency-Key: k-7
--- error_code: 418



=== TEST 8: a location of lookups needs the scope
--- config
    location = /look {
        idempotency_lookup main;
    }
--- must_die
--- error_log
location "/look" with "idempotency_lookup" needs "idempotency_scope"



=== TEST 9: and a source
--- http_config
    idempotency_store main shm:1m;
--- config
    location = /look {
        idempotency_lookup main;
        idempotency_scope pay;
    }
--- must_die
--- error_log
location "/look" with "idempotency_lookup" needs "idempotency_source"



=== TEST 10: a parameter that there is not
--- config
    location = /look {
        idempotency_lookup main root;
        idempotency_scope pay;
    }
--- must_die
--- error_log
invalid parameter "root" in "idempotency_lookup", it takes "admin" and "cancel"



=== TEST 11: a number cannot be cancelled
--- config
    location = /look {
        idempotency_lookup main cancel;
        idempotency_scope pay;
        idempotency_sequence strict;
    }
--- must_die
--- error_log
"idempotency_lookup" with "cancel" in location "/look" where "idempotency_sequence" is on: a number cannot be cancelled



=== TEST 12: a store that there is not
--- config
    location = /look {
        idempotency_lookup other;
        idempotency_scope pay;
    }
--- must_die
--- error_log
the store "other" that is named in



=== TEST 13: one handler for a location
--- config
    location = /look {
        idempotency_lookup main;
        idempotency_token main;
        idempotency_scope pay;
    }
--- must_die
--- error_log
"idempotency_token" directive is duplicate, or another handler
