# The variables $idempotency_*: what became of a request, for logs and for
# headers to the upstream. They have values in every phase in which somebody
# may ask, and none where the module has nothing to say.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our $HttpConfig;

our $Logged = $HttpConfig . <<'_EOC_';
    log_format idempotency "[r=$idempotency_result k=$idempotency_key "
                           "s=$idempotency_source f=$idempotency_fence "
                           "n=$idempotency_attempt a=$idempotency_age "
                           "t=$idempotency_store_time "
                           "u=$idempotency_upstream_key]";

    access_log $TEST_NGINX_HTML_DIR/../logs/access.log idempotency;

    server {
        listen unix:$TEST_NGINX_HTML_DIR/echo.sock;
        access_log off;

        location / {
            return 200 "[r=$http_r k=$http_k s=$http_s f=$http_f n=$http_n a=$http_a t=$http_t u=$http_u]\n";
        }

        location /503 {
            return 503 "[f=$http_f n=$http_n u=$http_u]\n";
        }

        location /closing {
            return 444;
        }
    }
_EOC_

our $Gateway = <<'_EOC_';
    proxy_set_header R $idempotency_result;
    proxy_set_header K $idempotency_key;
    proxy_set_header S $idempotency_source;
    proxy_set_header F $idempotency_fence;
    proxy_set_header N $idempotency_attempt;
    proxy_set_header A $idempotency_age;
    proxy_set_header T $idempotency_store_time;
    proxy_set_header U $idempotency_upstream_key;

    location /pay {
        idempotency main;
        idempotency_source $http_client;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/echo.sock:;
    }

    location /503 {
        idempotency main;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/echo.sock:;
    }

    location /reject {
        idempotency main;
        idempotency_duplicate reject;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/echo.sock:;
    }

    location /optional {
        idempotency main;
        idempotency_required off;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/echo.sock:;
    }

    location /closing {
        idempotency main;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/echo.sock:;
    }

    location /short {
        idempotency main;
        idempotency_ttl 1s tombstone=60s;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/echo.sock:;
    }

    location /off {
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/echo.sock:;
    }
_EOC_

add_block_preprocessor(sub {
    my $block = shift;

    $block->set_value('http_config', $Logged) if defined $block->config;
});

# "fences": each answer has a larger fence than the one before, and the same
# key for the upstream. "upstream_keys": each answer has another one.

my ($fence, %keys);

add_response_body_check(sub {
    my ($block, $body, $request, undef, $dry_run) = @_;
    my $name = $block->name;

    return if $dry_run
              || !(defined $block->fences || defined $block->upstream_keys);

    ($fence, %keys) = (0) if $request == 0;

    if (defined $block->fences) {
        my ($next) = $body =~ /f=(\d+)/;
        Test::More::cmp_ok($next, '>', $fence, "$name - fence $request");
        $fence = $next;
    }

    my ($key) = $body =~ /u=([0-9a-f]{64})/;
    $keys{$key}++;
    Test::More::is(scalar keys %keys,
                   defined $block->fences ? 1 : $request + 1,
                   "$name - keys for the upstream $request");
});

run_tests();

__DATA__

=== TEST 1: a new request, as the upstream sees it
--- config eval: $main::Gateway
--- request
POST /pay
x
--- more_headers
Idempotency-Key: "k 1"
Client: alice
--- response_body_like: ^\[r=new k=k 1 s=alice f=[1-9]\d* n=1 a=0 t=0\.\d{3} u=[0-9a-f]{64}\]$



=== TEST 2: a new request, in the log
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k2
Client: alice
--- response_body_like: r=new
--- access_log eval
qr/^\[r=new k=k2 s=alice f=[1-9]\d* n=1 a=\d t=0\.\d{3} u=[0-9a-f]{64}\]$/



=== TEST 3: a replay, in the log
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k2
Client: alice
--- response_body_like: r=new
--- access_log eval
qr/^\[r=replayed k=k2 s=alice f=[1-9]\d* n=1 a=\d t=0\.\d{3} u=[0-9a-f]{64}\]$/



=== TEST 4: a mismatch
--- request
POST /pay
y
--- more_headers
Idempotency-Key: k2
Client: alice
--- error_code: 422
--- access_log eval
qr/^\[r=mismatch k=k2 s=alice f=[1-9]\d* n=1 a=\d t=0\.\d{3} u=[0-9a-f]{64}\]$/



