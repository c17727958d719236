# A Redis store in the configuration: every form of its target and every
# parameter, and for each wrong one a sentence that names directive, value and
# fix, and never a password.  A server that is not there stops nobody from
# starting, and requests are refused at once.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

our $Upstream;

$ENV{TEST_NGINX_STORE_SECRET} = 'tell-nobody';

add_block_preprocessor(sub {
    my $block = shift;

    if (defined $block->store) {
        $block->set_value('http_config',
                          "idempotency_store main " . $block->store . ";\n"
                          . "idempotency_source somebody;\n"
                          . $Upstream . "}\n");
    }

    if (!defined $block->config) {
        $block->set_value('config', "location /pay {\n    idempotency main;\n"
                                    . "    proxy_pass http://up;\n}\n");
    }

    if (defined $block->must_die) {
        $block->set_value('no_error_log', $ENV{TEST_NGINX_STORE_SECRET});
    }
});

run_tests();

__DATA__

=== TEST 1: another scheme
--- store: redishttp://u:tell-nobody@127.0.0.1
--- must_die
--- error_log
invalid target of "idempotency_store" "main", it must begin with "redis://", "rediss://", "redis+unix://", "redis-sentinel://", "rediss-sentinel://", "redis-cluster://" or "rediss-cluster://"



=== TEST 2: no slashes
--- store: redis:u:tell-nobody@127.0.0.1
--- must_die
--- error_log
it must begin with "redis://"



=== TEST 3: no host
--- store: redis://u:tell-nobody@
--- must_die
--- error_log
invalid host or port in the target of "idempotency_store" "main", write it as in "redis://user:password@host:6379/0", with "/", "@" and "%" of a password as "%2F", "%40" and "%25"



=== TEST 4: no host at all
--- store: redis://
--- must_die
--- error_log
invalid host or port in the target of "idempotency_store" "main", write it as in "redis://user:password@host:6379/0", with "/", "@" and "%" of a password as "%2F", "%40" and "%25"



=== TEST 5: an empty port
--- store: redis://u:tell-nobody@127.0.0.1:
--- must_die
--- error_log
invalid host or port in the target of "idempotency_store" "main", write it as in "redis://user:password@host:6379/0", with "/", "@" and "%" of a password as "%2F", "%40" and "%25"



=== TEST 6: a port of 0
--- store: redis://127.0.0.1:0
--- must_die
--- error_log
invalid host or port in the target of "idempotency_store" "main", write it as in "redis://user:password@host:6379/0", with "/", "@" and "%" of a password as "%2F", "%40" and "%25"



=== TEST 7: a port too large
--- store: redis://:tell-nobody@127.0.0.1:65536
--- must_die
--- error_log
invalid host or port in the target of "idempotency_store" "main", write it as in "redis://user:password@host:6379/0", with "/", "@" and "%" of a password as "%2F", "%40" and "%25"



=== TEST 8: a port that is no number
--- store: redis://127.0.0.1:x
--- must_die
--- error_log
invalid host or port in the target of "idempotency_store" "main", write it as in "redis://user:password@host:6379/0", with "/", "@" and "%" of a password as "%2F", "%40" and "%25"



=== TEST 9: an address of IPv6 without its end
--- store: redis://[::1
--- must_die
--- error_log
invalid host or port in the target of "idempotency_store" "main", write it as in "redis://user:password@host:6379/0", with "/", "@" and "%" of a password as "%2F", "%40" and "%25"



=== TEST 10: a broken escape
--- store: redis://u:tell-nobody%zz@127.0.0.1
--- must_die
--- error_log
invalid user or password in the target of "idempotency_store" "main", "%" must be written as "%25"



=== TEST 11: a zero byte
--- store: redis://u:tell-nobody%00@127.0.0.1
--- must_die
--- error_log
invalid user or password in the target



=== TEST 12: a database that is no number
--- store: redis://u:tell-nobody@127.0.0.1/x
--- must_die
--- error_log
invalid database in the target of "idempotency_store" "main", it must be a number, as in "redis://host:6379/0"



=== TEST 13: a negative database
--- store: redis://127.0.0.1/-1
--- must_die
--- error_log
invalid database in the target of "idempotency_store" "main", it must be a number, as in "redis://host:6379/0"



=== TEST 14: a database too large
--- store: redis://127.0.0.1/99999999999999999999
--- must_die
--- error_log
invalid database in the target of "idempotency_store" "main", it must be a number, as in "redis://host:6379/0"



=== TEST 15: a slash in the password
--- store: redis://u:tell-nobody/x@127.0.0.1
--- must_die
--- error_log
invalid database in the target of "idempotency_store" "main", it must be a number, as in "redis://host:6379/0"



