#!/usr/bin/env python3
"""Whatever makes the answer, there is one execution and the same answer again.

Redirects within nginx, X-Accel-Redirect, error pages, try_files, subrequests,
caches and filters: the first client and its retries see the same status,
header and body, and the upstream sees one request.
"""

import gzip
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, refused, replays, same, until)
from h2 import H2  # noqa: E402

up, side = Ledger(), Ledger()

gw = Gateway(up, http='''
    limit_req_zone $http_idempotency_key zone=slow:1m rate=30r/m;
    proxy_cache_path cache keys_zone=cache:1m;
    upstream side { server 127.0.0.1:%d; }
''' % side.port, locations='''
    location /caught/ {
        idempotency main;
        proxy_intercept_errors on;
        error_page 404 /files/page.txt;
        error_page 410 =200 /files/page.txt;
        error_page 500 @named;
        error_page 418 = @named;
        proxy_pass http://up;
    }
    location @named { return 202 "named $status\\n"; }
    location /files/ { alias files/; }
    location /secret/ { internal; alias files/; }
    location /again/ {
        internal;
        proxy_pass http://up;
    }
    location @again { rewrite ^ /ok/named? break; proxy_pass http://up; }
    location /little/ {
        idempotency main;
        idempotency_max_response 1000;
        proxy_force_ranges on;
        proxy_pass http://up;
    }
    location @missing { root nowhere; error_page 404 405 = @else; }
    location @recursive {
        recursive_error_pages on;
        root nowhere;
        error_page 404 405 = @else;
    }
    location @tries { try_files /nothing @made; }
    location @made {
        proxy_set_header Idempotency-Key "";
        proxy_ignore_headers X-Accel-Redirect;
        proxy_pass http://up;
    }
    location @returns { error_page 404 = @else; return 404; }
    location @returns-recursive {
        recursive_error_pages on;
        error_page 404 = @else;
        return 404;
    }
    location /recursive/ {
        idempotency main;
        recursive_error_pages on;
        error_page 404 500 = @else;
        proxy_pass http://up;
    }
    location /looks/ {
        idempotency_lookup main;
        idempotency_scope pays;
        error_page 405 = @pays;
    }
    location @pays {
        idempotency main;
        idempotency_scope pays;
        proxy_pass http://up;
    }
    location @else {
        proxy_ignore_headers X-Accel-Redirect;
        proxy_pass http://up;
    }
    location /accel/ { idempotency main; proxy_pass http://up; }
    location /rewrite/ {
        idempotency main;
        rewrite ^/rewrite/(.*) /inner/$1 last;
    }
    location /inner/ { idempotency main; proxy_pass http://up; }
    location /try/ {
        idempotency main;
        try_files $uri @app;
    }
    location @app { proxy_pass http://up; }
    location /try-uri/ {
        idempotency main;
        try_files $uri /inner/ok;
    }
    location /ssi/ {
        idempotency main;
        ssi on;
        ssi_types text/plain;
        proxy_pass http://up;
    }
    location /addition/ {
        idempotency main;
        addition_types *;
        add_after_body /files/page.txt;
        proxy_pass http://up;
    }
    location /mirror/ {
        idempotency main;
        mirror /mirrored;
        proxy_pass http://up;
    }
    location = /mirrored {
        internal;
        proxy_pass http://side/ok$request_uri;
    }
    location /auth/ {
        idempotency main;
        idempotency_source $user;
        auth_request /who;
        auth_request_set $user $upstream_http_x_user;
        proxy_pass http://up;
    }
    location = /who {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://side/status/$http_x_auth?h=X-User:u$http_x_auth;
    }
    location /limit/ {
        idempotency main;
        limit_req zone=slow;
        limit_req_status 429;
        proxy_pass http://up;
    }
    location /cache/ {
        idempotency main;
        proxy_cache cache;
        proxy_cache_methods POST;
        proxy_cache_key $uri;
        proxy_cache_valid any 1h;
        proxy_cache_lock on;
        add_header X-Cache $upstream_cache_status;
        proxy_pass http://up;
    }
    location /gzip/ {
        idempotency main;
        gzip on;
        gzip_types *;
        gzip_min_length 1;
        gzip_http_version 1.0;
        proxy_pass http://up;
    }
    location /add/ {
        idempotency main;
        add_header X-Added "$idempotency_result" always;
        add_header X-Fixed fixed always;
        expires 1h;
        proxy_pass http://up;
    }
    location /sub/ {
        idempotency main;
        sub_filter effect EFFECT;
        sub_filter_once off;
        sub_filter_types *;
        proxy_pass http://up;
    }
    location /post-action/ {
        idempotency main;
        post_action /done;
        proxy_pass http://up;
    }
    location = /done { internal; proxy_pass http://side/ok/done; }
    location /store-it/ {
        idempotency main;
        proxy_store on;
        proxy_store_access user:rw;
        root stored;
        proxy_pass http://up;
    }
    location /direct/ { idempotency main; alias files/; }
    location /stream/ {
        idempotency main;
        proxy_request_buffering off;
        client_body_buffer_size 1k;
        proxy_pass http://up;
    }
    location /moved/ { idempotency main; proxy_pass http://up/; }
    location /variable/ {
        idempotency main;
        set $where up;
        proxy_pass http://$where;
    }
''')
os.mkdir(gw.root + '/files')
for name, text in (('page.txt', 'a page\n'), ('big.bin', 'x' * 200000)):
    with open('%s/files/%s' % (gw.root, name), 'w') as f:
        f.write(text)


