# A store moves a record only on behalf of its owner, or of an
# operator who names the fence: every operation in every state that matters,
# through the debug endpoint.  Each block uses a key of its own.

use Test::Nginx::Socket 'no_plan';

repeat_each(1);
no_shuffle();

add_block_preprocessor(sub {
    my ($block) = @_;

    if (!defined $block->http_config) {
        $block->set_value('http_config', "idempotency_store pay shm:1m;\n");
    }

    if (!defined $block->config) {
        $block->set_value('config',
            "location /s { idempotency_exercise pay; }\n");
    }

    if (!defined $block->no_error_log && !defined $block->error_log) {
        $block->set_value('no_error_log', "[alert]\n[crit]\n[error]");
    }

    # nobody moves the clock of Redis, or counts what it has
    my $request = $block->request;

    if ($ENV{TEST_NGINX_STORE}
        && grep { /after=|op=info/ } ref $request ? @$request : $request)
    {
        $block->set_value('skip_eval', '1: 1');
    }
});

# what an answer begins with: result, state and, if it matters, attempts
sub seen {
    my ($result, $state, $attempts) = @_;

    my $text = "^result: $result\nstate: $state\n";
    $text .= "attempts: $attempts\n" if defined $attempts;

    return qr/$text/;
}


run_tests();

__DATA__

=== TEST 1: a new key is granted, and to no other owner
--- request eval
["GET /s?op=claim&key=t1&owner=A&fp=F", "GET /s?op=claim&key=t1&owner=B&fp=F"]
--- response_body_like eval
[main::seen('granted', 'executing', 1), main::seen('exists', 'executing', 1)]



=== TEST 2: the same owner asking again is granted again, as the same try
--- request eval
["GET /s?op=claim&key=t2&owner=A&fp=F", "GET /s?op=claim&key=t2&owner=A&fp=F"]
--- response_body_like eval
[main::seen('granted', 'executing', 1), main::seen('granted', 'executing', 1)]



=== TEST 3: the answer of the owner is everybody's
--- request eval
["GET /s?op=claim&key=t3&owner=A&fp=F",
 "GET /s?op=complete&key=t3&owner=A&head=h&body=hello",
 "GET /s?op=claim&key=t3&owner=B&fp=F",
 "GET /s?op=claim&key=t3&owner=A&fp=F",
 "GET /s?op=fetch&key=t3"]
--- response_body_like eval
[main::seen('granted', 'executing'),
 qr/^result: ok\nstate: done\nattempts: 1\nstatus: 201\nkept: 1\n/,
 qr/^result: exists\nstate: done\nattempts: 1\nstatus: 201\nkept: 1\nhead: "h"\nbody: "hello"\nfp: F\n/,
 qr/^result: exists\nstate: done\nattempts: 1\nstatus: 201\nkept: 1\nhead: "h"\nbody: "hello"\nfp: F\n/,
 qr/^result: ok\nstate: done\nattempts: 1\nstatus: 201\nkept: 1\nhead: "h"\nbody: "hello"\nfp: F\n/]



=== TEST 4: a second answer of the owner changes nothing
--- request eval
["GET /s?op=claim&key=t4&owner=A",
 "GET /s?op=complete&key=t4&owner=A&body=first&status=201",
 "GET /s?op=complete&key=t4&owner=A&body=second&status=500",
 "GET /s?op=fetch&key=t4"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('ok', 'done'),
 qr/^result: ok\nstate: done\nattempts: 1\nstatus: 201\n/,
 qr/^result: ok\nstate: done\nattempts: 1\nstatus: 201\nkept: 1\nhead: ""\nbody: "first"\n/]



=== TEST 5: the answer of another is refused, and it is shown the record's
--- request eval
["GET /s?op=claim&key=t5&owner=A",
 "GET /s?op=complete&key=t5&owner=B&body=wrong",
 "GET /s?op=complete&key=t5&owner=A&body=right",
 "GET /s?op=complete&key=t5&owner=B&body=wrong"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('refused', 'executing'),
 main::seen('ok', 'done'),
 qr/^result: refused\nstate: done\nattempts: 1\nstatus: 201\nkept: 1\nhead: ""\nbody: "right"\n/]



