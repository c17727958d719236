"""Upstreams of all protocols that nginx speaks, with one ledger.

They run in this process; each execution is in the ledger before anything is
answered.  What a client wants to happen is in its request header X-Do, a list
by commas: the first word is for the first upstream that gets the attempt, the
last one for all others.

    ok                201 and the number of the execution
    status:N          another status
    slow              an answer, but late
    chunked, nolength, big, ssi, stale       other forms of an answer
    close, reset, timeout      no answer
    cuthead, cutbody           half an answer
    release, final, unknown    an answer with X-Accel-Idempotency
    cut-release, cut-final     the same, and the header breaks off behind it
    accel:TARGET      X-Accel-Redirect

GET and HEAD are not executions: /auth/* answers auth_request, /probe/ tells
the truth, everything else is a page with the status that X-Page names.
"""

import asyncio
import base64
import collections
import hashlib
import itertools
import os
import ssl
import struct
import time

from certs import Certs
from h2 import (DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, fields,
                frame)
from . import hpack

SILENCE = 2               # longer than nginx waits, see grammar.TIMEOUT
SLOW = 0.12
GONE = '127.0.0.2'        # of servers for subrequests that are not there
PHRASES = {200: 'OK', 201: 'Created', 204: 'No Content', 404: 'Not Found'}

Request = collections.namedtuple('Request', 'method uri headers body peer')


class Execution:
    """A line of the ledger."""

    def __init__(self, effect, request, do):
        headers = request.headers
        self.effect = effect
        self.key = headers.get('idempotency-key')
        self.user, _ = credentials(headers)
        self.right = credentials(headers)[1]
        self.method = request.method
        self.body = digest(request.body)
        self.attempt = headers.get('x-attempt')
        self.path = [p for p in headers.get('x-path', '').split('>') if p]
        self.peer = request.peer
        self.do = do
        self.mirror = request.uri.startswith('/mirror')
        self.subrequest = is_subrequest(headers)
        self.status = 0           # once all of the answer was sent
        self.time = time.monotonic()

    def __str__(self):
        return ('effect %d: %s at %s by %s, attempt %s, through %s, %s%s'
                % (self.effect, self.method, self.peer, self.user,
                   self.attempt, '>'.join(self.path), self.do,
                   '' if self.right else ', WRONG CREDENTIALS'))


class Reply:
    """cut: None, or how it breaks off: silent, close, reset, head, body"""

    def __init__(self, status=200, headers=(), body=b'', cut=None, delay=0,
                 form='length', entry=None):
        self.status, self.headers, self.body = status, list(headers), body
        self.cut, self.delay, self.form = cut, delay, form
        self.entry = entry

    def sent(self):
        if self.entry and not self.cut:
            self.entry.status = self.status


def is_subrequest(headers):
    """The error page of a mirror or an auth_request, by who has failed."""
    return any(peer in headers.get('x-tried', '')
               for peer in (GONE, 'auth.sock', 'mirror.sock'))


def credentials(headers):
    """(the name, whether the password is right)"""
    kind, _, text = headers.get('authorization', '').partition(' ')
    if kind != 'Basic':
        return '', False
    user, _, password = base64.b64decode(text).decode().partition(':')
    return user, password == 'right'


def digest(body):
    return hashlib.md5(body).hexdigest()[:8]


