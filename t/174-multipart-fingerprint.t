# idempotency_fingerprint multipart: two bodies are the same request if they
# have the same parts in the same order, each with its name, file names, type,
# encoding and content. The boundary, other header lines of a part, and what is
# before the first part and behind the last one make no difference.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our $HttpConfig;

our $Pay = <<'_EOC_';
    location /pay {
        idempotency main;
        idempotency_fingerprint multipart;
        proxy_pass http://up;
    }
_EOC_

# a part: "header: value" lines beside its name, and the content
sub part {
    my ($name, $content, @lines) = @_;

    return join("\r\n", "Content-Disposition: form-data; name=\"$name\"",
                @lines, '', $content);
}

sub file {
    my ($name, $file, $content) = @_;

    return "Content-Disposition: form-data; name=\"$name\"; $file\r\n"
           . "Content-Type: image/png\r\n\r\n$content";
}

sub body {
    my ($boundary, @parts) = @_;

    return join('', map { "--$boundary\r\n$_\r\n" } @parts)
           . "--$boundary--\r\n";
}

# whole requests: "key boundary" and the body, each on a connection of its own
sub ask {
    my ($key, $type, $body, $more, $uri) = @_;

    $uri ||= '/pay';

    return "POST $uri HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
           . "Idempotency-Key: $key\r\n"
           . (defined $type ? "Content-Type: $type\r\n" : '') . ($more || '')
           . 'Content-Length: ' . length($body) . "\r\n\r\n$body";
}

sub form { return ask('k', "multipart/form-data; boundary=$_[0]",
                      body(@_)) }

sub text { return ask('k', 'multipart/form-data; boundary=B', $_[0]) }

our @Two = (part('amount', '10'), file('doc', 'filename="a.png"', "\0\r\n\xff"));

our $Large = join "\r\n", map { "$_ --B -- \n" x 40 } 1 .. 4000;

run_tests();

__DATA__

=== TEST 1: a retry with another boundary
--- config eval: $main::Pay
--- raw_request eval
main::form('B', @main::Two)
--- response_headers
!Idempotent-Replayed



=== TEST 2: is the same request
--- raw_request eval
main::form('----WebKitFormBoundary7MA4YWxkTrZu0gW', @main::Two)
--- response_headers
Idempotent-Replayed: true



=== TEST 3: also with a boundary in quotes, text around it, and other lines
--- raw_request eval
main::ask('k', 'multipart/form-data; charset=utf-8; Boundary="x y"',
          "not\r\na part\r\n--x y\r\n"
          . main::part('amount', '10', 'X-Other: 1') . "\r\n--x y\r\n"
          . $main::Two[1] . "\r\n--x y--\r\nnor this\r\n")
--- response_headers
Idempotent-Replayed: true



=== TEST 4: the order of parts
--- raw_request eval
main::form('B', @main::Two[1, 0])
--- error_code: 422
--- response_body_like: "code":"key_reused"



=== TEST 5: a part more
--- raw_request eval
main::form('B', @main::Two, main::part('x', ''))
--- error_code: 422



=== TEST 6: a part less
--- raw_request eval
main::form('B', $main::Two[0])
--- error_code: 422



=== TEST 7: another content
--- raw_request eval
main::form('B', $main::Two[0],
           main::file('doc', 'filename="a.png"', "\0\r\n\xfe"))
--- error_code: 422



=== TEST 8: another file name
--- raw_request eval
main::form('B', $main::Two[0],
           main::file('doc', 'filename="b.png"', "\0\r\n\xff"))
--- error_code: 422



=== TEST 9: no file name
--- raw_request eval
main::form('B', $main::Two[0],
           main::part('doc', "\0\r\n\xff", 'Content-Type: image/png'))
--- error_code: 422



=== TEST 10: an extended file name is not a file name
--- raw_request eval
main::form('B', $main::Two[0],
           main::file('doc', 'filename*="a.png"', "\0\r\n\xff"))
--- error_code: 422



=== TEST 11: both of them
--- raw_request eval
main::form('B', $main::Two[0],
           main::file('doc', 'filename="a.png"; filename*=a', "\0\r\n\xff"))
