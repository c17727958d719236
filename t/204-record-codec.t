# The bytes of a stored head: what is written is read again, it is short, and
# bytes that nobody wrote are refused, whatever they are.

use Test::Nginx::Socket 'no_plan';

repeat_each(1);
no_shuffle();

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('http_config', "idempotency_store pay shm:1m;\n");
    $block->set_value('config', "location /s { idempotency_exercise pay; }\n");
    $block->set_value('no_error_log', "[alert]\n[crit]\n[error]");
});

sub decode {
    return ["GET /s?op=decode&hex=" . join('', @_)];
}

run_tests();

__DATA__

=== TEST 1: everything
--- request
GET /s?op=head&status=201&line=201-Created&type=text/html&charset=utf-8&length=1234567&modified=1700000000&h1=X-One:1&h2=Empty:&h3=X-One:2&t1=Sum:abc
--- response_body
bytes: 72
status: 201
line: "201-Created"
type: "text/html"
charset: "utf-8"
length: 1234567
modified: 1700000000
header: "X-One" "1"
header: "Empty" ""
header: "X-One" "2"
trailer: "Sum" "abc"



=== TEST 2: nothing
--- request
GET /s?op=head&status=0
--- response_body
bytes: 9
status: 0
line: ""
type: ""
charset: ""
length: -1
modified: -1



=== TEST 3: zero is not none, and the largest numbers
--- request eval
["GET /s?op=head&status=999&length=0&modified=0",
 "GET /s?op=head&status=999&length=9223372036854775806&modified=9223372036854775806"]
--- response_body_like eval
[qr/^length: 0\nmodified: 0\n/m,
 qr/^length: 9223372036854775806\nmodified: 9223372036854775806\n/m]



=== TEST 4: a line costs two bytes more than its text
--- request eval
["GET /s?op=head&type=" . "a" x 127 . "&h1=" . "n" x 30 . ":" . "v" x 90]
--- response_body_like eval
[qr/^bytes: @{[ 10 + 127 + 2 + 30 + 90 ]}\n/]



=== TEST 5: lengths of one and two bytes
--- request eval
["GET /s?op=head&h1=a:" . "v" x 127, "GET /s?op=head&h1=a:" . "v" x 128,
 "GET /s?op=head&h1=a:" . "v" x 3000]
--- response_body_like eval
[map { my $v = 'v' x $_; qr/^header: "a" "$v"$/m } 127, 128, 3000]



=== TEST 6: a head by hand
--- request eval
main::decode('01', 'c901', '00', '0161', '00', '05', '00',
             '01', '0162', '0163', '00')
--- response_body eval
[<<END]
bytes: 15
status: 201
line: ""
type: "a"
charset: ""
length: 4
modified: -1
header: "b" "c"
END



=== TEST 7: no bytes
--- request eval
main::decode('')
--- response_body eval
["declined\n"]



=== TEST 8: another version
--- request eval
main::decode('02', '0000000000000000')
--- response_body eval
["declined\n"]



=== TEST 9: a byte more, and one less
--- request eval
["GET /s?op=decode&hex=010000000000000000",
 "GET /s?op=decode&hex=01000000000000000000",
 "GET /s?op=decode&hex=0100000000000000"]
--- response_body_like eval
[qr/^bytes: 9\n/, qr/^declined$/, qr/^declined$/]



=== TEST 10: a string longer than what follows
--- request eval
["GET /s?op=decode&hex=0100" . "05" . "61626364",
 "GET /s?op=decode&hex=0100" . "ffffff07" . "61626364",
 "GET /s?op=decode&hex=0100" . "ffffffffffffffffff01" . "61626364"]
--- response_body_like eval
[(qr/^declined$/) x 3]



=== TEST 11: more lines than bytes
--- request eval
["GET /s?op=decode&hex=010000000000" . "00" . "ffffffff07" . "00",
 "GET /s?op=decode&hex=010000000000" . "00" . "02" . "0000" . "00"]
--- response_body_like eval
[(qr/^declined$/) x 2]



=== TEST 12: numbers too long, too large, or with a second spelling
--- request eval
["GET /s?op=decode&hex=01" . "ffffffffffffffffff02" . "00000000000000",
 "GET /s?op=decode&hex=01" . "ffffffffffffffffffff01" . "00000000000000",
 "GET /s?op=decode&hex=01" . "e807" . "00000000000000",
 "GET /s?op=decode&hex=01" . "8000" . "00000000000000",
 "GET /s?op=decode&hex=01" . "80"]
--- response_body_like eval
[(qr/^declined$/) x 5]



=== TEST 13: damaged heads are refused, or are heads themselves
--- request eval
[map { "GET /s?op=fuzz&n=30000&seed=$_&line=201-Created&type=text/html&charset=utf-8&length=1234567&modified=1700000000&h1=X-One:1&h2=Empty:&h3=X-Two:22&t1=Sum:abc" } 1 .. 3]
--- response_body_like eval
[(qr/^read: [1-9]\d+\nrefused: [1-9]\d+\n/) x 3]