=== TEST 6: an answer that is not to be kept is still an answer
--- request eval
["GET /s?op=claim&key=t6&owner=A",
 "GET /s?op=complete&key=t6&owner=A&body=large&keep=0&status=200",
 "GET /s?op=claim&key=t6&owner=B"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('ok', 'done'),
 qr/^result: exists\nstate: done\nattempts: 1\nstatus: 200\nkept: 0\nhead: ""\nbody: ""\n/]



=== TEST 7: nothing that an owner does leaves done
--- request eval
["GET /s?op=claim&key=t7&owner=A",
 "GET /s?op=complete&key=t7&owner=A&body=x",
 "GET /s?op=release&key=t7&owner=A",
 "GET /s?op=mark_unknown&key=t7&owner=A",
 "GET /s?op=renew&key=t7&owner=A",
 "GET /s?op=issue&key=t7",
 "GET /s?op=resolve&key=t7&fence=current",
 "GET /s?op=resolve&key=t7&fence=current&executed=1&body=y",
 "GET /s?op=fetch&key=t7"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('ok', 'done'),
 main::seen('refused', 'done'), main::seen('refused', 'done'),
 qr/^result: ok\nlease: refused\n/,
 main::seen('refused', 'done'), main::seen('refused', 'done'),
 main::seen('refused', 'done'),
 qr/^result: ok\nstate: done\nattempts: 1\nstatus: 201\nkept: 1\nhead: ""\nbody: "x"\n/]



=== TEST 8: a released key is free, but not for its last owner
--- request eval
["GET /s?op=claim&key=t8&owner=A",
 "GET /s?op=release&key=t8&owner=C",
 "GET /s?op=release&key=t8&owner=A",
 "GET /s?op=release&key=t8&owner=A",
 "GET /s?op=fetch&key=t8",
 "GET /s?op=claim&key=t8&owner=A",
 "GET /s?op=renew&key=t8&owner=A",
 "GET /s?op=complete&key=t8&owner=A&body=late",
 "GET /s?op=mark_unknown&key=t8&owner=A",
 "GET /s?op=claim&key=t8&owner=B",
 "GET /s?op=release&key=t8&owner=A",
 "GET /s?op=fetch&key=t8"]
--- response_body_like eval
[main::seen('granted', 'executing', 1), main::seen('refused', 'executing'),
 main::seen('ok', 'none'), main::seen('ok', 'none'), main::seen('ok', 'none'),
 main::seen('refused', 'none'), qr/^result: ok\nlease: refused\n/,
 main::seen('refused', 'none'), main::seen('refused', 'none'),
 main::seen('granted', 'executing', 2), main::seen('refused', 'executing'),
 main::seen('ok', 'executing', 2)]



=== TEST 9: the stub of a released key lasts ten minutes
--- request eval
["GET /s?op=claim&key=t9&owner=A", "GET /s?op=release&key=t9&owner=A",
 "GET /s?op=claim&key=t9&owner=A&after=599000",
 "GET /s?op=claim&key=t9&owner=A&after=601000"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('ok', 'none'),
 main::seen('refused', 'none'), main::seen('granted', 'executing', 1)]



=== TEST 10: once its lease is over a record reads as unknown, never as free
--- request eval
["GET /s?op=claim&key=t10&owner=A&fp=F&lease=10000",
 "GET /s?op=fetch&key=t10&after=5000",
 "GET /s?op=fetch&key=t10&after=10001",
 "GET /s?op=claim&key=t10&owner=B&fp=F&after=10001",
 "GET /s?op=claim&key=t10&owner=B&fp=F&after=2591000000"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('ok', 'executing'),
 main::seen('ok', 'unknown'), main::seen('exists', 'unknown', 1),
 main::seen('exists', 'unknown', 1)]



