#!/usr/bin/env python3
"""Error pages of subrequests do not execute the operation.

A mirror or an auth_request whose server is away inherits the error_page of
server{}.  If that leads to the location that executes requests, the operation
would be executed beside the request itself, or before the client was let in.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish, free_port,  # noqa: E402
                     ok, same, until)

up, other = Ledger(), Ledger()
away = free_port()
SAID = 'a subrequest is not sent to a protected location'

gw = Gateway(up, locations='''
    error_page 502 504 = @backup;

    location @backup {
        idempotency main;
        proxy_method $request_method;
        proxy_pass http://up;
    }
    location /mirrored/ {
        idempotency main;
        mirror /copy;
        proxy_pass http://up;
    }
    location /asked/ {
        idempotency main;
        auth_request /check;
        proxy_pass http://up;
    }
    location /own-page/ {
        idempotency main;
        auth_request /check-twice;
        proxy_pass http://up;
    }
    location /dry/ {
        idempotency main;
        idempotency_dry_run on;
        mirror /copy-dry;
        proxy_pass http://up;
    }
    location = /copy {
        internal;
        proxy_pass http://127.0.0.1:%(away)d;
    }
    location = /check {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://127.0.0.1:%(away)d;
    }
    location = /check-twice {
        internal;
        idempotency main;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://127.0.0.1:%(away)d;
        error_page 502 = @check-twice;
    }
    location @check-twice {
        idempotency off;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        rewrite ^ /ok break;
        proxy_pass http://127.0.0.1:%(other)d;
    }
    location = /copy-dry {
        internal;
        proxy_pass http://127.0.0.1:%(away)d;
        error_page 502 = @dry;
    }
    location @dry {
        idempotency main;
        idempotency_dry_run on;
        proxy_pass http://127.0.0.1:%(other)d;
    }
''' % dict(away=away, other=other.port))


def times(text):
    return gw.log().count(text)


def test_mirror():
    same(gw.post('/mirrored/ok', 'mirrored').status, 201, 'a mirror is away')
    ok(until(lambda: times(SAID) == 1), 'mirror: the log has it', gw.log())
    ok(gw.post('/mirrored/ok', 'mirrored').replayed, 'mirror: a replay')
    executed(up, 'mirrored', 1, 'a mirror is away')


def test_auth_request():
    before = times(SAID)
    for _ in range(3):
        same(gw.post('/asked/ok', 'asked').status, 500,
             'auth_request is away: its error')
    same(times(SAID), before + 3, 'auth_request: the log has it')
    executed(up, 'asked', 0, 'auth_request is away')

    # a location of its own for the second server, without idempotency
    same(gw.post('/own-page/ok', 'own').status, 201, 'a second auth server')
    executed(up, 'own', 1, 'a second auth server')
    same(times(SAID), before + 3, 'a second auth server: it is asked')


def test_dry_run():
    before = times(SAID)
    same(gw.post('/dry/ok', 'dry').status, 201, 'a dry run')
    ok(until(lambda: other.count('dry') == 1), 'dry run: nothing is changed')
    same(times(SAID), before, 'dry run: nothing is said')


test_mirror()
test_auth_request()
test_dry_run()
gw.stop()
finish()
