#!/usr/bin/env python3
"""The configurations of these pages work as they are pasted: keys, body-keys,
policy, security, payment-apis, profiles, tokens, sequences.

Each block that begins with "http {" is run, with no change but that of the two
ports; then the gateway does what its page says.
"""

import base64
import json
import os
import sys
from email.utils import formatdate

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import Ledger, finish, ok, same  # noqa: E402
from pages import Page  # noqa: E402
from pasted import blocks  # noqa: E402

up = Ledger()


def configurations(page):
    """of a page, each with its heading"""
    return [(block.heading, block.text) for block in blocks('docs/' + page)
            if block.text.startswith('http {')]


# ---- keys, policy, security, payment-apis ----

# a request for each, a retry that is not the same bytes, another operation
JSON = ('Content-Type', 'application/json')
FORM = ('Content-Type', 'application/x-www-form-urlencoded')
BASIC = {user: 'Basic ' + base64.b64encode(
             (user + ':secret').encode()).decode() for user in ('alice', 'bob')}
AUTH = ('Authorization', BASIC['alice'])
BEARER = ('Authorization', 'Bearer me')

REQUESTS = {
    'Key in a header': (
        ((AUTH,), b'x', 'k1'), ((AUTH,), b'x', 'k1'), ((AUTH,), b'x', 'k2')),
    'Key in a JSON body': (
        ((JSON,), b'{"merchant":{"id":"m-7"},"order_no":"A-1","amount":5,'
                  b'"nonce":"x"}', None),
        ((JSON,), b'{"nonce":"y","order_no":"A-1","amount":5.0,'
                  b'"merchant":{"id":"m-7"},"sign":"z"}', None),
        ((JSON,), b'{"merchant":{"id":"m-7"},"order_no":"A-2"}', None)),
    'Key in a form': (
        ((FORM,), b'mch_id=m-7&out_trade_no=A-1&amount=5&nonce_str=x', None),
        ((FORM,), b'sign=z&amount=5&out_trade_no=A-1&mch_id=m-7', None),
        ((FORM,), b'mch_id=m-8&out_trade_no=A-1&amount=5', None)),
    'Key in a header, a JSON body or a form': (
        ((AUTH, FORM), b'order_no=A-1', None),
        ((AUTH, FORM), b'order_no=A-1', None),
        ((AUTH, JSON), b'{"order_no":"A-2"}', None)),
    'PayPal': (
        ((BEARER, ('PayPal-Request-Id', 'p-1')), b'x', None),
        ((BEARER, ('PayPal-Request-Id', 'p-1')), b'x', None),
        ((BEARER, ('PayPal-Request-Id', 'p-2')), b'x', None)),
    'Square': (
        ((BEARER, JSON), b'{"idempotency_key":"s-1","amount":5}', None),
        ((BEARER, JSON), b'{"amount":5, "idempotency_key":"s-1"}', None),
        ((BEARER, JSON), b'{"idempotency_key":"s-2","amount":5}', None)),
    'Adyen': (
        ((BEARER,), b'x', 'a-1'), ((BEARER,), b'x', 'a-1'),
        ((BEARER,), b'x', 'a-2')),
    'Checkout.com': (
        ((BEARER, ('Cko-Idempotency-Key', 'c-1')), b'x', None),
        ((BEARER, ('Cko-Idempotency-Key', 'c-1')), b'x', None),
        ((BEARER, ('Cko-Idempotency-Key', 'c-2')), b'x', None)),
    'AIP-155': (
        ((BEARER, JSON), b'{"request_id":"r-1","name":"a"}', None),
        ((BEARER, JSON), b'{"name":"a", "request_id":"r-1"}', None),
        ((BEARER, JSON), b'{"requestId":"r-2","name":"a"}', None)),
    'Open Banking': (
        ((BEARER, ('x-idempotency-key', 'o-1')), b'x', None),
        ((BEARER, ('x-idempotency-key', 'o-1')), b'x', None),
        ((BEARER, ('x-idempotency-key', 'o-2')), b'x', None)),
    'GraphQL mutations': (
        ((BEARER, JSON), b'{"query":"mutation($input: P!) { pay(input: $input)'
                         b' { id } }","variables":{"input":'
                         b'{"clientMutationId":"g-1","amount":5}}}', None),
        ((BEARER, JSON), b'{"variables":{"input":{"amount":5,'
                         b'"clientMutationId":"g-1"}},"query":'
                         b'"mutation($input: P!) { pay(input: $input)'
                         b' { id } }"}', None),
        ((BEARER, JSON), b'{"query":"{ orders }"}', None)),
    'Publish the contract': (
        ((AUTH,), b'x', 'k1'), ((AUTH,), b'x', 'k1'), ((AUTH,), b'x', 'k2')),
    'Sealing': (
        ((AUTH,), b'x', 'k1'), ((AUTH,), b'x', 'k1'), ((AUTH,), b'x', 'k2')),
}

seen = []
for page in ('start/keys.md', 'guides/body-keys.md', 'clients/policy.md',
             'operate/security.md', 'guides/payment-apis.md'):
    for heading, text in configurations(page):
        seen.append(heading)
        if heading not in REQUESTS:
            ok(False, 'no request for ' + heading)
            continue
        before = len(up.entries)
        gw = Page(up, text)
        first, again, other = [
            gw.post('/pay', key, body=body, headers=headers)
            for headers, body, key in REQUESTS[heading]]
        same((first.status, first.replayed), (201, False),
             heading + ': the first')
        same((again.status, again.body, again.replayed),
             (201, first.body, True), heading + ': the retry replays')
        same((other.status, other.replayed), (201, False),
             heading + ': another operation')
        same(len(up.entries) - before, 2, heading + ': executed twice in all')
        gw.stop()
