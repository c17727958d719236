#!/usr/bin/env python3
"""idempotency_policy: what clients are told is what is configured.

Each value of the contract is that of the live configuration, also after a
reload.  Locations that clients cannot ask for, other servers, stores,
addresses, variables and dry runs are not in it, in any format.  Names from the
configuration are text.  Errors of the server refer to the page, and it has the
anchor of each.
"""

import html
import json
import os
import re
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, background, finish,  # noqa: E402
                     free_port, ok, same, until)

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

up = Ledger()
dead, other, plain, every = (free_port() for _ in range(4))

EVIL = '/<script>alert(1)</script>&"\'/'

COMMON = '''
        location = /policy { idempotency_policy; }
        location = /described {
            idempotency main;
            idempotency_describedby https://docs.example/keys;
            proxy_pass http://up;
        }
        location = /look {
            idempotency_lookup main cancel;
            idempotency_scope looked;
        }
        location /json/ {
            idempotency main;
            idempotency_key $order_id;
            idempotency_methods POST PUT;
            idempotency_max_key 40;
            idempotency_ttl 2h tombstone=3d;
            idempotency_fingerprint json include=amount,card.number
                'exclude=card.<b>"x"&';
            idempotency_in_progress wait=7s;
            idempotency_max_response 64k;
            idempotency_final 200-299 404;
            idempotency_retryable 429;
            proxy_pass http://up;
        }
        location = /form {
            idempotency main;
            idempotency_key $form_token;
            idempotency_fingerprint form with=$http_x_mysterious;
            idempotency_duplicate reject;
            idempotency_unknown probe=/secret-probe;
            proxy_pass http://up;
        }
        location /strict/ {
            idempotency main;
            idempotency_strict_key on;
            idempotency_required off;
            idempotency_scope "a secret group";
            idempotency_fingerprint off;
            idempotency_unknown retry;
            idempotency_store_error pass;
            idempotency_replayed_header X-Again;
            idempotency_expires_header off;
            proxy_pass http://up;
        }
        location ~ ^/v[0-9]+/charges$ {
            idempotency main;
            idempotency_profile stripe;
            proxy_pass http://up;
        }
        location /suspect/ {
            idempotency main; idempotency_suspect reject window=90s;
            proxy_pass http://up;
        }
        location /oasis/ {
            idempotency main; idempotency_profile oasis;
            proxy_pass http://up;
        }
        location /rpc/ {
            idempotency main; idempotency_profile jsonrpc;
            proxy_pass http://up;
        }
        location /ucp/ {
            idempotency main; idempotency_profile ucp; proxy_pass http://up;
        }
        location /arg/ {
            idempotency main;
            idempotency_key $arg_request_id;
            idempotency_in_progress reject=425;
            proxy_pass http://up;
        }
        location /cookie/ {
            idempotency main; idempotency_key $cookie_once;
            proxy_pass http://up;
        }
        location /mapped/ {
            idempotency main; idempotency_key $internal_map_name;
            proxy_pass http://up;
        }
        location /numbers/ {
            idempotency main;
            idempotency_sequence strict;
            idempotency_scope numbers;
            proxy_pass http://up;
        }
        location /issued/ {
            idempotency main; idempotency_issued on;
            idempotency_scope looked;
            proxy_pass http://up;
        }
        location "%s" {
            idempotency main; idempotency_ttl 11s; proxy_pass http://up;
        }
        location = /secret-probe { internal; proxy_pass http://up; }
        location /secret-dry/ {
            idempotency main; idempotency_dry_run on; idempotency_ttl 12s;
            proxy_pass http://up;
        }
        location /secret-off/ { proxy_pass http://up; }
        location /entrance/ { try_files /none @secret-app; }
        location @secret-app {
            idempotency main; idempotency_ttl 13s; proxy_pass http://up;
        }
        location /late/ {
            idempotency main; proxy_read_timeout 300ms; proxy_pass http://up;
        }
        location /dead/ {
            idempotency main; proxy_pass http://127.0.0.1:%d;
        }
''' % (EVIL.replace('\\', '\\\\').replace('"', '\\"'), dead)

gw = Gateway(up, http='''
    idempotency_store secret-store shm:1m;
    idempotency_json_set $order_id order id;
    idempotency_form_set $form_token token;
    map $http_x_internal $internal_map_name { default $http_x_internal; }
    server {
        listen 127.0.0.1:%d;
        server_name secret-server.example;
        location /secret-elsewhere/ {
            idempotency secret-store; idempotency_ttl 14s;
            proxy_pass http://up;
        }
        location = /secret-policy { idempotency_policy; }
    }
    server {
        listen 127.0.0.1:%d;
        location ~ ^/policy$ { idempotency_policy; }
        location / { idempotency main; proxy_pass http://up; }
    }
    server {
        listen 127.0.0.1:%d;
        idempotency main;
        idempotency_methods GET POST;
        location = "/docs/keys x" { idempotency_policy; }
        location / { proxy_pass http://up; }
        location /secret-admin/ { proxy_pass http://up; }
        location ~ /secret-regex { proxy_pass http://up; }
        location = /secret-exact { proxy_pass http://up; }
        location /a/ {
            idempotency_ttl 5m;
            proxy_pass http://up;
            location /a/secret-in/ { proxy_pass http://up; }
            location /a/back/ { idempotency_ttl 24h; proxy_pass http://up; }
        }
    }
''' % (other, plain, every), locations=COMMON)