def answer(a):
    skip = ('date', 'idempotent-replayed', 'idempotency-expires',
            'connection', 'x-added',
            'x-cache', 'expires', 'transfer-encoding', 'content-length')
    return (a.status, sorted(h for h in a.headers if h[0] not in skip),
            a.body)


def once(path, status, name, executions=1, contains=None, headers=(),
         again=(), ledger=up, body=b'x'):
    """the first answer, its retries over HTTP/1.1 and HTTP/2"""
    key = name.replace(' ', '-')
    a = gw.post(path, key, headers=headers, body=body)
    same((a.status, a.whole, a.replayed), (status, True, False), name)
    if contains is not None:
        ok(contains in a.body, name + ': what it says', a)
    for i in range(2):
        b = gw.post(path, key, headers=again or headers, body=body)
        same(answer(b), answer(a), name + ': the same again')
        ok(b.replayed and b.whole, name + ': a replay', b)
    c = H2(gw.h2)
    c.request(path, key, body, headers=[(n.lower(), v) for n, v
                                        in again or headers])
    same(c.data(), a.body, name + ': the same over HTTP/2')
    c.close()
    same([e[2] for e in ledger.of(key)].count('POST'), executions,
         name + ': executed %d times' % executions)
    return a


def test_error_pages():
    once('/caught/status/404', 404, 'error_page URI', contains=b'a page\n')
    once('/caught/status/410', 200, 'error_page with a status',
         contains=b'a page\n')
    once('/caught/status/500', 500, 'error_page named', contains=b'named')
    once('/caught/status/418', 202, 'error_page named with a status',
         contains=b'named')
    once('/caught/ok', 201, 'no error', contains=b'effect')


def test_accel():
    once('/accel/ok?h=X-Accel-Redirect:/secret/page.txt', 200,
         'X-Accel-Redirect to a file', contains=b'a page\n')
    once('/accel/ok?h=X-Accel-Redirect:/secret/big.bin', 200,
         'X-Accel-Redirect to a large file', contains=b'x' * 200000)
    once('/accel/ok?h=X-Accel-Redirect:/secret/missing', 404,
         'X-Accel-Redirect to no file')
    a = once('/accel/ok?h=X-Accel-Redirect:/again/ok', 201,
             'X-Accel-Redirect to a proxy', contains=b'effect')
    entries = up.of('X-Accel-Redirect-to-a-proxy')
    same([e[2] for e in entries], ['POST', 'GET'], 'by GET, and once')
    same(a.body, b'effect %06d\n' % entries[1][0], 'its answer counts')
    once('/accel/ok?h=X-Accel-Redirect:@again', 201,
         'X-Accel-Redirect to a named location', contains=b'effect',
         executions=2)

    # a client's Range and conditions do not make half an answer
    a = once('/accel/ok?h=X-Accel-Redirect:/secret/big.bin&', 200,
             'Range on a file', headers=[('Range', 'bytes=0-9')])
    same(len(a.body), 200000, 'the whole of it')
    date = a.get('last-modified')
    once('/accel/ok?h=X-Accel-Redirect:/secret/page.txt&', 200,
         'If-Modified-Since on a file',
         headers=[('If-Modified-Since', date or '')])
    once('/accel/ok?h=X-Accel-Redirect:/secret/page.txt&&', 200,
         'If-Match on a file', headers=[('If-Match', '"other"')])


