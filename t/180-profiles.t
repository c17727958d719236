# Profiles: the defaults and the words of an API that clients know already.
#
# A profile decides what nobody has decided: a directive that was given, at
# whatever level, beats it, and of several profiles the innermost one counts.
# What a client of Stripe or of the Agentic Commerce Protocol looks at, status,
# type and code, is theirs; what must not happen, a second execution, is the
# same in all.

use Test::Nginx::Socket 'no_plan';
use JSON::PP ();

require './t/lib/contract.pl';

our ($HttpConfig, $Upstream);

our @Statuses = (200, 201, 400, 401, 402, 403, 404, 408, 422, 425, 429, 500,
                 501, 502, 503, 504, 599);

# an upstream whose answer has the status in the path, and a new id each time
sub statuses {
    my $config = $HttpConfig;

    $config =~ s/^(?=        location \/ \{)/
        CORE::join('', map {
            "        location = \/$_ { return $_ \"\$request_id\"; }\n"
        } @Statuses)/me;

    return $config;
}

our $Slow = $HttpConfig . <<'_EOC_';
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

our $Closing = $HttpConfig . <<'_EOC_';
    server {
        listen unix:$TEST_NGINX_HTML_DIR/closing.sock;
        return 444;
    }
_EOC_

# "errors" has a word for each request: TYPE/CODE of the error object of
# Stripe ("stripe:") or of the protocol ("acp:"), or "-" for any body

add_response_body_check(sub {
    my ($block, $body, $request, undef, $dry_run) = @_;

    return if $dry_run || !defined $block->errors;

    my $name = $block->name;
    my $word = (split ' ', $block->errors)[$request];

    return if $word eq '-';

    my ($profile, $type, $code, $more) = split m{[:/+]}, $word;
    my $error = eval { JSON::PP::decode_json($body) } || {};

    if ($profile eq 'stripe') {
        Test::More::is(CORE::join(' ', keys %$error), 'error',
                       "$name - nothing but an error $request");
        $error = $error->{error} || {};
    }

    Test::More::is($error->{type}, $type, "$name - type $request");
    Test::More::is($error->{code}, $code, "$name - code $request");
    Test::More::is(CORE::join(' ', sort keys %$error),
                   CORE::join(' ', sort qw(type code message),
                                        defined $more ? $more : ()),
                   "$name - members $request");
});

run_tests();

__DATA__

=== TEST 1: stripe: without a key a request passes
--- config
    location ~ / {
        idempotency main;
        idempotency_profile stripe;
        proxy_pass http://up;
        add_header X-Result $idempotency_result;
    }
--- request eval
["POST /v1/charges\nx", "POST /v1/charges\nx"]
--- error_code eval
[200, 200]
--- response_headers eval
[("X-Result: bypassed") x 2]
--- executions: a b



=== TEST 2: stripe: a key counts for all paths, and belongs to one of them
--- request eval
["POST /v1/charges\nx", "POST /v1/charges\nx", "POST /v1/refunds\nx",
 "PATCH /v1/charges\nx", "POST /v1/charges?a=1\nx", "POST /v1/charges\ny",
 "POST /v1/charges\nx"]
--- more_headers
Idempotency-Key: k2
--- error_code eval
[200, 200, 400, 400, 400, 400, 200]
--- response_headers eval
["!Idempotent-Replayed\n!Stripe-Should-Retry", "Idempotent-Replayed: true",
 ("Content-Type: application/json\nCache-Control: no-store\n"
  . "Idempotency-Retry: same-key\nStripe-Should-Retry: false") x 4,
 "Idempotent-Replayed: true"]
--- errors: - - stripe:idempotency_error/key_reused stripe:idempotency_error/key_reused stripe:idempotency_error/key_reused stripe:idempotency_error/key_reused -
--- executions: a a - - - - a



=== TEST 3: stripe: a malformed key
--- request
POST /v1/charges
x
--- more_headers
Idempotency-Key: "
--- error_code: 400
--- response_headers
Stripe-Should-Retry: false
--- errors: stripe:invalid_request_error/key_invalid



=== TEST 4: stripe: the client leaves
--- http_config eval: $main::Slow
--- config
    location ~ / {
        idempotency main;
        idempotency_profile stripe;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/slow.sock:;
    }
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k
--- timeout: 0.3
--- abort
--- ignore_response



=== TEST 5: stripe: in flight
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k
--- error_code: 409
--- response_headers
Content-Type: application/json
Stripe-Should-Retry: true
Idempotency-Retry: same-key
Retry-After: 1
--- errors: stripe:idempotency_error/idempotency_key_in_use
--- error_log
code "in_progress"



=== TEST 6: stripe: what the upstream has said is kept, whatever it was
--- http_config eval: main::statuses()
--- config
    location ~ / {
        idempotency main;
        idempotency_profile stripe;
        proxy_pass http://up;
    }
--- request eval
[map { ("POST /$_\nx") x 2 } @main::Statuses]
--- more_headers eval
[map { ("Idempotency-Key: k$_") x 2 } @main::Statuses]
--- error_code eval
[map { ($_) x 2 } @main::Statuses]
--- response_headers eval
[map { ("!Idempotent-Replayed", "Idempotent-Replayed: true") }
     @main::Statuses]
--- executions eval
CORE::join(" ", map { ("s$_") x 2 } @main::Statuses)



=== TEST 7: stripe: no answer is still no answer
--- http_config eval: $main::Closing
--- config
    location ~ / {
        idempotency main;
        idempotency_profile stripe;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/closing.sock:;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[502, 409]
--- errors: - stripe:idempotency_error/outcome_unknown



=== TEST 8: stripe: what was given beats the profile
--- http_config eval: main::statuses()
--- config
    location ~ / {
        idempotency main;
        idempotency_profile stripe;
        idempotency_required on;
        idempotency_retryable 503;
        idempotency_scope "$request_method $uri";
        proxy_pass http://up;
    }
--- request eval
["POST /200\nx", "POST /503\nx", "POST /503\nx", "POST /500\nx",
 "POST /500\nx", "POST /200\nx"]
--- more_headers eval
["X-Other: x", ("Idempotency-Key: k8") x 5]
--- error_code eval
[400, 503, 503, 500, 500, 200]
--- errors: stripe:invalid_request_error/key_missing - - - - -
--- executions: - a b c c d



=== TEST 9: stripe: a fingerprint without "with=" still has method and path
--- config
    location ~ / {
        idempotency main;
        idempotency_profile stripe;
        idempotency_fingerprint raw;
        proxy_pass http://up;
    }

    location ^~ /args/ {
        idempotency main;
        idempotency_profile stripe;
        idempotency_fingerprint raw with=$args;
        proxy_pass http://up;
    }
--- request eval
["POST /a\nx", "POST /b\nx", "POST /args/a?1\nx", "POST /args/b?1\nx",
 "POST /args/b?2\nx"]
--- more_headers eval
[("Idempotency-Key: k9") x 2, ("Idempotency-Key: k9-args") x 3]
--- error_code eval
[200, 400, 200, 200, 400]
--- executions: a - b b -



=== TEST 10: acp: no key
--- http_config eval: main::statuses()
--- config
    location ~ / {
        idempotency main;
        idempotency_profile acp;
        proxy_pass http://up;
    }
--- request
POST /checkout_sessions
x
--- error_code: 400
--- response_headers
Content-Type: application/json
Cache-Control: no-store
!Stripe-Should-Retry
--- errors: acp:invalid_request/idempotency_key_required



=== TEST 11: acp: another body, and a key that counts for one path
--- request eval
["POST /checkout_sessions\nx", "POST /checkout_sessions\nx",
 "POST /checkout_sessions\ny", "POST /checkout_sessions/1/complete\nx"]
--- more_headers
Idempotency-Key: k11
--- error_code eval
[200, 200, 422, 200]
--- errors: - - acp:invalid_request/idempotency_conflict -
--- executions: a a - b



=== TEST 12: acp: what a 5xx has answered is not kept
--- request eval
[map { ("POST /$_\nx") x 2 } 500, 501, 502, 503, 504, 599]
--- more_headers eval
[map { ("Idempotency-Key: k$_") x 2 } 500, 501, 502, 503, 504, 599]
--- error_code eval
[map { ($_) x 2 } 500, 501, 502, 503, 504, 599]
--- response_headers eval
[map { ("!Idempotent-Replayed") x 2 } 500, 501, 502, 503, 504, 599]
--- executions eval
CORE::join(" ", map { ("a$_", "b$_") } 500, 501, 502, 503, 504, 599)



=== TEST 13: acp: what was the client's fault is
--- request eval
[map { ("POST /$_\nx") x 2 } 201, 400, 402, 404, 422]
--- more_headers eval
[map { ("Idempotency-Key: k$_") x 2 } 201, 400, 402, 404, 422]
--- error_code eval
[map { ($_) x 2 } 201, 400, 402, 404, 422]
--- executions eval
CORE::join(" ", map { ("a$_") x 2 } 201, 400, 402, 404, 422)



=== TEST 14: acp: no answer stays unknown
--- http_config eval: $main::Closing
--- config
    location ~ / {
        idempotency main;
        idempotency_profile acp;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/closing.sock:;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[502, 409]
--- errors: - acp:processing_error/outcome_unknown



=== TEST 15: acp: the client leaves
--- http_config eval: $main::Slow
--- config
    location ~ / {
        idempotency main;
        idempotency_profile acp;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/slow.sock:;
    }
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k
--- timeout: 0.3
--- abort
--- ignore_response



=== TEST 16: acp: in flight
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k
--- error_code: 409
--- response_headers
Retry-After: 1
--- errors: acp:invalid_request/idempotency_in_flight



=== TEST 17: the innermost profile counts, for all that nobody has given
--- http_config eval: main::statuses() . "idempotency_profile stripe;"
--- config
    idempotency main;
    idempotency_retryable 599;

    location ~ / {
        proxy_pass http://up;
    }

    location ^~ /acp/ {
        idempotency_profile acp;
        proxy_pass http://up/;

        location ^~ /acp/ietf/ {
            idempotency_profile ietf;
            proxy_pass http://up/;
        }
    }
--- request eval
["POST /200\nx", "POST /acp/200\nx", "POST /acp/ietf/200\nx",
 ("POST /599\nx") x 2, ("POST /acp/599\nx") x 2, ("POST /acp/500\nx") x 2,
 ("POST /acp/ietf/500\nx") x 2, ("POST /acp/ietf/503\nx") x 2]
--- more_headers eval
[("X-Other: x") x 3, ("Idempotency-Key: a") x 2, ("Idempotency-Key: b") x 2,
 ("Idempotency-Key: c") x 2, ("Idempotency-Key: d") x 2,
 ("Idempotency-Key: e") x 2]
--- error_code eval
[200, 400, 400, 599, 599, 599, 599, 500, 409, 500, 500, 503, 409]
--- errors: - acp:invalid_request/idempotency_key_required - - - - - - acp:processing_error/outcome_unknown - - - -
--- executions: - - - a b c d e - f f g -



=== TEST 18: where clients can read about it
--- config
    location ~ / {
        idempotency main;
        idempotency_profile stripe;
        idempotency_describedby https://api.example.com/keys;
        proxy_pass http://up;
    }
--- request eval
["POST /a\nx", "POST /a\ny"]
--- more_headers
Idempotency-Key: k18
--- error_code eval
[200, 400]
--- errors: - stripe:idempotency_error/key_reused+doc_url



=== TEST 19: an error_page is asked for the profile's status
--- config
    error_page 400 = @mine;

    location ~ / {
        idempotency main;
        idempotency_profile stripe;
        proxy_pass http://up;
    }

    location @mine {
        return 418 "$idempotency_result";
    }
--- request eval
["POST /a\nx", "POST /a\ny"]
--- more_headers
Idempotency-Key: k19
--- error_code eval
[200, 418]
--- response_body_like eval
['POST', 'mismatch']



=== TEST 20: a rejected duplicate tells the status it had
--- config
    location ~ / {
        idempotency main;
        idempotency_profile stripe;
        idempotency_duplicate reject;
        proxy_pass http://up;
    }
--- request eval
["POST /a\nx", "POST /a\nx"]
--- more_headers
Idempotency-Key: k20
--- error_code eval
[200, 409]
--- response_headers eval
["", "Stripe-Should-Retry: false"]
--- errors: - stripe:idempotency_error/duplicate+original_status



=== TEST 21: no such profile
--- config
    location ~ / {
        idempotency main;
        idempotency_profile paypal;
    }
--- must_die
--- error_log
invalid value "paypal" in "idempotency_profile", it must be "ietf", "stripe", "acp", "ucp", "oasis" or "jsonrpc"
