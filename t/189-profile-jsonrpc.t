# Profile jsonrpc: calls of tools over HTTP, as the Model Context Protocol has
# them.
#
# A retry has an id of its own, and its answer must carry that id, byte for
# byte as the client has written it, or the client cannot tell whose answer it
# is. So the id is no part of what is compared, a replay is the stored answer
# with the id of the request that asks for it, and errors are error objects
# with that id.

use Test::Nginx::Socket 'no_plan';
use JSON::PP ();

require './t/lib/contract.pl';

our ($HttpConfig, $Upstream);

our $Tools = $HttpConfig . <<'_EOC_';
    server {
        listen unix:$TEST_NGINX_HTML_DIR/tools.sock;
        default_type application/json;

        location / {
            return 200 '{"jsonrpc":"2.0","id":1,"result":{"execution":"$request_id"}}';
        }

        location = /error {
            return 200 '{"error":{"code":-32602,"message":"id"},"jsonrpc":"2.0", "id" : "x" }
';
        }

        location = /nested {
            return 200 '{"result":{"id":7,"a":["id",{"id":8}],"execution":"$request_id"},"id":1}';
        }

        location = /note {
            return 202;
        }

        location = /escaped {
            return 200 '{"jsonrpc":"2.0","i\\u0064":1,"result":{"execution":"$request_id"}}';
        }

        location = /broken {
            return 200 '{"jsonrpc":"2.0","id":1,"result":{"execution":"$request_id"}';
        }

        location = /request {
            return 200 '{"jsonrpc":"2.0","id":1,"method":"$request_id"}';
        }

        location = /charset {
            default_type "application/json; charset=utf-8";
            return 200 '{"jsonrpc":"2.0","id":1,"result":{"execution":"$request_id"}}';
        }

        location = /text {
            default_type text/plain;
            return 200 '{"jsonrpc":"2.0","id":1,"result":{"execution":"$request_id"}}';
        }

        location = /stream {
            default_type text/event-stream;
            return 200 'data: {"jsonrpc":"2.0","id":1,"result":{"execution":"$request_id"}}

';
        }

        location = /encoded {
            add_header Content-Encoding x-odd;
            return 200 '{"jsonrpc":"2.0","id":1,"result":{"execution":"$request_id"}}';
        }

        location = /digests {
            add_header Content-Digest "sha-256=:x:";
            add_header Signature "sig1=:x:";
            add_header Signature-Input 'sig1=("content-digest")';
            add_header ETag '"e"';
            add_header X-Other kept;
            return 200 '{"jsonrpc":"2.0","id":1,"result":{"execution":"$request_id"}}';
        }

        location = /closing { return 444; }
    }
_EOC_

our $Config = <<'_EOC_';
    location ~ / {
        idempotency main;
        idempotency_profile jsonrpc;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/tools.sock:;
    }
_EOC_

# a call with the id, or without one
sub call {
    my ($id, $arguments, $more, $path) = @_;

    $path = '/mcp' unless defined $path;
    $arguments = '{"amount":5}' unless defined $arguments;

    return "POST $path\n{\"jsonrpc\":\"2.0\","
           . (defined $id ? "\"id\":$id," : "")
           . '"method":"tools/call","params":{"name":"pay","arguments":'
           . $arguments . (defined $more ? ",$more" : "") . '}}';
}

# "answers" has a line for each request: the id, and a word for the execution
# or the codes of an error, or "-" for any body

my (%execution_of, $block_of);

add_response_body_check(sub {
    my ($block, $body, $request, undef, $dry_run) = @_;

    return if $dry_run || !defined $block->answers;

    if (!defined $block_of || $block_of ne $block->name) {
        $block_of = $block->name;
        %execution_of = ();
    }

    my $name = $block->name;
    my ($id, $word) = split /  /, (split /\n/, $block->answers)[$request];

    return if $id eq '-';

    if ($word =~ m{^(-\d+)/(\w+)(?:\+(\w+))?$}) {
        my ($number, $code, $more) = ($1, $2, $3);
        my $error = eval { JSON::PP::decode_json($body) } || {};

        Test::More::like($body, qr/^\{"jsonrpc":"2.0","id":\Q$id\E,"error":/,
                         "$name - id $request");
        Test::More::is(CORE::join(' ', sort keys %$error), 'error id jsonrpc',
                       "$name - members $request");
        $error = $error->{error} || {};
        Test::More::is(CORE::join(' ', sort keys %$error),
                       'code data message', "$name - error $request");
        Test::More::is($error->{code}, $number, "$name - number $request");
        Test::More::is($error->{data}{code}, $code, "$name - code $request");
        Test::More::is(CORE::join(' ', sort keys %{$error->{data}}),
                       CORE::join(' ', sort qw(code content retry),
                                            defined $more ? $more : ()),
                       "$name - data $request");
        return;
    }

    my $wanted = qr/"id":\Q$id\E[,}]/;

    Test::More::like($body, $wanted, "$name - id $request");
    $body =~ /"execution":"(\w+)"/;

    if (exists $execution_of{$word}) {
        Test::More::is($1, $execution_of{$word},
                       "$name - execution $request is $word");

    } else {
        Test::More::ok(!(grep { $_ eq $1 } values %execution_of),
                       "$name - execution $request is a new one");
        $execution_of{$word} = $1;
    }
});

