#!/usr/bin/env python3
"""Every answer that clients get for a key is the same answer.

Answers of all kinds, byte by byte as an upstream may send them, through
locations of all kinds: the replay equals the first answer header by header,
and the first answer equals that of the same location without idempotency.
Only these may differ: Date, Idempotent-Replayed, Idempotency-Expires, the hidden
Set-Cookie, and the framing of the body.
"""

import os
import re
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import NGINX, Gateway, finish, ok, same  # noqa: E402

EVERY_BYTE = bytes(range(256)) * 40


def sized(body, *lines, status='200 OK'):
    return ('HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n'
            % (status, len(body), ''.join(x + '\r\n' for x in lines))
            ).encode('latin-1') + body


def chunked(body, *lines, step=1000, trailers=''):
    out = ('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n%s\r\n'
           % ''.join(x + '\r\n' for x in lines)).encode()
    for i in range(0, len(body), step):
        piece = body[i:i + step]
        out += b'%x\r\n%s\r\n' % (len(piece), piece)
    return out + b'0\r\n' + trailers.encode() + b'\r\n'


def open_ended(body, *lines):
    return ('HTTP/1.1 200 OK\r\n%s\r\n'
            % ''.join(x + '\r\n' for x in lines)).encode() + body


TEXT = 'Content-Type: text/plain'

ANSWERS = {
    'nothing': sized(b''),
    'text': sized(b'hello', TEXT),
    'every byte': sized(EVERY_BYTE, 'Content-Type: application/octet-stream'),
    '100 KB': sized(b'0123456789' * 10000, TEXT),
    'chunked': chunked(b'hello', TEXT),
    'chunked nothing': chunked(b'', TEXT),
    'chunked 100 KB': chunked(b'0123456789' * 10000, TEXT),
    'chunked in single bytes': chunked(b'0123456789' * 20, TEXT, step=1),
    'open ended': open_ended(b'hello', TEXT),
    'open ended nothing': open_ended(b'', TEXT),
    'open ended 100 KB': open_ended(b'0123456789' * 10000, TEXT),
    'announced trailers': chunked(b'hello', TEXT, 'Trailer: X-Sum',
                                  trailers='X-Sum: 17\r\nX-Too: 18\r\n'),
    'another reason': sized(b'x', status='200 Perfectly fine'),
    'no reason': sized(b'x', status='200'),
    '201': sized(b'x', 'Location: /pay/17', status='201 Created'),
    '202': sized(b'x', status='202 Accepted'),
    '203': sized(b'x', status='203 Non-Authoritative Information'),
    '204': b'HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n',
    '205': sized(b'', status='205 Reset Content'),
    '206': sized(b'part', 'Content-Range: bytes 0-3/10',
                 status='206 Partial Content'),
    '207': sized(b'<x/>', 'Content-Type: text/xml', status='207 Multi-Status'),
    '299': sized(b'x', status='299 Odd'),
    '301': sized(b'', 'Location: http://elsewhere.example/x',
                 status='301 Moved Permanently'),
    '303': sized(b'', 'Location: /relative?a=b', status='303 See Other'),
    '304': b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n',
    '400': sized(b'{}', 'Content-Type: application/json',
                 status='400 Bad Request'),
    '404': sized(b'gone', status='404 Not Found'),
    '422': sized(b'no', status='422 Unprocessable Entity'),
    '499': sized(b'odd', status='499 Odd'),
    '500': sized(b'oops', status='500 Internal Server Error'),
    '501': sized(b'oops', status='501 No Such Method'),
    'empty type': sized(b'x', 'Content-Type:'),
    'charset': sized(b'x', 'Content-Type: text/html; charset=utf-8'),
    'quoted charset': sized(b'x', 'Content-Type: text/html; charset="utf-8"'),
    'charset and more':
        sized(b'x', 'Content-Type: text/html; charset=utf-8; a=b'),
    'more and charset':
        sized(b'x', 'Content-Type: text/html;a=b;charset=koi8-r'),
    'parameters': sized(b'x', 'Content-Type: multipart/mixed; boundary="a;b"'),
    'Location of the upstream itself':
        sized(b'', 'Location: http://127.0.0.1/pay/17', status='201 Created'),
    'Location, empty': sized(b'', 'Location:', status='201 Created'),
    'Location which is rewritten': None,
    'Refresh': sized(b'x', 'Refresh: 3; url=/x'),
    'Refresh which is rewritten': None,
    'ETag': sized(b'x', 'ETag: "abc"'),
    'weak ETag': sized(b'x', 'ETag: W/"abc"'),
    'Last-Modified':
        sized(b'x', 'Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT'),
    'Last-Modified, odd': sized(b'x', 'Last-Modified: yesterday'),
    'both': sized(b'x', 'ETag: "abc"',
                  'Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT'),
    'Accept-Ranges': sized(b'0123456789', 'Accept-Ranges: bytes'),
    'Expires': sized(b'x', 'Expires: Thu, 01 Jan 2099 00:00:00 GMT'),
    'Cache-Control twice':
        sized(b'x', 'Cache-Control: max-age=5', 'Cache-Control: private'),
    'Link twice': sized(b'x', 'Link: </a>; rel=a', 'Link: </b>; rel=b'),
    'Vary twice': sized(b'x', 'Vary: A', 'Vary: B'),
    'WWW-Authenticate twice':
        sized(b'x', 'WWW-Authenticate: Basic realm=a',
              'WWW-Authenticate: Bearer'),
    'Content-Encoding': sized(b'\x1f\x8bnot really', TEXT,
                              'Content-Encoding: gzip'),
    'Content-Language': sized(b'x', 'Content-Language: en'),
    'Content-Disposition': sized(b'x', 'Content-Disposition: attachment'),
    'X-Accel-*': sized(b'x', 'X-Accel-Buffering: no', 'X-Accel-Expires: 60'),
    'X-Accel-Charset': sized(b'x', TEXT, 'X-Accel-Charset: koi8-r'),
    'Server and Date': sized(b'x', 'Server: shop',
                             'Date: Wed, 01 Jan 2020 00:00:00 GMT'),
    'Keep-Alive': sized(b'x', 'Keep-Alive: timeout=5',
                        'Connection: keep-alive, X-Hop', 'X-Hop: y'),
    'Status': sized(b'x', 'Status: 404 Not Found'),
    'Via and Age': sized(b'x', 'Via: 1.1 shop', 'Age: 7'),
    'odd names': sized(b'x', 'x_y: underscore', 'X.Y: dot', 'x: short',
                       "X-!#$%&'*+^`|~: all"),
    'odd values': sized(b'x', 'X-Empty:', 'X-Blank:    ', 'X-In:  a  b  ',
                        'X-Latin: \xe4\xf6\xfc', 'X-Colon: a: b'),
    'a name four times': sized(b'x', 'X-A: 1', 'x-a: 2', 'X-A:', 'X-A: 1'),
    'a long value': sized(b'x', 'X-Long: ' + 'v' * 12000),
    'a hundred headers':
        sized(b'x', *['X-Many-%d: value %d' % (i, i) for i in range(100)]),
    'cookies': sized(b'x', 'Set-Cookie: a=1', 'X-B: c', 'set-cookie: b=2',
                     'Set-Cookie: c=3; Path=/; HttpOnly'),
}

