# The module's own answers: status, code and advice of the documented table,
# as application/problem+json, not to be cached. error_page may replace the
# page, never the advice.

use Test::Nginx::Socket 'no_plan';
use JSON::PP ();

require './t/lib/contract.pl';

our $HttpConfig;

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

# "problems" has a word for each request of the block: the code of the problem
# in its body, with "=STATUS" behind it if the original status is told, or "-"
# for any body. The members are exactly those of the documentation.

add_response_body_check(sub {
    my ($block, $body, $request, undef, $dry_run) = @_;

    return if $dry_run || !defined $block->problems;

    my $name = $block->name;
    my ($code, $original) = split /=/, (split ' ', $block->problems)[$request];

    return if $code eq '-';

    my $problem = eval { JSON::PP::decode_json($body) } || {};

    Test::More::is($problem->{code}, $code, "$name - code $request");
    Test::More::is($problem->{original_status}, $original,
                   "$name - original status $request");
    Test::More::is(CORE::join(' ', sort keys %$problem),
                   'code detail '
                   . (defined $original ? 'original_status ' : '')
                   . 'status title type', "$name - members $request");

    my $status = $block->error_code;
    $status = ref $status ? $status->[$request] : $status;
    Test::More::is($problem->{status}, $status, "$name - status $request");
});

run_tests();

__DATA__

=== TEST 1: no key, and no page that describes the codes
--- config
    location /pay {
        idempotency main;
        idempotency_source $http_client;
        proxy_pass http://up;
    }
--- request
POST /pay
x
--- error_code: 400
--- response_headers
Content-Type: application/problem+json
Cache-Control: no-store
Content-Language: en
Idempotency-Retry: new-key
!Retry-After
!Link
!Idempotent-Replayed
--- problems: key_missing
--- response_body_like: "type":"about:blank","title":"Bad Request",.*The header Idempotency-Key is missing
--- error_log
[notice]
idempotency request was "missing", code "key_missing", location "/pay"



=== TEST 2: a malformed key
--- request
POST /pay
x
--- more_headers
Idempotency-Key: "
--- error_code: 400
--- response_headers
Content-Type: application/problem+json
Cache-Control: no-store
Idempotency-Retry: new-key
!Retry-After
--- problems: key_invalid



=== TEST 3: no source
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k
--- error_code: 400
--- response_headers
Content-Type: application/problem+json
Cache-Control: no-store
Idempotency-Retry: never
!Retry-After
--- problems: source_missing



=== TEST 4: a key which was used with another body
--- request eval
["POST /pay\none", "POST /pay\ntwo"]
--- more_headers
Idempotency-Key: k
Client: c
--- error_code eval
[200, 422]
--- response_headers eval
["!Idempotency-Retry\n!Cache-Control",
 "Content-Type: application/problem+json\nCache-Control: no-store\n"
 . "Content-Language: en\n"
 . "Idempotency-Retry: same-key\n!Retry-After\n!Idempotent-Replayed"]
--- response_body_like eval
['^POST', 'If this is a retry, send the first body unchanged; use a new key only '
          . 'for another operation']
--- problems: - key_reused