run_tests();

__DATA__

=== TEST 1: a replay has the id of the retry, as it was written
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[map { main::call($_) } 1, 1, 2, '"abc"', 'null', '""', '17', '-0', '1.50',
     '1e3', '12345678901234567890123', '"\u00e4\"\\\\ \/"', '"' . 'x' x 1000
     . '"', ' 3 ']
--- more_headers
Idempotency-Key: k1
--- error_code eval
[(200) x 14]
--- response_headers eval
["!Idempotent-Replayed", ("Idempotent-Replayed: true") x 13]
--- answers eval
CORE::join "\n", map { "$_  a" } 1, 1, 2, '"abc"', 'null', '""', '17', '-0', '1.50',
     '1e3', '12345678901234567890123', '"\u00e4\"\\\\ \/"', '"' . 'x' x 1000
     . '"', '3'



=== TEST 2: the whole answer, and its length
--- http_config eval: $main::Tools
--- config
    location ~ / {
        idempotency main;
        idempotency_profile jsonrpc;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/tools.sock:;
    }
--- request eval
[main::call(1, undef, undef, '/error'), main::call(2, undef, undef, '/error'),
 main::call('"y"', undef, undef, '/error')]
--- more_headers
Idempotency-Key: k2
--- error_code eval
[(200) x 3]
--- response_headers eval
["Content-Length: 70", "Content-Length: 68", "Content-Length: 70"]
--- response_body eval
[map { '{"error":{"code":-32602,"message":"id"},"jsonrpc":"2.0", "id" : '
       . "$_ }\n" } '"x"', '2', '"y"']



=== TEST 3: only the id of the message
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[main::call(1, undef, undef, '/nested'), main::call(9, undef, undef, '/nested')]
--- more_headers
Idempotency-Key: k3
--- error_code eval
[200, 200]
--- response_body_like eval
['^\{"result":\{"id":7,"a":\["id",\{"id":8\}\],"execution":"\w+"\},"id":1\}$',
 '^\{"result":\{"id":7,"a":\["id",\{"id":8\}\],"execution":"\w+"\},"id":9\}$']
--- answers
1  a
9  a



=== TEST 4: other arguments, another tool
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[main::call(1), main::call(2, '{"amount":6}'),
 do { (my $other = main::call('"c"')) =~ s/"pay"/"refund"/; $other },
 main::call(4)]
--- more_headers
Idempotency-Key: k4
--- error_code eval
[200, 409, 409, 200]
--- response_headers eval
["!Idempotent-Replayed",
 ("Content-Type: application/json\nCache-Control: no-store\n"
  . "Idempotency-Retry: same-key") x 2, "Idempotent-Replayed: true"]
--- answers
1  a
2  -32000/key_reused
"c"  -32000/key_reused
4  a



=== TEST 5: the message is compared as JSON, without id and _meta
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[main::call(1, '{"amount":5,"to":"x"}', '"_meta":{"progressToken":1}'),
 "POST /mcp\n" . '{"method":"tools/call", "params":{"_meta":{"progressToken":'
 . '2,"traceparent":"00-x"},"arguments":{"to":"x","amount":5.0},"name":"pay"},'
 . '"jsonrpc":"2.0","id":2}',
 main::call(3, '{"amount":5,"to":"x"}')]
--- more_headers
Idempotency-Key: k5
--- error_code eval
[(200) x 3]
--- answers
1  a
2  a
3  a