class Ledger:
    """What was executed, and what is answered."""

    def __init__(self):
        self.effects = itertools.count(1)
        self.entries = []
        self.by_attempt = collections.defaultdict(list)
        self.by_key = collections.defaultdict(list)
        self.promised = {}        # fences below which nothing runs
        self.arrivals = collections.Counter()
        self.counts = collections.Counter()

    def clear(self):
        self.__init__()

    def answer(self, request):
        method, uri, headers = request.method, request.uri, request.headers
        if method in ('GET', 'HEAD'):
            if uri.startswith('/auth/'):
                return self.auth(uri[6:], headers)
            if uri.startswith('/probe/'):
                return self.probe(uri[7:], headers)
            self.counts['page'] += 1
            return Reply(int(headers.get('x-page', 404)),
                         [('Content-Type', 'text/plain')], b'a page\n')

        attempt = headers.get('x-attempt')
        if uri.startswith('/mirror') or is_subrequest(headers):
            do = 'ok'
        else:
            words = headers.get('x-do', 'ok').split(',')
            do = words[min(self.arrivals[attempt], len(words) - 1)]
            self.arrivals[attempt] += 1
        return self.execute(request, do)

    def execute(self, request, do):
        entry = Execution(next(self.effects), request, do)
        fence = int(request.headers.get('x-fence') or 0)
        if fence and fence < self.promised.get((entry.user, entry.key), 0):
            self.counts['late, refused by fence'] += 1
            return Reply(409, [], b'too late\n')
        self.entries.append(entry)
        self.by_attempt[entry.attempt].append(entry)
        self.by_key[entry.user, entry.key].append(entry)
        self.counts['at ' + entry.peer] += 1
        return self.reply(entry, do)

    def reply(self, entry, do):
        word, _, value = do.partition(':')
        reply = Reply(201, [('Content-Type', 'text/plain'),
                            ('X-Effect', str(entry.effect))],
                      b'effect %d\n' % entry.effect, entry=entry)
        if word == 'status':
            reply.status = int(value)
            if reply.status == 204:
                reply.body = b''
        elif word == 'slow':
            reply.delay = SLOW
        elif word in ('chunked', 'nolength'):
            reply.form = word
        elif word == 'big':
            reply.body += b'x' * 70000
        elif word == 'ssi':
            reply.headers[0] = ('Content-Type', 'text/html')
            reply.body += b'<!--#include virtual="/aux_inc" -->\n'
        elif word == 'stale':
            reply.headers.append(('X-Accel-Expires', '@1'))
        elif word in ('close', 'reset', 'timeout', 'cuthead', 'cutbody'):
            reply.cut = word
        elif word in ('release', 'final', 'unknown'):
            reply.headers.append(('X-Accel-Idempotency', word))
        elif word in ('cut-release', 'cut-final'):
            reply.headers.append(('X-Accel-Idempotency', word[4:]))
            reply.cut = 'cuthead'
        elif word == 'accel':
            reply.headers.append(('X-Accel-Redirect', value))
        return reply

    @staticmethod
    def auth(mode, headers):
        user, right = credentials(headers)
        if mode == 'check':
            status = 200 if right else 401
        else:
            status = int(mode)
        return Reply(status, [('X-User', user)])

    def probe(self, mode, headers):
        self.counts['probe'] += 1
        if mode != 'truth':
            return Reply(int(mode), [('Content-Type', 'text/plain')],
                         b'not now\n')
        user, _ = credentials(headers)
        key = user, headers.get('idempotency-key')
        done = [e for e in self.by_key[key]
                if not e.mirror and not e.subrequest]
        if done:
            # an answer for this very operation
            return Reply(200, [('Content-Type', 'text/plain'),
                               ('X-Effect', str(done[-1].effect))],
                         b'effect %d\n' % done[-1].effect)
        self.promised[key] = int(headers.get('x-fence') or 0)
        return Reply(404, [('Content-Type', 'text/plain')], b'never\n')