LOCATIONS = {
    'plain': '',
    'unbuffered': 'proxy_buffering off;',
    'http10': 'proxy_http_version 1.0;',
    'pass': '''proxy_pass_header Server; proxy_pass_header Date;
               proxy_pass_header Status;''',
    'relative': 'absolute_redirect off;',
    'ranges': 'proxy_force_ranges on;',
    'charset': 'charset utf-8; charset_types *; override_charset on;',
    'expires': 'expires 1h;',
    'headers': '''add_header X-Added yes always;
                  add_trailer X-Trailed yes;''',
    'gzip': '''gzip on; gzip_types *; gzip_min_length 1; gzip_vary on;
               gzip_proxied any;''',
    'sub': 'sub_filter_types *; sub_filter hello Hello; '
           'sub_filter_last_modified on;',
    'small': 'proxy_buffer_size 16k; proxy_buffers 8 4k; '
             'proxy_busy_buffers_size 16k; output_buffers 1 2k; '
             'postpone_output 0;',
}

VERSION = tuple(int(x) for x in re.search(
    r'nginx/(\d+)\.(\d+)\.(\d+)', subprocess.run(
        [NGINX, '-v'], capture_output=True, text=True).stderr).groups())

if VERSION >= (1, 27, 2):
    LOCATIONS['trailers'] = 'proxy_pass_trailers on;'

