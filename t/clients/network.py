"""The gateway of the clients' table, with a network and an upstream that fail.

    rig = Rig(protected=True)
    cell = rig.cell('got', FAULTS['lost-rst'])
    ...                       a client sends its request to cell.url
    cell.executions           what the upstream has executed
    cell.requests             what the client has sent: (key, body)
    rig.ask_again(cell)       the same bytes once more, past the network

A cell is one client with one fault, and has a port of its own: so a client is
pointed at it by its base URL only, whatever path and key it sends.
"""

import asyncio
import collections
import json
import os
import re
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
                + '/drive')
from gateway import Answer, Gateway, free_port, until  # noqa: E402
from redisd import Redis  # noqa: E402

# network: what happens to the first try; upstream: how the service acts;
# gateway: which of the servers below; ends: how a client may end that follows
# the guide, with the answer or with one of these statuses
Fault = collections.namedtuple('Fault', 'name title network upstream gateway '
                                        'ends')

FAULTS = {f.name: f for f in [
    Fault('none', 'nothing fails', 'pass', 'ok', 'wait', ()),
    Fault('lost-rst', 'answer lost, RST', 'lose-rst', 'ok', 'wait', ()),
    Fault('lost-fin', 'answer lost, FIN', 'lose-fin', 'ok', 'wait', ()),
    Fault('kept', 'answer lost, RST, kept connection', 'lose-rst', 'ok',
          'wait', ()),
    Fault('request-lost', 'request lost', 'drop', 'ok', 'wait', ()),
    Fault('request-cut', 'request cut in its body', 'cut-request', 'ok',
          'wait', ()),
    Fault('answer-cut', 'answer cut in its body', 'cut-answer', 'ok', 'wait',
          ()),
    Fault('leaves', 'connection breaks while the upstream works', 'leave',
          'work', 'wait', ()),
    Fault('leaves-409', 'the same, duplicates get 409', 'leave', 'work',
          'reject', ()),
    Fault('time-out', 'time-out of the client', 'pass', 'work', 'wait', ()),
    Fault('503', 'upstream says 503 once', 'pass', '503', 'wait', ()),
    Fault('429', 'upstream says 429 once', 'pass', '429', 'wait', ()),
    Fault('500', 'upstream says 500', 'pass', '500', 'wait', (500,)),
    Fault('upstream-down', 'upstream down, then up', 'pass', 'down', 'wait',
          ()),
    Fault('upstream-silent', 'upstream executes, never answers', 'pass',
          'silent', 'short', (409, 502, 504)),
    Fault('upstream-reset', 'upstream executes, then RST', 'pass', 'reset',
          'wait', (409, 502, 504)),
    Fault('redis-down', 'Redis down, then up', 'pass', 'ok', 'redis', ()),
]}

# the header or field that has the key, by path; the others have
# Idempotency-Key
LOCATIONS = '''
    location / { %(on)s proxy_pass http://127.0.0.1:$http_x_up; }
    location /v2/checkout/orders {
        %(on)s
        idempotency_key $http_paypal_request_id;
        proxy_pass http://127.0.0.1:$http_x_up;
    }
    location /v2/payments {
        %(on)s
        idempotency_key $square_key;
        proxy_pass http://127.0.0.1:$http_x_up;
    }
'''

SERVER = '''
    server {
        listen 127.0.0.1:%(port)d;
        %(more)s
        %(locations)s
    }
'''

SERVERS = {'wait': 'idempotency_in_progress wait=10s;',
           'reject': 'idempotency_in_progress reject;',
           'short': 'proxy_read_timeout 1s; idempotency_in_progress wait=10s;',
           'redis': 'idempotency_in_progress wait=10s;'}


class Cell:
    def __init__(self, client, fault, port):
        self.client = client
        self.fault = fault
        self.port = port
        self.url = 'http://127.0.0.1:%d' % port
        self.requests = []        # (key, body) of each try
        self.raw = None           # the first one, as the gateway gets it
        self.statuses = []        # what the gateway has answered
        self.executions = []      # numbers of effects
        self.executing = asyncio.Event()
        self.up = None            # the port of a service that comes later
        self.over = False         # the client has ended
        self.result = None        # what the client says: status, body, error

    def __repr__(self):
        return '%s, %s' % (self.client, self.fault.title)


