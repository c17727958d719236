# The configuration: a wrong one stops nginx with a sentence that names the
# directive, the value and the fix; a right one is inherited from http to
# server to location, and has the defaults of the documentation.

use Test::Nginx::Socket 'no_plan';

require './t/lib/contract.pl';

# What stops nginx: "wrong_http" is the beginning of http{}, "wrong" is behind
# "idempotency main; idempotency_source ...;" in a location, "wrong_location"
# is all of it.

add_block_preprocessor(sub {
    my $block = shift;

    return unless defined $block->wrong || defined $block->wrong_location
                  || defined $block->wrong_http;

    my $location = $block->wrong_location;

    if (defined $block->wrong) {
        $location = "idempotency main; idempotency_source \$remote_addr;\n"
                    . $block->wrong;
    }

    $location = 'return 200;' unless defined $location;

    $block->set_value('http_config', $block->wrong_http
                                     || 'idempotency_store main shm:4m;');
    $block->set_value('config', "location /pay {\n$location\n}\n");
    $block->set_value('must_die', '');
    $block->set_value('suppress_stderr', '');
    $block->set_value('error_log', "[emerg]\n" . $block->error_log);
});

run_tests();

__DATA__

=== TEST 1: a store named off
--- wrong_http
idempotency_store off shm:4m;
--- error_log
"idempotency_store" directive
"off" is not a name



=== TEST 2: a store without a name
--- wrong_http
idempotency_store "" shm:4m;
--- error_log
"idempotency_store" directive needs a name for the store



=== TEST 3: a store without a target
--- wrong_http
idempotency_store main;
--- error_log
invalid number of arguments in "idempotency_store" directive



=== TEST 4: a store of an unknown kind: file:/tmp/x
--- wrong_http
idempotency_store main file:/tmp/x;
--- error_log
invalid target "file:/tmp/x" in "idempotency_store"
as in "shm:10m"



=== TEST 5: a store of an unknown kind: shm
--- wrong_http
idempotency_store main shm;
--- error_log
invalid target "shm" in "idempotency_store"
as in "shm:10m"



=== TEST 6: a store of an unknown kind: 4m
--- wrong_http
idempotency_store main 4m;
--- error_log
invalid target "4m" in "idempotency_store"
as in "shm:10m"



=== TEST 7: a store of an unknown kind: SHM:4m
--- wrong_http
idempotency_store main SHM:4m;
--- error_log
invalid target "SHM:4m" in "idempotency_store"
as in "shm:10m"



=== TEST 8: a store of an unknown kind: empty
--- wrong_http
idempotency_store main "";
--- error_log
invalid target "" in "idempotency_store"
as in "shm:10m"



=== TEST 9: a store of a size which is none: ""
--- wrong_http
idempotency_store main shm:;
--- error_log
invalid size "" in "idempotency_store"
as in "shm:10m"



=== TEST 10: a store of a size which is none: "x"
--- wrong_http
idempotency_store main shm:x;
--- error_log
invalid size "x" in "idempotency_store"
as in "shm:10m"



=== TEST 11: a store of a size which is none: "-1"
--- wrong_http
idempotency_store main shm:-1;
--- error_log
invalid size "-1" in "idempotency_store"
as in "shm:10m"



=== TEST 12: a store of a size which is none: "4mm"
--- wrong_http
idempotency_store main shm:4mm;
--- error_log
invalid size "4mm" in "idempotency_store"
as in "shm:10m"



=== TEST 13: a store of a size which is none: "4t"
--- wrong_http
idempotency_store main shm:4t;
--- error_log
invalid size "4t" in "idempotency_store"
as in "shm:10m"



=== TEST 14: a store of a size which is none: "0.5m"
--- wrong_http
idempotency_store main shm:0.5m;
--- error_log
invalid size "0.5m" in "idempotency_store"
as in "shm:10m"



=== TEST 15: a store of a size which is none: "99999999999999999999"
--- wrong_http
idempotency_store main shm:99999999999999999999;
--- error_log
invalid size "99999999999999999999" in "idempotency_store"
as in "shm:10m"



=== TEST 16: a store which is too small: 0
--- wrong_http
idempotency_store main shm:0;
--- error_log
idempotency_store "main": a zone of 0 bytes is too small, it needs at least 32768



=== TEST 17: a store which is too small: 4k
--- wrong_http
idempotency_store main shm:4k;
--- error_log
idempotency_store "main": a zone of 4096 bytes is too small, it needs at least 32768



=== TEST 18: a store which is too small: 31k
--- wrong_http
idempotency_store main shm:31k;
--- error_log
idempotency_store "main": a zone of 31744 bytes is too small, it needs at least 32768



=== TEST 19: a parameter which the embedded store does not have
--- wrong_http
idempotency_store main shm:4m prefix=x;
--- error_log
"idempotency_store" takes no parameter "prefix=x" with the target "shm:SIZE"



