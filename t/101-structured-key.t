# The string syntax of RFC 9651, case by case as its published test vectors
# have them (structured-field-tests: string, string-generated, item, and the
# parameters of an item).
#
# A quoted key says what the string says: it must be found again by the bare
# key of the same characters, where there is one. What is not a string is
# refused. Parameters behind it must be well-formed and mean nothing. A bare
# key is not a structured field: it is what most clients send, and any visible
# ASCII; idempotency_strict_key refuses it.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

# string.json: what is a string, and the key that it is
our @Strings = (
    'basic string'          => '"foo"',                'foo',
    'string with a space'   => '"foo bar"',            undef,
    'long string'           => '"' . 'foo ' x 60 . '"', undef,
    'whitespace string'     => '"   "',                undef,
    'string quoting'        => '"foo\\"bar\\"\\\\baz"', 'foo"bar"\\baz',
    'nothing but escapes'   => '"\\\\\\""',            '\\"',
    'looks like a list'     => '"a,b"',                'a,b',
    'looks like parameters' => '"a;b=c"',              'a;b=c',
    'looks like a token'    => '"*foo123/456"',        '*foo123/456',
    'looks like a number'   => '"42"',                 '42',
    'looks like a boolean'  => '"?1"',                 '?1',
    'looks like bytes'      => '":aGVsbG8=:"',         ':aGVsbG8=:',
);

# string.json and item.json: what must fail
our @Broken = (
    'unbalanced string'                => '"foo',
    'a quote alone'                    => '"',
    'bad string quoting'               => '"foo \\,"',
    'ending string quote'              => '"foo \\"',
    'abruptly ending string quote'     => '"foo \\',
    'non-ascii string'                 => "\"f\xc3\xbc\xc3\xbc\"",
    'tab in string'                    => "\"foo\tbar\"",
    'two strings'                      => '"foo" "bar"',
    'two strings in a list'            => '"foo", "bar"',
    'a string and a token'             => '"foo"bar',
    'a token and a string'             => 'foo "bar"',
    'a comma behind it'                => '"foo",',
    'an inner list'                    => '("foo" "bar")',
    'a space before the parameters'    => '"foo" ;a=1',
    'a semicolon and no parameter'     => '"foo";',
    'empty string, which is no key'    => '""',
    'no key, and a parameter'          => '"";a=1',
    map { ("the parameter $_" => "\"foo\";$_") }
        '1=2', 'A=1', 'a b', 'a=', 'a= 1', 'a =1', 'a=1 b', 'a=-', 'a=1.',
        'a=1.2345', 'a=1234567890123456', 'a=1234567890123.1', 'a=.5',
        'a="b', 'a="\\b"', "a=\"\xc3\xbc\"", 'a=?', 'a=?2', 'a=:b', 'a=:b!:',
        'a=@', 'a=@1.5', 'a=%"b', 'a=%b', 'a=%"%C3"', 'a=%"%c"', 'a=!b',
        'a=(1 2)', 'a,b', 'a;', 'a;;b', '-a',
);

# param-*.json: what an item may have, all of them the key "foo"
our @Parameters = map { "\"foo\";$_" }
    'a=1', 'a', ' a=1; b=2', 'a="b"', 'a="b\\"\\\\"', '*a', 'a_-.*9=1', 'a=1;a=2',
    'a=-0', 'a=999999999999999', 'a=-123456789012.123', 'a=?0', 'a=?1',
    'a=::', 'a=:aGVsbG8=:', 'a=@1659578233', 'a=@-1', 'a=%"f%c3%bc"', 'a=%""',
    'a=tok', 'a=*t', "a=t!#\$%&'*+-.^_`|~:/9";

# string-generated.json: every byte of ASCII, as it is and escaped; CR, LF and
# NUL do not get through nginx in a header line
our @Bytes = grep { $_ != 0 && $_ != 10 && $_ != 13 } 0 .. 127;
our @Plain = grep { $_ >= 0x20 && $_ < 0x7f && $_ != 0x22 && $_ != 0x5c }
                  @Bytes;

my %plain = map { $_ => 1 } @Plain;

our @NotPlain   = grep { !$plain{$_} } @Bytes;
our @NotEscaped = grep { $_ != 0x22 && $_ != 0x5c } @Bytes;

# each string twice, and where it can be bare, that as well
our (@SendKeys, @SendMarks, @SendWords);

for my $i (0 .. $#Strings / 3) {
    my ($name, $string, $bare) = @Strings[3 * $i .. 3 * $i + 2];

    push @SendKeys, $string, $string;
    push @SendMarks, '!Idempotent-Replayed', 'Idempotent-Replayed: true';
    push @SendWords, "w$i", "w$i";

    if (defined $bare) {
        push @SendKeys, $bare;
        push @SendMarks, 'Idempotent-Replayed: true';
        push @SendWords, "w$i";
    }
}

our @BrokenKeys = map { $Broken[2 * $_ + 1] } 0 .. $#Broken / 2;

run_tests();

__DATA__

=== TEST 1: strings, sent twice and then bare
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
[map { "POST /pay\nx" } @main::SendKeys]
--- more_headers eval
[map { "Idempotency-Key: $_" } @main::SendKeys]
--- error_code eval
[map { 200 } @main::SendKeys]
--- response_headers eval
[@main::SendMarks]
--- executions eval
CORE::join(" ", @main::SendWords)



=== TEST 2: what is not a string
--- request eval
[map { "POST /pay\nx" } @main::BrokenKeys]
--- more_headers eval
[map { "Idempotency-Key: $_" } @main::BrokenKeys]
--- error_code eval
[map { 400 } @main::BrokenKeys]
--- response_body_like eval
[map { '"code":"key_invalid"' } @main::BrokenKeys]