=== TEST 6: the key in the message
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[map { my $f = $_; map { $f->($_) } 1, 2 }
     sub { main::call($_[0], undef, '"_meta":{"idempotencyKey":"m1",'
                                    . '"progressToken":' . $_[0] . '}') },
     sub { main::call($_[0], undef, '"idempotencyKey":"m2"') },
     sub { main::call($_[0], '{"meta":{"idempotency-key":"m3"}}') },
     sub { main::call($_[0], '{"meta":{"idempotency_key":"m4"}}') }]
--- error_code eval
[(200) x 8]
--- answers
1  a
2  a
1  b
2  b
1  c
2  c
1  d
2  d



=== TEST 7: the key in several places
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[(map { main::call($_, '{"meta":{"idempotency-key":"k7"}}') } 1 .. 4),
 main::call(5, '{"meta":{"idempotency-key":"a","idempotency_key":"b"}}'),
 main::call(6, undef, '"_meta":{"idempotencyKey":7}'),
 main::call(7, undef, '"_meta":{"idempotencyKey":""}'),
 main::call(8)]
--- more_headers eval
["Idempotency-Key: k7", 'Idempotency-Key: "k7"', "X-Other: x",
 "Idempotency-Key: k8", ("X-Other: x") x 3,
 "Idempotency-Key: k7\nIdempotency-Key: k7"]
--- error_code eval
[200, 200, 200, (400) x 5]
--- answers
1  a
2  a
3  a
4  -32602/key_invalid
5  -32602/key_invalid
6  -32602/key_invalid
7  -32602/key_invalid
8  -32602/key_invalid



=== TEST 8: a batch is refused, and what is no message
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[map { "POST /mcp\n$_" }
     '[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,'
     . '"method":"b"}]', '[]', '"x"', '5', '{"id":{},"method":"a"}',
     '{"id":true,"method":"a"}', '{"id":[1],"method":"a"}',
     '{"i\u0064":1,"method":"a"}', '{"id":"' . 'x' x 1024 . '"}',
     '{"id":1,"id":2}', '{"id":1', 'x']
--- more_headers
Idempotency-Key: k8
--- error_code eval
[(400) x 12]
--- response_body_like eval
['The body is a batch of JSON-RPC: send its requests one by one', ("") x 11]
--- answers
null  -32600/body_invalid
null  -32600/body_invalid
null  -32600/body_invalid
null  -32600/body_invalid
null  -32600/body_invalid
null  -32600/body_invalid
null  -32600/body_invalid
null  -32600/body_invalid
null  -32600/body_invalid
null  -32700/body_invalid
null  -32700/body_invalid
null  -32700/body_invalid



=== TEST 9: no body
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request
POST /mcp
--- error_code: 400
--- answers: null  -32700/body_invalid



=== TEST 10: without a key all pass
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[main::call(1), main::call(2), main::call(undef),
 "POST /mcp\n" . '{"jsonrpc":"2.0","id":3,"method":"tools/list"}',
 "GET /mcp", "DELETE /mcp"]
--- error_code eval
[(200) x 6]
--- answers
1  a
1  b
1  c
1  d
-
-



=== TEST 11: calls must have a key where one is required, others need not
--- http_config eval: $main::Tools
--- config
    location ~ / {
        idempotency main;
        idempotency_profile jsonrpc;
        idempotency_required on;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/tools.sock:;
    }
--- request eval
[main::call('"c"'),
 "POST /mcp\n" . '{"jsonrpc":"2.0","id":3,"method":"tools/list"}',
 "POST /mcp\n" . '{"jsonrpc":"2.0","method":"notifications/initialized"}',
 "POST /mcp\n" . '{"jsonrpc":"2.0","id":4,"result":{}}',
 main::call(undef)]
--- error_code eval
[400, 200, 200, 200, 400]
--- response_body_like eval
['The header Idempotency-Key or field params._meta.idempotencyKey is missing',
 ("") x 4]
--- answers
"c"  -32602/key_missing
1  a
1  b
1  c
null  -32602/key_missing



=== TEST 12: a notification with a key is executed once
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[(main::call(undef, undef, undef, '/note')) x 2,
 main::call(undef, '{}', undef, '/note')]
--- more_headers
Idempotency-Key: k12
--- error_code eval
[202, 202, 409]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true", ""]
--- answers
-
-
null  -32000/key_reused



=== TEST 13: a notification gets the answer as it was stored
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[main::call(1), main::call(undef)]
--- more_headers
Idempotency-Key: k13
--- error_code eval
[200, 200]
--- answers
1  a
1  a



=== TEST 14: what is no answer of JSON-RPC is not changed
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[map { (main::call(1, undef, undef, $_), main::call(2, undef, undef, $_)) }
     '/escaped', '/broken', '/request', '/text']
