#!/usr/bin/env python3
"""The same promises over HTTP/2: replays, problems, bodies of all sizes.

curl speaks HTTP/2 here; the ledger behind the gateway counts the executions.
"""

import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import Gateway, Ledger, executed, finish, ok, same  # noqa: E402
from h2 import DATA, END_STREAM, H2, HEADERS  # noqa: E402

CURL = shutil.which('curl')

if CURL is None or 'HTTP2' not in subprocess.run(
        [CURL, '--version'], capture_output=True, text=True).stdout:
    print('1..0 # SKIP needs curl with HTTP/2')
    sys.exit(0)

up = Ledger()
gw = Gateway(up, locations='''
    location /file/ {
        idempotency main;
        client_body_buffer_size 1k;
        proxy_pass http://up;
    }
    location /small/ {
        idempotency main;
        client_max_body_size 10;
        proxy_pass http://up;
    }
    location /reading/ {
        idempotency main;
        idempotency_methods GET HEAD;
        proxy_pass http://up;
    }
    location /page/ {
        idempotency main;
        error_page 400 422 @page;
        proxy_pass http://up;
    }
    location @page { return 418 "page $idempotency_result\\n"; }
    location /tiny/ {
        idempotency main;
        idempotency_max_response 10;
        proxy_pass http://up;
    }
    location /trailed/ {
        idempotency main;
        add_trailer X-Trailed $idempotency_result;
        proxy_pass http://up;
    }
    location /bare/ {
        add_trailer X-Trailed bare;
        proxy_pass http://up;
    }
    location /refused/ {
        idempotency main;
        proxy_pass http://127.0.0.1:1;
    }
    location /front/ { try_files /none /front.php; }
    location = /front.php {
        idempotency main;
        add_header X-Uri $idempotency_uri always;
        proxy_pass http://up/ok;
    }
''')

folder = tempfile.mkdtemp()


class Answer:
    def __init__(self, status, headers, body, version):
        self.status, self.headers, self.body = status, headers, body
        self.version = version

    def get(self, name):
        values = [v for n, v in self.headers if n == name]
        return ', '.join(values) if values else None


def send(path, *keys, **args):
    """Requests that differ in their keys, one after the other."""
    return [send_one(path, key, **args) for key in keys]


def send_one(path, key, body=b'x', method='POST', chunked=False, headers=()):
    with open(folder + '/body', 'wb') as f:
        f.write(body or b'')

    command = [CURL, '-s', '--http2-prior-knowledge', '--max-time', '15',
               '-D', folder + '/head', '-o', folder + '/out',
               '-w', '%{http_code} %{http_version}']
    if method == 'HEAD':
        command += ['-I']
    else:
        command += ['-X', method]
        if body is not None:
            command += ['--data-binary', '@%s/body' % folder]
    if chunked:
        command += ['-H', 'Content-Length:']
    if key is not None:
        command += ['-H', 'Idempotency-Key: ' + key]
    for name, value in headers:
        command += ['-H', '%s: %s' % (name, value)]
    command += ['http://127.0.0.1:%d%s' % (gw.h2, path)]

    # nginx ends a stream whose body it does not want by RST_STREAM with
    # NO_ERROR, which this curl takes for an error (92) if it comes early

    for _ in range(50):
        open(folder + '/out', 'w').close()
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 92:
            break

    status, version = done.stdout.split()
    with open(folder + '/head', encoding='latin-1') as f:
        last = f.read().replace('\r', '').split('\n\nHTTP/')[-1]
    fields = [line.partition(':') for line in last.split('\n') if ':' in line]
    with open(folder + '/out', 'rb') as f:
        out = f.read()
    return Answer(int(status), [(n.lower(), v.strip()) for n, _, v in fields],
                  b'' if method == 'HEAD' else out, version)


# replay

first, again = send('/ok', 'k1', 'k1')
same((first.version, first.status, first.get('idempotent-replayed')),
     ('2', 201, None), 'the first answer')
same((again.status, again.get('idempotent-replayed'), again.body),
     (201, 'true', first.body), 'the replay')
executed(up, 'k1', 1, 'k1')

other = gw.post('/ok', 'k1')
same((other.status, other.replayed, other.body), (201, True, first.body),
     'the replay over HTTP/1.1')
executed(up, 'k1', 1, 'k1')

gw.post('/ok', 'k2')
later, = send('/ok', 'k2')
same((later.status, later.get('idempotent-replayed')), (201, 'true'),
     'over HTTP/2, the replay of an answer over HTTP/1.1')

# answers of several kinds

for what in ('status/404', 'status/500', 'big/1000000', 'bigchunked/300000',
             'eof/5000', 'trailers', 'drip/5/10'):
    key = 'answer-' + what
    first, again = send('/' + what, key, key)
    same((first.get('idempotent-replayed'), again.get('idempotent-replayed'),
          again.status, again.body, again.get('content-length')),
         (None, 'true', first.status, first.body,
          first.get('content-length')), 'the replay of ' + what)
    executed(up, key, 1, what)



def kinds(path, key):
    """the frames of an answer, the last of which ends the stream"""
    conn = H2(gw.h2)
    stream = conn.request(path, key)
    seen = []
    for kind, flags, of, _ in conn.frames():
        if of == stream and kind in (HEADERS, DATA):
            if seen[-1:] != [kind]:
                seen.append(kind)
            if flags & END_STREAM:
                break
    conn.close()
    return seen


same([kinds('/bare/ok', 'k3'), kinds('/trailed/ok', 'k3'),
      kinds('/trailed/ok', 'k3')], [[HEADERS, DATA, HEADERS]] * 3,
     'a trailer of the gateway comes with the first answer and the replay')
executed(up, 'k3', 2, 'k3, with the one that is not protected')