=== TEST 20: two stores of one name
--- wrong_http
idempotency_store main shm:4m;
idempotency_store main shm:4m;
--- error_log
"idempotency_store" directive is duplicate: a store of this name is defined already



=== TEST 21: a store outside of http
--- wrong_http
idempotency_store main shm:4m;
--- wrong_location
idempotency_store other shm:4m;
--- error_log
"idempotency_store" directive is not allowed here



=== TEST 22: a store which nobody has defined
--- wrong_http
idempotency_store main shm:4m;
--- wrong_location
idempotency other;
idempotency_source $remote_addr;
--- error_log
the store "other" that is named in
is not defined: add "idempotency_store other shm:10m;" to http{}



=== TEST 23: idempotency twice
--- wrong_location
idempotency main;
idempotency off;
--- error_log
"idempotency" directive is duplicate



=== TEST 24: idempotency without a name
--- wrong_location
idempotency "";
idempotency_source $remote_addr;
--- error_log
"idempotency" directive
needs the name of a store, or "off"



=== TEST 25: idempotency with two names
--- wrong_location
idempotency main other;
--- error_log
invalid number of arguments in "idempotency" directive



=== TEST 26: no source
--- wrong_location
idempotency main;
proxy_pass http://127.0.0.1:1;
--- error_log
"idempotency" is on in location "/pay" without "idempotency_source": name what tells one client from another



=== TEST 27: no source where a location inherits idempotency
--- http_config
    idempotency_store main shm:4m;
--- config
    idempotency main;
    location /pay {
        proxy_pass http://127.0.0.1:1;
    }
--- must_die
--- suppress_stderr
--- error_log
[emerg]
without "idempotency_source"



=== TEST 28: source twice
--- wrong
idempotency_source $uri;
--- error_log
"idempotency_source" directive is duplicate



=== TEST 29: source of an unknown variable
--- wrong_location
idempotency main;
idempotency_source $nothing_of_this_name;
--- error_log
unknown "nothing_of_this_name" variable



=== TEST 30: an empty key
--- wrong
idempotency_key "";
--- error_log
"idempotency_key" directive must not be empty
such as $http_idempotency_key



=== TEST 31: key twice
--- wrong
idempotency_key $arg_a;
idempotency_key $arg_b;
--- error_log
"idempotency_key" directive is duplicate



=== TEST 32: scope twice
--- wrong
idempotency_scope $uri;
idempotency_scope $host;
--- error_log
"idempotency_scope" directive is duplicate



=== TEST 33: a method which is none: "post"
--- wrong
idempotency_methods POST post;
--- error_log
invalid method "post" in "idempotency_methods"
as in "POST PATCH"



=== TEST 34: a method which is none: "FETCH"
--- wrong
idempotency_methods POST FETCH;
--- error_log
invalid method "FETCH" in "idempotency_methods"
as in "POST PATCH"



=== TEST 35: a method which is none: "POST,PATCH"
--- wrong
idempotency_methods POST POST,PATCH;
--- error_log
invalid method "POST,PATCH" in "idempotency_methods"
as in "POST PATCH"



=== TEST 36: a method which is none: ""
--- wrong
idempotency_methods POST "";
--- error_log
invalid method "" in "idempotency_methods"
as in "POST PATCH"



=== TEST 37: methods twice
--- wrong
idempotency_methods POST;
idempotency_methods PATCH;
--- error_log
"idempotency_methods" directive is duplicate



=== TEST 38: no method
--- wrong
idempotency_methods;
--- error_log
invalid number of arguments in "idempotency_methods" directive



=== TEST 39: required of another word
--- wrong
idempotency_required maybe;
--- error_log
invalid value "maybe" in "idempotency_required" directive, it must be "on" or "off"



=== TEST 40: required twice
--- wrong
idempotency_required on;
idempotency_required off;
--- error_log
"idempotency_required" directive is duplicate



=== TEST 41: a longest key of "0"
--- wrong
idempotency_max_key 0;
--- error_log
invalid value "0" in "idempotency_max_key"
from 1 to 65536



=== TEST 42: a longest key of "-1"
--- wrong
idempotency_max_key -1;
--- error_log
invalid value "-1" in "idempotency_max_key"
from 1 to 65536



=== TEST 43: a longest key of "65537"
--- wrong
idempotency_max_key 65537;
--- error_log
invalid value "65537" in "idempotency_max_key"
from 1 to 65536



=== TEST 44: a longest key of "1k"
--- wrong
idempotency_max_key 1k;
--- error_log
invalid value "1k" in "idempotency_max_key"
from 1 to 65536



=== TEST 45: a longest key of "x"
--- wrong
idempotency_max_key x;
--- error_log
invalid value "x" in "idempotency_max_key"
from 1 to 65536



=== TEST 46: a longest key of ""
--- wrong
idempotency_max_key "";
--- error_log
invalid value "" in "idempotency_max_key"
from 1 to 65536



