# Who asks, and for what: a record belongs to the source that made the first
# request and to the scope of that request, and nobody else ever sees it.
#
# A duplicate is answered only after nginx's own access checks have passed,
# whatever modules do them and however they are combined. The only thing that
# is refused earlier is a key header which is missing or malformed: that tells
# nothing about any record.

use Test::Nginx::Socket 'no_plan';
use MIME::Base64 ();

require './t/lib/contract.pl';

our $HttpConfig;
our $Alice = 'Authorization: Basic ' . MIME::Base64::encode('alice:a', '');
our $Bob   = 'Authorization: Basic ' . MIME::Base64::encode('bob:b', '');
our $Wrong = 'Authorization: Basic ' . MIME::Base64::encode('alice:x', '');

our $Auth = $HttpConfig . <<'_EOC_';
    server {
        listen unix:$TEST_NGINX_HTML_DIR/auth.sock;

        location / {
            if ($http_token = "") {
                return 401;
            }

            if ($http_token = bad) {
                return 403;
            }

            add_header X-User "user of $http_token" always;
            return 204;
        }
    }
_EOC_

run_tests();

__DATA__

=== TEST 1: two sources do not share a key
--- config
    location /pay {
        idempotency main;
        idempotency_source $http_client;
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x 4]
--- more_headers eval
["Client: a\nIdempotency-Key: k", "Client: b\nIdempotency-Key: k",
 "Client: a\nIdempotency-Key: k", "Client: b\nIdempotency-Key: k"]
--- error_code eval
[200, 200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed",
 "Idempotent-Replayed: true", "Idempotent-Replayed: true"]
--- executions: a b a b



=== TEST 2: no source
--- request eval
[("POST /pay\nx") x 3]
--- more_headers eval
["Idempotency-Key: k", "Client:\nIdempotency-Key: k",
 "Client: a\nIdempotency-Key: k"]
--- error_code eval
[400, 400, 200]
--- response_headers eval
["Content-Type: application/problem+json\nIdempotency-Retry: never",
 "Idempotency-Retry: never", "Idempotent-Replayed: true"]
--- response_body_like eval
['"code":"source_missing"', '"code":"source_missing"', 'POST /pay']



=== TEST 3: source and key do not run into each other
--- request eval
[("POST /pay\nx") x 4]
--- more_headers eval
["Client: a\nIdempotency-Key: bc", "Client: ab\nIdempotency-Key: c",
 "Client: abc\nIdempotency-Key: c", "Client: a\nIdempotency-Key: b"]
--- error_code eval
[200, 200, 200, 200]
--- response_headers eval
[("!Idempotent-Replayed") x 4]
--- executions: a b c d



=== TEST 4: the scope is method and URI unless told otherwise
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "PATCH /pay\nx", "POST /pay/2\nx",
 "POST /pay\nx", "PATCH /pay\nx", "POST /pay/2\nx", "POST /pay/./2\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[(200) x 7]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed", "!Idempotent-Replayed",
 ("Idempotent-Replayed: true") x 4]
--- executions: a b c a b c c



=== TEST 5: an empty scope
--- config
    location /pay {
        idempotency main;
        idempotency_scope "";
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "PATCH /pay\nx", "POST /pay/2\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", ("Idempotent-Replayed: true") x 2]
--- executions: a a a