=== TEST 11: an unknown is kept for thirty days, or longer if the ttl is
--- request eval
["GET /s?op=claim&key=t11a&owner=A&lease=1000&ttl=10",
 "GET /s?op=claim&key=t11b&owner=A&lease=1000&ttl=3000000",
 "GET /s?op=claim&key=t11c&owner=A&lease=1000&tombstone=3000000",
 "GET /s?op=fetch&key=t11a&after=2591900000",
 "GET /s?op=fetch&key=t11a&after=2592100000",
 "GET /s?op=fetch&key=t11b&after=2999900000",
 "GET /s?op=fetch&key=t11c&after=2999900000",
 "GET /s?op=fetch&key=t11b&after=3000100000",
 "GET /s?op=fetch&key=t11c&after=3000100000"]
--- response_body_like eval
[(main::seen('granted', 'executing')) x 3,
 main::seen('ok', 'unknown'), main::seen('ok', 'none'),
 main::seen('ok', 'unknown'), main::seen('ok', 'unknown'),
 main::seen('ok', 'none'), main::seen('ok', 'none')]



=== TEST 12: the owner's renewal revives it while nobody else has acted
--- request eval
["GET /s?op=claim&key=t12&owner=A&lease=1000&note=of+A",
 "GET /s?op=renew&key=t12&owner=B&lease=1000&after=5000",
 "GET /s?op=renew&key=t12&owner=A&lease=60000&after=5000",
 "GET /s?op=fetch&key=t12&after=6000"]
--- response_body_like eval
[main::seen('granted', 'executing'), qr/^result: ok\nlease: refused\n/,
 qr/^result: ok\nlease: ok\n/, main::seen('ok', 'executing', 1)]



=== TEST 13: a running request outlives what its first lease allowed
--- request eval
["GET /s?op=claim&key=t13&owner=A&lease=1000",
 "GET /s?op=renew&key=t13&owner=A&lease=2600000000",
 "GET /s?op=claim&key=t13x&owner=A&after=2595000000",
 "GET /s?op=fetch&key=t13&after=2595000000"]
--- response_body_like eval
[main::seen('granted', 'executing'), qr/^result: ok\nlease: ok\n/,
 main::seen('granted', 'executing'), main::seen('ok', 'executing')]



=== TEST 14: several leases are renewed at once, each with its result
--- request eval
["GET /s?op=claim&key=t14a&owner=A", "GET /s?op=claim&key=t14b&owner=B",
 "GET /s?op=renew&key=t14a,t14b,t14lost&owner=A&fence=77",
 "GET /s?op=fetch&key=t14lost"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('granted', 'executing'),
 qr/^result: ok\nlease: ok\nlease: refused\nlease: ok\n/,
 qr/^result: ok\nstate: executing\n.*^fence: 77\n/ms]



=== TEST 15: sent but no answer: unknown, until its owner has one
--- request eval
["GET /s?op=claim&key=t15&owner=A",
 "GET /s?op=mark_unknown&key=t15&owner=B",
 "GET /s?op=mark_unknown&key=t15&owner=A",
 "GET /s?op=mark_unknown&key=t15&owner=A",
 "GET /s?op=renew&key=t15&owner=A",
 "GET /s?op=release&key=t15&owner=A",
 "GET /s?op=claim&key=t15&owner=A",
 "GET /s?op=claim&key=t15&owner=B",
 "GET /s?op=complete&key=t15&owner=A&body=late",
 "GET /s?op=claim&key=t15&owner=B"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('refused', 'executing'),
 main::seen('ok', 'unknown'), main::seen('ok', 'unknown'),
 qr/^result: ok\nlease: refused\n/, main::seen('refused', 'unknown'),
 main::seen('exists', 'unknown'), main::seen('exists', 'unknown'),
 main::seen('ok', 'done'),
 qr/^result: exists\nstate: done\n.*^body: "late"\n/ms]



=== TEST 16: an unknown is taken over only on demand, with the same content
--- request eval
["GET /s?op=claim&key=t16&owner=A&fp=F&lease=0",
 "GET /s?op=claim&key=t16&owner=B&fp=F",
 "GET /s?op=claim&key=t16&owner=B&fp=G&flags=unknown",
 "GET /s?op=claim&key=t16&owner=B&fp=F&flags=unknown",
 "GET /s?op=claim&key=t16&owner=C&fp=F&flags=unknown",
 "GET /s?op=complete&key=t16&owner=A&body=old",
 "GET /s?op=renew&key=t16&owner=A",
 "GET /s?op=complete&key=t16&owner=B&body=new",
 "GET /s?op=fetch&key=t16"]
