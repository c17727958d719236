#!/usr/bin/env python3
"""The whole module in nginx, with both sides hostile: requests are mutated,
and so is what Redis replies; then the same requests with the embedded store.

Nobody dies, nothing is reported, everybody is answered or hung up on in time,
and no key is executed twice.  A real Redis stands behind the one that lies:
what was claimed is claimed, whatever the reply became.

    REQUESTS=n    for each store, 20000 by default
    SEED=n        it is printed
"""

import asyncio
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))) + '/drive')
import gateway                                              # noqa: E402
from gateway import Gateway, Ledger, finish, ok, same, until  # noqa: E402
from redis_process import Redis                             # noqa: E402

REQUESTS = int(os.environ.get('REQUESTS', 20000))
SEED = int(os.environ.get('SEED', time.time_ns() % 1000000))
CLIENTS = 16
TIMEOUT = 20

PATHS = ['/ok', '/ok', '/ok', '/status/402', '/big/5000', '/bigchunked/30000',
         '/slow/20', '/trailers', '/eof/100', '/cut/10', '/cutchunked/10',
         '/reset', '/close', '/head/20', '/status/204', '/hints',
         '/ok?h=X-Accel-Idempotency:final;ttl=9223372036854775807',
         '/ok?h=X-Accel-Idempotency:unknown', '/ok?h=Link:a&h=Link:b',
         '/ok?h=Content-Type:text/plain;charset=%22', '/file/ok', '/json/ok',
         '/odd/ok', '/probe/reset', '/little/big/500', '/wait/slow/30']

LOCATIONS = '''
    location /file/ {
        idempotency main;
        client_body_buffer_size 16;
        proxy_pass http://up;
    }
    location /odd/ {
        idempotency main;
        idempotency_key $arg_k$http_idempotency_key;
        idempotency_scope $uri$is_args$args$http_x_odd;
        idempotency_methods POST PUT DELETE PATCH GET;
        proxy_pass http://up;
    }
    location /probe/ {
        idempotency main;
        idempotency_unknown probe=/ask;
        proxy_pass http://up;
    }
    location = /ask {
        internal;
        proxy_set_header X-Id "";
        proxy_pass http://up/status/202;
    }
    location /little/ {
        idempotency main;
        idempotency_max_response 100;
        proxy_pass http://up;
    }
'''

HTTP = '''
    idempotency_max_response 20k;
    proxy_set_header X-Id $idempotency_upstream_key;
    client_body_timeout 2s;
    client_header_timeout 2s;
    proxy_read_timeout 5s;
    keepalive_timeout 3s;
'''

WORDS = [b'"', b'\\', b'\\"', b';', b'; a=1', b',', b' ', b'\t', b'\0', b':',
         b'\r\n', b'\n', b'%', b'%00', b'%2e%2e/', b'?', b'#', b'\xff',
         b'\xc3\xa9', b'Idempotency-Key: k1\r\n', b'idempotency_key: k2\r\n',
         b'Transfer-Encoding: chunked\r\n', b'Content-Length: 5\r\n',
         b'Expect: 100-continue\r\n', b'Range: bytes=0-1\r\n',
         b'If-None-Match: *\r\n', b'Early-Data: 1\r\n', b'HTTP/1.0',
         b'HTTP/2.0', b'-1', b'0', b'18446744073709551616',
         b'Upgrade: h2c\r\nConnection: Upgrade\r\n']
LIES = [b'*4\r\n', b'*-1\r\n', b'$-1\r\n', b':1\r\n', b':0\r\n', b':2\r\n',
        b':-1\r\n', b'+OK\r\n', b'-ERR x\r\n', b'-NOSCRIPT x\r\n',
        b'-WRONGTYPE x\r\n', b'-LOADING x\r\n', b'-MOVED 1 127.0.0.1:1\r\n',
        b'-ASK 1 127.0.0.1:1\r\n', b'-TRYAGAIN\r\n', b'\r\n', b'\n', b'\0',
        b'$2147483647\r\n', b'*2147483647\r\n', b'*0\r\n', b'$0\r\n\r\n',
        b':99999999999999999999\r\n', b'*1\r\n' * 9]


