#!/usr/bin/env python3
"""The configurations of docs/keys.md and docs/security.md work when pasted:
only addresses are others.  Each answers a request, replays it, and tells a
second operation from the first.
"""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (MODULE, TOP, Gateway, Ledger, finish,  # noqa: E402
                     ok, same)

# a request for each, a retry that is not the same bytes, another operation
JSON = ('Content-Type', 'application/json')
FORM = ('Content-Type', 'application/x-www-form-urlencoded')
AUTH = ('Authorization', 'Bearer me')

REQUESTS = {
    'A header of its own': (
        ((AUTH,), b'x', 'k1'), ((AUTH,), b'x', 'k1'), ((AUTH,), b'x', 'k2')),
    'An order number in a JSON body': (
        ((JSON,), b'{"merchant":{"id":"m-7"},"order_no":"A-1","amount":5,'
                  b'"nonce":"x"}', None),
        ((JSON,), b'{"nonce":"y","order_no":"A-1","amount":5.0,'
                  b'"merchant":{"id":"m-7"},"sign":"z"}', None),
        ((JSON,), b'{"merchant":{"id":"m-7"},"order_no":"A-2"}', None)),
    'An order number in a form': (
        ((FORM,), b'mch_id=m-7&out_trade_no=A-1&amount=5&nonce_str=x', None),
        ((FORM,), b'sign=z&amount=5&out_trade_no=A-1&mch_id=m-7', None),
        ((FORM,), b'mch_id=m-8&out_trade_no=A-1&amount=5', None)),
    'Whatever the client sends': (
        ((AUTH, FORM), b'order_no=A-1', None),
        ((AUTH, FORM), b'order_no=A-1', None),
        ((AUTH, JSON), b'{"order_no":"A-2"}', None)),
    'Sealing': (
        ((AUTH,), b'x', 'k1'), ((AUTH,), b'x', 'k1'), ((AUTH,), b'x', 'k2')),
}


class Pasted(Gateway):
    """a gateway whose http{} is the text of a page"""

    def __init__(self, up, text):
        self.text = text
        super().__init__(up)

    def write(self, **changes):
        key = self.root + '/first.key'
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), 'wb') as f:
            f.write(os.urandom(32))
        text = self.text.replace('listen 8080;',
                                 'listen 127.0.0.1:%d;' % self.port)
        text = text.replace('127.0.0.1:9000',
                            '127.0.0.1:%d' % self.conf['up'])
        text = text.replace('/etc/nginx/idempotency/first.key', key)
        text = text.replace('http {', 'http {\n    access_log off;\n' + ''.join(
            '    %s_temp_path %s/%s;\n' % (name, self.root, name)
            for name in ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi')))
        text = re.sub(r'(idempotency_store pay) \S+;',
                      r'\1 %s;' % self.default_store('1m'), text)
        with open(self.root + '/nginx.conf', 'w') as f:
            f.write('load_module %s;\n%s\nerror_log %s/error.log info;\n'
                    'pid %s/nginx.pid;\nevents {}\n%s'
                    % (MODULE, self.conf['user'], self.root, self.root, text))


def blocks(page):
    """heading and text of each http{} on a page"""
    with open(TOP + '/docs/' + page) as f:
        heading, block = None, []
        for line in list(f) + ['end\n']:
            if line.startswith('#'):
                heading = line.lstrip('#').strip()
            if line.startswith('    http {') or block:
                if line.strip() and not line.startswith('    '):
                    yield heading, ''.join(block)
                    block = []
                else:
                    block.append(line[4:] if line.strip() else '\n')
                    if line.rstrip() == '    }':
                        yield heading, ''.join(block)
                        block = []


seen = []
for page in ('keys.md', 'security.md'):
    for heading, text in blocks(page):
        seen.append(heading)
        if heading not in REQUESTS:
            ok(False, 'no request for ' + heading)
            continue
        up = Ledger()
        gw = Pasted(up, text)
        first, again, other = [
            gw.post('/pay', key, body=body, headers=headers)
            for headers, body, key in REQUESTS[heading]]
        same((first.status, first.replayed), (201, False),
             heading + ': the first')
        same((again.status, again.body, again.replayed),
             (201, first.body, True), heading + ': the retry replays')
        same((other.status, other.replayed), (201, False),
             heading + ': another operation')
        same(len(up.entries), 2, heading + ': executed twice in all')
        gw.stop()
same(sorted(seen), sorted(REQUESTS), 'all of them were there')
finish()
