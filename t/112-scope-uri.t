# The default scope is the path that the client has asked for: behind a front
# controller, where $uri is that of the script, two operations with one key
# stay two, and a retry is a retry in whatever way its path is written.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our $HttpConfig;

no_root_location();

run_tests();

__DATA__

=== TEST 1: a front controller by try_files
--- config
    location / {
        try_files $uri /index.php$is_args$args;
    }

    location = /index.php {
        idempotency main;
        proxy_pass http://up;
        add_header X-Uri "$uri $idempotency_uri" always;
    }
--- request eval
["POST /orders/5/refund\nx", "POST /orders/5/ship\nx",
 "POST /orders/5/refund\nx", "POST /orders/5/ship\nx",
 "POST /index.php\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed\nX-Uri: /index.php /orders/5/refund",
 "!Idempotent-Replayed\nX-Uri: /index.php /orders/5/ship",
 "Idempotent-Replayed: true\nX-Uri: /index.php /orders/5/refund",
 "Idempotent-Replayed: true\nX-Uri: /index.php /orders/5/ship",
 "!Idempotent-Replayed\nX-Uri: /index.php /index.php"]
--- executions: a b a b c



=== TEST 2: a front controller that is a file of its own location
--- config
    location / {
        idempotency main;
        try_files /index.php =404;
        proxy_pass http://up;
        add_header X-Uri "$uri $idempotency_uri" always;
    }
--- user_files
>>> index.php
x
--- request eval
["POST /a%2Fb\nx", "POST /c\nx", "POST /a%2Fb\nx", "POST /c\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed\nX-Uri: /index.php /a/b",
 "!Idempotent-Replayed\nX-Uri: /index.php /c",
 "Idempotent-Replayed: true", "Idempotent-Replayed: true"]
--- executions: a b a b



=== TEST 3: rewrite last and break, and a named location
--- config
    location /last/ {
        rewrite ^ /app last;
    }

    location /break/ {
        idempotency main;
        rewrite ^ /app break;
        proxy_pass http://up;
        add_header X-Uri "$uri $idempotency_uri" always;
    }

    location /named/ {
        rewrite ^ /changed break;
        try_files /none @named;
    }

    location /app {
        idempotency main;
        proxy_pass http://up;
        add_header X-Uri "$uri $idempotency_uri" always;
    }

    location @named {
        idempotency main;
        proxy_pass http://up;
        add_header X-Uri "$uri $idempotency_uri" always;
    }
--- request eval
["POST /last/1\nx", "POST /last/2\nx", "POST /last/1\nx",
 "POST /break/1\nx", "POST /break/2\nx", "POST /break/1\nx",
 "POST /named/1\nx", "POST /named/2\nx", "POST /named/1\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[(200) x 9]
--- response_headers eval
["!Idempotent-Replayed\nX-Uri: /app /last/1",
 "!Idempotent-Replayed\nX-Uri: /app /last/2",
 "Idempotent-Replayed: true",
 "!Idempotent-Replayed\nX-Uri: /app /break/1",
 "!Idempotent-Replayed\nX-Uri: /app /break/2",
 "Idempotent-Replayed: true",
 "!Idempotent-Replayed\nX-Uri: /changed /named/1",
 "!Idempotent-Replayed\nX-Uri: /changed /named/2",
 "Idempotent-Replayed: true"]
--- executions: a b a c d c e f e



=== TEST 4: a path in several writings, rewritten and not
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint raw with=;
        proxy_pass http://up;
        add_header X-Uri "$idempotency_uri" always;
    }

    location /app {
        rewrite ^ /pay break;
        idempotency main;
        idempotency_fingerprint raw with=;
        proxy_pass http://up;
        add_header X-Uri "$idempotency_uri" always;
    }