=== TEST 47: max_key twice
--- wrong
idempotency_max_key 5;
idempotency_max_key 6;
--- error_log
"idempotency_max_key" directive is duplicate



=== TEST 48: a fingerprint of "md5"
--- wrong
idempotency_fingerprint md5;
--- error_log
invalid value "md5" in "idempotency_fingerprint"
"off"



=== TEST 49: a fingerprint of "RAW"
--- wrong
idempotency_fingerprint RAW;
--- error_log
invalid value "RAW" in "idempotency_fingerprint"
"off"



=== TEST 50: a fingerprint of ""
--- wrong
idempotency_fingerprint "";
--- error_log
invalid value "" in "idempotency_fingerprint"
"off"



=== TEST 51: a fingerprint with an unknown parameter
--- wrong
idempotency_fingerprint raw without=x;
--- error_log
invalid parameter "without=x" in "idempotency_fingerprint"
with=VALUE



=== TEST 52: no fingerprint, but with something
--- wrong
idempotency_fingerprint off with=$uri;
--- error_log
invalid parameter "with=$uri" in "idempotency_fingerprint"



=== TEST 53: a fingerprint with two values
--- wrong
idempotency_fingerprint raw with=$uri with=$host;
--- error_log
"idempotency_fingerprint" directive has two parameters "with="



=== TEST 54: a fingerprint with an unknown variable
--- wrong
idempotency_fingerprint raw with=$nothing_of_this_name;
--- error_log
unknown "nothing_of_this_name" variable



=== TEST 55: fingerprint twice
--- wrong
idempotency_fingerprint raw;
idempotency_fingerprint off;
--- error_log
"idempotency_fingerprint" directive is duplicate



=== TEST 56: duplicates of "drop"
--- wrong
idempotency_duplicate drop;
--- error_log
invalid value "drop" in "idempotency_duplicate"
it must be "replay" or "reject"



=== TEST 57: duplicates of ""
--- wrong
idempotency_duplicate "";
--- error_log
invalid value "" in "idempotency_duplicate"
it must be "replay" or "reject"



=== TEST 58: duplicate twice
--- wrong
idempotency_duplicate replay;
idempotency_duplicate reject;
--- error_log
"idempotency_duplicate" directive is duplicate



=== TEST 59: a ttl of "0"
--- wrong
idempotency_ttl 0;
--- error_log
invalid time "0" in "idempotency_ttl"
as in "24h"



=== TEST 60: a ttl of "0s"
--- wrong
idempotency_ttl 0s;
--- error_log
invalid time "0s" in "idempotency_ttl"
as in "24h"



=== TEST 61: a ttl of "-1"
--- wrong
idempotency_ttl -1;
--- error_log
invalid time "-1" in "idempotency_ttl"
as in "24h"



=== TEST 62: a ttl of "x"
--- wrong
idempotency_ttl x;
--- error_log
invalid time "x" in "idempotency_ttl"
as in "24h"



=== TEST 63: a ttl of ""
--- wrong
idempotency_ttl "";
--- error_log
invalid time "" in "idempotency_ttl"
as in "24h"



=== TEST 64: a ttl of "500ms"
--- wrong
idempotency_ttl 500ms;
--- error_log
invalid time "500ms" in "idempotency_ttl"
as in "24h"



=== TEST 65: a tombstone of "x"
--- wrong
idempotency_ttl 1h tombstone=x;
--- error_log
invalid time "x" in "idempotency_ttl"
as in "tombstone=30d"



=== TEST 66: a tombstone of ""
--- wrong
idempotency_ttl 1h tombstone=;
--- error_log
invalid time "" in "idempotency_ttl"
as in "tombstone=30d"



=== TEST 67: a tombstone of "-1"
--- wrong
idempotency_ttl 1h tombstone=-1;
--- error_log
invalid time "-1" in "idempotency_ttl"
as in "tombstone=30d"



=== TEST 68: a tombstone of "500ms"
--- wrong
idempotency_ttl 1h tombstone=500ms;
--- error_log
invalid time "500ms" in "idempotency_ttl"
as in "tombstone=30d"



=== TEST 69: a ttl with an unknown parameter
--- wrong
idempotency_ttl 1h stone=1h;
--- error_log
invalid parameter "stone=1h" in "idempotency_ttl", it takes "tombstone=TIME"



=== TEST 70: ttl twice
--- wrong
idempotency_ttl 1h;
idempotency_ttl 2h;
--- error_log
"idempotency_ttl" directive is duplicate



=== TEST 71: a lease of "0"
--- wrong
idempotency_lease 0;
--- error_log
invalid value "0" in "idempotency_lease"
a second at least, as in "30s"



=== TEST 72: a lease of "999ms"
--- wrong
idempotency_lease 999ms;
--- error_log
invalid value "999ms" in "idempotency_lease"
a second at least, as in "30s"



=== TEST 73: a lease of "x"
--- wrong
idempotency_lease x;
--- error_log
invalid value "x" in "idempotency_lease"
a second at least, as in "30s"



