#!/usr/bin/env python3
"""The configurations of docs/keys.md and docs/security.md work when pasted:
only addresses are others.  Each answers a request, replays it, and tells a
second operation from the first.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import Ledger, finish, ok, same  # noqa: E402
from pages import Page  # noqa: E402
from pasted import blocks  # noqa: E402

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


seen = []
for page in ('docs/keys.md', 'docs/security.md'):
    for block in blocks(page):
        if not block.text.startswith('http {'):
            continue
        heading = block.heading
        seen.append(heading)
        if heading not in REQUESTS:
            ok(False, 'no request for ' + heading)
            continue
        up = Ledger()
        gw = Page(up, block.text)
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