class Upstreams:
    """Sockets under root: h0 h1 h2 tls deaf auth mirror fcgi uwsgi scgi
    grpc"""

    def __init__(self, root):
        self.root = root
        self.ledger = Ledger()
        self.servers = []
        self.tasks = set()        # one for each connection

    async def start(self):
        kinds = dict(h0=http, h1=http, h2=http, auth=http, mirror=http,
                     deaf=deaf, fcgi=fastcgi, uwsgi=uwsgi, scgi=scgi,
                     grpc=grpc)
        Certs(self.root).ca('tls')
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.root + '/tls.pem', self.root + '/tls.key')
        self.servers.append(await asyncio.start_unix_server(
            self.runner('tls', http), self.socket('tls'), ssl=context,
            backlog=511))
        for name, protocol in kinds.items():
            self.servers.append(await asyncio.start_unix_server(
                self.runner(name, protocol), self.socket(name), backlog=511))

    def socket(self, name):
        return '%s/%s.sock' % (self.root, name)

    def runner(self, name, protocol):
        async def run(reader, writer):
            self.tasks.add(asyncio.current_task())
            try:
                await protocol(self.ledger, name, reader, writer)
            except (OSError, EOFError, ValueError, struct.error,
                    asyncio.CancelledError):
                pass
            finally:
                writer.close()
                self.tasks.discard(asyncio.current_task())
        return run

    async def stop(self):
        for server in self.servers:
            server.close()
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in os.listdir(self.root):
            if name.endswith('.sock'):
                os.unlink(self.root + '/' + name)


async def deliver(writer, reply, whole, head):
    """Sends an answer of bytes, or what of it there is to be; True if all."""
    if reply.delay:
        await asyncio.sleep(reply.delay)
    if reply.cut == 'timeout':
        await asyncio.sleep(SILENCE)
    elif reply.cut == 'reset':
        writer.transport.abort()
    elif reply.cut == 'cuthead':
        writer.write(whole[:head])
    elif reply.cut == 'cutbody':
        writer.write(whole[:-3])
    elif reply.cut is None:
        reply.sent()
        writer.write(whole)
    if reply.cut != 'reset':
        await writer.drain()
    return reply.cut is None


def cgi_text(reply, first):
    """A header as in CGI, and the body; the length of a header cut short"""
    head = first % ('%d %s' % (reply.status,
                               PHRASES.get(reply.status, 'Status')))
    head += ''.join('%s: %s\r\n' % h for h in reply.headers)
    short = len(head)
    if reply.form != 'nolength' and reply.status != 204:
        head += 'Content-Length: %d\r\n' % len(reply.body)
    return head.encode() + b'\r\n' + reply.body, short


def params_request(params, body, peer):
    headers = {name[5:].lower().replace('_', '-'): value
               for name, value in params.items() if name.startswith('HTTP_')}
    return Request(params.get('REQUEST_METHOD', ''),
                   params.get('REQUEST_URI', ''), headers, body, peer)


async def deaf(ledger, peer, reader, writer):
    writer.transport.abort()


async def http(ledger, peer, reader, writer):
    while True:
        head = await reader.readuntil(b'\r\n\r\n')
        lines = head.decode('latin-1').split('\r\n')
        method, uri, _ = lines[0].split(' ', 2)
        headers = dict((n.lower(), v.strip()) for n, _, v in
                       (line.partition(':') for line in lines[1:] if line))
        body = await http_body(reader, headers)
        reply = ledger.answer(Request(method, uri, headers, body, peer))
        whole, short = cgi_text(reply, 'HTTP/1.1 %s\r\n')
        if method == 'HEAD':
            whole = whole[:whole.index(b'\r\n\r\n') + 4]
        elif reply.form == 'chunked':
            whole = (whole[:short] + b'Transfer-Encoding: chunked\r\n\r\n'
                     + b'%x\r\n' % len(reply.body) + reply.body
                     + b'\r\n0\r\n\r\n')
        if not await deliver(writer, reply, whole, short) \
                or reply.form == 'nolength':
            return


async def http_body(reader, headers):
    if headers.get('transfer-encoding') != 'chunked':
        return await reader.readexactly(int(headers.get('content-length')
                                            or 0))
    body = b''
    while True:
        size = int(await reader.readline(), 16)
        body += await reader.readexactly(size)
        await reader.readline()
        if size == 0:
            return body


async def scgi(ledger, peer, reader, writer):
    size = int((await reader.readuntil(b':'))[:-1])
    words = (await reader.readexactly(size + 1)).decode().split('\0')
    params = dict(zip(words[0:-1:2], words[1::2]))
    body = await reader.readexactly(int(params['CONTENT_LENGTH'] or 0))
    reply = ledger.answer(params_request(params, body, peer))
    await deliver(writer, reply, *cgi_text(reply, 'Status: %s\r\n'))