=== TEST 16: a path that is not absolute
--- store: redis+unix://run/redis.sock
--- must_die
--- error_log
invalid path in the target of "idempotency_store" "main", write it as in "redis+unix:///run/redis/redis.sock?db=0"



=== TEST 17: no path
--- store: redis+unix://
--- must_die
--- error_log
invalid path in the target of "idempotency_store" "main", write it as in "redis+unix:///run/redis/redis.sock?db=0"



=== TEST 18: an unknown argument of a path
--- store: redis+unix:///run/x?database=1
--- must_die
--- error_log
invalid argument "database=1" in the target of "idempotency_store" "main", it takes "?db=NUMBER"



=== TEST 19: a database of a socket
--- store: redis+unix:///run/x?db=one
--- must_die
--- error_log
invalid database in the target of "idempotency_store" "main", it must be a number, as in "redis://host:6379/0"



=== TEST 20: a host that nobody knows
--- store: redis://u:tell-nobody@no-such-host.invalid
--- must_die
--- error_log
host not found in the target of "idempotency_store" "main": "no-such-host.invalid:6379"



=== TEST 21: sentinels, and no name of the master
--- store: redis-sentinel://u:tell-nobody@127.0.0.1,127.0.0.2
--- must_die
--- error_log
no name of a master in the target of "idempotency_store" "main", write it as in "redis-sentinel://host1:26379,host2:26379/mymaster"



=== TEST 22: a cluster has no databases
--- store: redis-cluster://u:tell-nobody@127.0.0.1/3
--- must_die
--- error_log
the target of "idempotency_store" "main" has a database, but a cluster has only one, remove it



=== TEST 23: an unknown parameter
--- store: redis://:tell-nobody@127.0.0.1 color=red
--- must_die
--- error_log
invalid parameter "color=red" of "idempotency_store" "main", a Redis store takes prefix=, connect_timeout=, timeout=, connections=, password_file=, replicas=, fsync=, amnesia=, eviction=, cache=, sentinel_user=, sentinel_password_file=, ssl_trusted_certificate=, ssl_certificate=, ssl_certificate_key=, ssl_name= and ssl_verify=



=== TEST 24: a wrong "timeout="
--- store: redis://127.0.0.1 timeout=
--- must_die
--- error_log
invalid parameter "timeout=" of "idempotency_store" "main", it must be a time, as in "500ms"



=== TEST 25: a wrong "timeout=0"
--- store: redis://127.0.0.1 timeout=0
--- must_die
--- error_log
invalid parameter "timeout=0" of "idempotency_store" "main", it must be a time, as in "500ms"



=== TEST 26: a wrong "timeout=soon"
--- store: redis://127.0.0.1 timeout=soon
--- must_die
--- error_log
invalid parameter "timeout=soon" of "idempotency_store" "main", it must be a time, as in "500ms"



=== TEST 27: a wrong "timeout=-1"
--- store: redis://127.0.0.1 timeout=-1
--- must_die
--- error_log
invalid parameter "timeout=-1" of "idempotency_store" "main", it must be a time, as in "500ms"



=== TEST 28: a wrong "timeout=2d"
--- store: redis://127.0.0.1 timeout=2d
--- must_die
--- error_log
invalid parameter "timeout=2d" of "idempotency_store" "main", it must be a time, as in "500ms"



=== TEST 29: a wrong "connect_timeout=x"
--- store: redis://127.0.0.1 connect_timeout=x
--- must_die
--- error_log
invalid parameter "connect_timeout=x" of "idempotency_store" "main", it must be a time, as in "1s"



=== TEST 30: a wrong "connections=0"
--- store: redis://127.0.0.1 connections=0
--- must_die
--- error_log
invalid parameter "connections=0" of "idempotency_store" "main", it must be a number from 1 to 64



=== TEST 31: a wrong "connections=65"
--- store: redis://127.0.0.1 connections=65
--- must_die
--- error_log
invalid parameter "connections=65" of "idempotency_store" "main", it must be a number from 1 to 64



=== TEST 32: a wrong "connections="
--- store: redis://127.0.0.1 connections=
--- must_die
--- error_log
invalid parameter "connections=" of "idempotency_store" "main", it must be a number from 1 to 64



=== TEST 33: a wrong "connections=two"
--- store: redis://127.0.0.1 connections=two
--- must_die
--- error_log
invalid parameter "connections=two" of "idempotency_store" "main", it must be a number from 1 to 64



=== TEST 34: a parameter twice
--- store: redis://127.0.0.1 timeout=1s timeout=1s
--- must_die
--- error_log
parameter "timeout=1s" of "idempotency_store" "main" is duplicate