def get(query='', accept=None, port=None, path='/policy', method='GET',
        **more):
    headers = [('Accept', accept)] if accept else []
    headers += [(k.replace('_', '-'), v) for k, v in more.items()]
    return gw.post(path + query, None, method=method, body=None,
                   headers=headers, port=port)


def policy(**args):
    return json.loads(get('?format=json', **args).body)


def of(document, path):
    return [c for c in document['contracts']
            if path in [p['path'] for p in c['paths']]][0]


def picks(contract, *names):
    """the values behind names such as "key.in" """
    out = []
    for name in names:
        value = contract
        for word in name.split('.'):
            value = value.get(word)
        out.append(value)
    return out


def codes(contract):
    return {a['code'] for a in contract['answers']}


# formats

def media(a):
    return (a.status, (a.get('content-type') or '').partition(';')[0])


def test_formats():
    for query, accept, want in (
            ('', None, 'application/json'),
            ('', 'text/html,application/xhtml+xml,*/*', 'text/html'),
            ('', 'application/json, text/html', 'application/json'),
            ('', 'application/openapi+json', 'application/openapi+json'),
            ('?format=html', 'application/json', 'text/html'),
            ('?format=json', 'text/html', 'application/json'),
            ('?format=openapi', None, 'application/openapi+json')):
        same(media(get(query, accept)), (200, want),
             'format: %r, %r' % (query, accept))
    same(get('?format=xml').status, 400, 'an unknown format')
    for method in ('POST', 'PUT', 'DELETE'):
        same(get(method=method).status, 405, method)
    a = get(method='HEAD')
    same((a.status, a.body, a.get('content-length')),
         (200, b'', get().get('content-length')), 'HEAD')
    page = get('?format=html')
    ok("default-src 'none'" in page.get('content-security-policy')
       and 'unsafe' not in page.get('content-security-policy'),
       'nothing runs on the page', page.get('content-security-policy'))
    ok(b'<script' not in page.body and b' style=' not in page.body,
       'nor is there a script')


def test_cache():
    a = get()
    same((a.get('cache-control'), a.get('vary')),
         ('private, max-age=300', 'Accept'), 'it may be cached')
    same(get(If_None_Match=a.get('etag')).status, 304, 'and is not sent again')
    ok(a.get('etag') != get('?format=html').get('etag'),
       'each format has a tag')
    same(get(If_None_Match='"x"').status, 200, 'another tag')


# values