--- error_code: 422



=== TEST 12: another type
--- raw_request eval
main::form('B', main::part('amount', '10', 'Content-Type: text/plain'),
           $main::Two[1])
--- error_code: 422



=== TEST 13: an encoding
--- raw_request eval
main::form('B', main::part('amount', '10',
                           'Content-Transfer-Encoding: base64'),
           $main::Two[1])
--- error_code: 422



=== TEST 14: another name
--- raw_request eval
main::form('B', main::part('Amount', '10'), $main::Two[1])
--- error_code: 422



=== TEST 15: one part's content is not two parts
--- raw_request eval
main::form('B', main::part('amount', "10\r\n--C\r\n$main::Two[1]"))
--- error_code: 422



=== TEST 16: and afterwards it is still the first one
--- raw_request eval
main::form('C', @main::Two)
--- response_headers
Idempotent-Replayed: true



=== TEST 17: not multipart: another boundary than announced
--- raw_request eval
main::ask('m', 'multipart/form-data; boundary=C', main::body('B', 'x'))
--- error_code: 400
--- response_body_like: "code":"body_invalid"
--- error_log
idempotency request body is not multipart/form-data: no closing delimiter



=== TEST 18: no boundary
--- raw_request eval
main::ask('m', 'multipart/form-data', main::body('B', @main::Two))
--- error_code: 400
--- response_body_like: "code":"body_invalid"
--- error_log
no boundary in Content-Type



=== TEST 19: no Content-Type
--- raw_request eval
main::ask('m', undef, main::body('B', @main::Two))
--- error_code: 400
--- response_body_like: "code":"body_invalid"



=== TEST 20: the closing delimiter is missing
--- raw_request eval
main::text("--B\r\n$main::Two[0]\r\n--B\r\n$main::Two[1]\r\n")
--- error_code: 400
--- response_body_like: "code":"body_invalid"



=== TEST 21: a part without a name
--- raw_request eval
main::form('B', "Content-Type: text/plain\r\n\r\n1")
--- error_code: 400
--- response_body_like: "code":"body_invalid"
--- error_log
part without a name at byte



=== TEST 22: a header that is too long
--- raw_request eval
main::form('B', main::part('a', 'x', 'X-Long: ' . 'x' x 5000))
--- error_code: 400
--- response_body_like: "code":"body_invalid"
--- error_log
header of a part is too long



=== TEST 23: a compressed body cannot be read
--- raw_request eval
main::ask('m', 'multipart/form-data; boundary=B', main::body('B', @main::Two),
          "Content-Encoding: gzip\r\n")
--- error_code: 400
--- response_body_like: "code":"body_invalid"
--- error_log
multipart/form-data: compressed



=== TEST 24: no body is no part
--- config eval: $main::Pay
--- request eval
["POST /pay", "POST /pay"]
--- more_headers
Idempotency-Key: n
--- error_code eval
[200, 200]
--- executions: a a



=== TEST 25: large, in a temporary file
--- config
    client_body_buffer_size 1k;

    location /pay {
        idempotency main;
        idempotency_fingerprint multipart;
        proxy_pass http://up;
    }
--- raw_request eval
main::form('B', main::part('large', $main::Large), @main::Two)
--- error_log
a client request body is buffered to a temporary file
--- response_headers
!Idempotent-Replayed



=== TEST 26: with another boundary
--- raw_request eval
main::form('--CC', main::part('large', $main::Large), @main::Two)
--- response_headers
Idempotent-Replayed: true



=== TEST 27: and another byte
--- raw_request eval
main::form('--CC', main::part('large', "$main::Large."), @main::Two)
--- error_code: 422



=== TEST 28: chunked, in packets that cut the delimiter
--- raw_request eval
["POST /pay HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: c\r\n"
 . "Content-Type: multipart/form-data; boundary=BB\r\n"
 . "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
 (map { sprintf("%x\r\n%s\r\n", length($_), $_) }
     "--", "BB\r", "\n$main::Two[0]\r", "\n-", "-B", "B", "\r\n",
      "$main::Two[1]\r\n--BB", "--"), "0\r\n\r\n"]
