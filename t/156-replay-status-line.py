#!/usr/bin/env python3
"""A replay has the status line of the first answer, whatever nginx accepts.

nginx accepts "404.13" and a line without a reason from HTTP upstreams, and
anything that begins with three digits as the "Status" of FastCGI, uwsgi and
SCGI.  What it passes on is replayed byte for byte, by HTTP/1.1 and HTTP/2.  An
answer that cannot be stored is not kept, and the retry gets 409.
"""

import os
import subprocess
import sys
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import Gateway, Ledger, executed, finish, same  # noqa: E402
from backends import Fastcgi, Http, Scgi, Uwsgi  # noqa: E402

# after "HTTP/1.1 ", as ngx_http_parse_status_line() reads it
LINES = ['404.13 Not Found', '404.', '200', '200 ', ' 200 OK', '2 00 OK',
         '20 0 OK', '2  0  0', '200 a\tb', '200 \x1b[31mred', '200 \x80\xff',
         '200 200 201', '200  two  blanks ', '499 ' + 'long ' * 400]

# after "Status: ": three digits are the status, all of it is the line
STATUSES = ['200OK', '200', '404.13', '200-fine', '404, not here', '200\tOK',
            '2000', '200 \x1b[31mred', '200 \x80\xff', '201' + 'x' * 2000]

servers = {'proxy': Http(), 'fastcgi': Fastcgi(), 'uwsgi': Uwsgi(),
           'scgi': Scgi(), 'uwsgi-status': Uwsgi(), 'scgi-line': Scgi()}
servers['uwsgi-status'].status = 'Status: %s\r\n'
servers['scgi-line'].status = 'HTTP/1.1 %s\r\n'

KINDS = {'proxy': LINES, 'uwsgi': LINES, 'scgi-line': LINES,
         'fastcgi': STATUSES, 'scgi': STATUSES,
         # uwsgi_pass forwards the line, too, and curl refuses an escape there
         'uwsgi-status': [x for x in STATUSES if '\x1b' not in x]}


def location(name):
    way = name.partition('-')[0]
    if way == 'proxy':
        how = 'proxy_pass http://127.0.0.1:%d;'
    else:
        how = ('''
            %(way)s_param CONTENT_LENGTH $content_length;
            %(way)s_param REQUEST_METHOD $request_method;
            %(way)s_pass 127.0.0.1:%%d;
        ''' % dict(way=way))
    return 'location /%s/ { idempotency main; %s }' % (
        name, how % servers[name].port)


gw = Gateway(Ledger(), locations='\n'.join(map(location, servers)))


def post(path, key, line):
    """the answer's first line, the other ones, and the body"""
    c = gw.call(path, key,
                headers=[('X-Line', urllib.parse.quote(line, safe='',
                                                       encoding='latin-1'))])
    c.sock.settimeout(15)
    head, _, body = b''.join(iter(lambda: c.sock.recv(65536), b'')
                             ).partition(b'\r\n\r\n')
    c.close()
    first, *rest = head.split(b'\r\n')
    return first, rest, body


def h2(path, key, line):
    out = subprocess.run(
        ['curl', '-s', '-i', '--http2-prior-knowledge', '-H',
         'Idempotency-Key: ' + key, '-H', 'X-Line: '
         + urllib.parse.quote(line, safe='', encoding='latin-1'),
         '-d', 'x', 'http://127.0.0.1:%d%s' % (gw.h2, path)],
        capture_output=True).stdout
    head, _, body = out.partition(b'\r\n\r\n')
    first, *rest = head.split(b'\r\n')
    return first, rest, body


def plain(answer):
    first, rest, body = answer
    return first, [x for x in rest
                   if not x.lower().startswith(
                       (b'date:', b'idempotent-', b'idempotency-expires:'))], \
        body


def replayed(answer):
    return any(x.lower() == b'idempotent-replayed: true' for x in answer[1])


for name, lines in KINDS.items():
    for i, line in enumerate(lines):
        for ask in (post, h2):
            key = '%s-%d-%s' % (name, i, ask.__name__)
            what = '%s %s %.20r' % (name, ask.__name__, line)
            first = ask('/%s/pay' % name, key, line)
            same((replayed(first), first[2][:6]), (False, b'effect'),
                 what + ': nginx takes it')
            for other in (post, h2):
                again = other('/%s/pay' % name, key, line)
                same((replayed(again), again[2]), (True, first[2]),
                     '%s: replayed to %s' % (what, other.__name__))
                if other is ask:
                    same(plain(again), plain(first), what + ': byte for byte')
            executed(servers[name], key, 1, what)

# a zero byte would be no part of a line in a record
first = post('/proxy/pay', 'zero', '200 a\0b')
same(first[0], b'HTTP/1.1 200 a\0b', 'a zero byte: nginx takes it')
again = post('/proxy/pay', 'zero', '200 a\0b')
same((again[0], b'"response_not_kept"' in again[2]),
     (b'HTTP/1.1 409 Conflict', True), 'a zero byte: not kept')
executed(servers['proxy'], 'zero', 1, 'a zero byte')

gw.stop()
finish()