=== TEST 74: a lease of ""
--- wrong
idempotency_lease "";
--- error_log
invalid value "" in "idempotency_lease"
a second at least, as in "30s"



=== TEST 75: a lease of "-1"
--- wrong
idempotency_lease -1;
--- error_log
invalid value "-1" in "idempotency_lease"
a second at least, as in "30s"



=== TEST 76: lease twice
--- wrong
idempotency_lease 10s;
idempotency_lease 20s;
--- error_log
"idempotency_lease" directive is duplicate



=== TEST 77: final of "0"
--- wrong
idempotency_final 200 0;
--- error_log
invalid status "0" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 78: final of "199"
--- wrong
idempotency_final 200 199;
--- error_log
invalid status "199" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 79: final of "600"
--- wrong
idempotency_final 200 600;
--- error_log
invalid status "600" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 80: final of "99999999999999999999"
--- wrong
idempotency_final 200 99999999999999999999;
--- error_log
invalid status "99999999999999999999" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 81: final of "x"
--- wrong
idempotency_final 200 x;
--- error_log
invalid status "x" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 82: final of ""
--- wrong
idempotency_final 200 "";
--- error_log
invalid status "" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 83: final of "500-"
--- wrong
idempotency_final 200 500-;
--- error_log
invalid status "500-" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 84: final of "-500"
--- wrong
idempotency_final 200 -500;
--- error_log
invalid status "-500" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 85: final of "500-400"
--- wrong
idempotency_final 200 500-400;
--- error_log
invalid status "500-400" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 86: final of "500-600"
--- wrong
idempotency_final 200 500-600;
--- error_log
invalid status "500-600" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 87: final of "5xx"
--- wrong
idempotency_final 200 5xx;
--- error_log
invalid status "5xx" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 88: final of "500-502-504"
--- wrong
idempotency_final 200 500-502-504;
--- error_log
invalid status "500-502-504" in "idempotency_final", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 89: final twice
--- wrong
idempotency_final 200;
idempotency_final 201;
--- error_log
"idempotency_final" directive is duplicate



=== TEST 90: retryable of "0"
--- wrong
idempotency_retryable 200 0;
--- error_log
invalid status "0" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 91: retryable of "199"
--- wrong
idempotency_retryable 200 199;
--- error_log
invalid status "199" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 92: retryable of "600"
--- wrong
idempotency_retryable 200 600;
--- error_log
invalid status "600" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 93: retryable of "99999999999999999999"
--- wrong
idempotency_retryable 200 99999999999999999999;
--- error_log
invalid status "99999999999999999999" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 94: retryable of "x"
--- wrong
idempotency_retryable 200 x;
--- error_log
invalid status "x" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 95: retryable of ""
--- wrong
idempotency_retryable 200 "";
--- error_log
invalid status "" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 96: retryable of "500-"
--- wrong
idempotency_retryable 200 500-;
--- error_log
invalid status "500-" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 97: retryable of "-500"
--- wrong
idempotency_retryable 200 -500;
--- error_log
invalid status "-500" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 98: retryable of "500-400"
--- wrong
idempotency_retryable 200 500-400;
--- error_log
invalid status "500-400" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 99: retryable of "500-600"
--- wrong
idempotency_retryable 200 500-600;
--- error_log
invalid status "500-600" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 100: retryable of "5xx"
--- wrong
idempotency_retryable 200 5xx;
--- error_log
invalid status "5xx" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 101: retryable of "500-502-504"
--- wrong
idempotency_retryable 200 500-502-504;
--- error_log
invalid status "500-502-504" in "idempotency_retryable", it must be a code from 200 to 599, or a range such as "500-599"



=== TEST 102: retryable twice
--- wrong
idempotency_retryable 200;
idempotency_retryable 201;
--- error_log
"idempotency_retryable" directive is duplicate



=== TEST 103: a largest response of "x"
--- wrong
idempotency_max_response x;
--- error_log
invalid value "x" in "idempotency_max_response"
as in "1m"



=== TEST 104: a largest response of "-1"
--- wrong
idempotency_max_response -1;
--- error_log
invalid value "-1" in "idempotency_max_response"
as in "1m"



=== TEST 105: a largest response of ""
--- wrong
idempotency_max_response "";
--- error_log
invalid value "" in "idempotency_max_response"
as in "1m"



=== TEST 106: a largest response of "1t"
--- wrong
idempotency_max_response 1t;
--- error_log
invalid value "1t" in "idempotency_max_response"
as in "1m"



=== TEST 107: max_response twice
--- wrong
idempotency_max_response 1m;
idempotency_max_response 2m;
--- error_log
"idempotency_max_response" directive is duplicate



=== TEST 108: a hidden header without a name
--- wrong
idempotency_hide_header X-A "";
--- error_log
"idempotency_hide_header" directive has an empty header name



