# The replay: every answer that clients get for a key is the same answer. It
# is stored as the upstream gave it, before the first client sees it, and goes
# through nginx's filters again for each duplicate: no ranges, no conditional
# answers, whatever the client asks for.
#
# What the upstream's answer means for the key is decided by the lists of
# statuses, or by the upstream itself with X-Accel-Idempotency.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our ($HttpConfig, $Upstream);

# a header that says what it says, for each execution
our $Many = join '', map { "add_header X-Many-$_ \"value $_ \$request_id\";\n" }
                         1 .. 100;

our $Answers = $HttpConfig . <<'_EOC_' . $Many . "return 200 \$request_id; } }\n";
    server {
        listen unix:$TEST_NGINX_HTML_DIR/files.sock;
        root $TEST_NGINX_HTML_DIR;
    }

    upstream answers {
        server unix:$TEST_NGINX_HTML_DIR/answers.sock;
    }

    server {
        listen unix:$TEST_NGINX_HTML_DIR/answers.sock;
        default_type text/plain;
        client_max_body_size 30M;
        add_header X-Execution $request_id always;

        location = /empty   { return 200; }
        location = /made    { add_header Location /pay/17 always;
                              add_header X-Execution $request_id always;
                              return 201 "made $request_id\n"; }
        location = /nothing { return 204; }
        location = /same    { return 304; }
        location = /part    { add_header Content-Range "bytes 0-3/10" always;
                              return 206 "part"; }
        location = /moved   { return 303 /elsewhere; }
        location = /unknown-status { return 299 "odd $request_id\n"; }

        location ~ ^/status/(\d+)$ {
            set $wanted $1;
            if ($wanted = 400) { return 400 "400 $request_id\n"; }
            if ($wanted = 401) { return 401 "401 $request_id\n"; }
            if ($wanted = 403) { return 403 "403 $request_id\n"; }
            if ($wanted = 404) { return 404 "404 $request_id\n"; }
            if ($wanted = 407) { return 407 "407 $request_id\n"; }
            if ($wanted = 408) { return 408 "408 $request_id\n"; }
            if ($wanted = 409) { return 409 "409 $request_id\n"; }
            if ($wanted = 422) { return 422 "422 $request_id\n"; }
            if ($wanted = 425) { return 425 "425 $request_id\n"; }
            if ($wanted = 429) { return 429 "429 $request_id\n"; }
            if ($wanted = 499) { return 499 "499 $request_id\n"; }
            if ($wanted = 500) { return 500 "500 $request_id\n"; }
            if ($wanted = 501) { return 501 "501 $request_id\n"; }
            if ($wanted = 502) { return 502 "502 $request_id\n"; }
            if ($wanted = 503) { return 503 "503 $request_id\n"; }
            if ($wanted = 504) { return 504 "504 $request_id\n"; }
            if ($wanted = 507) { return 507 "507 $request_id\n"; }
            return 200 "200 $request_id\n";
        }

        location = /chunked {
            sub_filter X Y;
            sub_filter_types *;
            return 200 "XX $request_id\n";
        }

        location = /cookies {
            add_header Set-Cookie a=1;
            add_header Set-Cookie b=2;
            add_header X-Secret s;
            return 200 "$request_id\n";
        }

        location = /charset {
            charset utf-8;
            return 200 "$request_id\n";
        }

        location = /type {
            default_type 'application/x-thing; a="b;c"; charset="utf-8"; d=e';
            return 200 "$request_id\n";
        }

        location = /no-type {
            default_type "";
            return 200 "$request_id\n";
        }

        location = /encoded {
            add_header Content-Encoding x-odd;
            return 200 "$request_id $request_id $request_id $request_id\n";
        }

        location = /caching {
            add_header Cache-Control "max-age=5";
            add_header Cache-Control "private";
            add_header Link "</a>; rel=a";
            add_header Link "</b>; rel=b";
            add_header Vary "Accept";
            add_header Expires "Thu, 01 Jan 1970 00:00:01 GMT";
            add_header WWW-Authenticate "Basic realm=a";
            add_header Refresh "3; url=/x";
            return 200 "$request_id\n";
        }

        location = /stream {
            default_type text/event-stream;
            return 200 "data: $request_id\n\n";
        }

        location ~ ^/say/ {
            add_header X-Accel-Idempotency $arg_say always;
            add_header X-Execution $request_id always;
            if ($uri = /say/200) { return 200 "200 $request_id\n"; }
            if ($uri = /say/500) { return 500 "500 $request_id\n"; }
            if ($uri = /say/503) { return 503 "503 $request_id\n"; }
            return 404;
        }

        location = /accel {
            add_header X-Accel-Redirect /internal/small;
            return 200 "not seen\n";
        }

        location /files/ {
            proxy_method GET;
            proxy_set_body "";
            proxy_set_header If-None-Match "";
            proxy_set_header If-Modified-Since "";
            proxy_set_header If-Match "";
            proxy_set_header If-Unmodified-Since "";
            proxy_set_header If-Range "";
            proxy_set_header Range "";
            proxy_buffers 8 128k;
            proxy_pass http://unix:$TEST_NGINX_HTML_DIR/files.sock:;
        }

        location = /many {
_EOC_

# the gateway for most of the blocks
our $Gateway = <<'_EOC_';
    location / {
        idempotency main;
        proxy_pass http://answers;
        proxy_buffer_size 32k;
        proxy_buffers 8 32k;
        proxy_busy_buffers_size 64k;
    }
_EOC_

# the scaffold's own "location /" would be a second one
no_root_location();

our $Megabyte = join '', map { sprintf "%07d\n", $_ } 0 .. 131_071;

add_block_preprocessor(sub {
    my $block = shift;

    return unless defined $block->config;

    $block->set_value('http_config', $Answers)
        unless defined $block->http_config;
});

run_tests();

__DATA__

=== TEST 1: a body of 0 bytes
--- config eval: $main::Gateway
--- request eval
[("POST /empty\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed\nContent-Length: 0",
 "Idempotent-Replayed: true\nContent-Length: 0"]
--- response_body eval
["", ""]



=== TEST 2: 201 with a Location which is relative
--- request eval
[("POST /made\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[201, 201]
--- response_headers eval
["!Idempotent-Replayed\nLocation: /pay/17",
 "Idempotent-Replayed: true\nLocation: /pay/17"]
--- executions: a a



=== TEST 3: 204
--- request eval
[("POST /nothing\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[204, 204]
--- response_headers eval
["!Idempotent-Replayed\n!Content-Length\n!Content-Type",
 "Idempotent-Replayed: true\n!Content-Length\n!Content-Type"]
--- response_body eval
["", ""]



=== TEST 4: 304 of the upstream's own
--- request eval
[("POST /same\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[304, 304]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- response_body eval
["", ""]



=== TEST 5: 206 of the upstream's own
--- request eval
[("POST /part\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[206, 206]
--- response_headers eval
["!Idempotent-Replayed\nContent-Range: bytes 0-3/10",
 "Idempotent-Replayed: true\nContent-Range: bytes 0-3/10"]
--- response_body eval
["part", "part"]



=== TEST 6: a redirect of the upstream, rewritten by proxy_redirect
--- request eval
[("POST /moved\nx") x 2]
--- more_headers
Idempotency-Key: k
Host: shop.example
--- error_code eval
[303, 303]
--- raw_response_headers_like eval
['Location: http://shop\.example(:\d+)?/elsewhere\r\n',
 'Location: http://shop\.example(:\d+)?/elsewhere\r\n']
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]



=== TEST 7: a status which nobody knows
--- request eval
[("POST /unknown-status\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[299, 299]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 8: a hundred headers
--- request eval
[("POST /many\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- raw_response_headers_like eval
[("X-Many-1: value 1 (\\w+)\r\n.*"
  . CORE::join("\r\n", map { "X-Many-$_: value $_ \\1" } 2 .. 100)) x 2]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 9: cookies are the first client's
--- request eval
[("POST /cookies\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- raw_response_headers_like eval
["Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n", "Idempotent-Replayed: true"]
--- response_headers eval
["X-Secret: s", "!Set-Cookie\nX-Secret: s"]
--- executions: a a



=== TEST 10: a charset
--- request eval
[("POST /charset\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["Content-Type: text/plain; charset=utf-8\n!Idempotent-Replayed",
 "Content-Type: text/plain; charset=utf-8\nIdempotent-Replayed: true"]
--- executions: a a



=== TEST 11: a type with parameters
--- request eval
[("POST /type\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
['Content-Type: application/x-thing; a="b;c"; charset="utf-8"; d=e',
 'Content-Type: application/x-thing; a="b;c"; charset="utf-8"; d=e']
--- executions: a a



=== TEST 12: no type
--- request eval
[("POST /no-type\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["!Content-Type", "!Content-Type\nIdempotent-Replayed: true"]
--- executions: a a



=== TEST 13: headers which nginx knows by pointers
--- request eval
[("POST /caching\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- raw_response_headers_like eval
[("Cache-Control: max-age=5\r\nCache-Control: private\r\n"
  . "Link: </a>; rel=a\r\nLink: </b>; rel=b\r\nVary: Accept\r\n"
  . "Expires: Thu, 01 Jan 1970 00:00:01 GMT\r\n"
  . "WWW-Authenticate: Basic realm=a\r\nRefresh: 3; url=/x\r\n") x 2]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 14: an upstream which does not tell the length
--- request eval
[("POST /chunked\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed\nContent-Length: 36\n!Transfer-Encoding",
 "Idempotent-Replayed: true\nContent-Length: 36\n!Transfer-Encoding"]
--- executions: a a



=== TEST 15: an answer that never ends is not kept
--- request eval
[("POST /stream\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 409]
--- response_body_like eval
["^data: ", '"code":"response_not_kept".*"original_status":200']



=== TEST 16: a chunked upstream
--- config
    location / {
        idempotency main;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_pass http://answers;
    }
--- request eval
[("POST /chunked\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed\nContent-Length: 36",
 "Idempotent-Replayed: true\nContent-Length: 36"]
--- executions: a a



=== TEST 17: a body of 1 MB
--- config
    location / {
        idempotency main;
        idempotency_max_response 2m;
        proxy_pass http://answers;
    }
--- user_files eval
[["files/mega", $main::Megabyte]]
--- request eval
[("POST /files/mega\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed\nContent-Length: 1048576",
 "Idempotent-Replayed: true\nContent-Length: 1048576"]
--- response_body eval
[$main::Megabyte, $main::Megabyte]



=== TEST 18: a body of 1 MB without a length, and without buffering
--- config
    location / {
        idempotency main;
        idempotency_max_response 1m;
        proxy_buffering off;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/lengthless.sock:;
    }
--- http_config eval
$main::Answers . <<'_EOC_';
    server {
        listen unix:$TEST_NGINX_HTML_DIR/lengthless.sock;

        location / {
            sub_filter nothing nothing;
            sub_filter_types *;
            proxy_pass http://answers;
        }
    }
_EOC_
--- user_files eval
[["files/mega", $main::Megabyte], ["files/more", "${main::Megabyte}x"]]
--- request eval
["POST /files/mega\nx", "POST /files/mega\nx",
 "POST /files/more\nx", "POST /files/more\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 409]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true", "!Idempotent-Replayed",
 "Idempotency-Retry: never"]
--- response_body_like eval
["^$main::Megabyte\\z", "^$main::Megabyte\\z", "^${main::Megabyte}x\\z",
 '"code":"response_not_kept".*"original_status":200']



=== TEST 19: as large as allowed, and one byte more
--- config
    location / {
        idempotency main;
        idempotency_max_response 1000;
        proxy_pass http://answers;
    }
--- user_files eval
[["files/1000", "x" x 1000], ["files/1001", "x" x 1001]]
--- request eval
["POST /files/1000\nx", "POST /files/1000\nx",
 "POST /files/1001\nx", "POST /files/1001\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200, 409]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true", "!Idempotent-Replayed",
 "Idempotency-Retry: never"]
--- response_body_like eval
['^x{1000}$', '^x{1000}$', '^x{1001}$',
 '"code":"response_not_kept".*"original_status":200']



=== TEST 20: other headers to hide, and so the cookies are kept
--- config
    location / {
        idempotency main;
        idempotency_hide_header X-SECRET X-Execution;
        proxy_pass http://answers;
    }
--- request eval
[("POST /cookies\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- raw_response_headers_like eval
["Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n",
 "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n"]
--- response_headers eval
["X-Secret: s", "!X-Secret\nIdempotent-Replayed: true"]
--- executions: a a



=== TEST 21: If-None-Match, If-Modified-Since and Range: equal whole answers
--- config
    location / {
        idempotency main;
        proxy_force_ranges on;
        proxy_pass http://answers;
    }
--- user_files
>>> files/small 202001010000.00
0123456789
--- request eval
[("POST /files/small\nx") x 6]
--- more_headers eval
["Idempotency-Key: a\nIf-None-Match: *", "Idempotency-Key: a\nIf-None-Match: *",
 "Idempotency-Key: b\nIf-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT",
 "Idempotency-Key: b\nIf-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT",
 "Idempotency-Key: c\nRange: bytes=0-3", "Idempotency-Key: c\nRange: bytes=0-3"]
--- error_code eval
[(200) x 6]
--- response_headers_like eval
[map { "ETag: \"[0-9a-f-]+\"\nLast-Modified: \\w+, \\d\\d \\w+ (2019|2020) .*\n"
       . "Content-Length: 11" } 1 .. 6]
--- raw_response_headers_unlike eval
[("Content-Range") x 6]
--- response_body eval
[("0123456789\n") x 6]



=== TEST 22: If-Match, If-Unmodified-Since and If-Range
--- request eval
[("POST /files/small\nx") x 6]
--- more_headers eval
["Idempotency-Key: d\nIf-Match: \"x\"", "Idempotency-Key: d\nIf-Match: \"x\"",
 "Idempotency-Key: e\nIf-Unmodified-Since: Thu, 01 Jan 1998 00:00:00 GMT",
 "Idempotency-Key: e\nIf-Unmodified-Since: Thu, 01 Jan 1998 00:00:00 GMT",
 "Idempotency-Key: f\nRange: bytes=5-\nIf-Range: \"x\"",
 "Idempotency-Key: f\nRange: bytes=5-\nIf-Range: \"x\""]
--- error_code eval
[(200) x 6]
--- response_headers eval
[("!Idempotent-Replayed\n!Content-Range",
  "Idempotent-Replayed: true\n!Content-Range") x 3]
--- response_body eval
[("0123456789\n") x 6]



=== TEST 23: filters of the gateway work on both: add_header, sub_filter
--- config
    location / {
        idempotency main;
        proxy_pass http://answers;
        add_header X-Added "$idempotency_result" always;
        sub_filter_types *;
        sub_filter made baked;
    }
--- request eval
[("POST /made\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[201, 201]
--- response_headers eval
["X-Added: new", "X-Added: replayed\nIdempotent-Replayed: true"]
--- response_body_like eval
['^baked \w+$', '^baked \w+$']
--- executions: a a



=== TEST 24: gzip
--- config
    location / {
        idempotency main;
        proxy_pass http://answers;
        gzip on;
        gzip_types *;
        gzip_min_length 1;
        gunzip off;
    }
--- user_files eval
[["files/zip", "z" x 3000]]
--- request eval
["POST /files/zip\nx", "POST /files/zip\nx", "POST /files/zip\nx",
 "POST /encoded\nx", "POST /encoded\nx"]
--- more_headers eval
["Idempotency-Key: k\nAccept-Encoding: gzip", "Idempotency-Key: k\nAccept-Encoding: gzip",
 "Idempotency-Key: k",
 "Idempotency-Key: k\nAccept-Encoding: gzip",
 "Idempotency-Key: k\nAccept-Encoding: gzip"]
--- error_code eval
[(200) x 5]
--- response_headers eval
["Content-Encoding: gzip\n!Idempotent-Replayed",
 "Content-Encoding: gzip\nIdempotent-Replayed: true",
 "!Content-Encoding\nIdempotent-Replayed: true",
 "Content-Encoding: x-odd\n!Idempotent-Replayed",
 "Content-Encoding: x-odd\nIdempotent-Replayed: true"]
--- executions: a a b c c



=== TEST 25: final statuses are replayed
--- config eval: $main::Gateway
--- request eval
[map { ("POST /status/$_\nx") x 2 } 400, 404, 409, 422, 499, 500, 501]
--- more_headers
Idempotency-Key: k
--- error_code eval
[map { ($_) x 2 } 400, 404, 409, 422, 499, 500, 501]
--- response_headers eval
[("!Idempotent-Replayed", "Idempotent-Replayed: true") x 7]
--- executions: a a b b c c d d e e f f g g



=== TEST 26: retryable statuses release the key
--- request eval
[map { ("POST /status/$_\nx") x 2 } 401, 403, 407, 408, 425, 429, 503]
--- more_headers
Idempotency-Key: k
--- error_code eval
[map { ($_) x 2 } 401, 403, 407, 408, 425, 429, 503]
--- response_headers eval
[("!Idempotent-Replayed") x 14]
--- executions: a b c d e f g h i j k l m n



=== TEST 27: a status in neither list is unknown
--- request eval
[map { ("POST /status/$_\nx") x 2 } 502, 504, 507]
--- more_headers
Idempotency-Key: k
--- error_code eval
[502, 409, 504, 409, 507, 409]
--- response_body_like eval
[map { ("^$_ ", '"code":"outcome_unknown"') } 502, 504, 507]



=== TEST 28: lists of one's own; retryable wins
--- config
    location / {
        idempotency main;
        idempotency_final 200 502-504;
        idempotency_retryable 404 503;
        proxy_pass http://answers;
    }
--- request eval
[map { ("POST /status/$_\nx") x 2 } 200, 404, 500, 502, 503, 504]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 404, 404, 500, 409, 502, 502, 503, 503, 504, 504]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true",
 "!Idempotent-Replayed", "!Idempotent-Replayed",
 "!Idempotent-Replayed", "Idempotency-Retry: same-key",
 "!Idempotent-Replayed", "Idempotent-Replayed: true",
 "!Idempotent-Replayed", "!Idempotent-Replayed",
 "!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a b c d - e e f g h h



=== TEST 29: the upstream's own word: final
--- config eval: $main::Gateway
--- request eval
["POST /say/503?say=final\nx", "POST /say/503?say=final\nx",
 "POST /say/500?say=FINAL\nx", "POST /say/500?say=FINAL\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[503, 503, 500, 500]
--- response_headers eval
["!Idempotent-Replayed\n!X-Accel-Idempotency",
 "Idempotent-Replayed: true\n!X-Accel-Idempotency",
 "!Idempotent-Replayed\n!X-Accel-Idempotency",
 "Idempotent-Replayed: true\n!X-Accel-Idempotency"]
--- executions: a a b b



=== TEST 30: the upstream's own word: release
--- request eval
["POST /say/200?say=release\nx", "POST /say/200?say=release\nx",
 "POST /say/500?say=release\nx", "POST /say/500?say=release\nx"]
--- more_headers
Idempotency-Key: k32
--- error_code eval
[200, 200, 500, 500]
--- response_headers eval
[("!Idempotent-Replayed\n!X-Accel-Idempotency") x 4]
--- executions: a b c d



=== TEST 31: the upstream's own word: unknown
--- request eval
["POST /say/200?say=unknown\nx", "POST /say/200?say=unknown\nx",
 "POST /say/503?say=unknown\nx", "POST /say/503?say=unknown\nx"]
--- more_headers
Idempotency-Key: k33
--- error_code eval
[200, 409, 503, 409]
--- response_headers eval
[("!Idempotent-Replayed\n!X-Accel-Idempotency") x 4]
--- response_body_like eval
['^200 ', '"code":"outcome_unknown"', '^503 ', '"code":"outcome_unknown"']



=== TEST 32: a word which is none is told in the log, and counts for nothing
--- request eval
["POST /say/503?say=maybe\nx", "POST /say/200?say=maybe\nx"]
--- more_headers
Idempotency-Key: k34
--- error_code eval
[503, 200]
--- response_headers eval
[("!Idempotent-Replayed\n!X-Accel-Idempotency") x 2]
--- error_log
upstream sent an invalid "X-Accel-Idempotency: maybe"



=== TEST 33: the upstream's own ttl
--- http_config eval
my $http = $main::Answers; $http =~ s/\$arg_say always/"final; ttl=1" always/;
$http
--- config eval: $main::Gateway
--- request eval
["POST /say/200\nx", "POST /say/200\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed\n!X-Accel-Idempotency",
 "Idempotent-Replayed: true\n!X-Accel-Idempotency"]
--- executions: a a



=== TEST 34: past the upstream's own ttl
--- init
Time::HiRes::sleep(2.1)
--- request
POST /say/200
x
--- more_headers
Idempotency-Key: k
--- response_headers
!Idempotent-Replayed



=== TEST 35: the word is heard even if it is hidden from clients anyway
--- config
    location / {
        idempotency main;
        proxy_hide_header X-Accel-Idempotency;
        proxy_pass http://answers;
    }
--- request eval
["POST /say/503?say=final\nx", "POST /say/503?say=final\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[503, 503]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 36: the word is not forwarded where idempotency is off for a request
--- config
    location / {
        idempotency main;
        idempotency_required off;
        proxy_pass http://answers;
    }
--- request eval
["POST /say/200?say=final\nx", "GET /say/200?say=final"]
--- error_code eval
[200, 200]
--- response_headers eval
["!X-Accel-Idempotency", "!X-Accel-Idempotency"]



=== TEST 37: connection refused: released, and the retry executes
--- config
    location /pay {
        idempotency main;
        idempotency_scope "";
        proxy_pass http://127.0.0.1:1;
    }

    location / {
        idempotency main;
        idempotency_scope "";
        proxy_pass http://answers;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx", "POST /made\nx", "POST /made\nx",
 "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[502, 502, 201, 201, 201]
--- response_headers eval
["Idempotency-Retry: same-key", "Idempotency-Retry: same-key",
 "!Idempotency-Retry\n!Idempotent-Replayed",
 "Idempotent-Replayed: true", "Idempotent-Replayed: true"]
--- executions: - - a a a



=== TEST 38: the first of two upstreams refuses: the second gets it, once
--- http_config eval
$main::Answers . <<'_EOC_';
    upstream two {
        server 127.0.0.1:1;
        server unix:$TEST_NGINX_HTML_DIR/answers.sock backup;
    }
_EOC_
--- config
    location / {
        idempotency main;
        proxy_pass http://two;
    }
--- request eval
["POST /made\nx", "POST /made\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[201, 201]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 39: error_page for the upstream's answer: what the client saw is kept
--- config
    location / {
        idempotency main;
        proxy_intercept_errors on;
        error_page 404 /page;
        error_page 422 = @named;
        proxy_pass http://answers;
    }

    location = /page {
        internal;
        return 200 "page $request_id\n";
    }

    location @named {
        return 200 "named $request_id\n";
    }
--- request eval
[("POST /status/404\nx") x 2, ("POST /status/422\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[404, 404, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true",
 "!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- response_body_like eval
['^page ', '^page ', '^named ', '^named ']
--- executions: a a b b



=== TEST 40: X-Accel-Redirect: the file is the answer
--- config
    location / {
        idempotency main;
        proxy_pass http://answers;
    }

    location /internal/ {
        internal;
        alias $TEST_NGINX_HTML_DIR/files/;
    }
--- user_files
>>> files/small
0123456789
--- request eval
[("POST /accel\nx") x 6]
--- more_headers eval
[("Idempotency-Key: a\nRange: bytes=0-3") x 2,
 ("Idempotency-Key: b\nIf-None-Match: *") x 2,
 ("Idempotency-Key: c\nIf-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT") x 2]
--- error_code eval
[(200) x 6]
--- response_headers eval
[("!Idempotent-Replayed", "Idempotent-Replayed: true") x 3]
--- response_body eval
[("0123456789\n") x 6]



=== TEST 41: an answer which breaks off is not an answer
--- config
    location / {
        idempotency main;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_reply eval
"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"
--- request eval
[("POST /pay\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[502, 409]
--- response_body_like eval
[('"code":"outcome_unknown"') x 2]



=== TEST 42: the client's Date and Server are not taken from the record
--- config
    location / {
        idempotency main;
        proxy_pass_header Date;
        proxy_pass_header Server;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_reply eval
"HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nServer: shop\r\n"
. "Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\nhello"
--- request eval
[("POST /pay\nx") x 2]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- raw_response_headers_like eval
["^HTTP/1.1 200 Fine\r\n", "^HTTP/1.1 200 Fine\r\n"]
--- response_headers eval
["Server: shop\nDate: Thu, 01 Jan 2026 00:00:00 GMT\n!Idempotent-Replayed",
 "Server: shop\nDate: Thu, 01 Jan 2026 00:00:00 GMT\nIdempotent-Replayed: true"]
--- response_body eval
["hello", "hello"]



=== TEST 43: the upstream's own word is nobody else's, protected or not
--- config
    location /say/ {
        idempotency off;
        proxy_pass http://up;
    }
--- request
POST /say/200?say=final
x
--- response_headers
!X-Accel-Idempotency
