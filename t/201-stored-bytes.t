# What was stored is read back byte for byte, whatever its length: the bytes
# are spread over the record itself, slab slots of several sizes, pages, and
# steps of 64 KB.  The checksum is computed here, from the pattern.

use Compress::Zlib qw( crc32 );
use Test::Nginx::Socket 'no_plan';

repeat_each(1);
no_shuffle();

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('http_config', "idempotency_store pay shm:12m;\n");
    $block->set_value('config', "location /s { idempotency_exercise pay; }\n");
    $block->set_value('no_error_log', "[alert]\n[crit]\n[error]");
});

# N bytes as the endpoint makes and shows them
sub bytes {
    my ($n) = @_;

    my $bytes = join '', map { chr(($_ ^ ($_ >> 8) ^ ($_ >> 16)) & 0xff) }
                         0 .. $n - 1;

    return $n > 64 ? sprintf "%d bytes %08x", $n, crc32($bytes)
                   : '"' . quotemeta($bytes) . '"';
}

# claim, complete, fetch of heads and bodies of these lengths
sub requests {
    my ($name, $args, @lengths) = @_;

    return [map {
        my ($head, $body) = ref $_ ? @$_ : (0, $_);
        my $key = "key=$name-$head-$body";

        ("GET /s?op=claim&$key&owner=A",
         "GET /s?op=complete&$key&owner=A$args&head_len=$head&body_len=$body",
         "GET /s?op=fetch&$key")
    } @lengths];
}

sub answers {
    my (@lengths) = @_;

    return [map {
        my ($head, $body) = map { bytes($_) } ref $_ ? @$_ : (0, $_);

        (qr/^result: granted\n/, qr/^result: ok\nstate: done\n/,
         qr/^result: ok\nstate: done\nattempts: 1\nstatus: 201\nkept: 1\nhead: $head\nbody: $body\nfp: /s)
    } @lengths];
}

our @tiny = (0 .. 3, 10 .. 14, 27 .. 45, 66 .. 70);
our @small = (100, 130 .. 134, 193 .. 198, 239 .. 262, 385 .. 390, 492 .. 522,
              769 .. 774, 992 .. 1052);
our @middle = (1537 .. 1542, 2022 .. 2062, 3073 .. 3078, 4072 .. 4112, 6000,
               8172 .. 8200);
our @large = (65507 .. 65509, 65527 .. 65537, 65542 .. 65552, 131072, 200000,
              1048575 .. 1048577);
our @heads = map { [$_, 32 - $_], [$_, 400 - $_], [$_, 5000] } 1, 11 .. 13, 31;

run_tests();

__DATA__

=== TEST 1: within the record and a little more
--- request eval
main::requests('tiny', '', @main::tiny)
--- response_body_like eval
main::answers(@main::tiny)



=== TEST 2: slots
--- request eval
main::requests('small', '', @main::small)
--- response_body_like eval
main::answers(@main::small)



=== TEST 3: pages
--- request eval
main::requests('middle', '', @main::middle)
--- response_body_like eval
main::answers(@main::middle)



=== TEST 4: steps
--- request eval
main::requests('large', '', @main::large)
--- response_body_like eval
main::answers(@main::large)



=== TEST 5: head and body, split anywhere
--- request eval
main::requests('heads', '', @main::heads)
--- response_body_like eval
main::answers(@main::heads)



=== TEST 6: a body in many buffers, some of them empty
--- request eval
main::requests('bufs', '&bufs=300', 100, 299, 300, 4096, 70000)
--- response_body_like eval
main::answers(100, 299, 300, 4096, 70000)



=== TEST 7: a claim and a late answer are shown a long answer too
--- request eval
["GET /s?op=claim&key=t7&owner=A", "GET /s?op=complete&key=t7&owner=A&body_len=70000",
 "GET /s?op=claim&key=t7&owner=B", "GET /s?op=complete&key=t7&owner=B&body_len=80000",
 "GET /s?op=claim&key=t7&owner=A"]
--- response_body_like eval
my $body = main::bytes(70000);
[qr/^result: granted\n/, qr/^result: ok\n/,
 qr/^result: exists\nstate: done\n.*^body: $body\n/ms,
 qr/^result: refused\nstate: done\n.*^body: $body\n/ms,
 qr/^result: exists\nstate: done\n.*^body: $body\n/ms]