def test_accel_to_one_who_refuses():
    """the second upstream does not know what the first has done"""
    key, path = 'accel-503', '/accel/ok?h=X-Accel-Redirect:/again/status/503'
    same(gw.post(path, key).status, 503, 'X-Accel-Redirect to 503')
    refused(gw, path, key, 'outcome_unknown', 'X-Accel-Redirect to 503')
    same([e[2] for e in up.of(key)], ['POST', 'GET'], 'executed once')
    key, path = 'accel-word', path + '%3Fh=X-Accel-Idempotency:release'
    same(gw.post(path, key).status, 503, 'X-Accel-Redirect to a release')
    same(gw.post(path, key).status, 503, 'is executed again')


def test_endpoint_and_error_page():
    """a lookup that is none, in front of what is protected"""
    a = gw.post('/looks/ok', 'looks', body=None)
    same(a.status, 201, 'not a lookup')
    replays(gw, '/looks/ok', 'looks', a, 'not a lookup', body=None)
    executed(up, 'looks', 1, 'not a lookup')


def test_range_of_what_is_not_kept():
    for path in ('/little/ok?h=X-Accel-Redirect:/secret/big.bin',
                 '/little/big/200000', '/little/status/503'):
        a = gw.post(path, path, headers=[('Range', 'bytes=0-9')])
        same((a.status, len(a.body), a.whole, a.get('content-range')),
             (503, 14, True, None) if '503' in path
             else (201 if 'little/big/' in path else 200, 200000, True, None),
             path + ': the whole of it')
        executed(up, path, 1, path)


def test_accel_and_error_page():
    """the upstream has named one location, and not what comes after it"""
    for name in ('missing', 'recursive', 'returns', 'returns-recursive'):
        once('/accel/ok?h=X-Accel-Redirect:@' + name, 502,
             'X-Accel-Redirect and error_page, ' + name)
    for name in ('@nowhere', '/secret/../../up'):
        once('/recursive/ok?h=X-Accel-Redirect:' + name, 502,
             'X-Accel-Redirect to nothing, ' + name)
    once('/accel/ok?h=X-Accel-Redirect:@tries', 201,
         'X-Accel-Redirect and try_files', contains=b'effect')


def test_redirects():
    once('/rewrite/ok', 201, 'rewrite last', contains=b'effect')
    once('/try/ok', 201, 'try_files with a named location',
         contains=b'effect')
    once('/try-uri/any', 201, 'try_files with a URI', contains=b'effect')
    once('/variable/ok', 201, 'proxy_pass with a variable',
         contains=b'effect')
    a = once('/moved/status/302?h=Location:http://up/there', 302,
             'a redirect for the client')
    ok(a.get('location').endswith('/moved/there'), 'proxy_redirect', a)


def test_subrequests():
    once('/ssi/answer', 201, 'SSI', contains=b'[a page\n]',
         headers=[('X-Header', 'Content-Type: text/plain'),
                  ('X-Body', 'EFFECT [<!--#include '
                             'virtual="/files/page.txt" -->]')])
    once('/addition/status/200', 200, 'addition', contains=b'\na page\n')

    once('/mirror/ok', 201, 'mirror', contains=b'effect')
    until(lambda: side.count('mirror') >= 1)
    time.sleep(0.2)
    executed(side, 'mirror', 1, 'a duplicate is not mirrored')


def test_access():
    yes = [('X-Auth', '200')]
    a = once('/auth/ok', 201, 'auth_request', contains=b'effect',
             headers=yes)
    b = gw.post('/auth/ok', 'auth_request', headers=[('X-Auth', '403')])
    same((b.status, b.replayed), (403, False), 'no access, no replay')
    b = gw.post('/auth/ok', 'auth_request', headers=[('X-Auth', '204')])
    same((b.status, b.replayed, b.body != a.body), (201, False, True),
         'another user, another record')
    gw.post('/auth/ok', 'denied', headers=[('X-Auth', '401')])
    executed(up, 'denied', 0, 'denied')
    b = gw.post('/auth/ok', 'denied', headers=yes)
    same((b.status, b.replayed), (201, False), 'denied claims nothing')

    a = gw.post('/limit/ok', 'limit')
    b = gw.post('/limit/ok', 'limit')
    same((a.status, b.status, b.replayed), (201, 429, False),
         'limit_req comes first')
    time.sleep(2.1)
    replays(gw, '/limit/ok', 'limit', a, 'limit_req')
    executed(up, 'limit', 1, 'limit_req')


