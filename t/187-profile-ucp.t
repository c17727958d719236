# Profile ucp: what the Universal Commerce Protocol asks of a business.
#
# Its conformance suite has four cases of idempotency (idempotency_test.py):
# create, update, complete and cancel a checkout. Each is here with the paths,
# headers and bodies of the suite: the duplicate gets status and body of the
# first answer, and the same key with another payload gets 409. Errors are a
# "code" and a "content". A key is kept for 48 hours, as the specification
# recommends.

use Test::Nginx::Socket 'no_plan';
use JSON::PP ();

require './t/lib/contract.pl';

our ($HttpConfig, $Upstream);

our $Agent = 'UCP-Agent: profile="http://localhost:9999/profile.json"' . "\n"
             . "Content-Type: application/json\nrequest-signature: test\n";

our $Create = '{"currency": "USD", "line_items": [{"item": {"id": '
              . '"bouquet_roses", "title": "Roses"}, "quantity": 1}], '
              . '"payment": {"instruments": []}}';

our $Update = '{"id": "co_1", "currency": "USD", "line_items": [{"item": '
              . '{"id": "bouquet_roses", "title": "Roses"}, "quantity": 2, '
              . '"id": "li_1"}], "payment": {"instruments": []}}';

our $Complete = '{"payment_data": {"id": "instr_1", "handler_id": '
                . '"mock_payment_handler", "type": "card", "credential": '
                . '{"type": "token", "token": "success_token"}}}';

our $Config = <<'_EOC_';
    location /checkout-sessions {
        idempotency main;
        idempotency_profile ucp;
        proxy_pass http://up;
    }
_EOC_

# "errors" has a word for each request: the code of an error of the protocol,
# or "-" for any body

add_response_body_check(sub {
    my ($block, $body, $request, undef, $dry_run) = @_;

    return if $dry_run || !defined $block->errors;

    my $name = $block->name;
    my $word = (split ' ', $block->errors)[$request];

    return if $word eq '-';

    my ($code, $more) = split m{\+}, $word;
    my $error = eval { JSON::PP::decode_json($body) } || {};

    Test::More::is($error->{code}, $code, "$name - code $request");
    Test::More::ok(length $error->{content}, "$name - content $request");
    Test::More::is(CORE::join(' ', sort keys %$error),
                   CORE::join(' ', sort qw(code content),
                                        defined $more ? $more : ()),
                   "$name - members $request");
});

run_tests();

__DATA__

=== TEST 1: test_idempotency_create
--- config eval: $main::Config
--- request eval
["POST /checkout-sessions\n$main::Create",
 "POST /checkout-sessions\n$main::Create",
 do { (my $eur = $main::Create) =~ s/USD/EUR/;
      "POST /checkout-sessions\n$eur" }]
--- more_headers eval
[map { "idempotency-key: 550e8400-e29b-41d4-a716-446655440000\n"
       . "request-id: r-$_\n" . $main::Agent } 1 .. 3]
--- error_code eval
[200, 200, 409]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true",
 "Content-Type: application/json\nCache-Control: no-store\n"
 . "Idempotency-Retry: same-key"]
--- errors: - - key_reused
--- executions: a a -



=== TEST 2: test_idempotency_update, by PUT
--- config eval: $main::Config
--- request eval
["PUT /checkout-sessions/co_1\n$main::Update",
 "PUT /checkout-sessions/co_1\n$main::Update",
 do { (my $three = $main::Update) =~ s/"quantity": 2/"quantity": 3/;
      "PUT /checkout-sessions/co_1\n$three" }]
--- more_headers eval
"idempotency-key: 550e8400-e29b-41d4-a716-446655440001\n" . $main::Agent
--- error_code eval
[200, 200, 409]
--- errors: - - key_reused
--- executions: a a -



=== TEST 3: test_idempotency_complete
--- config eval: $main::Config
--- request eval
["POST /checkout-sessions/co_1/complete\n$main::Complete",
 "POST /checkout-sessions/co_1/complete\n$main::Complete",
 do { (my $other = $main::Complete) =~ s/success_token/different_token/;
      "POST /checkout-sessions/co_1/complete\n$other" }]
--- more_headers eval
"idempotency-key: 550e8400-e29b-41d4-a716-446655440002\n" . $main::Agent
--- error_code eval
[200, 200, 409]
--- errors: - - key_reused
--- executions: a a -