--- raw_request_middle_delay
0.02
--- response_headers
!Idempotent-Replayed



=== TEST 29: the same, sized
--- raw_request eval
main::ask('c', 'multipart/form-data; boundary=B',
          main::body('B', @main::Two))
--- response_headers
Idempotent-Replayed: true



=== TEST 30: include and exclude, by the name of a part
--- config
    idempotency_scope "";

    location /out {
        idempotency main;
        idempotency_fingerprint multipart exclude=doc,time.sent;
        proxy_pass http://up;
    }

    location /in {
        idempotency main;
        idempotency_fingerprint multipart include=amount;
        proxy_pass http://up;
    }

    location /both {
        idempotency main;
        idempotency_fingerprint multipart include=a,b exclude=b;
        proxy_pass http://up;
    }
--- raw_request eval
main::ask('out', 'multipart/form-data; boundary=B',
          main::body('B', @main::Two, main::part('time.sent', '1')), '',
          '/out')
--- response_headers
!Idempotent-Replayed



=== TEST 31: excluded parts may differ
--- raw_request eval
main::ask('out', 'multipart/form-data; boundary=C',
          main::body('C', main::part('time.sent', '2'), $main::Two[0]), '',
          '/out')
--- response_headers
Idempotent-Replayed: true



=== TEST 32: others may not
--- raw_request eval
main::ask('out', 'multipart/form-data; boundary=C',
          main::body('C', main::part('amount', '11')), '', '/out')
--- error_code: 422



=== TEST 33: what is excluded must be well-formed
--- raw_request eval
main::ask('out', 'multipart/form-data; boundary=C',
          main::body('C', $main::Two[0], 'doc'), '', '/out')
--- error_code: 400



=== TEST 34: only what is included counts
--- raw_request eval
main::ask('in', 'multipart/form-data; boundary=B',
          main::body('B', @main::Two), '', '/in')
--- response_headers
!Idempotent-Replayed



=== TEST 35: and the rest not
--- raw_request eval
main::ask('in', 'multipart/form-data; boundary=B',
          main::body('B', main::part('x', '1'), $main::Two[0]), '', '/in')
--- response_headers
Idempotent-Replayed: true



=== TEST 36: it does
--- raw_request eval
main::ask('in', 'multipart/form-data; boundary=B',
          main::body('B', main::part('amount', '1')), '', '/in')
--- error_code: 422



=== TEST 37: exclude wins
--- raw_request eval
main::ask('both', 'multipart/form-data; boundary=B',
          main::body('B', main::part('a', '1'), main::part('b', '1')), '',
          '/both')
--- response_headers
!Idempotent-Replayed



=== TEST 38: exclude wins, the other part
--- raw_request eval
main::ask('both', 'multipart/form-data; boundary=B',
          main::body('B', main::part('a', '1'), main::part('b', '2')), '',
          '/both')
--- response_headers
Idempotent-Replayed: true



=== TEST 39: the arguments count
--- config eval: $main::Pay
--- raw_request eval
main::ask('args', 'multipart/form-data; boundary=B',
          main::body('B', @main::Two), '', '/pay?a=1')
--- response_headers
!Idempotent-Replayed



=== TEST 40: other arguments
--- raw_request eval
main::ask('args', 'multipart/form-data; boundary=B',
          main::body('B', @main::Two), '', '/pay?a=2')
--- error_code: 422



=== TEST 41: the upstream gets the body as it was sent
--- http_config eval
$main::HttpConfig . <<'_EOC_';
    server {
        listen unix:$TEST_NGINX_HTML_DIR/see.sock;
        client_body_buffer_size 128k;

        location / {
            proxy_pass http://up;
            add_header X-Length $content_length;
            add_header X-Type $content_type;
        }
    }
_EOC_
--- config
    location /pay {
        idempotency main;
        idempotency_fingerprint multipart;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/see.sock:;
    }
--- raw_request eval
main::form('B', @main::Two)
--- response_headers eval
"X-Length: " . length(main::body('B', @main::Two))
. "\nX-Type: multipart/form-data; boundary=B"
