"""Clients: HTTP/1.1, kept alive or not, polite or not.

    web = Web(port)
    reply = await web.send(data)            # None: no whole answer
    reply.status, reply.headers, reply.body

A client that leaves does so as its "leave" says:

    ('request', n)    after n bytes of its request
    ('wait', s)       s seconds after it has sent all
    ('answer', n)     after n bytes of the answer
"""

import asyncio
import socket
import struct

TIMEOUT = 60              # seconds until a client gives up


class Reply:
    __slots__ = 'status', 'headers', 'body'

    def __init__(self, head):
        lines = head.decode('latin-1').split('\r\n')
        self.status = int(lines[0][9:12])
        self.headers = {}
        self.body = b''
        for line in lines[1:]:
            name, _, value = line.partition(':')
            self.headers[name.lower()] = value.strip()


class Connection(asyncio.Protocol):
    def __init__(self):
        self.waiter = None
        self.closed = False

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, exc):
        self.closed = True
        self.end(None)

    def end(self, reply):
        if self.waiter and not self.waiter.done():
            self.waiter.set_result(reply)

    def start(self, limit):
        self.buffer = bytearray()
        self.reply = None
        self.chunks = None
        self.limit = limit
        self.waiter = asyncio.get_running_loop().create_future()
        return self.waiter

    def data_received(self, data):
        if self.waiter is None or self.waiter.done():
            return
        self.buffer += data
        if self.limit is not None and len(self.buffer) >= self.limit:
            self.end(None)
            return
        if self.reply is None:
            end = self.buffer.find(b'\r\n\r\n')
            if end < 0:
                return
            self.reply = Reply(self.buffer[:end])
            del self.buffer[:end + 4]
            headers = self.reply.headers
            if headers.get('transfer-encoding') == 'chunked':
                self.chunks = []
                self.length = None
            elif self.reply.status in (204, 304):
                self.length = 0
            else:
                self.length = int(headers.get('content-length', 0))
        if self.chunks is not None:
            if self.chunked():
                self.reply.body = b''.join(self.chunks)
                self.end(self.reply)
        elif len(self.buffer) >= self.length:
            self.reply.body = bytes(self.buffer[:self.length])
            self.end(self.reply)

    def chunked(self):
        """Takes the chunks that are there; was that the last one?"""
        while True:
            end = self.buffer.find(b'\r\n')
            if end < 0:
                return False
            n = int(self.buffer[:end], 16)
            if len(self.buffer) < end + n + 4:
                return False
            if n == 0:
                return True
            self.chunks.append(bytes(self.buffer[end + 2:end + 2 + n]))
            del self.buffer[:end + n + 4]

    def leave(self, reset):
        if reset:
            self.transport.get_extra_info('socket').setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            self.transport.abort()
        else:
            self.transport.close()


class Web:
    def __init__(self, port, keepalive=True):
        self.port = port
        self.keepalive = keepalive
        self.idle = []

    async def connection(self):
        while self.idle:
            c = self.idle.pop()
            if not c.closed and not c.transport.is_closing():
                return c
        _, c = await asyncio.get_running_loop().create_connection(
            Connection, '127.0.0.1', self.port)
        return c

    async def send(self, data, leave=None, reset=False):
        try:
            c = await self.connection()
        except OSError:
            return None
        loop = asyncio.get_running_loop()
        how, what = leave or (None, None)
        waiter = c.start(max(1, what) if how == 'answer' else None)
        timer = loop.call_later(what if how == 'wait' else TIMEOUT,
                                c.end, None)
        if how == 'request':
            c.transport.write(data[:what])
            # what was written arrives before the end of the connection
            await asyncio.sleep(0.001)
            c.end(None)
        else:
            c.transport.write(data)
        reply = await waiter
        timer.cancel()
        c.waiter = None
        if reply is None:
            if not c.closed:
                c.leave(reset)
        elif (not self.keepalive
              or reply.headers.get('connection') == 'close'):
            c.transport.close()
        else:
            self.idle.append(c)
        return reply

    def close(self):
        for c in self.idle:
            if not c.closed:
                c.transport.close()
        self.idle = []