def mutate(rng, data, words):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(7)
        if how == 0 and data:
            data[at % len(data)] = rng.randrange(256)
        elif how == 1 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif how == 2:
            data[at:at] = rng.choice(words)
        elif how == 3:
            del data[at:at + rng.choice((1, 2, 10, 100))]
        elif how == 4:
            data[at:at] = data[at:at + rng.choice((1, 10, 100))]
        elif how == 5:
            data[at:at + rng.choice((1, 4))] = rng.choice(words)
        else:
            data[at:at] = bytes([rng.randrange(256)]) * rng.choice((1, 300))
    return bytes(data)


class Upstream(Ledger):
    """one that survives what it is asked for"""

    async def _connection(self, reader, writer):
        try:
            await super()._connection(reader, writer)
        except (TypeError, OverflowError):
            writer.close()

    async def _do_big(self, call, n, *rest):
        await super()._do_big(call, min(int(n), 100000))

    async def _do_bigchunked(self, call, n, *rest):
        await super()._do_bigchunked(call, min(int(n), 100000))


class Liar:
    """between nginx and a Redis that does not lie"""

    def __init__(self, rng, port):
        self.rng, self.target = rng, port
        self.rate = 0.0
        self.told = 0
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        threading.Thread(target=self.run, args=(started,),
                         daemon=True).start()
        started.wait()

    def run(self, started):
        asyncio.set_event_loop(self.loop)
        self.server = self.loop.run_until_complete(
            asyncio.start_server(self.serve, '127.0.0.1', 0))
        self.port = self.server.sockets[0].getsockname()[1]
        started.set()
        self.loop.run_forever()

    async def serve(self, reader, writer):
        try:
            back, forth = await asyncio.open_connection('127.0.0.1',
                                                        self.target)
        except OSError:
            writer.close()
            return
        tasks = [asyncio.ensure_future(self.pump(reader, forth, False)),
                 asyncio.ensure_future(self.pump(back, writer, True))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for end in (writer, forth):
            end.close()

    async def pump(self, reader, writer, replies):
        try:
            while True:
                data = await reader.read(65536)
                if not data:
                    return
                if replies and self.rng.random() < self.rate:
                    self.told += 1
                    data = mutate(self.rng, data, LIES)
                    if self.rng.random() < 0.1:
                        await asyncio.sleep(self.rng.choice((0.05, 0.4)))
                    if self.rng.random() < 0.1:
                        writer.write(data[:self.rng.randrange(len(data) + 1)])
                        return
                writer.write(data)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass


class Load:
    def __init__(self, rng, gw):
        self.rng, self.gw = rng, gw
        self.left = REQUESTS
        self.keys = 0
        self.seen = {}
        self.late = []

    def request(self):
        rng = self.rng
        if rng.random() < 0.3:
            self.keys += 1
        key = b'key-%d' % max(0, self.keys - rng.choice((0, 0, 1, 2, 10)))
        rng2 = random.Random(key)        # mostly the same for the same key
        path = rng2.choice(PATHS)
        body = b'body of ' + key * rng2.choice((1, 1, 30))
        if rng.random() < 0.05:
            body = b'another'
        if rng.random() < 0.2:
            key = b'"' + key + b'"'
        method = rng.choice((b'POST',) * 8 + (b'PATCH', b'GET', b'PUT'))
        head = b'%s %s HTTP/1.1\r\nHost: gateway\r\nIdempotency-Key: %s\r\n' \
            % (method, path.encode(), key)
        if rng.random() < 0.8:
            head += b'Connection: close\r\n'
        if rng.random() < 0.2:
            n = rng.randrange(len(body) + 1)
            body = b''.join(b'%x\r\n%s\r\n' % (len(p), p)
                            for p in (body[:n], body[n:]) if p) + b'0\r\n\r\n'
            head += b'Transfer-Encoding: chunked\r\n'
        else:
            head += b'Content-Length: %d\r\n' % len(body)
        data = head + b'\r\n' + body
        if rng.random() < 0.1:
            data += data
        return mutate(rng, data, WORDS) if rng.random() < 0.6 else data

    async def client(self):
        rng = self.rng
        while self.left > 0:
            self.left -= 1
            data = self.request()
            started = time.monotonic()
            got = b''
            try:
                reader, writer = await asyncio.open_connection(
                    '127.0.0.1', self.gw.port)
                if rng.random() < 0.1:
                    n = rng.randrange(len(data) + 1)
                    writer.write(data[:n])
                    await asyncio.sleep(rng.choice((0, 0.01, 0.05)))
                    data = data[n:]
                writer.write(data)
                if rng.random() < 0.1:
                    await asyncio.sleep(rng.choice((0, 0.005, 0.03)))
                    writer.transport.abort()
                    continue
                if rng.random() < 0.2:
                    writer.write_eof()
                got = await asyncio.wait_for(reader.read(-1), TIMEOUT)
                writer.close()
            except asyncio.TimeoutError:
                self.late.append(data)
            except OSError:
                pass
            took = time.monotonic() - started
            if took > TIMEOUT:
                self.late.append(data)
            status = got[9:12] if got.startswith(b'HTTP/1.') else b'none'
            self.seen[status] = self.seen.get(status, 0) + 1

    async def run(self):
        await asyncio.gather(*[self.client() for _ in range(CLIENTS)])


def twice(up):
    count = {}
    with up.lock:
        for _, _, method, target, headers, _ in up.entries:
            name = dict(headers).get('x-id')
            if name:
                count.setdefault(name, []).append((method, target))
    return [n for n in count.values() if len(n) > 1], len(count)


def campaign(name, store, liar):
    rng = random.Random('%d %s' % (SEED, name))
    up = Upstream()
    gw = Gateway(up, workers=2, store=store, http=HTTP, locations=LOCATIONS,
                 level='error')
    # a lie about a counter is what a loss looks like
    gw.expected = ['keys may be forgotten']
    until(lambda: len(gw.workers()) == 2, 20)
    workers = sorted(gw.workers())
    fds = [len(os.listdir('/proc/%d/fd' % w)) for w in workers]
    load = Load(rng, gw)
    if liar:
        liar.rate = 0.05
    asyncio.run(load.run())
    if liar:
        liar.rate = 0
        ok(liar.told > REQUESTS / 500, '%s: %d replies were lies'
           % (name, liar.told))
    print('# %s: %d requests, %r' % (name, REQUESTS, dict(sorted(
        (k.decode(), v) for k, v in load.seen.items()))))
    same(load.late, [], name + ': everybody was answered in time')
    same(sorted(gw.workers()), workers, name + ': nobody died')
    wrong, n = twice(up)
    ok(not wrong, '%s: %d keys, none was executed twice' % (name, n),
       wrong[:5])
    ok(n > REQUESTS / 50, name + ': many were executed', n)
    missing = [s for s in (b'201', b'400', b'409', b'422')
               if not load.seen.get(s)]
    same(missing, [], name + ': the run met what it was made for')
    numbers = iter(range(100000))
    ok(until(lambda: gw.post('/ok', 'end-%d' % next(numbers)).status == 201,
             10, 0.05), name + ': and then it works')
    ok(until(lambda: max(len(os.listdir('/proc/%d/fd' % w))
                         for w in workers) <= max(fds) + 20, 10),
       name + ': no descriptor leaked')
    gw.stop()


print('# SEED=%d' % SEED, flush=True)
root = gateway.TOP + '/build/hostile-%d' % os.getpid()
redis = Redis(root)
liar = Liar(random.Random(SEED), redis.port)
campaign('redis', 'redis://127.0.0.1:%d timeout=300ms connect_timeout=300ms '
         'connections=2 amnesia=0' % liar.port, liar)
campaign('shm', 'shm:32m', None)
redis.end()
finish()