=== TEST 109: a described-by which is no URL: https://example.com/a b
--- wrong
idempotency_describedby "https://example.com/a b";
--- error_log
"idempotency_describedby"
must be a URL without spaces, quotes and angle brackets



=== TEST 110: a described-by which is no URL: https://example.com/"
--- wrong
idempotency_describedby "https://example.com/\"";
--- error_log
"idempotency_describedby"
must be a URL without spaces, quotes and angle brackets



=== TEST 111: a described-by which is no URL: https://example.com/<x>
--- wrong
idempotency_describedby "https://example.com/<x>";
--- error_log
"idempotency_describedby"
must be a URL without spaces, quotes and angle brackets



=== TEST 112: a described-by which is no URL: https://example.com/
--- wrong
idempotency_describedby "https://example.com/\\";
--- error_log
"idempotency_describedby"
must be a URL without spaces, quotes and angle brackets



=== TEST 113: describedby twice
--- wrong
idempotency_describedby http://a/;
idempotency_describedby http://b/;
--- error_log
"idempotency_describedby" directive is duplicate



=== TEST 114: a log level of "debug"
--- wrong
idempotency_log_level debug;
--- error_log
invalid value "debug" in "idempotency_log_level"
it must be "info", "notice", "warn" or "error"



=== TEST 115: a log level of "crit"
--- wrong
idempotency_log_level crit;
--- error_log
invalid value "crit" in "idempotency_log_level"
it must be "info", "notice", "warn" or "error"



=== TEST 116: a log level of ""
--- wrong
idempotency_log_level "";
--- error_log
invalid value "" in "idempotency_log_level"
it must be "info", "notice", "warn" or "error"



=== TEST 117: log_level twice
--- wrong
idempotency_log_level info;
idempotency_log_level warn;
--- error_log
"idempotency_log_level" directive is duplicate



=== TEST 118: unknown outcomes of "keep"
--- wrong
idempotency_unknown keep;
--- error_log
invalid value "keep" in "idempotency_unknown"
it must be "hold", "retry", "probe=/URI" or "transaction"



=== TEST 119: unknown outcomes of "HOLD"
--- wrong
idempotency_unknown HOLD;
--- error_log
invalid value "HOLD" in "idempotency_unknown"
it must be "hold", "retry", "probe=/URI" or "transaction"



=== TEST 120: unknown outcomes of "probe="
--- wrong
idempotency_unknown probe=;
--- error_log
invalid value "probe=" in "idempotency_unknown"
it must be "hold", "retry", "probe=/URI" or "transaction"



=== TEST 121: unknown outcomes of "probe=x"
--- wrong
idempotency_unknown probe=x;
--- error_log
invalid value "probe=x" in "idempotency_unknown"
it must be "hold", "retry", "probe=/URI" or "transaction"



=== TEST 122: unknown outcomes of ""
--- wrong
idempotency_unknown "";
--- error_log
invalid value "" in "idempotency_unknown"
it must be "hold", "retry", "probe=/URI" or "transaction"



=== TEST 123: unknown twice
--- wrong
idempotency_unknown hold;
idempotency_unknown retry;
--- error_log
"idempotency_unknown" directive is duplicate



=== TEST 124: proxy_next_upstream would send a request twice
--- wrong
proxy_pass http://127.0.0.1:1;
proxy_next_upstream error non_idempotent;
--- error_log
"non_idempotent" in a "next_upstream" directive of location "/pay" would send a request twice: remove it



=== TEST 125: fastcgi_next_upstream would send a request twice
--- wrong
fastcgi_pass 127.0.0.1:1;
fastcgi_next_upstream error non_idempotent;
--- error_log
"non_idempotent" in a "next_upstream" directive of location "/pay" would send a request twice: remove it



=== TEST 126: uwsgi_next_upstream would send a request twice
--- wrong
uwsgi_pass 127.0.0.1:1;
uwsgi_next_upstream error non_idempotent;
--- error_log
"non_idempotent" in a "next_upstream" directive of location "/pay" would send a request twice: remove it



=== TEST 127: scgi_next_upstream would send a request twice
--- wrong
scgi_pass 127.0.0.1:1;
scgi_next_upstream error non_idempotent;
--- error_log
"non_idempotent" in a "next_upstream" directive of location "/pay" would send a request twice: remove it



=== TEST 128: grpc_next_upstream would send a request twice
--- wrong
grpc_pass grpc://127.0.0.1:1;
grpc_next_upstream error non_idempotent;
--- error_log
"non_idempotent" in a "next_upstream" directive of location "/pay" would send a request twice: remove it



=== TEST 129: non_idempotent is inherited from http
--- http_config
    idempotency_store main shm:4m;
    proxy_next_upstream error non_idempotent;
--- config
    location /pay {
        idempotency main;
        idempotency_source $remote_addr;
        proxy_pass http://127.0.0.1:1;
    }
--- must_die
--- suppress_stderr
--- error_log
[emerg]
"non_idempotent"