=== TEST 3: each byte that a string may have
--- request eval
[map { ("POST /pay\nx") x 2 } @main::Plain]
--- more_headers eval
[map { ("Idempotency-Key: \"<" . chr($_) . ">\"") x 2 } @main::Plain]
--- error_code eval
[map { (200) x 2 } @main::Plain]
--- response_headers eval
[map { ("!Idempotent-Replayed", "Idempotent-Replayed: true") } @main::Plain]
--- executions eval
CORE::join(" ", map { ("b$_") x 2 } @main::Plain)



=== TEST 4: each byte that it may not have
--- request eval
[map { "POST /pay\nx" } @main::NotPlain]
--- more_headers eval
[map { "Idempotency-Key: \" " . chr($_) . " \"" } @main::NotPlain]
--- error_code eval
[map { 400 } @main::NotPlain]
--- response_body_like eval
[map { '"code":"key_invalid"' } @main::NotPlain]



=== TEST 5: each byte that cannot be escaped
--- request eval
[map { "POST /pay\nx" } @main::NotEscaped]
--- more_headers eval
[map { "Idempotency-Key: \"\\" . chr($_) . "\"" } @main::NotEscaped]
--- error_code eval
[map { 400 } @main::NotEscaped]
--- response_body_like eval
[map { '"code":"key_invalid"' } @main::NotEscaped]



=== TEST 6: the two that can, and both are one byte of the length
--- config
    location /pay {
        idempotency main;
        idempotency_max_key 2;
        proxy_pass http://up;
    }
--- request eval
[map { "POST /pay\nx" } 1 .. 4]
--- more_headers eval
['Idempotency-Key: "\\"\\\\"', 'Idempotency-Key: "\\"\\\\"',
 'Idempotency-Key: "\\"\\\\a"', 'Idempotency-Key: "\\"\\"\\""']
--- error_code eval
[200, 200, 400, 400]
--- executions: a a - -



=== TEST 7: spaces around it are not part of it, wherever it comes from
--- config
    location /pay {
        idempotency main;
        idempotency_key "  $http_x_key ";
        proxy_pass http://up;
    }

    location = /alone {
        idempotency main;
        idempotency_scope "POST /pay";
        idempotency_key $http_x_key;
        proxy_pass http://up/pay;
    }
--- request eval
["POST /pay\nx", "POST /alone\nx", "POST /pay\nx", "POST /pay\nx",
 "POST /pay\nx"]
--- more_headers eval
['X-Key: "foo"', 'X-Key: foo', 'X-Key: foo', 'X-Key: "foo" ;a',
 'X-Other: x']
--- error_code eval
[200, 200, 200, 400, 400]
--- response_body_like eval
['POST', 'POST', 'POST', '"code":"key_invalid"', '"code":"key_invalid"']
--- executions: a a a - -



=== TEST 8: a tab is not a space
--- config
    location /before {
        idempotency main;
        idempotency_key "\t$http_x_key";
        proxy_pass http://up;
    }

    location /behind {
        idempotency main;
        idempotency_key "$http_x_key\t";
        proxy_pass http://up;
    }
--- request eval
["POST /before\nx", "POST /behind\nx", "POST /before\nx", "POST /behind\nx"]
--- more_headers eval
['X-Key: "foo"', 'X-Key: "foo"', 'X-Key: foo', 'X-Key: foo']
--- error_code eval
[400, 400, 400, 400]
--- response_body_like eval
[('"code":"key_invalid"') x 4]



=== TEST 9: parameters mean nothing
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;
    }

    location /strict {
        idempotency main;
        idempotency_strict_key on;
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x (@main::Parameters + 1),
 ("POST /strict\nx") x @main::Parameters]
--- more_headers eval
[map { "Idempotency-Key: $_" } 'foo', @main::Parameters, @main::Parameters]
--- error_code eval
[(200) x (2 * @main::Parameters + 1)]
--- executions eval
CORE::join(" ", ("a") x (@main::Parameters + 1), ("b") x @main::Parameters)



=== TEST 10: strict: strings only
--- config
    idempotency_strict_key on;

    location /pay {
        idempotency main;
        proxy_pass http://up;
    }

    location /lenient {
        idempotency main;
        idempotency_strict_key off;
        proxy_pass http://up;
    }

    location /argument {
        idempotency main;
        idempotency_key $arg_key;
        proxy_pass http://up;
    }
--- request eval
[("POST /pay\nx") x 9, "POST /lenient\nx", "POST /lenient\nx",
 "POST /argument?key=foo\nx"]
--- more_headers eval
['Idempotency-Key: "foo"', 'Idempotency-Key: foo', 'Idempotency-Key: 17',
 'Idempotency-Key: foo"', 'Idempotency-Key: ?1', 'Idempotency-Key: :Zm9v:',
 'Idempotency-Key: "fo', 'Idempotency-Key: ("foo")',
 'Idempotency-Key:   "foo" ', 'Idempotency-Key: foo',
 'Idempotency-Key: "foo"', 'X: y']
--- error_code eval
[200, (400) x 7, 200, 200, 200, 200]
--- response_body_like eval
['POST', ('The key is read from the header Idempotency-Key and must be a '
          . 'quoted string \(RFC 9651\)\. .*"code":"key_invalid"') x 7,
 'POST', 'POST', 'POST', 'POST']
--- executions: a - - - - - - - a b b c



=== TEST 11: strict: what is not a string
--- request eval
[map { "POST /pay\nx" } @main::BrokenKeys]
--- more_headers eval
[map { "Idempotency-Key: $_" } @main::BrokenKeys]
--- error_code eval
[map { 400 } @main::BrokenKeys]