=== TEST 5: no key
--- request
POST /pay
x
--- error_code: 400
--- access_log
[r=missing k=- s=- f=- n=- a=- t=- u=-]



=== TEST 6: a malformed key is not shown
--- request
POST /pay
x
--- more_headers
Idempotency-Key: a b
Client: alice
--- error_code: 400
--- access_log
[r=invalid k=- s=- f=- n=- a=- t=- u=-]



=== TEST 7: no source
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k7
--- error_code: 400
--- access_log
[r=invalid k=k7 s=- f=- n=- a=- t=- u=-]



=== TEST 8: rejected
--- request eval
["POST /reject\nx", "POST /reject\nx"]
--- more_headers
Idempotency-Key: k8
--- error_code eval
[200, 409]
--- access_log eval
qr/^\[r=(new|rejected) k=k8 s=somebody f=[1-9]\d* n=1 /



=== TEST 9: bypassed
--- request
POST /optional
x
--- response_body
[r=bypassed k= s= f= n= a= t= u=]
--- access_log
[r=bypassed k=- s=- f=- n=- a=- t=- u=-]



=== TEST 10: off, and a method which is not protected
--- request eval
["POST /off\nx", "GET /pay"]
--- more_headers
Idempotency-Key: k10
--- error_code eval
[200, 200]
--- response_body eval
[("[r=off k= s= f= n= a= t= u=]\n") x 2]
--- access_log
[r=off k=- s=- f=- n=- a=- t=- u=-]



=== TEST 11: unknown
--- request
POST /closing
x
--- more_headers
Idempotency-Key: k11
--- error_code: 502
--- access_log eval
qr/^\[r=new k=k11 /



=== TEST 12: unknown, once more
--- request
POST /closing
x
--- more_headers
Idempotency-Key: k11
--- error_code: 409
--- access_log eval
qr/^\[r=unknown k=k11 s=somebody f=[1-9]\d* n=1 /



=== TEST 13: a released key: the attempts are counted
--- request eval
[("POST /503\nx") x 3]
--- more_headers
Idempotency-Key: k13
--- error_code eval
[503, 503, 503]
--- response_body_like eval
['^\[f=[1-9]\d* n=1 u=', '^\[f=[1-9]\d* n=2 u=', '^\[f=[1-9]\d* n=3 u=']
--- executions: a b c



=== TEST 14: fences grow, and the upstream's key stays the same
--- request eval
[("POST /503\nx") x 3]
--- more_headers
Idempotency-Key: k13
--- error_code eval
[503, 503, 503]
--- fences



=== TEST 15: expired
--- request
POST /short
x
--- more_headers
Idempotency-Key: k15
--- response_body_like: r=new
--- wait: 2.1



=== TEST 16: expired, once more
--- request
POST /short
x
--- more_headers
Idempotency-Key: k15
--- error_code: 410
--- access_log eval
qr/^\[r=expired k=k15 s=somebody f=[1-9]\d* n=1 a=[1-9] /



=== TEST 17: other keys, sources and scopes give the upstream other keys
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\nx", "POST /pay/2\nx"]
--- more_headers eval
["Idempotency-Key: a\nClient: b", "Idempotency-Key: a2\nClient: b",
 "Idempotency-Key: a\nClient: b2", "Idempotency-Key: a\nClient: b"]
--- error_code eval
[200, 200, 200, 200]
--- upstream_keys



=== TEST 18: asked for too early, they are not frozen
--- config
    set $early "$idempotency_result/$idempotency_key/$idempotency_fence";

    location /pay {
        idempotency main;
        proxy_set_header R $idempotency_result;
        proxy_set_header K $idempotency_key;
        proxy_set_header S $early;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/echo.sock:;
    }
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k18
--- response_body_like: ^\[r=new k=k18 s=off// f=



=== TEST 19: in add_header, of an answer and of a problem
--- config
    location /pay {
        idempotency main;
        add_header X-Result "$idempotency_result $idempotency_attempt" always;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/echo.sock:;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /pay\ny"]
--- more_headers
Idempotency-Key: k19
--- error_code eval
[200, 200, 422]
--- response_headers eval
["X-Result: new 1", "X-Result: replayed 1", "X-Result: mismatch 1"]