--- response_body_like eval
[main::seen('granted', 'unknown'), main::seen('exists', 'unknown'),
 main::seen('exists', 'unknown', 1), main::seen('granted', 'executing', 2),
 main::seen('exists', 'executing', 2), main::seen('refused', 'executing'),
 qr/^result: ok\nlease: refused\n/, main::seen('ok', 'done', 2),
 qr/^result: ok\nstate: done\n.*^body: "new"\n/ms]



=== TEST 17: also one that its owner marked
--- request eval
["GET /s?op=claim&key=t17&owner=A&fp=F", "GET /s?op=mark_unknown&key=t17&owner=A",
 "GET /s?op=claim&key=t17&owner=B&fp=F&flags=unknown"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('ok', 'unknown'),
 main::seen('granted', 'executing', 2)]



=== TEST 18: only an issued key may be claimed where that is asked for
--- request eval
["GET /s?op=claim&key=t18&owner=A&flags=issued",
 "GET /s?op=issue&key=t18&ttl=100",
 "GET /s?op=issue&key=t18&ttl=100",
 "GET /s?op=fetch&key=t18",
 "GET /s?op=claim&key=t18&owner=A&flags=issued",
 "GET /s?op=claim&key=t18&owner=B&flags=issued"]
--- response_body_like eval
[qr/^result: not_issued\n/, main::seen('ok', 'issued', 0),
 main::seen('refused', 'issued'), main::seen('ok', 'issued'),
 main::seen('granted', 'executing', 1), main::seen('exists', 'executing')]



=== TEST 19: an issued key that is released is issued for the rest of its life
--- request eval
["GET /s?op=issue&key=t19&ttl=100", "GET /s?op=claim&key=t19&owner=A&flags=issued",
 "GET /s?op=release&key=t19&owner=A&after=10000",
 "GET /s?op=claim&key=t19&owner=A&flags=issued",
 "GET /s?op=claim&key=t19&owner=B&flags=issued",
 "GET /s?op=release&key=t19&owner=B",
 "GET /s?op=fetch&key=t19&after=99000",
 "GET /s?op=claim&key=t19&owner=C&flags=issued&after=101000"]
--- response_body_like eval
[main::seen('ok', 'issued'), main::seen('granted', 'executing', 1),
 main::seen('ok', 'issued'), main::seen('refused', 'issued'),
 main::seen('granted', 'executing', 2), main::seen('ok', 'issued'),
 main::seen('ok', 'issued'), qr/^result: not_issued\n/]



=== TEST 20: a key whose life as an issued one ended while it ran is not free
--- request eval
["GET /s?op=issue&key=t20&ttl=10", "GET /s?op=claim&key=t20&owner=A&flags=issued",
 "GET /s?op=fetch&key=t20&after=11000",
 "GET /s?op=release&key=t20&owner=A&after=11000",
 "GET /s?op=claim&key=t20&owner=B&flags=issued&after=11000"]
--- response_body_like eval
[main::seen('ok', 'issued'), main::seen('granted', 'executing'),
 main::seen('ok', 'executing'), main::seen('ok', 'none'),
 qr/^result: not_issued\n/]



=== TEST 21: a completion that finds no record writes it
--- request eval
["GET /s?op=complete&key=t21&owner=A&fp=F&head=h&body=hello&fence=5",
 "GET /s?op=claim&key=t21&owner=B&fp=F"]
--- response_body_like eval
[main::seen('ok', 'done', 1),
 qr/^result: exists\nstate: done\nattempts: 1\nstatus: 201\nkept: 1\nhead: "h"\nbody: "hello"\nfp: F\nfence: 5\n/]