# problems

answer, = send('/ok', None, body=None)
same((answer.version, answer.status, answer.get('content-type'),
      answer.get('idempotency-retry'), answer.get('cache-control'),
      b'"code":"key_missing"' in answer.body),
     ('2', 400, 'application/problem+json', 'new-key', 'no-store', True),
     'no key')

answer, = send('/ok', '"', body=None)
same((answer.status, b'"code":"key_invalid"' in answer.body), (400, True),
     'a malformed key')

answer, = send('/ok', 'k4', body=None, headers=[('Idempotency-Key', 'k5')])
same((answer.status, b'"code":"key_invalid"' in answer.body), (400, True),
     'two keys')

first, = send('/ok', 'k6', body=b'one')
answer, = send('/ok', 'k6', body=b'two')
same((answer.status, answer.get('idempotency-retry'),
      b'"code":"key_reused"' in answer.body), (422, 'same-key', True),
     'another body')
again, = send('/ok', 'k6', body=b'one')
same((again.status, again.body), (201, first.body), 'the record is unchanged')

conn = H2(gw.h2)
bodies = [conn.data(conn.request('/ok', key)) for key in ('k7', '"', 'k7')]
same((bodies[0], bodies[2], b'"code":"key_invalid"' in bodies[1]),
     (b'effect %06d\n' % up.of('k7')[0][0], bodies[0], True),
     'answers and refusals on one connection')
executed(up, 'k7', 1, 'k7')

first, again = send('/tiny/ok', 'k8', 'k8')
same((first.status, again.status,
      b'"code":"response_not_kept"' in again.body,
      b'"original_status":201' in again.body), (201, 409, True, True),
     'an answer which was not kept')

first, again = send('/close', 'k9', 'k9')
same((first.status, first.get('idempotency-retry'), again.status,
      b'"code":"outcome_unknown"' in again.body),
     (502, 'same-key', 409, True), 'an unknown outcome')
executed(up, 'k9', 1, 'k9')

first, again = send('/refused/ok', 'k10', 'k10')
same((first.status, first.get('idempotency-retry'), again.status),
     (502, 'same-key', 502), 'connection refused')

answer, = send('/page/ok', None, body=None)
same((answer.status, answer.body, answer.get('idempotency-retry')),
     (400, b'page missing\n', 'new-key'), 'error_page')

# bodies

for size in (0, 1, 1000, 16384, 16385, 40000, 70000, 1000000):
    for place in ('/ok', '/file/ok'):
        key = 'body-%d-%s' % (size, place[1])
        body = os.urandom(size)
        first, = send(place, key, body=body)
        again, = send(place, key, body=body)
        other, = send(place, key, body=body + b'x')
        same((first.status, again.status, again.body,
              again.get('idempotent-replayed'), other.status),
             (201, 201, first.body, 'true', 422),
             'a body of %d bytes to %s' % (size, place))
        executed(up, key, 1, key)
        same([e[5] for e in up.of(key)], [body],
             'it reached the upstream')

body = os.urandom(40000)
first, = send('/ok', 'k11', body=body)
again, = send('/ok', 'k11', body=body, chunked=True)
same((again.status, again.body), (201, first.body),
     'a body without a length equals one with it')

# these answers come before the body: see send_one(); 400 has a number of its
# own in HPACK

def begun(path, key, body):
    """how the head of an answer begins"""
    conn = H2(gw.h2)
    stream = conn.request(path, key, body=body,
                          headers=[('content-length', str(len(body)))])
    block = next(payload for kind, _, of, payload in conn.frames()
                 if of == stream and kind == HEADERS)
    conn.close()
    return block[:8]


ok(b'413' in begun('/small/ok', 'k12', b'12345678901'),
   'a body which is too large')
ok(b'\x8c' in begun('/ok', '"', b'x'), 'a malformed key, and a body')
ok(b'\x8c' in begun('/page/ok', '"', b'x'), 'error_page, and a body')
answer, = send('/small/ok', 'k12', body=b'12345678901', chunked=True)
same(answer.status, 413, 'a body which is too large, without a length')
first, again = send('/small/ok', 'k12', 'k12', body=b'1234567890')
same((first.status, first.get('idempotent-replayed'),
      again.get('idempotent-replayed')), (201, None, 'true'),
     'neither has left a claim')

# methods

first, again = send('/reading/ok', 'k13', 'k13', method='HEAD', body=None)
same((first.status, first.get('idempotent-replayed'), again.status,
      again.get('idempotent-replayed'), again.get('content-length')),
     (201, None, 201, 'true', first.get('content-length')), 'HEAD')

first, again = send('/reading/ok', 'k14', 'k14', method='GET', body=None)
same((first.status, again.status, again.get('idempotent-replayed')),
     (201, 201, 'true'), 'GET where it is protected')
ok(first.body == again.body and first.body, 'GET has a body')

answer, = send('/reading/ok', None, method='HEAD', body=None)
same((answer.status, answer.get('idempotency-retry')), (400, 'new-key'),
     'HEAD without a key')

first, again = send('/ok', 'k15', 'k15', method='GET', body=None)
same((first.get('idempotent-replayed'), again.get('idempotent-replayed')),
     (None, None), 'GET where it is not protected')

# a front controller

answers = [send(path, 'k16')[0] for path in
           ('/front/r%65fund', '/front/ship?', '/front//refund', '/front/ship')]
same([(a.get('x-uri'), a.get('idempotent-replayed')) for a in answers],
     [('/front/refund', None), ('/front/ship', None),
      ('/front/refund', 'true'), ('/front/ship', 'true')],
     'the scope is the path that was asked for')
executed(up, 'k16', 2, 'two paths')

shutil.rmtree(folder, ignore_errors=True)
gw.stop()
finish()