=== TEST 6: a scope of one's own
--- config
    location /pay {
        idempotency main;
        idempotency_scope $http_tenant;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay/2\nx"]
--- more_headers eval
["Idempotency-Key: k\nTenant: a", "Idempotency-Key: k\nTenant: b",
 "Idempotency-Key: k\nTenant: a"]
--- error_code eval
[200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a b a



=== TEST 7: a rewritten URI: the scope is the path that was asked for
--- config
    location /old {
        rewrite ^/old(.*)$ /pay$1 last;
    }

    location /pay {
        idempotency main;
        proxy_pass http://up;
    }

    location /former {
        rewrite ^/former(.*)$ /now$1 last;
    }

    location /now {
        idempotency main;
        idempotency_scope "$request_method $uri";
        proxy_pass http://up;
    }
--- request eval
["POST /old\nx", "POST /pay\nx", "POST /former\nx", "POST /now\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed",
 "!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a b c c



=== TEST 8: allow and deny: a stored answer is not for those who are denied
--- config
    idempotency_scope "";

    location /open {
        idempotency main;
        allow all;
        proxy_pass http://up;
    }

    location /closed {
        idempotency main;
        deny all;
        proxy_pass http://up;
    }
--- request eval
["POST /open\nx", "POST /closed\nx", "POST /open\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 403, 200]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a - a



=== TEST 9: who is denied leaves no claim behind
--- request eval
["POST /closed\nx", "POST /open\nx"]
--- more_headers
Idempotency-Key: k9
--- error_code eval
[403, 200]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed"]



=== TEST 10: a missing key is refused before access is looked at
--- request eval
["POST /closed\nx", "POST /closed\nx"]
--- more_headers eval
["X: x", "Idempotency-Key: \""]
--- error_code eval
[400, 400]
--- response_body_like eval
['"code":"key_missing"', '"code":"key_invalid"']



=== TEST 11: auth_basic: each user has his own records
--- config
    location /pay {
        idempotency main;
        idempotency_source $remote_user;
        auth_basic "pay";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/users;
        proxy_pass http://up;
    }
--- user_files
>>> users
alice:{PLAIN}a
bob:{PLAIN}b
--- request eval
[("POST /pay\nx") x 6]
--- more_headers eval
["$main::Alice\nIdempotency-Key: k", "$main::Bob\nIdempotency-Key: k",
 "$main::Alice\nIdempotency-Key: k", "$main::Bob\nIdempotency-Key: k",
 "$main::Wrong\nIdempotency-Key: k", "Idempotency-Key: k"]
--- error_code eval
[200, 200, 200, 200, 401, 401]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed",
 "Idempotent-Replayed: true", "Idempotent-Replayed: true",
 "!Idempotent-Replayed", "!Idempotent-Replayed"]
--- executions: a b a b - -



=== TEST 12: a missing key is refused before authentication
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
["X: x", $main::Wrong]
--- error_code eval
[400, 400]
--- response_body_like eval
['"code":"key_missing"', '"code":"key_missing"']
--- response_headers eval
["!WWW-Authenticate", "!WWW-Authenticate"]



=== TEST 13: a key which is no header is looked at after authentication
--- config
    location /pay {
        idempotency main;
        idempotency_key $arg_key;
        idempotency_source $remote_user;
        auth_basic "pay";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/users;
        proxy_pass http://up;
    }
--- user_files
>>> users
alice:{PLAIN}a
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers eval
["X: x", $main::Alice]
--- error_code eval
[401, 400]



=== TEST 14: auth_request: the source is what it says
--- http_config eval: $main::Auth
--- config
    location = /auth {
        internal;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/auth.sock:;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
    }

    location /pay {
        idempotency main;
        auth_request /auth;
        auth_request_set $user $upstream_http_x_user;
        idempotency_source $user;
        proxy_pass http://up;
        add_header X-Source $idempotency_source always;
    }
--- request eval
[("POST /pay\nx") x 6]
--- more_headers eval
["Token: a\nIdempotency-Key: k", "Token: b\nIdempotency-Key: k",
 "Token: a\nIdempotency-Key: k", "Token: b\nIdempotency-Key: k",
 "Token: bad\nIdempotency-Key: k", "Idempotency-Key: k"]
--- error_code eval
[200, 200, 200, 200, 403, 401]
--- response_headers eval
["!Idempotent-Replayed\nX-Source: user of a",
 "!Idempotent-Replayed\nX-Source: user of b",
 "Idempotent-Replayed: true\nX-Source: user of a",
 "Idempotent-Replayed: true\nX-Source: user of b",
 "!Idempotent-Replayed\n!X-Source", "!Idempotent-Replayed\n!X-Source"]
--- executions: a b a b - -



=== TEST 15: auth_request: a map over what it says is not frozen empty
--- http_config eval
$main::Auth . <<'_EOC_';
    map $user $tenant {
        default             "";
        "~^user of (.*)$"   "tenant-$1";
    }
_EOC_
--- config
    location = /auth {
        internal;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/auth.sock:;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
    }

    location /pay {
        idempotency main;
        auth_request /auth;
        auth_request_set $user $upstream_http_x_user;
        idempotency_source $tenant;
        idempotency_key $http_idempotency_key;
        proxy_pass http://up;
        add_header X-Source $idempotency_source always;
    }
--- request eval
[("POST /pay\nx") x 3]
--- more_headers eval
["Token: a\nIdempotency-Key: k", "Token: a\nIdempotency-Key: k",
 "Token: b\nIdempotency-Key: k"]
--- error_code eval
[200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed\nX-Source: tenant-a",
 "Idempotent-Replayed: true\nX-Source: tenant-a",
 "!Idempotent-Replayed\nX-Source: tenant-b"]
--- executions: a a b



=== TEST 16: satisfy any: denied by both, granted by one of them
--- config
    idempotency_scope "";

    location /pay {
        idempotency main;
        satisfy any;
        deny all;
        auth_basic "pay";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/users;
        proxy_pass http://up;
    }

    location /local {
        idempotency main;
        satisfy any;
        allow 127.0.0.1;
        deny all;
        auth_basic "pay";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/users;
        proxy_pass http://up;
    }

    location /all {
        idempotency main;
        satisfy all;
        allow 127.0.0.1;
        deny all;
        auth_basic "pay";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/users;
        proxy_pass http://up;
    }
--- user_files
>>> users
alice:{PLAIN}a
bob:{PLAIN}b
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\nx", "POST /pay\nx",
 "POST /local\nx", "POST /all\nx", "POST /all\nx"]
--- more_headers eval
["$main::Alice\nIdempotency-Key: k", "Idempotency-Key: k",
 "$main::Wrong\nIdempotency-Key: k", "$main::Alice\nIdempotency-Key: k",
 "Idempotency-Key: k", "Idempotency-Key: k",
 "$main::Alice\nIdempotency-Key: k"]
--- error_code eval
[200, 401, 401, 200, 200, 401, 200]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed", "!Idempotent-Replayed",
 "Idempotent-Replayed: true", "Idempotent-Replayed: true",
 "!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a - - a a - a



=== TEST 17: satisfy any: a missing key is refused, granted or not
--- request eval
["POST /pay\nx", "POST /local\nx", "POST /all\nx", "POST /local\nx"]
--- more_headers eval
["X: x", "X: x", "X: x", "Idempotency-Key: \""]
--- error_code eval
[400, 400, 400, 400]
--- response_body_like eval
[('"code":"key_missing"') x 3, '"code":"key_invalid"']



=== TEST 18: satisfy any with auth_request
--- config
    location = /auth {
        internal;

        if ($http_token = good) {
            return 204;
        }

        return 403;
    }

    location /pay {
        idempotency main;
        satisfy any;
        deny all;
        auth_request /auth;
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x 4]
--- more_headers eval
["Token: good\nIdempotency-Key: k", "Token: bad\nIdempotency-Key: k",
 "Idempotency-Key: k", "Token: good\nIdempotency-Key: k"]
--- error_code eval
[200, 403, 403, 200]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed", "!Idempotent-Replayed",
 "Idempotent-Replayed: true"]
--- executions: a - - a



=== TEST 19: limit_except
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;

        limit_except PATCH {
            deny all;
        }
    }
