"""A TCP proxy in front of Redis that breaks what it is told to break.

    proxy.break_next('after')     the next command on some connection

    before     the command is not passed on, the connection is cut
    after      it is passed on, its reply is not, and the connection is cut
    middle     half of its reply is passed on, then the connection is cut
    reset      half of the command is passed on, then both sides get RST
    hole       nothing passes for a while, in both directions; then all of
               it, or nothing any more
    bytes      replies arrive byte by byte for a while
    refuse     all connections are cut and none is accepted for a while
"""

import asyncio
import random
import socket
import struct

KINDS = ('before', 'after', 'middle', 'reset', 'hole', 'bytes', 'refuse')


class Proxy:
    def __init__(self, target, seed):
        self.target = target
        self.rng = random.Random('proxy %s' % seed)
        self.port = None
        self.pairs = set()
        self.next = None          # (kind, future)
        self.passed = 0           # commands

    async def start(self):
        self.server = await asyncio.start_server(
            self.accept, '127.0.0.1', self.port or 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self):
        self.server.close()
        for pair in list(self.pairs):
            pair.cut()

    async def break_next(self, kind, timeout=5):
        """Breaks something; did it find anything to break?"""
        if kind == 'refuse':
            await self.stop()
            await asyncio.sleep(self.rng.uniform(0.05, 0.4))
            await self.start()
            return True
        fired = asyncio.get_running_loop().create_future()
        self.next = kind, fired
        try:
            await asyncio.wait_for(fired, timeout)
            return True
        except asyncio.TimeoutError:
            self.next = None
            return False

    def take(self):
        """The fault for the command that has just come."""
        if self.next is None:
            return None
        kind, fired = self.next
        self.next = None
        if not fired.done():
            fired.set_result(True)
        return kind

    async def accept(self, reader, writer):
        pair = Pair(self, writer)
        self.pairs.add(pair)
        try:
            await pair.run(reader)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            pair.cut()
            self.pairs.discard(pair)


class Pair:
    """A connection of nginx and the one to Redis."""

    def __init__(self, proxy, client):
        self.proxy = proxy
        self.client = client
        self.server = None
        self.reply = None         # the fault of the reply that is to come
        self.slow = 0
        self.open = asyncio.Event()
        self.open.set()

    async def run(self, reader):
        back, self.server = await asyncio.open_connection(*self.proxy.target)
        tasks = [asyncio.ensure_future(self.forth(reader)),
                 asyncio.ensure_future(self.back(back))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def forth(self, reader):
        while True:
            data = await reader.read(1 << 16)
            if not data:
                return
            await self.open.wait()
            self.proxy.passed += 1
            kind = self.proxy.take()
            if kind == 'before':
                return
            if kind == 'reset':
                self.server.write(data[:len(data) // 2])
                await self.server.drain()
                await asyncio.sleep(0.005)
                self.cut(reset=True)
                return
            if kind in ('after', 'middle'):
                self.reply = kind
            if kind == 'bytes':
                self.slow = 400
            if kind == 'hole' and not await self.hole(data):
                return
            self.server.write(data)
            await self.server.drain()

    async def hole(self, data):
        """Passes nothing; does it pass this later?"""
        rng = self.proxy.rng
        first = rng.random() < 0.5
        self.open.clear()
        if first:
            self.server.write(data)       # and its reply gets stuck
        await asyncio.sleep(rng.uniform(0.1, 1.5))
        self.open.set()
        return not first and rng.random() < 0.7

    async def back(self, reader):
        while True:
            data = await reader.read(1 << 16)
            if not data:
                return
            await self.open.wait()
            if self.reply == 'after':
                return
            if self.reply == 'middle':
                self.client.write(data[:len(data) // 2])
                await self.client.drain()
                await asyncio.sleep(0.005)
                return
            while self.slow and data:
                self.slow -= 1
                self.client.write(data[:1])
                await self.client.drain()
                data = data[1:]
                await asyncio.sleep(0)
            self.client.write(data)
            await self.client.drain()

    def cut(self, reset=False):
        for writer in (self.client, self.server):
            if writer is None or writer.is_closing():
                continue
            if reset:
                writer.get_extra_info('socket').setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER,
                    struct.pack('ii', 1, 0))
                writer.transport.abort()
            else:
                writer.close()