async def uwsgi(ledger, peer, reader, writer):
    _, size, _ = struct.unpack('<BHB', await reader.readexactly(4))
    data, words, i = await reader.readexactly(size), [], 0
    while i < size:
        n, = struct.unpack_from('<H', data, i)
        words.append(data[i + 2:i + 2 + n].decode())
        i += 2 + n
    params = dict(zip(words[::2], words[1::2]))
    body = await reader.readexactly(int(params.get('CONTENT_LENGTH') or 0))
    reply = ledger.answer(params_request(params, body, peer))
    await deliver(writer, reply, *cgi_text(reply, 'HTTP/1.1 %s\r\n'))


async def fastcgi(ledger, peer, reader, writer):
    def record(kind, data):
        return struct.pack('>BBHHBB', 1, kind, 1, len(data), 0, 0) + data

    while True:
        params, body, keep = b'', b'', 0
        while True:
            _, kind, _, size, pad, _ = struct.unpack(
                '>BBHHBB', await reader.readexactly(8))
            data = (await reader.readexactly(size + pad))[:size]
            if kind == 1:
                keep = data[2] & 1
            elif kind == 4:
                params += data
            elif kind == 5:
                body += data
                if size == 0:
                    break
        reply = ledger.answer(params_request(fastcgi_params(params), body,
                                             peer))
        text, short = cgi_text(reply, 'Status: %s\r\n')
        whole = record(6, text[:short]) + b''.join(
            record(6, text[i:i + 8000])
            for i in range(short, len(text), 8000)) \
            + record(6, b'') + record(3, bytes(8))
        if reply.cut == 'cutbody':
            reply.cut = 'cuthead'
            whole, short = record(6, text[:-3]), len(text) + 5
        if not await deliver(writer, reply, whole, short + 8) or not keep:
            return


def fastcgi_params(data):
    words, i = [], 0
    while i < len(data):
        sizes = []
        for _ in range(2):
            n = data[i]
            i += 1
            if n & 0x80:
                n = (n & 0x7f) << 24 | int.from_bytes(data[i:i + 3], 'big')
                i += 3
            sizes.append(n)
        for n in sizes:
            words.append(data[i:i + n].decode())
            i += n
    return dict(zip(words[::2], words[1::2]))


async def grpc(ledger, peer, reader, writer):
    await reader.readexactly(24)
    writer.write(frame(SETTINGS, 0, 0))
    heads, bodies, alive = {}, {}, True
    while alive:
        head = await reader.readexactly(9)
        kind, flags, stream = struct.unpack('>BBI', head[3:])
        data = await reader.readexactly(int.from_bytes(head[:3], 'big'))
        if kind == SETTINGS and not flags & 1:
            writer.write(frame(SETTINGS, 1, 0))
        elif kind == HEADERS:
            heads[stream] = dict(hpack.decode(data))
        elif kind == DATA:
            bodies[stream] = bodies.get(stream, b'') + data
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            headers = heads.pop(stream)
            request = Request(headers[':method'], headers[':path'], headers,
                              bodies.pop(stream, b''), peer)
            alive = await grpc_call(writer, stream, ledger.answer(request))


async def grpc_call(writer, stream, reply):
    names = [(':status', str(reply.status))] + [
        (n.lower(), v) for n, v in reply.headers]
    head = frame(HEADERS, END_HEADERS, stream, fields(*names))
    body = reply.body
    frames = b''.join(frame(DATA, 0, stream, body[i:i + 16000])
                      for i in range(0, len(body), 16000))
    short = len(head) - 4
    if reply.cut == 'cutbody':
        reply.cut, short = 'cuthead', len(head) + len(frames) - 3
    whole = head + frames + frame(DATA, END_STREAM, stream)
    return await deliver(writer, reply, whole, short)
