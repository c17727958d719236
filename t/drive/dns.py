"""A name server of the test's own, whose answers the test changes at will.

    dns = Dns()
    dns.set('redis.test', '127.0.0.2', '127.0.0.3')      A and AAAA, any number
    dns.set('redis.test', Dns.NXDOMAIN)                  or another code
    dns.set('redis.test', None)                          silence
    dns.delay = 0.5                                      answers are late
    dns.asked('redis.test')                              questions so far
    dns.resolver                                         for nginx.conf

A name that was not set does not exist.  The time to live is a second unless
"ttl" is another one; nginx keeps no answer longer than that.  The next answers
have the times in "ttls", one each.

    Forward('127.0.0.9', port, ('127.0.0.2', port))      a virtual address
    forward.to(('127.0.0.3', port))                      it leads there now
"""

import ipaddress
import socket
import struct
import threading
import time

A, AAAA = 1, 28


class Dns:
    NXDOMAIN = 3
    SERVFAIL = 2

    def __init__(self, ttl=1):
        self.ttl = ttl
        self.ttls = []
        self.delay = 0
        self.names = {}
        self.count = {}
        self.lock = threading.Lock()
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(('127.0.0.1', 0))
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    @property
    def resolver(self):
        return 'resolver 127.0.0.1:%d ipv6=off;' % self.port

    def set(self, name, *answers):
        with self.lock:
            self.names[name] = answers

    def asked(self, name):
        with self.lock:
            return self.count.get(name, 0)

    def run(self):
        while True:
            query, who = self.sock.recvfrom(4096)
            threading.Thread(target=self.answer, args=(query, who),
                             daemon=True).start()

    def answer(self, query, who):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]])
            at += 1 + query[at]
        end = at + 5
        kind, = struct.unpack('>H', query[at + 1:at + 3])
        name = b'.'.join(labels).decode().lower()
        with self.lock:
            self.count[name] = self.count.get(name, 0) + 1
            says = self.names.get(name, (self.NXDOMAIN,))
            ttl = self.ttls.pop(0) if self.ttls else self.ttl
        if self.delay:
            time.sleep(self.delay)
        if None in says:
            return
        code, records = 0, b''
        number = 0
        for one in says:
            if isinstance(one, int):
                code = one
                continue
            address = ipaddress.ip_address(one)
            if kind != (A if address.version == 4 else AAAA):
                continue
            number += 1
            records += struct.pack('>HHHIH', 0xc00c, kind, 1, ttl,
                                   len(address.packed)) + address.packed
        self.sock.sendto(query[:2] + struct.pack(
            '>HHHHH', 0x8180 | code, 1, number, 0, 0)
            + query[12:end] + records, who)


class Forward:
    """An address that leads to one server or another."""

    def __init__(self, address, port, target):
        self.target = target
        self.pairs = []
        self.lock = threading.Lock()
        self.listener = socket.create_server((address, port), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def to(self, target, cut=True):
        """cut: connections that exist are reset, as a router's are"""
        self.target = target
        if cut:
            self.cut()

    def cut(self):
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for sock in pair:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def accept(self):
        while True:
            one, _ = self.listener.accept()
            target = self.target
            try:
                two = socket.create_connection(target, 5)
            except (OSError, TypeError):
                one.close()
                continue
            two.settimeout(None)
            with self.lock:
                self.pairs.append((one, two))
                stale = target != self.target
            if stale:
                self.cut()
            for a, b in ((one, two), (two, one)):
                a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.pump, args=(a, b),
                                 daemon=True).start()

    @staticmethod
    def pump(a, b):
        try:
            while True:
                data = a.recv(65536)
                if not data:
                    break
                b.sendall(data)
        except OSError:
            pass
        for sock in (a, b):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
