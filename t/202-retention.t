# Retention: a done record answers for its ttl, then refuses for the tombstone
# time without its answer, then is gone.  What is overdue looks so at once,
# whether or not it was cleared away; what runs never expires.

use Test::Nginx::Socket 'no_plan';

repeat_each(1);
no_shuffle();

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('http_config', "idempotency_store pay shm:1m;\n");
    $block->set_value('config', "location /s { idempotency_exercise pay; }\n");
    $block->set_value('no_error_log', "[alert]\n[crit]\n[error]");

    # nobody moves the clock of Redis, or counts what it has
    my $request = $block->request;

    if ($ENV{TEST_NGINX_STORE}
        && grep { /after=|op=info/ } ref $request ? @$request : $request)
    {
        $block->set_value('skip_eval', '1: 1');
    }
});

our $granted = qr/^result: granted\nstate: executing\n/;
our $ok = qr/^result: ok\n/;

sub seen {
    my ($result, $state) = @_;
    return qr/^result: $result\nstate: $state\n/;
}

run_tests();

__DATA__

=== TEST 1: without a tombstone the end of the ttl frees the key
--- request eval
["GET /s?op=claim&key=t1&owner=A", "GET /s?op=complete&key=t1&owner=A&body=x&ttl=10",
 "GET /s?op=fetch&key=t1&after=9000", "GET /s?op=claim&key=t1&owner=B&after=10100"]
--- response_body_like eval
[$main::granted, $main::ok, qr/^result: ok\nstate: done\n.*^body: "x"/ms,
 qr/^result: granted\nstate: executing\nattempts: 1\n/]



=== TEST 2: with one the answer goes, status and fingerprint stay
--- request eval
["GET /s?op=claim&key=t2&owner=A&fp=F",
 "GET /s?op=complete&key=t2&owner=A&body=x&ttl=10&tombstone=20&status=202",
 "GET /s?op=claim&key=t2&owner=B&fp=F&after=10100",
 "GET /s?op=claim&key=t2&owner=B&fp=F&after=29000",
 "GET /s?op=claim&key=t2&owner=B&fp=F&after=30100"]
--- response_body_like eval
[$main::granted, $main::ok,
 qr/^result: exists\nstate: tombstone\nattempts: 1\nstatus: 202\nkept: 0\nhead: ""\nbody: ""\nfp: F\n/,
 qr/^result: exists\nstate: tombstone\nattempts: 1\nstatus: 202\nkept: 0\nhead: ""\nbody: ""\nfp: F\n/,
 qr/^result: granted\nstate: executing\nattempts: 1\n/]



=== TEST 3: both ends may pass unseen
--- request eval
["GET /s?op=claim&key=t3&owner=A",
 "GET /s?op=complete&key=t3&owner=A&body=x&ttl=10&tombstone=20",
 "GET /s?op=fetch&key=t3&after=30100"]
--- response_body_like eval
[$main::granted, $main::ok, main::seen('ok', 'none')]



=== TEST 4: a tombstone refuses everything, and belongs to its owner
--- request eval
["GET /s?op=claim&key=t4&owner=A",
 "GET /s?op=complete&key=t4&owner=A&body=x&ttl=0&tombstone=100",
 "GET /s?op=complete&key=t4&owner=A&body=y",
 "GET /s?op=complete&key=t4&owner=B&body=y",
 "GET /s?op=release&key=t4&owner=A", "GET /s?op=mark_unknown&key=t4&owner=A",
 "GET /s?op=renew&key=t4&owner=A", "GET /s?op=issue&key=t4",
 "GET /s?op=claim&key=t4&owner=C&flags=unknown,issued",
 "GET /s?op=resolve&key=t4&fence=current&executed=1",
 "GET /s?op=purge&key=t4&fence=current", "GET /s?op=claim&key=t4&owner=C"]
--- response_body_like eval
[$main::granted, $main::ok, main::seen('ok', 'tombstone'),
 main::seen('refused', 'tombstone'), main::seen('refused', 'tombstone'),
 main::seen('refused', 'tombstone'), qr/^result: ok\nlease: refused\n/,
 main::seen('refused', 'tombstone'), main::seen('exists', 'tombstone'),
 main::seen('refused', 'tombstone'), main::seen('ok', 'none'), $main::granted]



=== TEST 5: the ttl counts from the completion
--- request eval
["GET /s?op=claim&key=t5&owner=A&ttl=10&lease=100000",
 "GET /s?op=complete&key=t5&owner=A&body=x&ttl=10&after=60000",
 "GET /s?op=fetch&key=t5&after=69000", "GET /s?op=fetch&key=t5&after=70100"]
--- response_body_like eval
[$main::granted, $main::ok, main::seen('ok', 'done'), main::seen('ok', 'none')]



=== TEST 6: new keys clear away what is overdue, a few at a time
--- request eval
[(map { ("GET /s?op=claim&key=t6-$_&owner=A",
         "GET /s?op=complete&key=t6-$_&owner=A&ttl=$_") } 1 .. 5),
 "GET /s?op=info",
 "GET /s?op=claim&key=t6-a&owner=A&after=6000", "GET /s?op=info",
 "GET /s?op=claim&key=t6-b&owner=A&after=6000", "GET /s?op=info"]
--- response_body_like eval
[(qr/^result: (granted|ok)\n/) x 10, qr/^records: 5$/m,
 $main::granted, qr/^records: 3$/m, $main::granted, qr/^records: 2$/m]



=== TEST 7: what runs is looked at again, not cleared away
--- request eval
["GET /s?op=claim&key=t7&owner=A&lease=1000",
 "GET /s?op=renew&key=t7&owner=A&lease=5000000000",
 "GET /s?op=claim&key=t7-a&owner=A&after=4000000000",
 "GET /s?op=claim&key=t7-b&owner=A&after=4000000000",
 "GET /s?op=fetch&key=t7&after=4900000000",
 "GET /s?op=fetch&key=t7&after=5100000000",
 "GET /s?op=claim&key=t7-c&owner=A&after=7600000000",
 "GET /s?op=fetch&key=t7"]
--- response_body_like eval
[$main::granted, $main::ok, $main::granted, $main::granted,
 main::seen('ok', 'executing'), main::seen('ok', 'unknown'), $main::granted,
 main::seen('ok', 'none')]



=== TEST 8: and does not keep what is overdue behind it
--- request eval
["GET /s?op=claim&key=t8&owner=A&lease=1000",
 "GET /s?op=renew&key=t8&owner=A&lease=5000000000",
 "GET /s?op=claim&key=t8-d&owner=A",
 "GET /s?op=complete&key=t8-d&owner=A&ttl=2600000",
 "GET /s?op=claim&key=t8-a&owner=A&after=4000000000",
 "GET /s?op=info"]
--- response_body_like eval
[$main::granted, $main::ok, $main::granted, $main::ok, $main::granted,
 qr/^records: 2$/m]



=== TEST 9: an issued key ends with its life
--- request eval
["GET /s?op=issue&key=t9&ttl=10", "GET /s?op=fetch&key=t9&after=9000",
 "GET /s?op=fetch&key=t9&after=10100"]
--- response_body_like eval
[main::seen('ok', 'issued'), main::seen('ok', 'issued'), main::seen('ok', 'none')]
