# What the tests of the HTTP contract share. A file says
#
#     use Test::Nginx::Socket 'no_plan';
#     require './t/lib/contract.pl';
#
# and has then, unless a block says otherwise:
#
#     http_config     the store "main", the source $http_client or else
#                     "somebody", and the upstream "up", whose answer tells
#                     what it got, and an id that is new with each execution
#     no_error_log    [alert], [crit], [emerg]
#
# A section "executions" has a word for each request of the block: where the
# words are the same, the bodies must be the same, and where they differ, the
# bodies must differ. "-" is any body.

use strict;
use warnings;
no warnings 'once';

repeat_each(1);
no_shuffle();
no_long_string();
log_level('info');

$ENV{TEST_NGINX_HTML_DIR} ||= html_dir();

our $Upstream = <<'_EOC_';
    upstream up {
        server unix:$TEST_NGINX_HTML_DIR/up.sock;
    }

    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        default_type text/plain;
        client_max_body_size 30M;

        location / {
            return 200 "$request_method $request_uri $request_id\n";
        }
_EOC_

our $HttpConfig = <<'_EOC_' . $Upstream . "    }\n";
    idempotency_store main shm:4m;

    map $http_client $client {
        ""       somebody;
        default  $http_client;
    }

    idempotency_source $client;
_EOC_

add_block_preprocessor(sub {
    my $block = shift;

    if (!defined $block->http_config && defined $block->config) {
        $block->set_value('http_config', $HttpConfig);
    }

    if (!defined $block->no_error_log && !defined $block->must_die) {
        $block->set_value('no_error_log', "[alert]\n[crit]\n[emerg]\n");
    }
});

my (%body_of, $block_of);

add_response_body_check(sub {
    my ($block, $body, $request, undef, $dry_run) = @_;

    return if $dry_run || !defined $block->executions;

    if (!defined $block_of || $block_of ne $block->name) {
        $block_of = $block->name;
        %body_of = ();
    }

    my $name = $block->name;
    my $word = (split ' ', $block->executions)[$request];

    return if $word eq '-';

    if (exists $body_of{$word}) {
        Test::More::is($body, $body_of{$word},
                       "$name - answer $request is that of $word");
        return;
    }

    Test::More::ok(!(grep { $_ eq $body } values %body_of),
                   "$name - answer $request is a new one");
    $body_of{$word} = $body;
});

1;