=== TEST 35: two passwords
--- store: redis://:tell-nobody@127.0.0.1 password_file=p
--- must_die
--- error_log
"idempotency_store" "main" has a password in its target and a "password_file=", remove one of them



=== TEST 36: a password file that is not there
--- store: redis://127.0.0.1 password_file=/no/such/file
--- must_die
--- error_log
open() "/no/such/file" failed, the "password_file=" of "idempotency_store" "main"



=== TEST 37: an empty password file
--- store: redis://127.0.0.1 password_file=/dev/null
--- must_die
--- error_log
invalid "password_file=/dev/null" of "idempotency_store" "main", it must hold one line of at most



=== TEST 38: a password file of two lines
--- user_files
>>> pw
tell-nobody
second
--- store: redis://127.0.0.1 password_file=$TEST_NGINX_HTML_DIR/pw
--- must_die
--- error_log
/pw" of "idempotency_store" "main", it must hold one line of at most



=== TEST 39: ssl_ parameters without TLS
--- store: redis://:tell-nobody@127.0.0.1 ssl_verify=off
--- must_die
--- error_log
"idempotency_store" "main" has "ssl_" parameters but no TLS, use "rediss://" or remove them



=== TEST 40: a certificate without its key
--- store: rediss://127.0.0.1 ssl_certificate=x
--- must_die
--- error_log
"idempotency_store" "main" needs both "ssl_certificate=" and "ssl_certificate_key=", or none of them



=== TEST 41: a certificate that is none
--- store: rediss://127.0.0.1 ssl_certificate=/dev/null ssl_certificate_key=/dev/null
--- must_die
--- error_log
invalid "ssl_certificate=/dev/null" or "ssl_certificate_key=/dev/null" of "idempotency_store" "main", they must be a certificate and its key in PEM



=== TEST 42: CA certificates that are none
--- store: rediss://127.0.0.1 ssl_trusted_certificate=/no/such
--- must_die
--- error_log
invalid "ssl_trusted_certificate=/no/such" of "idempotency_store" "main", it must be a file of CA certificates in PEM



=== TEST 43: neither on nor off
--- store: rediss://127.0.0.1 ssl_verify=maybe
--- must_die
--- error_log
invalid parameter "ssl_verify=maybe" of "idempotency_store" "main", it must be "on" or "off"



=== TEST 44: nobody is there: refused
--- store: redis://127.0.0.1:1
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[503, 503]
--- response_headers eval
[("Retry-After: 1\nIdempotency-Retry: same-key\nContent-Type: application/problem+json") x 2]
--- response_body_like eval
[(qr/"code":"store_unavailable"/) x 2]
--- no_error_log
[alert]
[crit]
[emerg]
tell-nobody



=== TEST 45: with user, password and database
--- store: redis://u:tell-nobody@127.0.0.1:1/15
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[503, 503]
--- response_headers eval
[("Retry-After: 1\nIdempotency-Retry: same-key\nContent-Type: application/problem+json") x 2]
--- response_body_like eval
[(qr/"code":"store_unavailable"/) x 2]
--- no_error_log
[alert]
[crit]
[emerg]
tell-nobody



=== TEST 46: with a password only
--- store: redis://:tell-nobody%2f%40%25@127.0.0.1:1
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[503, 503]
--- response_headers eval
[("Retry-After: 1\nIdempotency-Retry: same-key\nContent-Type: application/problem+json") x 2]
--- response_body_like eval
[(qr/"code":"store_unavailable"/) x 2]
--- no_error_log
[alert]
[crit]
[emerg]
tell-nobody



=== TEST 47: by name
--- store: redis://localhost:1
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[503, 503]
--- response_headers eval
[("Retry-After: 1\nIdempotency-Retry: same-key\nContent-Type: application/problem+json") x 2]
--- response_body_like eval
[(qr/"code":"store_unavailable"/) x 2]
--- no_error_log
[alert]
[crit]
[emerg]
tell-nobody



=== TEST 48: IPv6
--- store: redis://[::1]:1/0
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[503, 503]
--- response_headers eval
[("Retry-After: 1\nIdempotency-Retry: same-key\nContent-Type: application/problem+json") x 2]
--- response_body_like eval
[(qr/"code":"store_unavailable"/) x 2]
--- no_error_log
[alert]
[crit]
[emerg]
tell-nobody



=== TEST 49: a socket
--- store: redis+unix:///no/such/socket?db=3
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[503, 503]
--- response_headers eval
[("Retry-After: 1\nIdempotency-Retry: same-key\nContent-Type: application/problem+json") x 2]
--- response_body_like eval
[(qr/"code":"store_unavailable"/) x 2]
--- no_error_log
[alert]
[crit]
[emerg]
tell-nobody