class Rig:
    def __init__(self, protected=True, redis=True):
        self.cells = []
        self.effects = 0
        self.lock = threading.Lock()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.port = self.run(self.listen(self.upstream))
        self.redis = Redis() if redis else None
        # nothing listens there until redis_up()
        self.redis_port = free_port()
        self.gateway = self.start(protected)
        if redis and protected:
            threading.Thread(target=self.redis_up, daemon=True).start()

    def start(self, protected):
        """One nginx, with a server for each of SERVERS."""
        self.ports = {name: free_port() for name in SERVERS}
        text = ''
        for name, more in SERVERS.items():
            on = '' if not protected else 'idempotency %s;' % (
                'remote' if name == 'redis' and self.redis else 'main')
            text += SERVER % dict(port=self.ports[name], more=more,
                                  locations=LOCATIONS % dict(on=on))
        store = 'idempotency_store remote redis://127.0.0.1:%d;' \
            % self.redis_port if self.redis else ''
        gateway = Gateway(self, workers=2, http='''
            idempotency_json_set $square_key idempotency_key;
            %s
            %s
        ''' % (store, text))
        until(lambda: all(map(listens, self.ports.values())), 20)
        return gateway

    def stop(self):
        self.gateway.stop()
        if self.redis:
            self.redis.stop()

    def run(self, coroutine, timeout=30):
        return asyncio.run_coroutine_threadsafe(
            coroutine, self.loop).result(timeout)

    async def listen(self, handler, port=0):
        async def handle(reader, writer):
            try:
                await handler(reader, writer)
            except (asyncio.IncompleteReadError, OSError, ValueError):
                pass              # gone: that is what is tested
            finally:
                writer.close()
        server = await asyncio.start_server(handle, '127.0.0.1', port,
                                            backlog=256)
        return server.sockets[0].getsockname()[1]

    def cell(self, client, fault):
        cell = Cell(client, fault, 0)
        cell.port = self.run(self.listen(
            lambda reader, writer: self.network(cell, reader, writer)))
        cell.url = 'http://127.0.0.1:%d' % cell.port
        if fault.upstream == 'down':
            cell.up = free_port()
        with self.lock:
            self.cells.append(cell)
        return cell

    # ---- Redis comes up when every client has met a gateway without it ----

    def redis_up(self):
        def met():
            with self.lock:
                waiting = [c for c in self.cells
                           if c.fault.gateway == 'redis' and not c.over]
            return waiting and all(503 in c.statuses for c in waiting)

        # clients may start late: give them time, and go on without them
        until(lambda: any(c.fault.gateway == 'redis' and c.statuses
                          for c in list(self.cells)), 600, 0.1)
        until(met, 15, 0.05)
        self.run(self.listen(self.forward, self.redis_port))

    async def forward(self, reader, writer):
        there, back = await asyncio.open_connection('127.0.0.1',
                                                    self.redis.port)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    # ---- the network ----

    async def network(self, cell, reader, writer):
        while True:
            request = await read_message(reader)
            if request is None:
                return
            head, body = request
            method, path = head.decode('latin-1').split(' ')[:2]
            if method == 'GET':
                # before a request on a kept connection
                writer.write(plain(b'"kept"'))
                continue
            if path.endswith('/oauth2/token'):
                writer.write(plain(b'{"access_token":"t","token_type":'
                                   b'"Bearer","expires_in":3600}'))
                continue
            if not await self.one(cell, head, body, reader, writer):
                return

    async def one(self, cell, head, body, reader, writer):
        """One try.  False: the connection is over."""
        cell.requests.append((key_of(head, body), body))
        head = re.sub(rb'(?i)\r\n(?:connection|transfer-encoding|'
                      rb'content-length|expect|keep-alive): [^\r]*', b'', head)
        raw = head + b'\r\nConnection: close\r\nContent-Length: %d\r\n' \
            b'X-Cell: %d\r\nX-Up: %d\r\n\r\n%s' % (
                len(body), cell.port, cell.up or self.port, body)
        act = 'pass'
        if len(cell.requests) == 1:
            cell.raw = raw
            act = cell.fault.network
        if act == 'drop':
            return hang_up(writer, reset=True)
        answer = await self.through(cell, raw, act, reader)
        if act == 'lose-fin':
            return hang_up(writer)
        if act == 'cut-answer' and answer:
            head, _, body = answer.partition(b'\r\n\r\n')
            writer.write(head + b'\r\n\r\n' + body[:len(body) // 2])
            await writer.drain()
            return hang_up(writer)
        if act != 'pass' or not answer:
            return hang_up(writer, reset=True)
        writer.write(re.sub(rb'(?i)\r\nconnection: close', b'', answer, 1))
        await writer.drain()
        if cell.fault.upstream == 'down' and cell.statuses[-1] == 502 \
                and len(cell.statuses) == 1:
            await self.listen(self.upstream, cell.up)
        return True

    async def through(self, cell, raw, act, client):
        """The gateway's answer; None: the client, or the way, is gone."""
        reader, writer = await asyncio.open_connection(
            '127.0.0.1', self.ports[cell.fault.gateway])
        try:
            if act == 'cut-request':
                writer.write(raw[:-len(cell.requests[0][1]) // 2])
                await writer.drain()
                return None
            writer.write(raw)
            await writer.drain()
            answer = asyncio.ensure_future(reader.read(-1))
            others = [asyncio.ensure_future(client_gone(client))]
            if act == 'leave':
                others.append(asyncio.ensure_future(cell.executing.wait()))
            await asyncio.wait([answer] + others,
                               return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                other.cancel()
            if not answer.done():
                answer.cancel()
                return None
            if answer.result():
                cell.statuses.append(int(answer.result().split()[1]))
            return answer.result()
        finally:
            writer.close()

    # ---- the upstream ----

    async def upstream(self, reader, writer):
        head, body = await read_message(reader)
        cell = next(c for c in self.cells if c.port == int(
            re.search(rb'(?i)\r\nx-cell: (\d+)', head).group(1)))
        act = cell.fault.upstream
        if act in ('503', '429') and not cell.statuses:
            writer.write(plain(b'{"error":"later"}', int(act),
                               b'Retry-After: 1\r\n'))
            return await writer.drain()
        self.effects += 1
        effect = self.effects
        cell.executions.append(effect)
        cell.executing.set()
        if act == 'silent':
            return await reader.read(-1)
        if act == 'reset':
            return hang_up(writer, reset=True)
        if act == 'work' and len(cell.executions) == 1:
            await self.work(cell)
        writer.write(plain(document(effect), 500 if act == '500' else 201))
        await writer.drain()

    @staticmethod
    async def work(cell):
        """Until the client has come again, and in its own time then."""
        tries = len(cell.requests)
        for _ in range(1500):
            if len(cell.requests) > tries or cell.over:
                break
            await asyncio.sleep(0.01)
        for _ in range(60 if cell.fault.gateway == 'reject' else 30):
            if 409 in cell.statuses or cell.over:
                break
            await asyncio.sleep(0.01)

    # ---- afterwards ----

    def ask_again(self, cell):
        """An application that retries with the same key and bytes."""
        with socket.create_connection(
                ('127.0.0.1', self.ports[cell.fault.gateway]), 30) as sock:
            sock.sendall(cell.raw)
            data = b''
            while True:
                some = sock.recv(65536)
                if not some:
                    return Answer(data)
                data += some


def document(effect):
    """What PayPal, Square and Adyen would say, in one."""
    name = 'effect-%d' % effect
    return json.dumps({
        'id': name, 'status': 'CREATED', 'payment': {'id': name},
        'pspReference': name, 'resultCode': 'Authorised',
        'note': 'x' * 300}).encode()


def effect_of(body):
    """The number of the effect in a whole answer, else None."""
    try:
        found = re.fullmatch(r'effect-(\d+)', json.loads(body)['id'])
        return int(found.group(1)) if found else None
    except (ValueError, KeyError, TypeError):
        return None


def key_of(head, body):
    found = re.search(rb'(?i)\r\n(?:idempotency-key|paypal-request-id): '
                      rb'([^\r]*)', head) \
        or re.search(rb'"idempotency_key":"([^"]*)"', body)
    return found.group(1).decode('latin-1') if found else None


def plain(body, status=200, more=b''):
    return b'HTTP/1.1 %d Said\r\nContent-Type: application/json\r\n' \
        b'%sContent-Length: %d\r\n\r\n%s' % (status, more, len(body), body)


async def read_message(reader):
    """(head without its end, body); None at the end of the connection."""
    try:
        head = (await reader.readuntil(b'\r\n\r\n'))[:-4]
    except asyncio.IncompleteReadError:
        return None
    found = re.search(rb'(?i)\r\ncontent-length: *(\d+)', head)
    if found:
        return head, await reader.readexactly(int(found.group(1)))
    body = b''
    if re.search(rb'(?i)\r\ntransfer-encoding: *chunked', head):
        while True:
            n = int(await reader.readline(), 16)
            body += await reader.readexactly(n)
            await reader.readline()
            if n == 0:
                break
    return head, body


async def client_gone(reader):
    """Bytes of the next request stay where they are."""
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.02)


async def pump(reader, writer):
    try:
        while True:
            data = await reader.read(65536)
            if not data:
                break
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def hang_up(writer, reset=False):
    if reset:
        sock = writer.get_extra_info('socket')
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                        struct.pack('ii', 1, 0))
        writer.transport.abort()
    else:
        writer.close()
    return False


def listens(port):
    try:
        socket.create_connection(('127.0.0.1', port), 1).close()
        return True
    except OSError:
        return False
