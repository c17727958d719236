"""An upstream that writes down what it executes before it answers.

What it does is said by the path, after the first word that is not known to
it: "/pay/slow/300" waits 300 ms and answers 201.  Words:

    ok                201 and the number of the execution
    status/N          the same with another status; several: /status/503
    slow/MS           201 after MS milliseconds
    wait[/STATUS]     201 once the test calls go()
    silent            executes and never answers
    reset, close      executes, then RST or FIN without an answer
    flaky             RST after the first execution of a key, then 201
    deaf              RST without reading anything, not an execution
    partial/N         reads N bytes of the body, then RST, not an execution
    head/N            N bytes of the header, then FIN
    cut/N             Content-Length 1000, N bytes of it, then FIN
    cutreset/N        the same, then RST
    cutchunked/N      chunked, N bytes, then FIN
    eof/N             no length: N bytes, then FIN
    big/N, bigchunked/N
    waitbig/N         big once the test calls go()
    drip/N/MS         chunked, N pieces with MS milliseconds between them
    trailers          chunked with a trailer
    hints             103, then 201
    events[/MS]       text/event-stream, two events, the first one later
    upgrade           101, then echoes
    answer            what the request headers X-Status, X-Header (repeated,
                      "Name: value") and X-Body say

Query arguments "h=Name:Value" add header lines to any of them.
"""

import asyncio
import socket
import struct
import threading
import time
import urllib.parse