=== TEST 5: the client leaves while its request runs
--- http_config eval: $main::Slow
--- config
    location /pay {
        idempotency main;
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



=== TEST 6: the first is still running
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k
--- error_code: 409
--- response_headers
Content-Type: application/problem+json
Cache-Control: no-store
Idempotency-Retry: same-key
Retry-After: 1
!Idempotent-Replayed
--- problems: in_progress



=== TEST 7: and the answer is there, although nobody was left to take it
--- init
Time::HiRes::sleep(3)
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k
--- response_headers
Idempotent-Replayed: true
--- response_body_like: ^executed:



=== TEST 8: sent, and no answer: unknown
--- http_config eval: $main::Closing
--- config
    location /pay {
        idempotency main;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/closing.sock:;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\ny"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[502, 409, 422]
--- response_headers eval
["Content-Type: application/problem+json\nCache-Control: no-store\n"
 . "Idempotency-Retry: same-key\nRetry-After: 60\nContent-Language: en",
 "Content-Type: application/problem+json\nCache-Control: no-store\n"
 . "Idempotency-Retry: same-key\nRetry-After: 60\nContent-Language: en\n"
 . "!Idempotent-Replayed",
 "Idempotency-Retry: same-key\n!Retry-After"]
--- response_body_like eval
['Do not use a new key', 'do not use a new key', 'send the first body']
--- problems: outcome_unknown outcome_unknown key_reused



=== TEST 9: duplicates are rejected
--- config
    location /pay {
        idempotency main;
        idempotency_duplicate reject;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\ny", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 409, 422, 409]
--- response_headers eval
["!Idempotency-Retry",
 "Content-Type: application/problem+json\nCache-Control: no-store\n"
 . "Idempotency-Retry: never\n!Retry-After\n!Idempotent-Replayed",
 "Idempotency-Retry: same-key", "Idempotency-Retry: never"]
--- problems: - duplicate=200 key_reused duplicate=200



=== TEST 10: executed, and the answer is not kept
--- config
    location /pay {
        idempotency main;
        idempotency_max_response 10;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 409, 409]
--- response_headers eval
["!Idempotency-Retry",
 "Content-Type: application/problem+json\nCache-Control: no-store\n"
 . "Idempotency-Retry: never\n!Retry-After\n!Idempotent-Replayed",
 "Idempotency-Retry: never"]
--- response_body_like eval
['^POST /pay \w{32}$', 'response_not_kept', 'response_not_kept']
--- problems: - response_not_kept=200 response_not_kept=200



=== TEST 11: a key past its ttl, while its tombstone stands
--- config
    location /pay {
        idempotency main;
        idempotency_ttl 1s tombstone=2s;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- executions: a a



=== TEST 12: the tombstone
--- init
Time::HiRes::sleep(1.6)
--- request eval
["POST /pay\nx", "POST /pay\ny"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[410, 422]
--- response_headers eval
["Content-Type: application/problem+json\nCache-Control: no-store\n"
 . "Idempotency-Retry: never\n!Retry-After\n!Idempotent-Replayed",
 "Idempotency-Retry: same-key"]
--- problems: key_expired key_reused



=== TEST 13: after the tombstone it is a new key
--- init
Time::HiRes::sleep(2.6)
--- request eval
["POST /pay\ny", "POST /pay\ny"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 14: no tombstone: past its ttl it is a new key
--- config
    location /pay {
        idempotency main;
        idempotency_ttl 1s;
        proxy_pass http://up;
    }
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k
--- response_body_like: ^POST



=== TEST 15: past the ttl
--- init
Time::HiRes::sleep(2.1)
--- request
POST /pay
y
--- more_headers
Idempotency-Key: k
--- response_headers
!Idempotent-Replayed
--- response_body_like: ^POST



=== TEST 16: a full store
--- http_config eval
my $http = $main::HttpConfig; $http =~ s/shm:4m/shm:32k/; $http
--- config
    location /pay {
        idempotency main;
        idempotency_max_response 0;
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x 120]
--- more_headers eval
[map { "Idempotency-Key: k$_" } 1 .. 120]
--- error_code_like eval
["200", ("200|503") x 118, "503"]



=== TEST 17: a full store refuses what is new
--- request
POST /pay
x
--- more_headers
Idempotency-Key: new
--- error_code: 503
--- response_headers
Content-Type: application/problem+json
Cache-Control: no-store
Idempotency-Retry: same-key
Retry-After: 1
!Idempotent-Replayed
--- problems: store_unavailable



=== TEST 18: a full store still knows what it has
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k1
--- error_code: 409
--- problems: response_not_kept=200



=== TEST 19: a page that describes the codes
--- config
    location /pay {
        idempotency main;
        idempotency_describedby https://example.com/errors?v=1;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\ny"]
--- more_headers eval
["X: x", "Idempotency-Key: k", "Idempotency-Key: k"]
--- error_code eval
[400, 200, 422]
--- response_headers eval
['Link: <https://example.com/errors?v=1>; rel="describedby"', '!Link',
 'Link: <https://example.com/errors?v=1>; rel="describedby"']
--- response_body_like eval
['"type":"https://example.com/errors\?v=1#key_missing",'
 . '"title":"Idempotency key is missing"', '^POST',
 '"type":"https://example.com/errors\?v=1#key_reused",'
 . '"title":"Idempotency key is already used"']
--- problems: key_missing - key_reused



=== TEST 20: error_page with a URI has the page, the advice stays
--- config
    location /pay {
        idempotency main;
        idempotency_describedby https://example.com/errors;
        error_page 400 409 422 /error;
        proxy_pass http://up;
    }

    location = /error {
        internal;
        return 200 "page $request_method $idempotency_result\n";
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\ny", "POST /pay\nx"]
--- more_headers eval
["X: x", ("Idempotency-Key: k") x 3]
--- error_code eval
[400, 200, 422, 200]
--- response_headers eval
["Idempotency-Retry: new-key\nCache-Control: no-store\n"
 . "Link: <https://example.com/errors>; rel=\"describedby\"\n"
 . "Content-Type: text/plain",
 "!Idempotency-Retry",
 "Idempotency-Retry: same-key\nCache-Control: no-store",
 "Idempotent-Replayed: true\n!Idempotency-Retry"]
--- response_body_like eval
['^page GET missing$', '^POST', '^page GET mismatch$', '^POST']
--- executions: - a - a



=== TEST 21: error_page with a named location
--- config
    location /pay {
        idempotency main;
        error_page 400 422 = @error;
        proxy_pass http://up;
    }

    location @error {
        return 418 "page $request_method $idempotency_result\n";
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\ny", "POST /pay\nx"]
--- more_headers eval
["X: x", ("Idempotency-Key: k") x 3]
--- error_code eval
[418, 200, 418, 200]
--- response_headers eval
["Idempotency-Retry: new-key\nCache-Control: no-store\n!Content-Language",
 "!Idempotency-Retry",
 "Idempotency-Retry: same-key\nCache-Control: no-store\n!Content-Language",
 "Idempotent-Replayed: true"]
--- response_body_like eval
['^page POST missing$', '^POST', '^page POST mismatch$', '^POST']
--- executions: - a - a



=== TEST 22: error_page with a page that is proxied, in a protected location
--- config
    location /pay {
        idempotency main;
        error_page 400 422 /error;
        proxy_pass http://up;
    }

    location /error {
        idempotency main;
        idempotency_methods GET POST;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\ny"]
--- more_headers eval
["X: x", ("Idempotency-Key: k") x 2]
--- error_code eval
[400, 200, 422]
--- response_headers eval
["Idempotency-Retry: new-key", "!Idempotency-Retry",
 "Idempotency-Retry: same-key"]
--- response_body_like eval
['^GET /error', '^POST', '^GET /error']



=== TEST 23: error_page of another status leaves the answer alone
--- config
    error_page 500 502 503 504 404 /error;

    location /pay {
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\ny"]
--- more_headers eval
["X: x", ("Idempotency-Key: k") x 2]
--- error_code eval
[400, 200, 422]
--- problems: key_missing - key_reused



=== TEST 24: error_page elsewhere: a redirect with the advice
--- config
    location /pay {
        idempotency main;
        error_page 400 https://example.com/help;
        proxy_pass http://up;
    }
--- request
POST /pay
x
--- error_code: 302
--- response_headers
Location: https://example.com/help
Idempotency-Retry: new-key



=== TEST 25: error_page for a full store
--- http_config eval
my $http = $main::HttpConfig; $http =~ s/shm:4m/shm:32k/; $http
--- config
    location /pay {
        idempotency main;
        idempotency_max_response 0;
        error_page 503 @busy;
        proxy_pass http://up;
    }

    location @busy {
        return 503 "busy\n";
    }
--- request eval
[("POST /pay\nx") x 120]
--- more_headers eval
[map { "Idempotency-Key: k$_" } 1 .. 120]
--- error_code_like eval
["200", ("200|503") x 118, "503"]
--- response_body_like eval
["^POST", ('^POST|^busy$') x 118, '^busy$']
--- response_headers_like eval
["Content-Type: text/plain", ("Content-Type: text/plain") x 118,
 "Retry-After: 1\nIdempotency-Retry: same-key"]



=== TEST 26: connection refused: a problem, unless error_page has a page
--- config
    location /pay {
        idempotency main;
        proxy_pass http://127.0.0.1:1;
    }

    location /page {
        idempotency main;
        error_page 502 /error;
        proxy_pass http://127.0.0.1:1;
    }

    location /named {
        idempotency main;
        error_page 502 = @error;
        proxy_pass http://127.0.0.1:1;
    }

    location = /error {
        return 200 "page\n";
    }

    location @error {
        return 200 "page\n";
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /page\nx", "POST /page\nx",
 "POST /named\nx", "POST /named\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[502, 502, 502, 502, 200, 200]
--- response_headers eval
[("Content-Type: application/problem+json\nCache-Control: no-store\n"
  . "Content-Language: en\nIdempotency-Retry: same-key\n!Retry-After\n"
  . "!Idempotent-Replayed") x 2,
 ("Idempotency-Retry: same-key\n!Idempotent-Replayed") x 4]
--- response_body_like eval
[('"type":"about:blank","title":"Bad Gateway","status":502,') x 2,
 ('^page$') x 4]
--- problems: not_sent not_sent - - - -



=== TEST 27: the log level, and no key in the log
--- config
    location /pay {
        idempotency main;
        idempotency_log_level warn;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\ntwo", "POST /pay\none"]
--- more_headers
Idempotency-Key: very-secret-key
--- error_code eval
[200, 422]
--- no_error_log
very-secret-key
[alert]
[crit]



=== TEST 28: the log level
--- request
POST /pay
x
--- error_code: 400
--- error_log
[warn]
idempotency request was "missing", code "key_missing", location "/pay"



=== TEST 29: where the key is missing
--- http_config eval
$main::HttpConfig . <<'_EOC_';
    idempotency_json_set $json_order order "a \"b\"";
    idempotency_form_set $form_order order_no;
    map $http_x $mapped { default ""; }
_EOC_
--- config
    location /header {
        idempotency main;
        idempotency_key $http_x_request_ID;
        proxy_pass http://up;
    }

    location /braces {
        idempotency main;
        idempotency_key ${http_x_key};
        proxy_pass http://up;
    }

    location /argument {
        idempotency main;
        idempotency_key $arg_order;
        proxy_pass http://up;
    }

    location /cookie {
        idempotency main;
        idempotency_key $cookie_order;
        proxy_pass http://up;
    }

    location /json {
        idempotency main;
        idempotency_key $json_order;
        proxy_pass http://up;
    }

    location /form {
        idempotency main;
        idempotency_key $form_order;
        proxy_pass http://up;
    }

    location /mapped {
        idempotency main;
        idempotency_key $mapped;
        proxy_pass http://up;
    }

    location /two {
        idempotency main;
        idempotency_key $http_x_one$http_x_two;
        proxy_pass http://up;
    }
--- request eval
[map { "POST /$_\n" . ($_ eq 'json' ? '{}' : 'x') }
     qw(header braces argument cookie json form mapped two)]
--- error_code eval
[(400) x 8]
--- response_body_like eval
['"detail":"The header X-Request-Id is missing\. This operation needs',
 'The header X-Key is missing\.',
 'The query argument order is missing\.',
 'The cookie order is missing\.',
 'The field order\.a \\\\"b\\\\" of the JSON body is missing\.',
 'The field order_no of the form is missing\.',
 '"detail":"This operation needs', '"detail":"This operation needs']
--- problems eval
CORE::join(' ', ('key_missing') x 8)



=== TEST 30: where the mistake in a body is
--- http_config eval
$main::HttpConfig . <<'_EOC_';
    idempotency_form_set $form_order "order \"no\"";
_EOC_
--- config
    location /json {
        idempotency main;
        idempotency_fingerprint json;
        proxy_pass http://up;
    }

    location /form {
        idempotency main;
        idempotency_fingerprint form;
        proxy_pass http://up;
    }

    location /parts {
        idempotency main;
        idempotency_fingerprint multipart;
        proxy_pass http://up;
    }

    location /twice {
        idempotency main;
        idempotency_key $form_order;
        proxy_pass http://up;
    }
--- request eval
["POST /json\n{\"a\":1,}", "POST /json\n{\"a\":1,\"a\":2}",
 "POST /form\na=1&b=%zz", "POST /parts\nx",
 "POST /twice\norder+%22no%22=1&order+%22no%22=2", "POST /json\n{}"]
--- more_headers eval
[("Idempotency-Key: k") x 4,
 "Content-Type: application/x-www-form-urlencoded",
 "Idempotency-Key: k\nContent-Encoding: gzip"]
--- error_code eval
[(400) x 6]
--- response_body_like eval
['"detail":"The body is not JSON: a name is missing at byte 7\. The request',
 'The body is not JSON: a name occurs twice at byte 7\.',
 'The body is not a form: % without two hexadecimal digits at byte 6\.',
 'The body is not multipart/form-data: no Content-Type of multipart at byte 0\.',
 'The body is ambiguous: it has twice the field order \\\\"no\\\\"\.',
 'The body is not JSON: compressed at byte 0\.']
--- problems eval
CORE::join(' ', ('body_invalid') x 6)