def test_values():
    p = policy()
    c = of(p, '/')
    same(picks(c, 'paths', 'methods', 'key', 'compared', 'kept', 'duplicate',
               'in_progress', 'unknown_outcome', 'not_available', 'headers'),
         [[{'match': 'prefix', 'path': '/'}], ['POST', 'PATCH'],
          {'in': 'header', 'name': 'Idempotency-Key', 'required': True,
           'format': 'any', 'max_length': 255, 'unique': 'operation'},
          {'body': 'bytes', 'request': 'query'},
          {'seconds': 86400, 'refused_after': 0}, 'replayed', {'wait': 0},
          'held', 'refused', {'replayed': 'Idempotent-Replayed',
                              'expires': 'Idempotency-Expires'}],
         'defaults')
    same(c['answers_kept'],
         {'max_bytes': 1048576,
          'statuses': ['200-400', '402', '404-406', '409-424', '426-428',
                       '430-501'],
          'released': ['401', '403', '407-408', '425', '429', '503']},
         'default statuses')

    c = of(p, '/json/')
    same(picks(c, 'methods', 'key.in', 'key.name', 'key.max_length', 'kept',
               'in_progress', 'compared', 'answers_kept'),
         [['POST', 'PUT'], 'json', 'order.id', 40,
          {'seconds': 7200, 'refused_after': 3 * 86400}, {'wait': 7},
          {'body': 'json', 'request': 'query',
           'include': [['amount'], ['card', 'number']],
           'exclude': [['card', '<b>"x"&']]},
          {'max_bytes': 65536, 'statuses': ['200-299', '404'],
           'released': ['429']}], 'a key in JSON')
    ok({'key_expired', 'body_invalid'} <= codes(c), 'with its codes',
       codes(c))

    c = of(p, '/form')
    same(picks(c, 'paths', 'key.in', 'key.name', 'compared', 'duplicate',
               'unknown_outcome'),
         [[{'match': 'exact', 'path': '/form'}], 'form', 'token',
          {'body': 'form', 'request': 'other'}, 'refused', 'asked-for'],
         'a key in a form')
    ok('duplicate' in codes(c) and 'key_expired' not in codes(c),
       'with its codes', codes(c))

    c = of(p, '/strict/')
    same(picks(c, 'key.format', 'key.required', 'key.unique', 'compared',
               'unknown_outcome', 'not_available', 'headers'),
         ['string', False, 'group', {'body': 'none', 'request': 'none'},
          'executed-again', 'executed',
          {'replayed': 'X-Again', 'expires': None}], 'strict keys')
    same(codes(c) & {'key_missing', 'key_reused'}, set(),
         'without codes that cannot come')

    c = of(p, '^/v[0-9]+/charges$')
    same(picks(c, 'paths', 'key.unique', 'key.required', 'compared.request',
               'answers_kept.statuses'),
         [[{'match': 'regex', 'path': '^/v[0-9]+/charges$'}], 'client', False,
          'operation', ['200-599']], 'profile stripe')
    same([a['statuses'] for a in c['answers']
          if a['code'] in ('idempotency_key_in_use', 'key_reused')],
         [[400], [409]], 'with its codes and statuses')

    for path, where, name, form in (
            ('/oasis/', 'header', 'Repeatability-Request-ID', 'any'),
            ('/rpc/', 'message', 'params._meta.idempotencyKey', 'any'),
            ('/ucp/', 'header', 'Idempotency-Key', 'any'),
            ('/arg/', 'query', 'request_id', 'any'),
            ('/cookie/', 'cookie', 'once', 'any'),
            ('/mapped/', 'other', None, 'any'),
            ('/numbers/', 'header', 'Idempotency-Key', 'number'),
            ('/issued/', 'header', 'Idempotency-Key', 'token')):
        same(picks(of(p, path), 'key.in', 'key.name', 'key.format'),
             [where, name, form], 'the key of ' + path)
    same([a['statuses'] for a in of(p, '/arg/')['answers']
          if a['code'] == 'in_progress'], [[425]], 'in_progress reject=425')
    same([(picks(of(p, path), 'another_key'),
           'suspected_duplicate' in codes(of(p, path)))
          for path in ('/suspect/', '/')],
         [([{'refused': 90}], True), ([None], False)],
         'the same request under another key')
    same(get('?format=html').body.count(b'under another key is refused for '
                                        b'90 seconds'), 1, 'on the page, too')
    same(picks(of(p, '/oasis/'), 'methods', 'key.unique',
               'compared.request'),
         [['POST', 'PUT', 'DELETE', 'PATCH'], 'client', 'first-sent'],
         'profile oasis')
    ok({'first_sent_invalid', 'first_sent_expired', 'key_missing'}
       <= codes(of(p, '/oasis/')), 'profile oasis: its codes')
    ok('first_sent_invalid' not in codes(of(p, '/')), 'and only there')
    same([(picks(of(p, path), 'kept.seconds'), [
        a['statuses'] for a in of(p, path)['answers']
        if a['code'] == 'key_reused']) for path in ('/ucp/', '/rpc/')],
        [([48 * 3600], [[409]]), ([86400], [[409]])],
        'profiles ucp and jsonrpc')
    same([(c['kept']['seconds'], c['paths']) for c in p['contracts']
          if not c['paths']], [(13, [])],
         'a contract of what clients cannot name')


def test_documented():
    """The codes of the reference are those of the page."""
    with open(TOP + '/docs/reference/errors.md') as f:
        rows = re.findall(r'^\| (.*?) \| (\d+) \| `([a-z_]+)` \| ([a-z-]+) \|',
                          f.read(), re.M)
    rows = [r for r in rows
            if not re.match('(lookup|operator|cancel):', r[0])]
    told = policy()['answers']
    for case, status, code, retry in rows:
        ok(any(a['code'] == code and int(status) in a['statuses']
               and a['retry'] == retry for a in told),
           'documented: %s, %s %s' % (case, status, code))
    same({a['code'] for a in told} - {r[2] for r in rows},
         {'idempotency_key_in_use'}, 'the others are of profiles')


# what is not there