def filler(n, effect):
    """n bytes that are others for each execution"""
    line = b'effect %06d ' % effect
    return (line * (n // len(line) + 1))[:n]


class Ledger:
    def __init__(self, port=0):
        self.lock = threading.Lock()
        self.entries = []         # (effect, key, method, path, headers, body)
        self.seen = []            # every request line that came
        self.connections = 0
        self.keepalive = True
        self.gate = None
        self.port = port
        self.loop = asyncio.new_event_loop()
        self.server = None
        started = threading.Event()
        threading.Thread(target=self._run, args=(started,),
                         daemon=True).start()
        started.wait()

    def _run(self, started):
        asyncio.set_event_loop(self.loop)
        self.gate = asyncio.Event()
        self.loop.run_until_complete(self._listen())
        started.set()
        self.loop.run_forever()

    async def _listen(self):
        self.server = await asyncio.start_server(
            self._connection, '127.0.0.1', self.port, backlog=1024,
            limit=1 << 20)
        self.port = self.server.sockets[0].getsockname()[1]

    # for the test

    def count(self, key):
        with self.lock:
            return sum(1 for e in self.entries if e[1] == key)

    def of(self, key):
        with self.lock:
            return [e for e in self.entries if e[1] == key]

    def came(self, text):
        """how many requests had this in their request line"""
        with self.lock:
            return sum(1 for line in self.seen if text in line)

    def go(self):
        self.loop.call_soon_threadsafe(self.gate.set)

    def hold(self):
        self.loop.call_soon_threadsafe(self.gate.clear)
        time.sleep(0.01)

    def until(self, key, n=1, timeout=20):
        """waits until the key was executed n times"""
        end = time.time() + timeout
        while self.count(key) < n and time.time() < end:
            time.sleep(0.005)
        return self.count(key) >= n

    # the server

    async def _connection(self, reader, writer):
        self.connections += 1
        try:
            while await self._request(reader, writer):
                pass
        except (asyncio.IncompleteReadError, OSError, ValueError):
            pass          # gone, or not HTTP
        finally:
            try:
                writer.close()
            except OSError:
                pass

    async def _request(self, reader, writer):
        line = await reader.readline()
        if not line:
            return False
        method, target, _ = line.decode('latin-1').split(' ', 2)
        path, _, query = target.partition('?')
        words = path.strip('/').split('/')
        while words and not hasattr(self, '_do_' + words[0]):
            words.pop(0)
        with self.lock:
            self.seen.append('%s %s' % (method, target))

        if words and words[0] == 'deaf':
            self._reset(writer)
            return False

        headers = []
        while True:
            h = await reader.readline()
            if h in (b'\r\n', b'\n', b''):
                break
            name, _, value = h.decode('latin-1').partition(':')
            headers.append((name.lower(), value.strip()))
        fields = dict(headers)
        length = int(fields.get('content-length', 0))

        if words and words[0] == 'partial':
            await reader.readexactly(int(words[1]))
            self._reset(writer)
            return False

        body = await reader.readexactly(length)
        if fields.get('transfer-encoding', '') == 'chunked':
            body = await self._chunks(reader)

        with self.lock:
            effect = len(self.entries) + 1
            self.entries.append((effect, fields.get('idempotency-key'),
                                 method, target, headers, body))

        extra = ''.join('%s\r\n' % v.replace(':', ': ', 1)
                        for k, v in urllib.parse.parse_qsl(query) if k == 'h')
        close = fields.get('connection', '').lower() == 'close'
        if close:
            # else nginx keeps a connection that is about to be closed
            extra += 'Connection: close\r\n'
        call = Call(writer, effect, method, extra, headers,
                    self.keepalive and not close)
        do = getattr(self, '_do_' + (words[0] if words else 'ok'))
        keep = await do(call, *words[1:])
        await writer.drain()
        return keep is not False and call.keepalive

    async def _chunks(self, reader):
        body = b''
        while True:
            n = int(await reader.readline(), 16)
            data = await reader.readexactly(n)
            await reader.readline()
            if n == 0:
                return body
            body += data

    @staticmethod
    def _reset(writer):
        sock = writer.get_extra_info('socket')
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                        struct.pack('ii', 1, 0))
        writer.transport.abort()

    async def _do_deaf(self, call):
        pass

    async def _do_partial(self, call):
        pass

    async def _do_ok(self, call, *rest):
        call.answer(201, b'effect %06d\n' % call.effect)

    async def _do_status(self, call, status, *rest):
        call.answer(int(status), b'effect %06d\n' % call.effect)

    async def _do_slow(self, call, ms, *rest):
        await asyncio.sleep(int(ms) / 1000)
        call.answer(201, b'effect %06d\n' % call.effect)

    async def _do_wait(self, call, status='201', *rest):
        await self.gate.wait()
        call.answer(int(status or 201), b'effect %06d\n' % call.effect)

    async def _do_silent(self, call, *rest):
        await asyncio.sleep(3600)

    async def _do_reset(self, call, *rest):
        self._reset(call.writer)
        return False

    async def _do_flaky(self, call, *rest):
        if self.count(dict(call.headers).get('idempotency-key')) == 1:
            self._reset(call.writer)
            return False
        call.answer(201, b'effect %06d\n' % call.effect)

    async def _do_close(self, call, *rest):
        return False

    async def _do_head(self, call, n, *rest):
        head = call.head(201, 'Content-Length: 14\r\n')
        call.writer.write((head + b'effect %06d\n\n' % call.effect)[:int(n)])
        return False

    async def _do_cut(self, call, n, *rest):
        call.writer.write(call.head(201, 'Content-Length: 1000\r\n')
                          + filler(int(n), call.effect))
        return False

    async def _do_cutreset(self, call, n, *rest):
        call.writer.write(call.head(201, 'Content-Length: 1000\r\n')
                          + filler(int(n), call.effect))
        await call.writer.drain()
        await asyncio.sleep(0.1)
        self._reset(call.writer)
        return False

    async def _do_cutchunked(self, call, n, *rest):
        call.writer.write(call.head(201, 'Transfer-Encoding: chunked\r\n'))
        call.chunk(filler(int(n), call.effect))
        return False

    async def _do_eof(self, call, n, *rest):
        call.writer.write(call.head(201, 'Connection: close\r\n')
                          + filler(int(n), call.effect))
        return False

    async def _do_big(self, call, n, *rest):
        call.answer(201, filler(int(n), call.effect))

    async def _do_waitbig(self, call, n, *rest):
        await self.gate.wait()
        call.answer(201, filler(int(n), call.effect))

    async def _do_bigchunked(self, call, n, *rest):
        call.writer.write(call.head(201, 'Transfer-Encoding: chunked\r\n'))
        data = filler(int(n), call.effect)
        for i in range(0, len(data), 10000):
            call.chunk(data[i:i + 10000])
            await call.writer.drain()
        call.writer.write(b'0\r\n\r\n')

    async def _do_drip(self, call, n, ms, *rest):
        call.writer.write(call.head(201, 'Transfer-Encoding: chunked\r\n'))
        for i in range(int(n)):
            call.chunk(b'effect %06d piece %d\n' % (call.effect, i))
            await call.writer.drain()
            await asyncio.sleep(int(ms) / 1000)
        call.writer.write(b'0\r\n\r\n')

    async def _do_trailers(self, call, *rest):
        call.writer.write(call.head(201, 'Transfer-Encoding: chunked\r\n'
                                         'Trailer: X-Sum\r\n'))
        call.chunk(b'effect %06d\n' % call.effect)
        call.writer.write(b'0\r\nX-Sum: %d\r\n\r\n' % call.effect)

    async def _do_hints(self, call, *rest):
        call.writer.write(b'HTTP/1.1 103 Early Hints\r\n'
                          b'Link: </a.css>; rel=preload\r\n\r\n')
        await call.writer.drain()
        await asyncio.sleep(0.1)
        call.answer(201, b'effect %06d\n' % call.effect)

    async def _do_events(self, call, ms='0', *rest):
        call.writer.write(call.head(200, 'Content-Type: text/event-stream\r\n'
                                         'Transfer-Encoding: chunked\r\n'))
        await asyncio.sleep(int(ms) / 1000)
        for i in range(2):
            call.chunk(b'data: effect %06d event %d\n\n' % (call.effect, i))
            await call.writer.drain()
            await asyncio.sleep(0.2)
        call.writer.write(b'0\r\n\r\n')

    async def _do_upgrade(self, call, *rest):
        call.writer.write(call.head(101, 'Upgrade: echo\r\n'
                                         'Connection: Upgrade\r\n'))
        call.writer.write(b'effect %06d\n' % call.effect)
        await call.writer.drain()
        await asyncio.sleep(0.2)
        return False

    async def _do_answer(self, call, *rest):
        fields = dict(call.headers)
        call.extra += ''.join(v + '\r\n' for k, v in call.headers
                              if k == 'x-header')
        body = fields.get('x-body', 'effect %06d\n' % call.effect)
        call.answer(int(fields.get('x-status', 201)),
                    body.replace('EFFECT', str(call.effect)).encode())


class Call:
    def __init__(self, writer, effect, method, extra, headers, keepalive):
        self.writer = writer
        self.effect = effect
        self.method = method
        self.extra = extra
        self.headers = headers
        self.keepalive = keepalive

    def head(self, status, lines):
        return ('HTTP/1.1 %d Whatever\r\nX-Effect: %d\r\n%s%s\r\n'
                % (status, self.effect, self.extra, lines)).encode()

    def answer(self, status, body):
        if status in (204, 304):
            self.writer.write(self.head(status, ''))
            return
        head = self.head(status, 'Content-Length: %d\r\n' % len(body))
        self.writer.write(head + (b'' if self.method == 'HEAD' else body))

    def chunk(self, data):
        if data:
            self.writer.write(b'%x\r\n' % len(data) + data + b'\r\n')
