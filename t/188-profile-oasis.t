# Profile oasis: Repeatable Requests Version 1.0 of OASIS.
#
# A repeatable request has a Repeatability-Request-ID and the date at which it
# was first sent. The answer says in Repeatability-Result what was made of
# that: "accepted" for an execution and for its replay, "rejected" for headers
# that are wrong. A request that was first sent before the time that is
# remembered gets 412, so that none is executed twice however late it comes.
# The first seven blocks are the rows of the table that Azure Communication
# Services publish for their implementation.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our ($HttpConfig, $Upstream);

our @Days = qw(Sun Mon Tue Wed Thu Fri Sat);
our @Months = qw(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec);

our $Start = time;

# the date so many seconds before this file began
sub ago {
    my ($sec, $min, $hour, $day, $month, $year, $wday) = gmtime($Start - $_[0]);

    return sprintf("%s, %02d %s %04d %02d:%02d:%02d GMT", $Days[$wday], $day,
                   $Months[$month], $year + 1900, $hour, $min, $sec);
}

sub headers {
    my ($id, $date) = @_;

    return (defined $id ? "Repeatability-Request-ID: $id\n" : "")
           . (defined $date ? "Repeatability-First-Sent: $date\n" : "");
}

our $Id = '2a7b0a4c-1f0e-4d0b-9a55-0b6f0d0c00';

our $Config = <<'_EOC_';
    location ~ / {
        idempotency main;
        idempotency_profile oasis;
        proxy_pass http://up;
    }
_EOC_

run_tests();

__DATA__

=== TEST 1: a valid id, a date in another form
--- config eval: $main::Config
--- request eval
[map { "POST /emails\nx" } 1 .. 8]
--- more_headers eval
[map { main::headers("${main::Id}01", $_) }
     "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
     "2026-01-01T00:00:00Z", "0", "", "Sun, 06 Nov 1994 08:49:37 CET",
     "Sun, 31 Feb 2026 08:49:37 GMT", main::ago(0) . " "  . main::ago(0)]
--- error_code eval
[(400) x 8]
--- response_headers eval
[("Repeatability-Result: rejected\nContent-Type: application/problem+json")
 x 8]
--- response_body_like eval
[('"code":"first_sent_invalid"') x 8]



=== TEST 2: an id that is no key, a valid date
--- config eval: $main::Config
--- request
POST /emails
x
--- more_headers eval
main::headers("a" x 256, main::ago(0))
--- error_code: 400
--- response_headers
Repeatability-Result: rejected
--- response_body_like: "code":"key_invalid"



=== TEST 3: neither is valid
--- config eval: $main::Config
--- request
POST /emails
x
--- more_headers eval
main::headers("a" x 256, "now")
--- error_code: 400
--- response_headers
Repeatability-Result: rejected
--- response_body_like: "code":"key_invalid"



=== TEST 4: outside the tracked time
--- config eval: $main::Config
--- request eval
[("POST /emails\nx") x 4]
--- more_headers eval
[map { main::headers("${main::Id}04", $_) }
     main::ago(24 * 3600), main::ago(-600), "Sun, 06 Nov 1994 08:49:37 GMT",
     "Fri, 31 Dec 9999 23:59:59 GMT"]
--- error_code eval
[(412) x 4]
--- response_headers eval
[("Repeatability-Result: rejected\nIdempotency-Retry: never") x 4]
--- response_body_like eval
[('"code":"first_sent_expired"') x 4]



=== TEST 5: within the tracked time, new
--- config eval: $main::Config
--- request eval
[("POST /emails\nx") x 4]
--- more_headers eval
[map { main::headers("${main::Id}05-$_", main::ago($_)) }
     0, 3600, 24 * 3600 - 600, -120]
--- error_code eval
[(200) x 4]
--- response_headers eval
[("Repeatability-Result: accepted\n!Idempotent-Replayed") x 4]
--- executions: a b c d



=== TEST 6: a duplicate that does not match
--- config eval: $main::Config
--- request eval
["POST /emails\nx", "POST /emails\ny", "POST /other\nx", "PUT /emails\nx",
 "POST /emails?a=1\nx", "POST /emails\nx", "POST /emails\nx"]
--- more_headers eval
[(main::headers("${main::Id}06", main::ago(60))) x 5,
 main::headers("${main::Id}06", main::ago(59)),
 main::headers("${main::Id}06", main::ago(60))]
--- error_code eval
[200, (400) x 5, 200]
--- response_headers eval
["Repeatability-Result: accepted",
 ("Repeatability-Result: rejected\nIdempotency-Retry: same-key") x 5,
 "Repeatability-Result: accepted\nIdempotent-Replayed: true"]
--- response_body_like eval
["", ('"status":400.*"code":"key_reused"') x 5, ""]
--- executions: a - - - - - a



=== TEST 7: a duplicate that matches, for each method
--- config eval: $main::Config
--- request eval
[map { ("$_ /emails\nx") x 2 } qw(POST PUT PATCH DELETE)]
--- more_headers eval
[map { (main::headers("${main::Id}07$_", main::ago(0))) x 2 } 1 .. 4]
--- error_code eval
[(200) x 8]
--- response_headers eval
[("Repeatability-Result: accepted\n!Idempotent-Replayed",
  "Repeatability-Result: accepted\nIdempotent-Replayed: true") x 4]