same(sorted(seen), sorted(REQUESTS), 'all of them were there')


# ---- profiles.md ----

(stripe, acp, ucp, oasis, jsonrpc) = [
    text for _, text in configurations('guides/profiles.md')]

gw = Page(up, stripe)
a = gw.send('/v1/charges/ok', 'k', Authorization='Bearer me')
b = gw.send('/v1/charges/ok', 'k', Authorization='Bearer me')
c = gw.send('/v1/charges/ok', 'k', b'y', Authorization='Bearer me')
d = gw.send('/v1/charges/ok', None, Authorization='Bearer me')
same((a.status, b.status, b.replayed, c.status, c.code, d.status),
     (201, 201, True, 400, 'key_reused', 201), 'profiles.md: stripe')
gw.stop()

gw = Page(up, acp)
json_type = {'Authorization': 'Bearer me', 'Content_Type': 'application/json'}
a = gw.send('/checkout_sessions/ok', 'k', b'{"a":1,"b":null}', **json_type)
b = gw.send('/checkout_sessions/ok', 'k', b'{"a":1}', **json_type)
c = gw.send('/checkout_sessions/ok', None, b'{"a":1}', **json_type)
d = gw.send('/checkout_sessions/ok', 'k', b'{"b": null, "a": 1.0}', **json_type)
same((a.status, b.status, b.code, c.status, c.code, d.status, d.replayed),
     (201, 422, 'idempotency_conflict', 400, 'idempotency_key_required', 201,
      True), 'profiles.md: acp')
gw.stop()

gw = Page(up, ucp)
a = gw.send('/checkout-sessions/ok', 'k', b'{"a":1}', **json_type)
b = gw.send('/checkout-sessions/ok', 'k', b'{"a":1}', **json_type)
c = gw.send('/checkout-sessions/ok', 'k', b'{"a":2}', **json_type)
d = gw.send('/checkout-sessions/ok', None, b'{"a":1}', **json_type)
same((a.status, b.status, b.replayed, c.status, c.code, d.status, d.code),
     (201, 201, True, 409, 'key_reused', 400, 'key_missing'),
     'profiles.md: ucp')
gw.stop()

gw = Page(up, oasis)
dated = {'Authorization': 'Bearer me', 'Repeatability_Request_ID': 'r-1',
         'Repeatability_First_Sent': formatdate(usegmt=True)}
a = gw.send('/orders/ok', None, **dated)
b = gw.send('/orders/ok', None, **dated)
c = gw.send('/orders/ok', None, b'y', **dated)
dated['Repeatability_First_Sent'] = 'Sun, 06 Nov 1994 08:49:37 GMT'
d = gw.send('/orders/ok', None, **dated)
e = gw.send('/other/ok', None, **dated)
same([(x.status, x.get('repeatability-result')) for x in (a, b, c, d, e)],
     [(201, 'accepted'), (201, 'accepted'), (400, 'rejected'),
      (412, 'rejected'), (501, None)], 'profiles.md: oasis')
same((b.replayed, c.code, d.code),
     (True, 'key_reused', 'first_sent_expired'), 'profiles.md: oasis, codes')
gw.stop()

gw = Page(up, jsonrpc)
call = (b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"%s",'
        b'"arguments":{},"_meta":{"progressToken":%s,"idempotencyKey":"k"}}}')
a, b, c = [gw.send('/mcp/ok', None, call % message, **json_type)
           for message in ((b'1', b'pay', b'1'), (b'2', b'pay', b'2'),
                           (b'"3"', b'refund', b'3'))]
d = gw.send('/mcp/ok', None, b'[' + call % (b'1', b'pay', b'1') + b']',
            **json_type)
same((a.status, b.status, b.replayed, c.status, c.code, d.status, d.code),
     (201, 201, True, 409, 'key_reused', 400, 'body_invalid'),
     'profiles.md: jsonrpc')
same((json.loads(c.body)['id'], json.loads(d.body)['id']), ('3', None),
     'profiles.md: jsonrpc, ids')
gw.stop()

# ---- tokens.md ----

(_, config), = configurations('guides/tokens.md')
gw = Page(up, config)
token = gw.send('/token', Authorization=BASIC['alice'])
same((token.status, json.loads(token.body).get('expires_in')), (200, 600),
     'tokens.md: a token')
token = json.loads(token.body)['token']
a = gw.send('/pay/ok', token, Authorization=BASIC['bob'])
b = gw.send('/pay/ok', token, Authorization=BASIC['alice'])
c = gw.send('/pay/ok', token, Authorization=BASIC['alice'])
same((a.status, a.code, b.status, c.status, c.replayed),
     (403, 'not_issued', 201, 201, True), 'tokens.md: is spent by its own')
gw.stop()

# ---- sequences.md ----

(_, config), = configurations('guides/sequences.md')
gw = Page(up, config)
answers = [gw.send('/transfers/ok', Producer='till-7', Epoch=e, Sequence=n)
           for e, n in (('1', '1'), ('1', '2'), ('1', '2'), ('1', '4'),
                        ('2', '1'), ('1', '3'))]
same([(a.status, a.code or a.replayed) for a in answers],
     [(201, False), (201, False), (201, True), (409, 'out_of_order'),
      (201, False), (409, 'out_of_order')], 'sequences.md')
same(json.loads(answers[3].body).get('expected'), 3,
     'sequences.md: the number that is expected')
gw.stop()

finish()