def test_secrets():
    for query in ('?format=json', '?format=html', '?format=openapi'):
        text = get(query).body.decode()
        found = [w for w in (
            'secret', '127.0.0.1', str(dead), str(up.port), '$',
            'mysterious', 'internal_map', 'http_x', 'order_id', 'form_token',
            'somebody', '"main"', 'shm', 'redis', 'sqlite', 'entrance')
            if w in text.replace('^/v[0-9]+/charges$', '')
                        .replace('"$ref"', '').replace(']+$"', '')
                        .replace(']*$"', '').replace('(;.*)?$"', '')]
        same(found, [], query + ' gives nothing away')
    same([c['paths'] for c in policy(port=plain)['contracts']],
         [[{'match': 'prefix', 'path': '/'}]], 'each server has its own')
    same(of(policy(port=other, path='/secret-policy'),
            '/secret-elsewhere/')['kept']['seconds'], 14,
         'the other server has its own')


def test_inherited():
    p = policy(port=every, path='/docs/keys%20x')
    same([[x['path'] for x in c['paths']] for c in p['contracts']],
         [['/', '/a/back/'], ['/a/']],
         'what inherits from around it is not named')


def test_text():
    page = get('?format=html').body.decode()
    same(page.count(html.escape(EVIL).replace('&#x27;', '&#39;')), 1,
         'a path is text')
    ok('<code>card.&lt;b&gt;&quot;x&quot;&amp;</code>' in page,
       'a field is text')
    same((of(policy(), EVIL)['kept']['seconds']), 11, 'in JSON, too')


# errors refer to it

def test_types():
    page = get('?format=html').body.decode()
    anchors = re.findall(r' id="([^"]+)"', page)
    same(len(anchors), len(set(anchors)), 'each anchor is there once')
    links = set(re.findall(r'href="#([^"]+)"', page))
    same(links - set(anchors), set(), 'each link has its anchor')
    same({a['code'] for a in policy()['answers']} - set(anchors), set(),
         'each code has its anchor')

    up.hold()
    running = background(gw.post, '/arg/wait?request_id=r', None)
    ok(until(lambda: up.came('/arg/wait')), 'one is running')
    gw.post('/ok', 'k')
    gw.post('/numbers/ok', '7')
    gw.post('/form', None, body=b'token=t', headers=[
        ('Content-Type', 'application/x-www-form-urlencoded')])
    got = {}
    for path, key, body, status in (
            ('/ok', None, b'x', 400), ('/ok', 'k' * 300, b'x', 400),
            ('/ok', 'k', b'y', 422),
            ('/arg/wait?request_id=r', None, b'x', 425),
            ('/json/ok', None, b'{', 400),
            ('/late/silent', 'late', b'x', 504),
            ('/late/silent', 'late', b'x', 409),
            ('/dead/x', 'dead', b'x', 502),
            ('/issued/ok', 'none', b'x', 403),
            ('/numbers/ok', '9', b'x', 409)):
        a = gw.post(path, key, body=body)
        same((a.status, json.loads(a.body).get('type'), a.get('link')),
             (status, '/policy#%s' % a.code,
              '</policy>; rel="describedby"'), 'the type of ' + a.code)
        ok(a.code in anchors, 'which leads to its anchor: ' + a.code)
        ok(json.loads(a.body)['title'] not in ('Bad Request', 'Conflict'),
           'with a title of its own: ' + a.code)
        got[a.code] = 1
    up.go()
    running.join()
    ok(len(got) >= 9, 'many were seen', sorted(got))

    a = gw.post('/v1/charges', 'k' * 300)
    same(json.loads(a.body)['error'].get('doc_url'), '/policy#key_invalid',
         'profile stripe: doc_url')
    a = gw.post('/described', None)
    same((json.loads(a.body)['type'], a.get('link')),
         ('https://docs.example/keys#key_missing',
          '<https://docs.example/keys>; rel="describedby"'),
         'idempotency_describedby comes before it')
    a = gw.post('/ok', None, port=plain)
    same((json.loads(a.body)['type'], a.get('link')), ('about:blank', None),
         'a page by a regular expression has no URI')
    a = gw.post('/look', 'unknown', method='GET', body=None)
    same((a.code, json.loads(a.body)['type']), ('not_found', 'about:blank'),
         'the page is not about lookups')
    a = gw.post('/ok', None, port=every)
    same(json.loads(a.body)['type'], '/docs/keys%20x#key_missing',
         'the URI is escaped')
    same(get(port=every, path='/docs/keys%20x').status, 200,
         'the page needs no key where GET does')


def test_reload():
    before = get()
    gw.write(locations=COMMON.replace('idempotency_ttl 11s',
                                      'idempotency_ttl 45s'))
    gw.signal(signal.SIGHUP)
    ok(until(lambda: of(policy(), EVIL)['kept']['seconds'] == 45),
       'a reload changes it')
    ok(until(lambda: get(If_None_Match=before.get('etag')).status == 200),
       'and its tag')


for test in (test_formats, test_cache, test_values, test_documented,
             test_secrets, test_inherited, test_text, test_types,
             test_reload):
    test()

gw.stop()
finish()
