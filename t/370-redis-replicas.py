#!/usr/bin/env python3
"""With replicas=N a claim counts only when N replicas have it.

With too few of them the claim is taken back, the request is refused with 503
and nothing is executed; requests that were running end with their answers, and
the missing acknowledgement is logged.  One WAIT is sent for all simultaneous
writes: many requests do not wait longer than one.
"""

import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from fakeredis import Fake, answer, granted, is_claim, owner  # noqa: E402
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, refused, replays, same, since, until)
from redisd import Redis  # noqa: E402

HTTP = '''
    idempotency_store red redis://127.0.0.1:%d replicas=2:%s timeout=%s;
'''

LOCATIONS = '''
    location /pay/ {
        idempotency red;
        proxy_pass http://up;
    }
    location /pass/ {
        idempotency red;
        idempotency_store_error pass;
        proxy_pass http://up;
    }
'''


def calls(server, name):
    text = server('INFO', 'commandstats').decode()
    found = re.search(r'cmdstat_%s:calls=(\d+)' % name, text)
    return int(found.group(1)) if found else 0


def follow(replicas):
    return until(lambda: all(r('ROLE')[3] == b'connected' for r in replicas),
                 20) and replicas[0].master('WAIT', len(replicas), 5000)


def enough(gw, up, master, replicas):
    first = gw.post('/pay/ok', 'enough')
    same(first.status, 201, 'enough')
    replays(gw, '/pay/ok', 'enough', first, 'enough')
    executed(up, 'enough', 1, 'enough')
    ok(calls(master, 'wait') >= 3, 'enough: the server was told to wait',
       calls(master, 'wait'))
    for replica in replicas:
        ok(len(replica('KEYS', 'idem:' + '[0-9a-f]' * 20 + '*')) == 1,
           'enough: a replica has the record')


def together(gw, up, master):
    """Those who ask at the same time wait together."""
    before = calls(master, 'wait'), calls(master, 'evalsha')
    all_ = [background(gw.post, '/pay/ok', 'together-%d' % i)
            for i in range(40)]
    answers = [a.join() for a in all_]
    same({a.status for a in answers}, {201}, 'together: all are answered')
    waits = calls(master, 'wait') - before[0]
    scripts = calls(master, 'evalsha') - before[1]
    ok(waits <= scripts + 20, 'together: %d scripts, %d times WAIT'
       % (scripts, waits))


def too_few(gw, up, master, replicas):
    first = background(gw.post, '/pay/wait', 'few-running')
    up.until('few-running')

    replicas[1].pause()
    begin = time.time()
    refused(gw, '/pay/ok', 'few-new', 'store_unavailable',
            'too few: a new key is refused', status=503)
    refused(gw, '/pass/ok', 'few-pass', 'store_unavailable',
            'too few: also where a store that is away is passed by',
            status=503)
    executed(up, 'few-new', 0, 'too few: a new key')
    executed(up, 'few-pass', 0, 'too few: one that might pass')
    ok('1 of 2 replicas have acknowledged' in gw.log(),
       'too few: it is logged')

    many = [background(gw.post, '/pay/ok', 'few-%d' % i) for i in range(30)]
    answers = [m.join() for m in many]
    same({(a.status, a.code) for a in answers},
         {(503, 'store_unavailable')}, 'too few: all are refused')
    ok(since(begin) < 15, 'too few: nobody waits for long: %.1f s'
       % since(begin))
    ok('timed out' not in gw.log(), 'too few: and nothing times out')

    up.go()
    done = first.join()
    same(done.status, 201, 'too few: who had run has the answer')
    replays(gw, '/pay/wait', 'few-running', done, 'too few')
    up.hold()

    replicas[1].resume()
    follow(replicas)
    ok(until(lambda: gw.post('/pay/ok', 'few-new').status == 201, 10, 0.1),
       'too few: the key is taken when they are back')
    executed(up, 'few-new', 1, 'too few: then')
    ok('replicas acknowledge again' in gw.log(), 'too few: that is logged too')


def taken_back(gw, master):
    """No claim of theirs is left, nobody is told "in progress"."""
    answers = [gw.post('/pay/ok', 'few-%d' % i) for i in range(5)]
    same({a.status for a in answers}, {201},
         'taken back: the keys of the refused are free')


def lies(up):
    """What is no number of replicas is no acknowledgement."""
    fake = Fake()
    fake.reply = lambda args: granted(args) if is_claim(args) \
        else answer(0, owner=owner(args))
    gw = Gateway(up, locations=LOCATIONS,
                 http=HTTP % (fake.port, '300ms', '1s'))

    for n, (said, status) in enumerate((
            (b':2\r\n', 201), (b':1\r\n', 503), (b':0\r\n', 503),
            (b':-1\r\n', 503), (b':99999999999\r\n', 201),
            (b'-ERR WAIT cannot be used\r\n', 503), (b'$1\r\n2\r\n', 503),
            (b'+OK\r\n', 503), (b'*0\r\n', 503))):
        fake.login = lambda args: said if args[0] == b'WAIT' else b'+OK\r\n'
        same(gw.post('/pay/ok', 'lie-%d' % n).status, status,
             'WAIT is answered with %r' % said)
        executed(up, 'lie-%d' % n, 1 if status == 201 else 0, repr(said))

    fake.login = lambda args: b'' if args[0] == b'WAIT' else b'+OK\r\n'
    same(gw.post('/pay/ok', 'lie-silent').status, 503, 'WAIT has no answer')
    executed(up, 'lie-silent', 0, 'no answer')
    gw.stop()


def main():
    up = Ledger()
    master = Redis('--repl-diskless-sync-delay', '0')
    replicas = [Redis('--replicaof', '127.0.0.1 %d' % master.port)
                for _ in range(2)]
    for replica in replicas:
        replica.master = master
    follow(replicas)
    gw = Gateway(up, locations=LOCATIONS,
                 http=HTTP % (master.port, '800ms', '5s'))
    enough(gw, up, master, replicas)
    together(gw, up, master)
    too_few(gw, up, master, replicas)
    taken_back(gw, master)
    gw.stop()
    lies(up)
    finish()


main()
