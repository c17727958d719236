#!/usr/bin/env python3
"""docs/operations.md: the migration from the embedded store to Redis, without
a pause and without a key that is executed twice; Redis runs with the settings
of that page.
"""

import base64
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import Ledger, executed, finish, ok, same, until  # noqa: E402
from pages import Page  # noqa: E402
from pasted import blocks  # noqa: E402
from redis_binary import skipped  # noqa: E402
from redisd import Redis  # noqa: E402

HEADING = 'Migrating from the embedded store to Redis'
page = blocks('docs/operations.md')

server = Redis()
for block in page:
    if block.text.startswith('maxmemory '):
        for line in block.text.split('\n'):
            name, value = line.split()
            server('CONFIG', 'SET', name, value)
    if block.text.startswith('ACL ') \
            and not skipped('the user of the ACL', 'acl'):
        server(*block.text.split())
        ok(b'gateway' in server('ACL', 'USERS'), 'the user of the ACL')
same(server('CONFIG', 'GET', 'appendfsync')[1], b'always', 'the settings')
server('CONFIG', 'SET', 'min-replicas-to-write', '0')    # it has none

during, = [b.text for b in page if b.heading == HEADING]
BEFORE = '''http {
    idempotency_store old shm:64m;
    server {
        listen 8080;
        location /pay {
            auth_basic           "payments";
            auth_basic_user_file /etc/nginx/users;

            idempotency        old;
            idempotency_source $remote_user;
            proxy_pass http://127.0.0.1:9000;
        }
    }
}
'''
AFTER = BEFORE.replace('old shm:64m', 'pay redis://10.0.0.5:6379') \
              .replace('old;', 'pay;')


class Moving(Page):
    def default_store(self, size):
        return None           # as the page has them

    def write(self):
        page = self.text
        self.text = page.replace('10.0.0.5:6379', '127.0.0.1:%d' % server.port) \
            .replace('/run/nginx-idempotency-old.sock', self.root + '/old.sock')
        super().write()
        self.text = page

    def change(self, text):
        before = self.workers()
        self.text = text
        self.write()
        self.signal(signal.SIGHUP)
        ok(until(lambda: self.workers()
                 and not set(self.workers()) & set(before), 20), 'a reload')


ALICE = 'Basic ' + base64.b64encode(b'alice:secret').decode()

up = Ledger()
gw = Moving(up, BEFORE)


def pay(key, do='ok', body=b'x'):
    return gw.send('/pay/' + do, key, body, Authorization=ALICE)


old = pay('old')
same(pay('lost', 'reset').status, 502, 'an outcome that is unknown')
same((pay('busy', 'status/503').status, old.status), (503, 201),
     'one that is released, and one that is done')

gw.change(during)
again = pay('old')
same((again.body, again.replayed), (old.body, True), 'the old store knows it')
same((pay('lost', 'reset').code, pay('lost', 'reset').code),
     ('outcome_unknown',) * 2, 'also that it does not know')
same(pay('old', body=b'y').status, 422, 'another body, in the old store')
same(pay('old').body, old.body, 'and that has changed nothing')
same(pay('busy', 'status/503').status, 503, 'what was released is executed')
new = pay('new')
same((new.status, pay('new').body), (201, new.body), 'new keys are in both')
same(pay('gone', 'reset').status, 502, 'a new outcome that is unknown')
same(pay('gone', 'reset').code, 'outcome_unknown', 'is held by the old one')

gw.change(AFTER)
same([(a.body, a.replayed) for a in (pay('old'), pay('new'))],
     [(old.body, True), (new.body, True)], 'Redis has all that was asked for')
for key, n in (('old', 1), ('new', 1), ('lost', 1), ('gone', 1), ('busy', 2)):
    executed(up, key, n, key)
gw.stop()
finish()