def test_cache():
    a = once('/cache/ok', 201, 'proxy_cache', contains=b'effect')
    same(a.get('x-cache'), 'MISS', 'from the upstream')
    b = gw.post('/cache/ok', 'another')
    same((b.get('x-cache'), b.body, b.replayed), ('HIT', a.body, False),
         'another key, from the cache')
    replays(gw, '/cache/ok', 'another', b, 'an answer of the cache')
    executed(up, 'another', 0, 'from the cache')

    # a lock is waited for, and the client leaves
    path = '/cache/slow/500'
    first = background(gw.post, path, 'locker')
    up.until('locker')
    c = gw.call(path, 'waiter')
    time.sleep(0.1)
    same(gw.state('waiter', path), 'executing', 'waits for the lock')
    c.close()
    a = first.join()
    same((a.status, a.get('x-cache')), (201, 'MISS'), 'the first one')
    ok(until(lambda: gw.state('waiter', path) == 'done', 3),
       'who waited and left is served', gw.record('waiter', path))
    b = gw.post(path, 'waiter')
    same((b.status, b.body, b.replayed), (201, a.body, True),
         'and its retry replays')
    executed(up, 'waiter', 0, 'who waited')

    # the lock is not enough: the first answer cannot be cached
    path = '/cache/slow/400?h=Cache-Control:no-store'
    first = background(gw.post, path, 'locker2')
    up.until('locker2')
    c = gw.call(path, 'waiter2')
    time.sleep(0.1)
    c.close()
    first.join()
    ok(up.until('waiter2', timeout=8), 'who waited and left is sent')
    ok(until(lambda: gw.state('waiter2', path) == 'done', 3), 'and settled',
       gw.record('waiter2', path))
    executed(up, 'waiter2', 1, 'who waited')


def test_filters():
    takes = [('Accept-Encoding', 'gzip')]
    a = gw.post('/gzip/status/200', 'gzip', headers=takes)
    b = gw.post('/gzip/status/200', 'gzip')
    c = gw.post('/gzip/status/200', 'gzip', headers=takes)
    same((a.get('content-encoding'), b.get('content-encoding'),
          c.get('content-encoding')), ('gzip', None, 'gzip'),
         'gzip for those who take it')
    same((gzip.decompress(a.body), gzip.decompress(c.body)),
         (b.body, b.body), 'gzip: the same')
    ok(b.replayed and c.replayed, 'gzip: replays')
    executed(up, 'gzip', 1, 'gzip')

    a = once('/add/ok', 201, 'add_header', contains=b'effect')
    same((a.get('x-added'), a.get('x-fixed')), ('new', 'fixed'),
         'add_header on the first')
    b = gw.post('/add/ok', 'add_header')
    same((b.get('x-added'), b.get('x-fixed'), b.get('cache-control')),
         ('replayed', 'fixed', a.get('cache-control')),
         'add_header on a replay, once')

    once('/sub/ok', 201, 'sub_filter', contains=b'EFFECT')
    once('/sub/bigchunked/50000', 201, 'sub_filter on a longer one',
         contains=b'EFFECT')


def test_others():
    gw.post('/post-action/ok', 'after')
    ok(until(lambda: side.came('/ok/done') == 1), 'post_action runs')
    once('/post-action/ok', 201, 'post_action', contains=b'effect')
    once('/store-it/ok', 201, 'proxy_store', contains=b'effect')
    a = gw.post('/direct/page.txt', 'file')
    same((a.status, gw.state('file', '/direct/page.txt')), (405, 'none'),
         'a file takes no POST, and its location claims none')
    body = os.urandom(200000)
    once('/stream/ok', 201, 'proxy_request_buffering off',
         contains=b'effect', body=body)
    same(up.of('proxy_request_buffering-off')[0][5], body,
         'the whole body is sent')
    once('/trailers', 201, 'trailers', contains=b'effect')


test_error_pages()
test_accel()
test_accel_to_one_who_refuses()
test_endpoint_and_error_page()
test_range_of_what_is_not_kept()
test_accel_and_error_page()
test_redirects()
test_subrequests()
test_access()
test_cache()
test_filters()
test_others()
gw.stop()
finish()