=== TEST 22: so does what was sent and has no answer
--- request eval
["GET /s?op=mark_unknown&key=t22&owner=A&fp=F", "GET /s?op=claim&key=t22&owner=B"]
--- response_body_like eval
[main::seen('ok', 'unknown', 1), qr/^result: exists\nstate: unknown\n.*^fp: F\n/ms]



=== TEST 23: a release that finds no record refuses its owner from then on
--- request eval
["GET /s?op=release&key=t23&owner=A", "GET /s?op=claim&key=t23&owner=A",
 "GET /s?op=claim&key=t23&owner=B"]
--- response_body_like eval
[main::seen('ok', 'none'), main::seen('refused', 'none'),
 main::seen('granted', 'executing')]



=== TEST 24: an operator settles an unknown as executed
--- request eval
["GET /s?op=claim&key=t24&owner=A&lease=1000",
 "GET /s?op=resolve&key=t24&fence=current&executed=1&body=op",
 "GET /s?op=mark_unknown&key=t24&owner=A",
 "GET /s?op=resolve&key=t24&fence=1&executed=1&body=op",
 "GET /s?op=resolve&key=t24&fence=current&executed=1&body=op&status=200",
 "GET /s?op=claim&key=t24&owner=B",
 "GET /s?op=complete&key=t24&owner=A&body=late"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('refused', 'executing'),
 main::seen('ok', 'unknown'), main::seen('refused', 'unknown'),
 main::seen('ok', 'done'),
 qr/^result: exists\nstate: done\nattempts: 1\nstatus: 200\nkept: 1\nhead: ""\nbody: "op"\n/,
 qr/^result: refused\nstate: done\n.*^body: "op"\n/ms]



=== TEST 25: or as not executed
--- request eval
["GET /s?op=claim&key=t25&owner=A&lease=1000",
 "GET /s?op=resolve&key=t25&fence=current",
 "GET /s?op=resolve&key=t25&fence=1&after=2000",
 "GET /s?op=resolve&key=t25&fence=current&after=2000",
 "GET /s?op=renew&key=t25&owner=A",
 "GET /s?op=complete&key=t25&owner=A&body=late",
 "GET /s?op=claim&key=t25&owner=B"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('refused', 'executing'),
 main::seen('refused', 'unknown'), main::seen('ok', 'none'),
 qr/^result: ok\nlease: refused\n/, main::seen('refused', 'none'),
 main::seen('granted', 'executing', 2)]



=== TEST 26: an issued key that was not executed is issued again
--- request eval
["GET /s?op=issue&key=t26&ttl=100",
 "GET /s?op=claim&key=t26&owner=A&flags=issued&lease=0",
 "GET /s?op=resolve&key=t26&fence=current",
 "GET /s?op=claim&key=t26&owner=B&flags=issued"]
--- response_body_like eval
[main::seen('ok', 'issued'), main::seen('granted', 'unknown'),
 main::seen('ok', 'issued'), main::seen('granted', 'executing', 2)]



=== TEST 27: purge forgets what has that fence and no live lease
--- request eval
["GET /s?op=claim&key=t27&owner=A",
 "GET /s?op=purge&key=t27&fence=current",
 "GET /s?op=complete&key=t27&owner=A&body=x",
 "GET /s?op=purge&key=t27&fence=1",
 "GET /s?op=purge&key=t27&fence=current",
 "GET /s?op=purge&key=t27&fence=current",
 "GET /s?op=complete&key=t27&owner=A&body=x",
 "GET /s?op=claim&key=t27&owner=A",
 "GET /s?op=claim&key=t27&owner=B",
 "GET /s?op=purge&key=t27none&fence=0",
 "GET /s?op=resolve&key=t27none&fence=0"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('refused', 'executing'),
 main::seen('ok', 'done'), main::seen('refused', 'done'),
 main::seen('ok', 'none'), main::seen('refused', 'none'),
 main::seen('refused', 'none'), main::seen('refused', 'none'),
 main::seen('granted', 'executing'),
 main::seen('refused', 'none'), main::seen('refused', 'none')]



