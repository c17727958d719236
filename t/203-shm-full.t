# A full store refuses new keys; it forgets nothing that is live.  An answer
# that finds no room does not free its key: the record says that it is done.

use Test::Nginx::Socket 'no_plan';

repeat_each(1);
no_shuffle();

add_block_preprocessor(sub {
    my ($block) = @_;

    if (!defined $block->http_config) {
        $block->set_value('http_config', "idempotency_store pay shm:32k;\n");
    }

    if (!defined $block->config) {
        $block->set_value('config',
            "location /s { idempotency_exercise pay; }\n");
    }

    if (!defined $block->no_error_log) {
        $block->set_value('no_error_log', "[alert]");
    }
});

run_tests();

__DATA__

=== TEST 1: new keys are refused, old ones are answered
--- request eval
["GET /s?op=claim&key=t1&owner=A",
 "GET /s?op=complete&key=t1&owner=A&body=1",
 "GET /s?op=fill&n=200&head_len=0&body_len=0",
 "GET /s?op=claim&key=t1new&owner=A",
 "GET /s?op=issue&key=t1new",
 "GET /s?op=complete&key=t1new&owner=A&body=x",
 "GET /s?op=mark_unknown&key=t1new&owner=A",
 "GET /s?op=renew&key=t1new&owner=A",
 "GET /s?op=release&key=t1new&owner=A",
 "GET /s?op=claim&key=t1&owner=B"]
--- response_body_like eval
[qr/^result: granted\n/, qr/^result: ok\n/, qr/^kept: 9[56]\n/,
 (qr/^error: full\n/) x 5, qr/^result: ok\nstate: none\n/,
 qr/^result: exists\nstate: done\n.*^body: "1"/ms]



=== TEST 2: it says so, and not for each key
--- request eval
["GET /s?op=fill&n=1000&head_len=0&body_len=0"]
--- response_body_like eval
[qr/^kept: \d+\n/]
--- grep_error_log eval
qr/idempotency store "pay" is full, new keys are refused: make its zone larger or the ttl shorter/
--- grep_error_log_out eval
qr/^(idempotency store "pay" is full, new keys are refused: make its zone larger or the ttl shorter\n){1,3}$/



=== TEST 3: what is overdue makes room, as much as is needed
--- request eval
["GET /s?op=fill&n=200&head_len=0&body_len=0&ttl=10",
 "GET /s?op=claim&key=t3&owner=A",
 "GET /s?op=claim&key=t3&owner=A&after=11000",
 "GET /s?op=complete&key=t3&owner=A&body_len=12000&after=11000"]
--- response_body_like eval
[qr/^kept: \d+\n/, qr/^error: full\n/, qr/^result: granted\n/,
 qr/^result: ok\nstate: done\nattempts: 1\nstatus: 201\nkept: 1\n/]



=== TEST 4: an answer without room: done, not kept, and nothing is leaked
--- request eval
["GET /s?op=info",
 (map { ("GET /s?op=claim&key=t4-$_&owner=A",
         "GET /s?op=complete&key=t4-$_&owner=A&body_len=40000&status=200") }
      1 .. 3),
 "GET /s?op=claim&key=t4-1&owner=B", "GET /s?op=info"]
--- response_body_like eval
[qr/^free: 6$/m,
 ((qr/^result: granted\n/,
   qr/^result: ok\nstate: done\nattempts: 1\nstatus: 200\nkept: 0\n/) x 3),
 qr/^result: exists\nstate: done\nattempts: 1\nstatus: 200\nkept: 0\nhead: ""\nbody: ""\n/,
 qr/^free: 5$/m]
--- expect_log_alarm
has no room for an answer



=== TEST 5: the log tells about an answer without room
--- request eval
["GET /s?op=complete&key=t5&owner=A&body_len=100000"]
--- response_body_like eval
[qr/^result: ok\nstate: done\n.*^kept: 0$/ms]
--- error_log
idempotency store "pay" has no room for an answer, its duplicates will be refused
[crit]



=== TEST 6: a long answer that fails half way leaves nothing behind
--- http_config
idempotency_store pay shm:256k;
--- request eval
[(map { ("GET /s?op=claim&key=t6-$_&owner=A",
         "GET /s?op=complete&key=t6-$_&owner=A&body_len=300000") } 1 .. 5),
 "GET /s?op=info"]
--- response_body_like eval
[((qr/^result: granted\n/, qr/^result: ok\n.*^kept: 0$/ms) x 5),
 qr/^pages: (\d+)\nfree: (\d+)(??{ $1 - $2 == 2 ? '' : '(?!)' })$/m]
--- expect_log_alarm
has no room for an answer



=== TEST 7: a zone that is too small is refused
--- http_config
idempotency_store pay shm:16k;
--- must_die
--- error_log
idempotency_store "pay": a zone of 16384 bytes is too small, it needs at least 32768



=== TEST 8: a zone that another module has
--- http_config
limit_req_zone $uri zone=pay:1m rate=1r/s;
idempotency_store pay shm:1m;
--- must_die
--- error_log
the shared memory zone "pay" is already declared for a different use