=== TEST 130: non_idempotent in a location inside an if
--- http_config
    idempotency_store main shm:4m;
--- config
    location /pay {
        idempotency main;
        idempotency_source $remote_addr;
        proxy_next_upstream error non_idempotent;
        if ($arg_a) {
            proxy_pass http://127.0.0.1:1;
        }
    }
--- must_die
--- suppress_stderr
--- error_log
[emerg]
"non_idempotent"



=== TEST 131: non_idempotent where idempotency is off
--- config
    location /pay {
        proxy_next_upstream error non_idempotent;
        proxy_pass http://up;
    }
--- request
POST /pay
x
--- response_body_like: POST /pay



=== TEST 132: no source is needed where idempotency is off
--- http_config eval
"idempotency_store main shm:4m;" . $main::Upstream . "}"
--- config
    location /pay {
        idempotency main;
        idempotency_source $remote_addr;

        location /pay/off {
            idempotency off;
            proxy_pass http://up;
            add_header X-Result $idempotency_result;
        }
    }

    location /off {
        idempotency off;
        proxy_pass http://up;
        add_header X-Result $idempotency_result;
    }
--- request eval
["POST /pay/off\nx", "POST /off\nx"]
--- error_code eval
[200, 200]
--- response_headers eval
["X-Result: off", "X-Result: off"]



=== TEST 133: a store which is used before the line that defines it
--- http_config eval
"idempotency_source everybody;\n" . $main::Upstream . <<'_EOC_';
        idempotency off;
    }
    idempotency early;
    idempotency_store early shm:1m;
_EOC_
--- config
    location /pay {
        proxy_pass http://up;
        proxy_set_header Idempotency-Key "";
    }
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 134: inherited from http, from server, and set in a location
--- http_config eval
"idempotency_max_key 3;\nidempotency_describedby http://http/;\n"
    . $main::HttpConfig
--- config
    idempotency main;
    idempotency_describedby http://server/;

    location /a {
        proxy_pass http://up;
    }

    location /b {
        idempotency_max_key 4;
        idempotency_describedby http://location/;
        proxy_pass http://up;

        location /b/off {
            idempotency off;
            proxy_pass http://up;
        }

        location /b/in {
            proxy_pass http://up;
        }
    }
--- request eval
["POST /a\nx", "POST /a\nx", "POST /b\nx", "POST /b\nx", "POST /b/off\nx",
 "POST /b/in\nx", "POST /b/in\nx"]
--- more_headers eval
["Idempotency-Key: 123", "Idempotency-Key: 1234",
 "Idempotency-Key: 1234", "Idempotency-Key: 12345",
 "Idempotency-Key: 12345",
 "Idempotency-Key: 1234", "Idempotency-Key: 12345"]
--- error_code eval
[200, 400, 200, 400, 200, 200, 400]
--- response_headers eval
["!Link", 'Link: <http://server/>; rel="describedby"',
 "!Link", 'Link: <http://location/>; rel="describedby"',
 "!Link",
 "!Link", 'Link: <http://location/>; rel="describedby"']