=== TEST 28: the fence of a key only grows, also when the clock does not
--- request eval
["GET /s?op=complete&key=t28&owner=A&fence=9000000000000000&keep=0",
 "GET /s?op=purge&key=t28&fence=9000000000000000",
 "GET /s?op=claim&key=t28&owner=B", "GET /s?op=release&key=t28&owner=B",
 "GET /s?op=claim&key=t28&owner=C"]
--- response_body_like eval
[main::seen('ok', 'done'), main::seen('ok', 'none'),
 qr/^fence: 9000000000000001$/m, main::seen('ok', 'none'),
 qr/^fence: 9000000000000002$/m]



=== TEST 29: keys that begin alike are different keys
--- request eval
my $a = '0011223344556677' . '00' x 24;
my $b = '0011223344556677' . '00' x 23 . '01';
my $c = '0011223344556677' . 'ff' x 24;
["GET /s?op=claim&digest=$b&owner=B", "GET /s?op=claim&digest=$a&owner=A",
 "GET /s?op=claim&digest=$c&owner=C",
 "GET /s?op=complete&digest=$a&owner=A&body=a",
 "GET /s?op=complete&digest=$c&owner=C&body=c",
 "GET /s?op=fetch&digest=$a", "GET /s?op=fetch&digest=$b",
 "GET /s?op=fetch&digest=$c"]
--- response_body_like eval
[(main::seen('granted', 'executing', 1)) x 3, (main::seen('ok', 'done')) x 2,
 qr/^body: "a"$/m, main::seen('ok', 'executing'), qr/^body: "c"$/m]



=== TEST 30: a record of nothing
--- request
GET /s?op=fetch&key=t30
--- response_body_like: ^result: ok\nstate: none\nattempts: 0\nstatus: 0\nkept: 0\nhead: ""\nbody: ""\nfp: \nfence: 0\n



=== TEST 31: lease and retention as they are left
--- request eval
["GET /s?op=claim&key=t31&owner=A&lease=30000",
 "GET /s?op=fetch&key=t31&after=10000",
 "GET /s?op=complete&key=t31&owner=A&ttl=100&tombstone=50",
 "GET /s?op=fetch&key=t31&after=40000",
 "GET /s?op=fetch&key=t31&after=120000"]
--- response_body_like eval
[qr/^lease_left: 30000\nttl_left: 2592030\n/m,
 qr/^lease_left: (19|20)\d\d\d\nttl_left: 2592020\n/m,
 qr/^lease_left: 0\nttl_left: 100\n/m,
 qr/^lease_left: 0\nttl_left: 60\n/m,
 qr/^result: ok\nstate: tombstone\n.*^ttl_left: 30\n/ms]



=== TEST 32: one at a time asks about an unknown, under a fence of its own
--- request eval
["GET /s?op=claim&key=t32&owner=A&lease=1000&fp=F",
 "GET /s?op=probe&key=t32&lease=5000",
 "GET /s?op=probe&key=t32&lease=5000&after=2000",
 "GET /s?op=probe&key=t32&lease=5000&after=3000",
 "GET /s?op=probe&key=t32&fence=1&after=3000",
 "GET /s?op=probe&key=t32&fence=current&after=3000",
 "GET /s?op=probe&key=t32&lease=5000&after=3000",
 "GET /s?op=claim&key=t32&owner=B&fp=F&flags=unknown&fence=1&after=3000",
 "GET /s?op=claim&key=t32&owner=B&fp=F&flags=unknown&fence=current&after=3000",
 "GET /s?op=probe&key=t32none"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('exists', 'executing'),
 qr/^result: granted\nstate: unknown\n.*^lease_left: 5000\n/ms,
 main::seen('exists', 'unknown'), main::seen('refused', 'unknown'),
 qr/^result: ok\nstate: unknown\n.*^lease_left: 0\n/ms,
 main::seen('granted', 'unknown'), main::seen('exists', 'unknown'),
 main::seen('granted', 'executing', 2), main::seen('exists', 'none')]