=== TEST 4: test_idempotency_cancel, without a body
--- config eval: $main::Config
--- request eval
["POST /checkout-sessions/co_1/cancel",
 "POST /checkout-sessions/co_1/cancel"]
--- more_headers eval
"idempotency-key: 550e8400-e29b-41d4-a716-446655440003\n" . $main::Agent
--- error_code eval
[200, 200]
--- executions: a a



=== TEST 5: bodies are compared byte by byte
--- config eval: $main::Config
--- request eval
["POST /checkout-sessions\n{\"a\":1,\"b\":2}",
 "POST /checkout-sessions\n{\"a\":1, \"b\":2}"]
--- more_headers
Idempotency-Key: k5
--- error_code eval
[200, 409]
--- errors: - key_reused



=== TEST 6: a key is needed, a GET needs none
--- config eval: $main::Config
--- request eval
["POST /checkout-sessions\nx", "PUT /checkout-sessions/1\nx",
 "GET /checkout-sessions/1"]
--- error_code eval
[400, 400, 200]
--- errors: key_missing key_missing -
--- response_body_like eval
["The header Idempotency-Key is missing", "", ""]



=== TEST 7: the same key at another path or method is another operation
--- config eval: $main::Config
--- request eval
["POST /checkout-sessions/1/complete\nx",
 "POST /checkout-sessions/2/complete\nx",
 "PUT /checkout-sessions/1/complete\nx"]
--- more_headers
Idempotency-Key: k7
--- error_code eval
[200, 200, 200]
--- executions: a b c



=== TEST 8: a key is kept for two days
--- config
    idempotency_scope checkout;
    idempotency_profile ucp;

    location /checkout-sessions {
        idempotency main;
        proxy_pass http://up;
    }

    location = /shorter {
        idempotency main;
        idempotency_ttl 1h;
        proxy_pass http://up;
    }

    location = /key {
        idempotency_lookup main;
    }
--- request eval
["POST /checkout-sessions\nx", "GET /key", "POST /shorter\nx", "GET /key"]
--- more_headers eval
[("Idempotency-Key: k8") x 2, ("Idempotency-Key: k9") x 2]
--- error_code eval
[200, 200, 200, 200]
--- response_body_like eval
["", '"ttl":(172800|17279\d)\b', "", '"ttl":(3600|359\d)\b']



=== TEST 9: what was given beats the profile
--- config
    location /checkout-sessions {
        idempotency main;
        idempotency_profile ucp;
        idempotency_methods POST;
        idempotency_required off;
        idempotency_key $http_x_key;
        proxy_pass http://up;
    }
--- request eval
["PUT /checkout-sessions\nx", "PUT /checkout-sessions\nx",
 "POST /checkout-sessions\nx", "POST /checkout-sessions\nx",
 "POST /checkout-sessions\nx"]
--- more_headers eval
[("X-Key: k10") x 4, "Idempotency-Key: k10"]
--- error_code eval
[200, 200, 200, 200, 200]
--- executions: a b c c d



=== TEST 10: the key of an outer level stays, the default is the profile's
--- http_config eval: $main::HttpConfig . "idempotency_profile stripe;"
--- config
    idempotency main;
    idempotency_key $http_x_key;

    location /checkout-sessions {
        idempotency_profile ucp;
        proxy_pass http://up;
    }

    location /else {
        proxy_pass http://up;
    }
--- request eval
["PUT /checkout-sessions\nx", "PUT /checkout-sessions\nx", "PUT /else\nx",
 "PUT /else\nx", "POST /else\nx", "POST /else\nx"]
--- more_headers
X-Key: k11
--- error_code eval
[200, 200, 200, 200, 200, 200]
--- executions: a a b c d d



=== TEST 11: no answer, and what follows
--- http_config eval
$main::HttpConfig . <<'_EOC_'
    server {
        listen unix:$TEST_NGINX_HTML_DIR/closing.sock;
        return 444;
    }
_EOC_
--- config
    location /checkout-sessions {
        idempotency main;
        idempotency_profile ucp;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/closing.sock:;
    }
--- request eval
["POST /checkout-sessions\nx", "POST /checkout-sessions\nx"]
--- more_headers
Idempotency-Key: k12
--- error_code eval
[502, 409]
--- response_headers eval
[("Content-Type: application/json\nIdempotency-Retry: same-key\n"
  . "Retry-After: 60") x 2]
--- errors: outcome_unknown outcome_unknown
