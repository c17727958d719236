#!/usr/bin/env python3
"""The configurations of the pages work as they are pasted.

Each block that begins with "http {" is run, with no change but that of the two
ports; then the gateway does what its page says.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (MODULE, NGINX, REDIS, TOP, Client, Ledger,  # noqa: E402
                     finish, free_port, ok, same, until)

up = Ledger()


def blocks(page):
    with open(TOP + '/docs/' + page) as f:
        text = f.read()
    found = re.findall(r'^    http \{\n.*?^    \}\n', text, re.M | re.S)
    return [re.sub('^    ', '', block, flags=re.M) for block in found]


class Pasted:
    def __init__(self, block):
        self.root = tempfile.mkdtemp(prefix='page-', dir=TOP + '/build')
        self.port = free_port()
        block = block.replace('listen 8080;',
                              'listen 127.0.0.1:%d;' % self.port)
        block = block.replace('127.0.0.1:9000', '127.0.0.1:%d' % up.port)
        if REDIS:
            block = re.sub(r'shm:\w+', '%s prefix=%s:' % (
                REDIS, os.path.basename(self.root)), block)
        paths = ''.join('%s_temp_path %s/%s;\n' % (x, self.root, x) for x in
                        ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'))
        block = block.replace('http {\n', 'http {\naccess_log off;\n' + paths,
                              1)
        os.mkdir(self.root + '/logs')
        with open(self.root + '/nginx.conf', 'w') as f:
            f.write('load_module %s;\n%serror_log %s/error.log;\n'
                    'pid %s/nginx.pid;\ndaemon off;\nevents { }\n%s'
                    % (MODULE, 'user root;\n' if os.getuid() == 0 else '',
                       self.root, self.root, block))
        self.nginx = subprocess.Popen([NGINX, '-p', self.root, '-c',
                                       self.root + '/nginx.conf'])
        until(self.listens, 10)

    def listens(self):
        try:
            self.post('/nothing')
            return True
        except OSError:
            return self.nginx.poll() is not None

    def post(self, path, key=None, body=b'x', **headers):
        return Client(self.port, path, key, body, 'POST',
                      [(n.replace('_', '-'), v) for n, v in headers.items()]
                      ).read()

    def stop(self, name):
        running = self.nginx.poll() is None
        if running:
            self.nginx.terminate()
            self.nginx.wait(20)
        shutil.rmtree(self.root, ignore_errors=True)
        ok(running, name + ': it runs until it is stopped')


# ---- profiles.md ----

stripe, acp = blocks('profiles.md')

gw = Pasted(stripe)
a = gw.post('/v1/charges/ok', 'k', Authorization='me')
b = gw.post('/v1/charges/ok', 'k', Authorization='me')
c = gw.post('/v1/charges/ok', 'k', b'y', Authorization='me')
d = gw.post('/v1/charges/ok', None, Authorization='me')
same((a.status, b.status, b.replayed, c.status, c.code, d.status),
     (201, 201, True, 400, 'key_reused', 201), 'profiles.md: stripe')
gw.stop('profiles.md')

gw = Pasted(acp)
json_type = {'Authorization': 'me', 'Content_Type': 'application/json'}
a = gw.post('/checkout_sessions/ok', 'k', b'{"a":1,"b":null}', **json_type)
b = gw.post('/checkout_sessions/ok', 'k', b'{"a":1}', **json_type)
c = gw.post('/checkout_sessions/ok', None, b'{"a":1}', **json_type)
d = gw.post('/checkout_sessions/ok', 'k', b'{"b": null, "a": 1.0}', **json_type)
same((a.status, b.status, b.code, c.status, c.code, d.status, d.replayed),
     (201, 422, 'idempotency_conflict', 400, 'idempotency_key_required', 201,
      True), 'profiles.md: acp')
gw.stop('profiles.md')

# ---- tokens.md ----

config, = blocks('tokens.md')
gw = Pasted(config)
token = gw.post('/token', Authorization='me')
same((token.status, json.loads(token.body).get('expires_in')), (200, 600),
     'tokens.md: a token')
token = json.loads(token.body)['token']
a = gw.post('/pay/ok', token, Authorization='you')
b = gw.post('/pay/ok', token, Authorization='me')
c = gw.post('/pay/ok', token, Authorization='me')
same((a.status, a.code, b.status, c.status, c.replayed),
     (403, 'not_issued', 201, 201, True), 'tokens.md: is spent by its own')
gw.stop('tokens.md')

# ---- sequences.md ----

config, = blocks('sequences.md')
gw = Pasted(config)
answers = [gw.post('/transfers/ok', Producer='till-7', Epoch=e, Sequence=n)
           for e, n in (('1', '1'), ('1', '2'), ('1', '2'), ('1', '4'),
                        ('2', '1'), ('1', '3'))]
same([(a.status, a.code or a.replayed) for a in answers],
     [(201, False), (201, False), (201, True), (409, 'out_of_order'),
      (201, False), (409, 'out_of_order')], 'sequences.md')
same(json.loads(answers[3].body).get('expected'), 3,
     'sequences.md: the number that is expected')
gw.stop('sequences.md')

finish()