--- more_headers
Idempotency-Key: k14
--- error_code eval
[(200) x 8]
--- response_headers eval
[("!Idempotent-Replayed", "Idempotent-Replayed: true") x 4]
--- executions: a a b b c c d d



=== TEST 15: a type with a charset
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[main::call(1, undef, undef, '/charset'),
 main::call(2, undef, undef, '/charset')]
--- more_headers
Idempotency-Key: k15
--- error_code eval
[200, 200]
--- response_headers eval
[("Content-Type: application/json; charset=utf-8") x 2]
--- answers
1  a
2  a



=== TEST 16: a compressed answer cannot be replayed with another id
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[main::call(1, undef, undef, '/encoded'),
 main::call(2, undef, undef, '/encoded'),
 main::call(undef, undef, undef, '/encoded')]
--- more_headers
Idempotency-Key: k16
--- error_code eval
[200, 409, 200]
--- answers
1  a
2  -32000/response_not_kept+original_status
1  a



=== TEST 17: a stream of events is passed on and not kept
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[main::call(1, undef, undef, '/stream'),
 main::call(2, undef, undef, '/stream')]
--- more_headers
Idempotency-Key: k17
--- error_code eval
[200, 409]
--- answers
1  a
2  -32000/response_not_kept+original_status



=== TEST 18: digests of other bytes are not sent
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[main::call(1, undef, undef, '/digests'),
 main::call(2, undef, undef, '/digests'),
 main::call(1, undef, undef, '/digests')]
--- more_headers
Idempotency-Key: k18
--- error_code eval
[200, 200, 200]
--- response_headers eval
[map { $_ ? "Content-Digest: sha-256=:x:\nSignature: sig1=:x:\n"
            . "Signature-Input: sig1=(\"content-digest\")\nETag: \"e\"\n"
            . "X-Other: kept"
          : "!Content-Digest\n!Signature\n!Signature-Input\n!ETag\n"
            . "X-Other: kept" } 1, 0, 1]
--- answers
1  a
2  a
1  a



=== TEST 19: no answer
--- http_config eval: $main::Tools
--- config eval: $main::Config
--- request eval
[main::call('"first"', undef, undef, '/closing'),
 main::call('"second"', undef, undef, '/closing')]
--- more_headers
Idempotency-Key: k19
--- error_code eval
[502, 409]
--- response_headers eval
[("Content-Type: application/json\nRetry-After: 60") x 2]
--- answers
"first"  -32000/outcome_unknown+retry_after
"second"  -32000/outcome_unknown+retry_after



=== TEST 20: a key and a fingerprint that were given
--- http_config eval
$main::Tools . 'idempotency_json_set $order params arguments order;'
--- config
    location ~ / {
        idempotency main;
        idempotency_profile jsonrpc;
        idempotency_key $order;
        idempotency_required on;
        idempotency_fingerprint json exclude=params.arguments.nonce;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/tools.sock:;
    }
--- request eval
[main::call(1, '{"order":"o1","nonce":1}'),
 main::call(2, '{"order":"o1","nonce":2}'),
 main::call(3, '{"order":"o1","nonce":3,"x":1}'),
 main::call(4, '{"nonce":4}')]
--- error_code eval
[200, 200, 409, 400]
--- response_body_like eval
["", "", "", "The field params.arguments.order of the JSON body is missing"]
--- answers
1  a
2  a
3  -32000/key_reused
4  -32602/key_missing



=== TEST 21: a header that was given, and bodies in files
--- http_config eval: $main::Tools
--- config
    client_body_in_file_only clean;

    location ~ / {
        idempotency main;
        idempotency_profile jsonrpc;
        idempotency_key $http_x_key;
        idempotency_required on;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/tools.sock:;
    }
--- request eval
[main::call(1), main::call(2), main::call(3), main::call(4)]
--- more_headers eval
["X-Key: k21", "X-Key: k21", "Idempotency-Key: k21", "X-Key: a b"]
--- error_code eval
[200, 200, 400, 400]
--- answers
1  a
2  a
3  -32602/key_missing
4  -32602/key_invalid



=== TEST 22: in small pieces
--- http_config eval
$main::Tools . "postpone_output 0;\noutput_buffers 1 16;\n"
--- config eval: $main::Config
--- request eval
[main::call(1), main::call('"two"')]
--- more_headers
Idempotency-Key: k22
--- error_code eval
[200, 200]
--- answers
1  a
"two"  a