--- request eval
["POST /pay\nx", "PATCH /pay\nx", "PATCH /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[403, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: - a a



=== TEST 20: a source of several parts, all of them empty
--- config
    location /pay {
        idempotency main;
        idempotency_source "$http_tenant:${http_client}/x";
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x 5]
--- more_headers eval
["Idempotency-Key: k", "Tenant:\nClient:\nIdempotency-Key: k",
 "Tenant: t\nIdempotency-Key: k", "Client: t\nIdempotency-Key: k",
 "Tenant: t\nIdempotency-Key: k"]
--- error_code eval
[400, 400, 200, 200, 200]
--- response_body_like eval
['"code":"source_missing"', '"code":"source_missing"', ('POST /pay') x 3]
--- executions: - - a b a



=== TEST 21: a source of several parts, inherited, and in a lookup
--- config
    idempotency_source "a $http_tenant b $http_client";

    location /pay {
        idempotency main;
        proxy_pass http://up;
    }

    location /look {
        idempotency_lookup main;
        idempotency_scope "POST /pay";
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "GET /look", "GET /look"]
--- more_headers eval
["Idempotency-Key: k", "Tenant: 1\nIdempotency-Key: k",
 "Idempotency-Key: k", "Tenant: 1\nIdempotency-Key: k"]
--- error_code eval
[400, 200, 400, 200]
--- response_body_like eval
['"code":"source_missing"', 'POST /pay', '"code":"source_missing"',
 '"state":"done"']
