"""The counting upstream: it writes its ledger before it answers.

    python3 upstream.py PORT LEDGER

The path says what it does: "/.../STATUS/MS/SIZE/FORM" answers after MS
milliseconds with SIZE bytes that are others for each execution.  FORM:

    sized, chunked
    flaky             503 at the first execution of a key, then sized
    cut, cutchunked   half of the body, then FIN
    reset             executes, then RST without an answer

A request without a length has no body, as for any server; the ledger calls it
BARE, for nginx without memory makes such requests out of others.

A line of the ledger is one write() to a file opened with O_APPEND: what was
executed is there, however this process ends.
"""

import asyncio
import hashlib
import os
import socket
import struct
import sys
import time


BARE = 'bare'


def filler(effect, size):
    """The body of an execution."""
    line = ('effect %s ' % effect).encode()
    return (line * (size // len(line) + 1))[:size]


def digest(body):
    return hashlib.blake2b(body, digest_size=6).hexdigest()


class Ledger:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.life = '%x' % os.getpid()
        self.count = 0
        self.seen = set()

    def execute(self, key, n, body, status, form):
        self.count += 1
        effect = '%s.%d' % (self.life, self.count)
        if form == 'flaky' and key not in self.seen:
            self.seen.add(key)
            status = 503
        os.write(self.fd, ('%.6f\t%s\t%s\t%s\t%s\t%d\n' % (
            time.monotonic(), effect, key, n,
            BARE if body is None else digest(body), status)).encode())
        return effect, status


class Connection(asyncio.Protocol):
    def __init__(self, ledger):
        self.ledger = ledger
        self.buffer = bytearray()
        self.head = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        if self.head is None:
            end = self.buffer.find(b'\r\n\r\n')
            if end < 0:
                return
            lines = self.buffer[:end].decode('latin-1').split('\r\n')
            del self.buffer[:end + 4]
            self.head = {'target': lines[0].split(' ')[1]}
            for line in lines[1:]:
                name, _, value = line.partition(':')
                self.head[name.lower()] = value.strip()
        head, body = self.head, None
        if 'content-length' in head:
            length = int(head['content-length'])
            if len(self.buffer) < length:
                return
            body = bytes(self.buffer[:length])
            del self.buffer[:length]
        self.head = None
        self.execute(head, body)

    def execute(self, head, body):
        status, ms, size, form = head['target'].split('/')[-4:]
        effect, status = self.ledger.execute(
            head.get('idempotency-key', ''), head.get('x-attempt-n', ''),
            body, int(status), form)
        answer = self.answer, effect, status, int(size), form
        if int(ms):
            asyncio.get_running_loop().call_later(int(ms) / 1000, *answer)
        else:
            self.answer(*answer[1:])

    def answer(self, effect, status, size, form):
        if self.transport.is_closing():
            return
        if form == 'reset':
            self.transport.get_extra_info('socket').setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            self.transport.abort()
            return

        body = filler(effect, size)
        head = ('HTTP/1.1 %d Whatever\r\nX-Effect: %s\r\nX-Note: of %s\r\n'
                'Content-Type: text/plain\r\n' % (status, effect, effect))
        if status == 204:
            self.transport.write(head.encode() + b'\r\n')
        elif form in ('chunked', 'cutchunked'):
            some = body[:size // 2 + 1]
            pieces = [some] if form == 'cutchunked' else [some,
                                                          body[len(some):]]
            data = head.encode() + b'Transfer-Encoding: chunked\r\n\r\n'
            for piece in pieces:
                if piece:
                    data += b'%x\r\n%s\r\n' % (len(piece), piece)
            self.transport.write(data)
            if form == 'chunked':
                self.transport.write(b'0\r\n\r\n')
        else:
            head += 'Content-Length: %d\r\n\r\n' % size
            if form == 'cut':
                body = body[:size // 2]
            self.transport.write(head.encode() + body)
        if form.startswith('cut'):
            self.transport.close()


async def serve(port, path):
    ledger = Ledger(path)
    loop = asyncio.get_running_loop()
    loop.add_reader(0, loop.stop)     # whoever has started it is gone
    server = await loop.create_server(
        lambda: Connection(ledger), '127.0.0.1', port, backlog=1024)
    await server.serve_forever()


if __name__ == '__main__':
    try:
        asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
    except RuntimeError:
        pass                          # the loop was stopped