ASKING = [('If-None-Match', '*'), ('Range', 'bytes=0-2'),
          ('If-Modified-Since', 'Thu, 01 Jan 2026 00:00:00 GMT'),
          ('Accept-Encoding', 'gzip'), ('TE', 'trailers')]


CLOCK = ('date', 'expires')


class Upstream:
    """Answers /.../NAME with these bytes, and closes."""

    def __init__(self):
        self.sock = socket.create_server(('127.0.0.1', 0))
        self.port = self.sock.getsockname()[1]
        self.count = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            sock, _ = self.sock.accept()
            threading.Thread(target=self.answer, args=(sock,),
                             daemon=True).start()

    def answer(self, sock):
        data = b''
        while b'\r\n\r\n' not in data or not data.endswith(b'\r\n\r\nx'):
            more = sock.recv(65536)
            if not more:
                sock.close()
                return
            data += more
        self.count += 1
        number = int(data.split(b' ')[1].rsplit(b'/', 1)[1])
        sock.sendall(list(ANSWERS.values())[number])
        sock.close()


def shape(answer, *ignored):
    """What must be equal; the names of the headers are in lower case."""
    ignored += ('connection', 'idempotent-replayed', 'idempotency-expires')
    return (answer.raw.split(b'\r\n')[0],
            sorted((n, 'now' if n in CLOCK and '1 Jan' not in v else v)
                   for n, v in answer.headers if n not in ignored),
            answer.body, answer.trailers)


up = Upstream()

ANSWERS['Location which is rewritten'] = sized(
    b'', 'Location: http://127.0.0.1:%d/pay/17' % up.port,
    status='201 Created')
ANSWERS['Refresh which is rewritten'] = sized(
    b'x', 'Refresh: 3; url=http://127.0.0.1:%d/x' % up.port)

common = '''
    proxy_set_header Connection "close";
    proxy_set_header If-None-Match "";
    proxy_set_header If-Modified-Since "";
    proxy_set_header Range "";
    proxy_redirect http://127.0.0.1:%d/ /;
    proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 64k;
    %%s
    proxy_pass http://127.0.0.1:%d;
''' % (up.port, up.port)


def clauses(text):
    """the special setting instead of the common one"""
    if 'proxy_buffer_size' in text:
        return common.replace('proxy_buffer_size 64k; proxy_buffers 8 64k; '
                              'proxy_busy_buffers_size 64k;', '') % text
    return common % text


locations = ''.join('''
    location /on/%s/ { idempotency large; %s }
    location /off/%s/ { %s }
''' % (name, clauses(text), name, clauses(text))
                    for name, text in LOCATIONS.items())

gw = Gateway(up, locations=locations, http='''
    underscores_in_headers on;
    idempotency_store large shm:64m;
''')

for place in LOCATIONS:
    for number, name in enumerate(ANSWERS):
        title = '%s, %s' % (place, name)
        path = '/on/%s/%d' % (place, number)
        asking = [('TE', 'trailers')]
        before = up.count

        bare = gw.post('/off/%s/%d' % (place, number), None, headers=asking)
        first = gw.post(path, 'k', headers=asking)
        again = gw.post(path, 'k', headers=asking)

        same((up.count - before, first.replayed, again.replayed),
             (2, False, True), title + ': executed once')
        ok(bare.whole and first.whole and again.whole,
           title + ': the answers are whole',
           '%r\n%r\n%r' % (bare, first, again))

        # the module knows the length of what it has collected, and it
        # promises no ranges
        differ = ('accept-ranges',) if place == 'ranges' else ()
        if first.get('content-length') and not bare.get('content-length'):
            differ += ('content-length', 'transfer-encoding', 'vary')

        same(shape(first, *differ), shape(bare, *differ),
             title + ': the first is as without the module')
        same(shape(again), shape(first, 'set-cookie'),
             title + ': the replay equals the first')

        if title == 'trailers, announced trailers':
            same(again.trailers, [('x-sum', '17'), ('x-too', '18')],
                 title + ': they are there')

        asked = gw.post(path, 'k', headers=ASKING)
        same((asked.status, asked.get('content-range')),
             (first.status, first.get('content-range')),
             title + ': a replay has no conditions and no ranges')

        first = gw.post(path, 'asking', headers=ASKING)
        again = gw.post(path, 'asking', headers=ASKING)
        same(shape(again), shape(first, 'set-cookie'),
             title + ': the replay equals the first which was conditional')

gw.stop()
finish()
