#!/usr/bin/env python3
"""The name of a Redis server is resolved again on each reconnect if "resolver"
is set: a server that moves is found.  A name server that does not know the
name, or does not answer, costs neither the last known addresses nor a worker's
time.
"""

import os
import signal
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
import gateway                                            # noqa: E402
from dns import Forward  # noqa: E402
from gateway import (Gateway, Ledger, finish, ok, same, since,  # noqa: E402
                     until)
from redis_process import Redis                           # noqa: E402


class Names:
    """answers questions about any name: an address, an error, or nothing"""

    def __init__(self):
        self.says = '127.0.0.1'
        self.asked = 0
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(('127.0.0.1', 0))
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            query, who = self.sock.recvfrom(4096)
            self.asked += 1
            if self.says is None:
                continue
            found = isinstance(self.says, str)
            head = query[:2] + struct.pack(
                '>HHHHH', 0x8180 | (0 if found else self.says), 1, found, 0, 0)
            end = query.index(b'\0', 12) + 5
            reply = head + query[12:end]
            if found:
                reply += struct.pack('>HHHIH', 0xc00c, 1, 1, 1, 4) \
                    + socket.inet_aton(self.says)
            self.sock.sendto(reply, who)


class Door:
    """another address of a server; shut() ends all connections"""

    def __init__(self, address, port, target):
        self.address, self.port, self.target = address, port, target
        self.open()

    def open(self):
        self.socks = []
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((self.address, self.port))
        self.listener.listen(64)
        threading.Thread(target=self.accept, args=(self.listener,),
                         daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            two = socket.create_connection(('127.0.0.1', self.target))
            self.socks += [one, two]
            for a, b in ((one, two), (two, one)):
                threading.Thread(target=self.pump, args=(a, b),
                                 daemon=True).start()

    pump = staticmethod(Forward.pump)

    def shut(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for s in self.socks:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def works(name):
    status = None

    def tried():
        nonlocal status
        key = '%s-%d' % (name, time.monotonic_ns())
        status = gw.post('/ok', key.replace(' ', '-')).status
        return status == 201
    return ok(until(tried, 20, 0.05), name, status)


def down(name):
    """refused, and at once: a worker does not wait for a name"""
    start = time.time()
    a = gw.post('/ok', 'down-%d' % time.monotonic_ns())
    took = since(start)
    ok(a.status == 503 and took < 5, name, (a.status, took))


root = gateway.TOP + '/build/names-%d' % os.getpid()
names, up = Names(), Ledger()
one, two = Redis(root + '/1'), Redis(root + '/2')
gw = Gateway(up, store='redis://localhost:%d timeout=300ms amnesia=0 '
             'connect_timeout=300ms' % one.port,
             http='resolver 127.0.0.1:%d ipv6=off valid=1s; '
                  'resolver_timeout 500ms;' % names.port)
# each of the servers is another one
gw.expected = ['keys may be forgotten']

works('the first address is the one of the start')
same(names.asked, 0, 'nobody was asked for it')

names.says = '127.0.0.2'
door = Door('127.0.0.2', one.port, two.port)
one.kill()
works('the server has moved, and is found')
ok(names.asked > 0, 'by its name')
ok(two.ask('DBSIZE') != b':0', 'it is the other server', two.ask('DBSIZE'))

time.sleep(1.1)                 # what the name server has said is old
names.says = 3                  # there is no such name
door.shut()
ok(until(lambda: gw.post('/ok', 'n-%d' % time.monotonic_ns()).status == 503,
         20), 'the server is away')
ok(gw.until_log('could not be resolved (3: Host not found)', 20),
   'the name is unknown: logged')
down('refused at once')
door.open()
works('the last known address is used')

time.sleep(1.1)
names.says = None               # no answer
door.shut()
ok(until(lambda: gw.post('/ok', 's-%d' % time.monotonic_ns()).status == 503,
         20), 'the server is away again')
asked = names.asked
ok(until(lambda: names.asked > asked, 20), 'the name server is asked')
down('while it is silent: refused at once')

# a worker that leaves in the middle of a question
log = len(gw.log())
gw.signal(signal.SIGHUP)
ok(gw.until_log('gracefully shutting down', 20, log), 'reloaded meanwhile')

names.says = '127.0.0.1'
one.start()
ok(one.wait(), 'the first server is back')
works('and found')

gw.stop()
one.end()
two.end()
if not os.environ.get('KEEP'):
    os.rmdir(root)
finish()