=== TEST 33: an answer comes after all, while somebody asks
--- request eval
["GET /s?op=claim&key=t33&owner=A&lease=0", "GET /s?op=probe&key=t33&lease=5000",
 "GET /s?op=renew&key=t33&owner=A", "GET /s?op=complete&key=t33&owner=A&body=late",
 "GET /s?op=fetch&key=t33"]
--- response_body_like eval
[main::seen('granted', 'unknown'), main::seen('granted', 'unknown'),
 qr/^result: ok\nlease: refused\n/, main::seen('ok', 'done'),
 qr/^body: "late"$/m]



=== TEST 34: in a zone the fence grows even for keys that it has forgotten
--- skip_eval: 1: $ENV{TEST_NGINX_STORE}
--- request eval
["GET /s?op=complete&key=t34far&owner=A&fence=9000000000000000&keep=0",
 "GET /s?op=claim&key=t34&owner=A"]
--- response_body_like eval
[main::seen('ok', 'done'), qr/^fence: 9000000000000001$/m]



=== TEST 35: a note is kept with its record, and replaced or dropped with it
--- request eval
["GET /s?op=claim&key=t35&owner=A&note=first", "GET /s?op=fetch&key=t35",
 "GET /s?op=claim&key=t35&owner=B&note=other",
 "GET /s?op=renew&key=t35&owner=A", "GET /s?op=mark_unknown&key=t35&owner=A",
 "GET /s?op=fetch&key=t35",
 "GET /s?op=resolve&key=t35&executed=1&fence=current&body=x",
 "GET /s?op=fetch&key=t35", "GET /s?op=purge&key=t35&fence=current",
 "GET /s?op=claim&key=t35&owner=C", "GET /s?op=fetch&key=t35",
 "GET /s?op=mark_unknown&key=t35&owner=C&note=second",
 "GET /s?op=fetch&key=t35",
 "GET /s?op=complete&key=t35&owner=C&note=third&body=x",
 "GET /s?op=claim&key=t35&owner=D&note=fourth", "GET /s?op=fetch&key=t35"]
--- response_body_like eval
[main::seen('granted', 'executing'), qr/^note: "first"$/m,
 qr/^result: exists\n.*^note: "first"$/ms,
 qr/^lease: ok$/m, main::seen('ok', 'unknown'),
 qr/^state: unknown\n.*^note: "first"$/ms,
 main::seen('ok', 'done'),
 qr/^state: done\n.*^body: "x"\nnote: "first"$/ms, main::seen('ok', 'none'),
 main::seen('granted', 'executing'), qr/^result: ok\nstate: executing\n(?!.*^note)/ms,
 main::seen('ok', 'unknown'),
 qr/^note: "second"$/m,
 main::seen('ok', 'done'),
 qr/^result: exists\n.*^body: "x"\nnote: "third"$/ms, qr/^note: "third"$/m]



=== TEST 36: what is completed without a note has none; a release drops it
--- request eval
["GET /s?op=claim&key=t36&owner=A&note=first",
 "GET /s?op=complete&key=t36&owner=A&body=x", "GET /s?op=fetch&key=t36",
 "GET /s?op=claim&key=t36b&owner=A&note=first",
 "GET /s?op=release&key=t36b&owner=A", "GET /s?op=claim&key=t36b&owner=B",
 "GET /s?op=fetch&key=t36b",
 "GET /s?op=claim&key=t36c&owner=A&note=" . ("n" x 512),
 "GET /s?op=fetch&key=t36c",
 "GET /s?op=complete&key=t36c&owner=A&note=" . ("m" x 511) . "&body=yy",
 "GET /s?op=fetch&key=t36c"]
--- response_body_like eval
[main::seen('granted', 'executing'), main::seen('ok', 'done'),
 qr/^result: ok\nstate: done\n(?!.*^note)/ms,
 main::seen('granted', 'executing'), main::seen('ok', 'none'),
 main::seen('granted', 'executing'),
 qr/^result: ok\nstate: executing\n(?!.*^note)/ms,
 main::seen('granted', 'executing'), qr/^note: (512 bytes|"n{512}")/m,
 main::seen('ok', 'done'), qr/^body: "yy"\nnote: (511 bytes|"m{511}")/m]