--- executions: a a b b c c d d



=== TEST 8: one of the pair is missing
--- config eval: $main::Config
--- request eval
["POST /emails\nx", "POST /emails\nx", "POST /emails\nx"]
--- more_headers eval
[main::headers("${main::Id}08"), main::headers(undef, main::ago(0)),
 main::headers(undef, "now")]
--- error_code eval
[400, 400, 400]
--- response_headers eval
[("Repeatability-Result: rejected") x 3]
--- response_body_like eval
['"code":"first_sent_invalid"', ('"detail":"The header '
 . 'Repeatability-Request-ID is missing.*"code":"key_missing"') x 2]



=== TEST 9: neither of them: not a repeatable request
--- config eval: $main::Config
--- request eval
["POST /emails\nx", "POST /emails\nx"]
--- error_code eval
[200, 200]
--- response_headers eval
[("!Repeatability-Result") x 2]
--- executions: a b



=== TEST 10: unless the location wants one
--- config
    location ~ / {
        idempotency main;
        idempotency_profile oasis;
        idempotency_required on;
        proxy_pass http://up;
    }
--- request
POST /emails
x
--- error_code: 400
--- response_headers
Repeatability-Result: rejected
--- response_body_like: "code":"key_missing"



=== TEST 11: two lines
--- config eval: $main::Config
--- request eval
["POST /emails\nx", "POST /emails\nx"]
--- more_headers eval
[main::headers("${main::Id}11", main::ago(0))
 . main::headers(undef, main::ago(0)),
 main::headers("${main::Id}11", main::ago(0)) . main::headers("b")]
--- error_code eval
[400, 400]
--- response_headers eval
[("Repeatability-Result: rejected") x 2]
--- response_body_like eval
['"code":"first_sent_invalid"', '"code":"key_invalid"']



=== TEST 12: the same id of another client
--- config eval: $main::Config
--- request eval
[("POST /emails\nx") x 4]
--- more_headers eval
[map { main::headers("${main::Id}12", main::ago(0)) . $_ }
     "", "Repeatability-Client-ID: c1", "Repeatability-Client-ID: c2",
     "Repeatability-Client-ID: c1"]
--- error_code eval
[(200) x 4]
--- executions: a b c b



=== TEST 13: the upstream says it, too
--- http_config eval
$main::HttpConfig . <<'_EOC_'
    server {
        listen unix:$TEST_NGINX_HTML_DIR/aware.sock;

        location / {
            add_header Repeatability-Result rejected;
            return 200 "$request_id\n";
        }
    }
_EOC_
--- config
    location ~ / {
        idempotency main;
        idempotency_profile oasis;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/aware.sock:;
    }
--- request eval
["POST /emails\nx", "POST /emails\nx"]
--- more_headers eval
main::headers("${main::Id}13", main::ago(0))
--- error_code eval
[200, 200]
--- response_headers eval
["Repeatability-Result: accepted",
 "Repeatability-Result: accepted\nIdempotent-Replayed: true"]
--- executions: a a



=== TEST 14: what was not executed, or may not have been, is not accepted
--- http_config eval
$main::HttpConfig . <<'_EOC_'
    server {
        listen unix:$TEST_NGINX_HTML_DIR/odd.sock;

        location /closing { return 444; }
        location /busy { return 503 "$request_id\n"; }
    }
_EOC_
--- config
    location ~ / {
        idempotency main;
        idempotency_profile oasis;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/odd.sock:;
    }
--- request eval
["POST /closing\nx", "POST /closing\nx", "POST /busy\nx", "POST /busy\nx"]
--- more_headers eval
[(main::headers("${main::Id}14a", main::ago(0))) x 2,
 (main::headers("${main::Id}14b", main::ago(0))) x 2]
--- error_code eval
[502, 409, 503, 503]
--- response_headers eval
[("!Repeatability-Result") x 4]
--- executions: - - a b



=== TEST 15: the window is that of the ttl
--- config
    location ~ / {
        idempotency main;
        idempotency_profile oasis;
        idempotency_ttl 1h;
        proxy_pass http://up;
    }
--- request eval
["POST /emails\nx", "POST /emails\nx"]
--- more_headers eval
[map { main::headers("${main::Id}15", main::ago($_)) } 3000, 3600]
--- error_code eval
[200, 412]



=== TEST 16: the key from elsewhere has its date, too
--- config
    location ~ / {
        idempotency main;
        idempotency_profile oasis;
        idempotency_key $arg_id;
        proxy_pass http://up;
    }
--- request eval
["POST /emails?id=k\nx", "POST /emails?id=k\nx", "POST /emails?id=k\nx",
 "POST /emails\nx", "POST /emails\nx"]
--- more_headers eval
[main::headers(undef, main::ago(0)), main::headers(undef, main::ago(0)),
 "X-Other: x", main::headers(undef, main::ago(0)), "X-Other: x"]
--- error_code eval
[200, 200, 400, 400, 200]
--- response_headers eval
[("Repeatability-Result: accepted") x 2,
 ("Repeatability-Result: rejected") x 2, "!Repeatability-Result"]
--- executions: a a - - b