--- request eval
["POST /pay/a%20b+c\nx", "POST /%70ay/./a%20b+c?x=1\nx",
 "POST /pay//a%20b%2Bc\nx", "POST /x/../pay/a%20b+c?\nx",
 "POST /app/a%20b+c\nx", "POST /%61pp/./a%20b+c?x=1\nx",
 "POST /app//a%20b%2Bc\nx", "POST /x/../app/a%20b+c?\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[(200) x 8]
--- response_headers eval
["!Idempotent-Replayed\nX-Uri: /pay/a b+c",
 ("Idempotent-Replayed: true\nX-Uri: /pay/a b+c") x 3,
 "!Idempotent-Replayed\nX-Uri: /app/a b+c",
 ("Idempotent-Replayed: true\nX-Uri: /app/a b+c") x 3]
--- executions: a a a a b b b b



=== TEST 5: slashes that are not merged
--- config
    merge_slashes off;

    location /app {
        rewrite ^ /pay break;
        idempotency main;
        proxy_pass http://up;
        add_header X-Uri "$idempotency_uri" always;
    }
--- request eval
["POST /app//a\nx", "POST /app/a\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed\nX-Uri: /app//a",
 "!Idempotent-Replayed\nX-Uri: /app/a"]



=== TEST 6: absolute forms, with and without a path
--- config
    location / {
        idempotency main;
        proxy_pass http://up;
        add_header X-Uri "$idempotency_uri $uri" always;
    }

    location /app {
        rewrite ^ /pay break;
        idempotency main;
        proxy_pass http://up;
        add_header X-Uri "$idempotency_uri $uri" always;
    }
--- request eval
["POST http://localhost/app/a%62\nx", "POST /app/ab\nx",
 "POST http://localhost\nx", "POST http://localhost?\nx", "POST /\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 200, 200]
--- response_headers eval
["X-Uri: /app/ab /pay", "X-Uri: /app/ab /pay", "X-Uri: / /", "X-Uri: / /",
 "X-Uri: / /"]
--- executions: a a b b b



=== TEST 7: changed arguments, and error pages
--- config
    location /pay {
        set $args y=1;
        idempotency main;
        proxy_pass http://up;
        add_header X-Uri "$idempotency_uri" always;
    }

    location /page {
        idempotency main;
        error_page 502 /sorry;
        proxy_pass http://127.0.0.1:1;
    }

    location = /sorry {
        return 200 "$uri $idempotency_uri\n";
    }
--- request eval
["POST /pay/%61?x=1\nx", "POST /page/%61?x=1\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 502]
--- response_headers eval
["X-Uri: /pay/a", "X-Uri:"]
--- response_body_like eval
["POST", "^/sorry /page/a\n\$"]



=== TEST 8: profile stripe: another path is another request
--- config
    location / {
        try_files $uri /index.php;
    }

    location = /index.php {
        idempotency main;
        idempotency_profile stripe;
        proxy_pass http://up;
    }
--- request eval
["POST /orders/5/refund\nx", "POST /orders/5/ship\nx",
 "POST /orders/5/refund\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 400, 200]
--- executions: a - a



=== TEST 9: a subrequest has the path of its request
--- config
    location /pay {
        idempotency main;
        auth_request /auth;
        auth_request_set $asked $upstream_http_x_asked;
        proxy_pass http://up;
        add_header X-Asked $asked always;
    }

    location = /auth {
        internal;
        proxy_pass http://up/auth;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_set_header X-Uri $idempotency_uri;
    }
--- http_config eval
my $config = $main::HttpConfig;
$config =~ s!(?=        location / \{)!
        location = /auth {
            add_header X-Asked \$http_x_uri;
            return 204;
        }

!;
$config
--- request
POST /p%61y/1
x
--- more_headers
Idempotency-Key: k
--- response_headers
X-Asked: /pay/1



=== TEST 10: the default is what its variables say, with and without a query
--- config
    location /pay {
        if ($http_x_written) {
            rewrite ^ /written last;
        }

        idempotency main;
        proxy_pass http://up;
    }

    location /written {
        idempotency main;
        idempotency_scope "${request_method} $idempotency_uri";
        proxy_pass http://up;
    }
--- request eval
["POST /pay/a%20b\nx", "POST /pay/a%20b\nx", "POST /pay/a%20b?\nx",
 "POST /pay/a%20b?x=1\nx", "POST /pay/a%20b?x=1\nx", "PATCH /pay/a%20b\nx",
 "POST /pay/c\nx", "POST /%70ay/c\nx"]
--- more_headers eval
my $key = "Idempotency-Key: k\n";
my $written = $key . "X-Written: 1\n";
[$key, $written, $key, $key, $written, $key, $written, $key]
--- error_code eval
[200, 200, 200, 422, 422, 200, 200, 200]
--- executions: a a a - - b c c