=== TEST 50: TLS
--- store: rediss://u:tell-nobody@127.0.0.1:1 ssl_verify=off ssl_name=x
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[503, 503]
--- response_headers eval
[("Retry-After: 1\nIdempotency-Retry: same-key\nContent-Type: application/problem+json") x 2]
--- response_body_like eval
[(qr/"code":"store_unavailable"/) x 2]
--- no_error_log
[alert]
[crit]
[emerg]
tell-nobody



=== TEST 51: all parameters
--- store: redis://127.0.0.1:1 prefix=p: timeout=200ms connect_timeout=1s connections=4
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[503, 503]
--- response_headers eval
[("Retry-After: 1\nIdempotency-Retry: same-key\nContent-Type: application/problem+json") x 2]
--- response_body_like eval
[(qr/"code":"store_unavailable"/) x 2]
--- no_error_log
[alert]
[crit]
[emerg]
tell-nobody



=== TEST 52: a password file
--- user_files
>>> pw
tell-nobody
--- store: redis://127.0.0.1:1 password_file=$TEST_NGINX_HTML_DIR/pw
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[503, 503]
--- response_headers eval
[("Retry-After: 1\nIdempotency-Retry: same-key\nContent-Type: application/problem+json") x 2]
--- response_body_like eval
[(qr/"code":"store_unavailable"/) x 2]
--- no_error_log
[alert]
[crit]
[emerg]
tell-nobody


=== TEST 53: parameters of sentinels without any
--- store: redis://127.0.0.1 sentinel_user=somebody
--- must_die
--- error_log
"idempotency_store" "main" has "sentinel_" parameters but no sentinels, use "redis-sentinel://" or remove them



=== TEST 54: a list of servers is not one server
--- store: redis://127.0.0.1:6379,127.0.0.2:6379
--- must_die
--- error_log
invalid host or port in the target of "idempotency_store" "main"



=== TEST 55: an empty place in a list
--- store: redis-cluster://127.0.0.1:6379,,127.0.0.2:6379
--- must_die
--- error_log
invalid host or port in the target of "idempotency_store" "main"



=== TEST 56: no replicas
--- store: redis://127.0.0.1 replicas=0
--- must_die
--- error_log
invalid parameter "replicas=0" of "idempotency_store" "main", it must be a number from 1 to 16, as in "2" or "2:100ms"



=== TEST 57: replicas, and no time for them
--- store: redis://127.0.0.1 replicas=2:
--- must_die
--- error_log
invalid parameter "replicas=2:" of "idempotency_store" "main", it must be a number from 1 to 16



=== TEST 58: more time for replicas than there is
--- store: redis://127.0.0.1 replicas=2:300ms timeout=500ms
--- must_die
--- error_log
"idempotency_store" "main" waits longer for its replicas than half of its "timeout=", make the time of "replicas=" shorter



=== TEST 59: a wrong "amnesia="
--- store: redis://127.0.0.1 amnesia=soon
--- must_die
--- error_log
invalid parameter "amnesia=soon" of "idempotency_store" "main", it must be a time, as in "30s"



=== TEST 60: sentinels that are not there
--- store: redis-sentinel://u:tell-nobody@127.0.0.1:1,127.0.0.1:2/pay/3 replicas=1 amnesia=0 timeout=200ms
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k
--- error_code: 503
--- response_body_like: "code":"store_unavailable"
--- error_log
cannot be reached
--- no_error_log
[alert]
[crit]
[emerg]
tell-nobody



=== TEST 61: a cluster that is not there
--- store: redis-cluster://u:tell-nobody@127.0.0.1:1,127.0.0.1:2 timeout=200ms
--- request
POST /pay
x
--- more_headers
Idempotency-Key: k
--- error_code: 503
--- response_body_like: "code":"store_unavailable"
--- error_log
cannot be reached
--- no_error_log
[alert]
[crit]
[emerg]
tell-nobody



=== TEST 62: a wrong "cache="
--- store: redis://:tell-nobody@127.0.0.1 cache=some
--- must_die
--- error_log
invalid or duplicate parameter "cache=some" of "idempotency_store" "main", it must be a size of at least 64k, as in "10m"



=== TEST 63: a "cache=" that is too small
--- store: redis://:tell-nobody@127.0.0.1 cache=16k
--- must_die
--- error_log
invalid or duplicate parameter "cache=16k" of "idempotency_store" "main", it must be a size of at least 64k, as in "10m"