=== TEST 135: off by default
--- config
    location /pay {
        proxy_pass http://up;
        add_header X-Result $idempotency_result;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["X-Result: off", "X-Result: off"]
--- executions: a b



=== TEST 136: on, it protects POST and PATCH and nothing else
--- config
    location /pay {
        idempotency main;
        proxy_pass http://up;
        add_header X-Result $idempotency_result always;
    }
--- request eval
["POST /pay\nx", "PATCH /pay\nx", "PUT /pay\nx", "DELETE /pay",
 "GET /pay", "HEAD /pay", "OPTIONS /pay", "MKCOL /pay"]
--- error_code eval
[400, 400, 200, 200, 200, 200, 200, 200]
--- response_headers eval
["X-Result: missing", "X-Result: missing", ("X-Result: off") x 6]



=== TEST 137: the methods of the directive and no other
--- config
    location /pay {
        idempotency main;
        idempotency_methods PUT DELETE;
        proxy_pass http://up;
        add_header X-Result $idempotency_result always;
    }
--- request eval
["POST /pay\nx", "PATCH /pay\nx", "PUT /pay\nx", "DELETE /pay", "GET /pay",
 "PUT /pay\nx", "PUT /pay\nx", "DELETE /pay", "DELETE /pay"]
--- more_headers eval
[("X: x") x 5, ("Idempotency-Key: k") x 4]
--- error_code eval
[200, 200, 400, 400, 200, 200, 200, 200, 200]
--- response_headers eval
[("X-Result: off") x 2, ("X-Result: missing") x 2, "X-Result: off",
 "X-Result: new", "X-Result: replayed", "X-Result: new", "X-Result: replayed"]
--- executions: a b - - c d d e e



=== TEST 138: everything at once, as a user might write it
--- config
    location /pay {
        idempotency             main;
        idempotency_key         $http_idempotency_key;
        idempotency_source      $client;
        idempotency_scope       "$request_method $uri";
        idempotency_methods     POST PATCH PUT DELETE;
        idempotency_required    on;
        idempotency_max_key     64;
        idempotency_fingerprint raw with=$is_args$args;
        idempotency_duplicate   replay;
        idempotency_ttl         24h tombstone=30d;
        idempotency_lease       30s;
        idempotency_final       200-499 500 501;
        idempotency_retryable   401 403 407 408 425 429 503;
        idempotency_max_response 1m;
        idempotency_hide_header Set-Cookie X-Request-Id;
        idempotency_hide_header X-Trace;
        idempotency_describedby https://example.com/idempotency;
        idempotency_log_level   warn;
        proxy_pass http://up;
    }
--- request eval
["POST /pay\nx", "POST /pay\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200]
--- response_headers eval
["!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a a



=== TEST 139: two stores do not share
--- http_config eval
"idempotency_store other shm:1m;\n" . $main::HttpConfig
--- config
    idempotency_scope "";
    location /a {
        idempotency main;
        proxy_pass http://up;
    }
    location /b {
        idempotency other;
        proxy_pass http://up;
    }
    location /c {
        idempotency main;
        proxy_pass http://up;
    }
--- request eval
["POST /a\nx", "POST /b\nx", "POST /c\nx"]
--- more_headers
Idempotency-Key: k
--- error_code eval
[200, 200, 200]
--- response_headers eval
["!Idempotent-Replayed", "!Idempotent-Replayed", "Idempotent-Replayed: true"]
--- executions: a b a



=== TEST 140: in progress "wait"
--- wrong
idempotency_in_progress wait;
--- error_log
invalid value "wait" in "idempotency_in_progress"
it must be "reject", "reject=409", "reject=425", "reject=503", or a time, as in "wait=5s"



=== TEST 141: in progress "wait="
--- wrong
idempotency_in_progress wait=;
--- error_log
invalid value "wait=" in "idempotency_in_progress"
it must be "reject", "reject=409", "reject=425", "reject=503", or a time, as in "wait=5s"



=== TEST 142: in progress "wait=0"
--- wrong
idempotency_in_progress wait=0;
--- error_log
invalid value "wait=0" in "idempotency_in_progress"
it must be "reject", "reject=409", "reject=425", "reject=503", or a time, as in "wait=5s"



=== TEST 143: in progress "wait=soon"
--- wrong
idempotency_in_progress wait=soon;
--- error_log
invalid value "wait=soon" in "idempotency_in_progress"
it must be "reject", "reject=409", "reject=425", "reject=503", or a time, as in "wait=5s"



=== TEST 144: in progress "queue"
--- wrong
idempotency_in_progress queue;
--- error_log
invalid value "queue" in "idempotency_in_progress"
it must be "reject", "reject=409", "reject=425", "reject=503", or a time, as in "wait=5s"



=== TEST 145: in progress "reject=500"
--- wrong
idempotency_in_progress reject=500;
--- error_log
invalid value "reject=500" in "idempotency_in_progress"



=== TEST 146: in progress twice
--- wrong
idempotency_in_progress reject;
idempotency_in_progress wait=5s;
--- error_log
"idempotency_in_progress" directive is duplicate



=== TEST 147: a ttl of a century
--- wrong
idempotency_ttl 100y;
--- error_log
invalid time "100y" in "idempotency_ttl"
68 years at most



=== TEST 148: a tombstone of a century
--- wrong
idempotency_ttl 1d tombstone=100y;
--- error_log
invalid time "100y" in "idempotency_ttl"
68 years at most



=== TEST 149: a key without a variable is most likely a mistake
--- wrong
idempotency_key order;
idempotency_ttl 100y;
--- error_log
[warn]
"idempotency_key" "order" has no variable
all requests of a source have the same key



=== TEST 150: idempotency is not switched on, it gets a store
--- wrong_location
idempotency on;
idempotency_source $remote_addr;
--- error_log
is not the name of a store: name one there, as in "idempotency pay;"
add "idempotency_store pay shm:10m;" to http{}



=== TEST 151: a source that nobody has
--- wrong_location
idempotency main;
idempotency_source "";
proxy_pass http://127.0.0.1:1;
--- error_log
"idempotency" is on in location "/pay" without "idempotency_source": name what tells one client from another



=== TEST 152: a largest response that Redis is not sent
--- wrong_http
idempotency_store main redis://127.0.0.1:1;
--- wrong
idempotency_max_response 65m;
--- error_log
"idempotency_max_response" is 68157440 bytes in location "/pay"
the store "main" is in Redis and takes 67108864 at most
set it to "64m" or less



=== TEST 153: the same, inherited, and the store is defined later
--- wrong_http
idempotency_max_response 67108865;
server {
    listen 127.0.0.1:$TEST_NGINX_SERVER_PORT;
    location = /a {
        idempotency later;
        idempotency_source $remote_addr;
    }
}
idempotency_store later redis://127.0.0.1:1;
--- error_log
"idempotency_max_response" is 67108865 bytes in location "/a"
the store "later" is in Redis and takes 67108864 at most



=== TEST 154: a cache that would send requests in the background
--- wrong_http
idempotency_store main shm:4m;
proxy_cache_path $TEST_NGINX_SERVER_ROOT/cache keys_zone=c:1m;
--- wrong
proxy_pass http://127.0.0.1:1;
proxy_cache c;
proxy_cache_methods POST;
proxy_cache_use_stale updating;
proxy_cache_background_update on;
--- error_log
a "cache_background_update" directive of location "/pay" would send requests behind answers of the cache



=== TEST 155: a cache in the background of other methods
--- http_config
idempotency_store main shm:4m;
proxy_cache_path $TEST_NGINX_SERVER_ROOT/cache keys_zone=c:1m;
--- config
location /pay {
    idempotency main;
    idempotency_source $remote_addr;
    proxy_pass http://127.0.0.1:1;
    proxy_cache c;
    proxy_cache_background_update on;
}
location /t { return 200; }
--- request
GET /t



=== TEST 156: a marker of replays with a name that no header has
--- wrong
idempotency_replayed_header "X Replayed";
--- error_log
invalid name "X Replayed" in "idempotency_replayed_header"
it must be that of a header, as in "X-Name", or "off"



=== TEST 157: an expiry without a name
--- wrong
idempotency_expires_header "";
--- error_log
invalid name "" in "idempotency_expires_header"
it must be that of a header, as in "X-Name", or "off"



=== TEST 158: a marker of replays that is a header of nginx
--- wrong
idempotency_replayed_header content-length;
--- error_log
invalid name "content-length" in "idempotency_replayed_header"
that header has a meaning of its own



=== TEST 159: one name for two headers, of which one is inherited
--- wrong_http
idempotency_store main shm:4m;
idempotency_expires_header X-Key;
--- wrong
idempotency_replayed_header x-key;
--- error_log
"idempotency_replayed_header" and "idempotency_expires_header" are both "X-Key"
they need names of their own or "off"



=== TEST 160: a marker of replays twice
--- wrong
idempotency_replayed_header off;
idempotency_replayed_header X-Replayed;
--- error_log
"idempotency_replayed_header" directive is duplicate



=== TEST 161: two policies in a location
--- wrong
idempotency_policy;
idempotency_policy;
--- error_log
"idempotency_policy" directive is duplicate



=== TEST 162: a policy and statistics in a location
--- wrong
idempotency_stats;
idempotency_policy;
--- error_log
"idempotency_policy" directive is in a location that has another handler



=== TEST 163: suspects of another kind
--- wrong
idempotency_suspect on;
--- error_log
invalid value "on" in "idempotency_suspect", it must be "off", "report" or "reject"



=== TEST 164: suspects with a window that is none
--- wrong
idempotency_suspect reject window=soon;
--- error_log
invalid parameter "window=soon" in "idempotency_suspect", it takes a time, as in "window=2m"



=== TEST 165: suspects with an empty window
--- wrong
idempotency_suspect report window=;
--- error_log
invalid parameter "window=" in "idempotency_suspect"



=== TEST 166: suspects with another parameter
--- wrong
idempotency_suspect report for=2m;
--- error_log
invalid parameter "for=2m" in "idempotency_suspect"



=== TEST 167: suspects twice
--- wrong
idempotency_suspect report;
idempotency_suspect off;
--- error_log
"idempotency_suspect" directive is duplicate



=== TEST 168: suspects without a fingerprint
--- wrong
idempotency_suspect report;
idempotency_fingerprint off;
--- error_log
"idempotency_suspect" is on in location "/pay" where "idempotency_fingerprint" is off



=== TEST 169: suspects of a sequence
--- wrong
idempotency_suspect report;
idempotency_sequence increasing;
--- error_log
"idempotency_suspect" and "idempotency_sequence" are both on in location "/pay"



=== TEST 170: a window longer than the ttl
--- wrong
idempotency_suspect report;
idempotency_ttl 1m tombstone=59s;
--- error_log
"idempotency_suspect" has "window=120s" in location "/pay", and "idempotency_ttl" keeps requests for 119 seconds only



=== TEST 171: suspects are inherited, and may be switched off
--- http_config
idempotency_store main shm:4m;
idempotency_source $remote_addr;
idempotency_suspect reject window=1m;
idempotency_suspect_allow $arg_a $arg_b;
--- config
location /pay {
    idempotency main;
    idempotency_ttl 1m;
    proxy_pass http://127.0.0.1:1;
}
location /off {
    idempotency main;
    idempotency_suspect off;
    idempotency_ttl 1s;
    idempotency_fingerprint off;
    proxy_pass http://127.0.0.1:1;
}
location /t { return 200; }
--- request
GET /t
