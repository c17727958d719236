"""A master and its replica that change places, behind a name or an address.

    pair = Named()                 a name that has the master's address only
    pair = Both()                  a name that has both, whoever is the master
    pair = Virtual()               an address that leads to the master
    pair.url, pair.http            for the configuration
    pair.swap('failover'), pair.lead(), pair.heal()

"swap" makes the replica the master: "replicaof" one after the other,
"failover" as Redis does it (6.2), "kill" by killing the master.  "stay" lets
the old one be a master, too, until heal().  "lead" makes the name or the
address lead to the new one.
"""

import time

from dns import Dns, Forward
from redisd import Redis, RedisError
from shm import free_port

OPTIONS = ('--protected-mode', 'no', '--repl-diskless-sync-delay', '0',
           '--repl-ping-replica-period', '1', '--repl-timeout', '5')


def until(condition, timeout=20, step=0.02):
    end = time.time() + timeout
    while time.time() < end:
        try:
            if condition():
                return True
        except (OSError, RedisError):
            pass
        time.sleep(step)
    return False


class Pair:
    NAME = 'localhost'
    http = ''

    def __init__(self):
        self.port = free_port()
        self.servers = [self.server(a) for a in ('127.0.0.2', '127.0.0.3')]
        self.master, self.replica = self.servers
        self.replicate(self.replica, self.master)
        self.begin()
        if not self.healthy():
            raise SystemExit('Bail out! the replica does not connect')

    def server(self, address):
        s = Redis('--bind', address, '--replica-announce-ip', address,
                  *OPTIONS, port=self.port)
        s.address = address
        return s

    @staticmethod
    def replicate(s, master):
        s('REPLICAOF', master.address, master.port)

    @property
    def url(self):
        return 'redis://%s:%d' % (self.NAME, self.port)

    def healthy(self, timeout=30):
        return until(lambda: self.master('ROLE')[0] == b'master'
                     and len(self.master('ROLE')[2]) == 1
                     and self.replica('ROLE')[3] == b'connected', timeout)

    def swap(self, how):
        """True if it took place"""
        old, new = self.master, self.replica
        if how == 'failover':
            old('FAILOVER', 'TIMEOUT', 5000)
            until(lambda: self.quiet(old), 10)
            if new('ROLE')[0] != b'master':
                return False
        else:
            if how == 'kill':
                old.stop()
            new('REPLICAOF', 'NO', 'ONE')
        self.master, self.replica = new, old
        if how == 'replicaof':
            self.replicate(old, new)
        return True

    @staticmethod
    def quiet(s):
        """no FAILOVER is under way"""
        return b'master_failover_state:no-failover' in s('INFO',
                                                         'replication')

    def heal(self):
        self.lead()
        if self.replica.process is None:
            self.replica.start('--replicaof', '%s %d' % (
                self.master.address, self.master.port))
        elif self.replica('ROLE')[0] == b'master':
            self.replicate(self.replica, self.master)
        return self.healthy()

    def begin(self):
        pass

    def lead(self, server=None):
        """to another one than the master?"""

    def stop(self):
        for s in self.servers:
            s.remove()


class Named(Pair):
    def begin(self):
        self.dns = Dns()
        self.http = self.dns.resolver
        self.lead()

    def lead(self, server=None):
        self.dns.set(self.NAME, (server or self.master).address)


class Both(Named):
    def lead(self, server=None):
        self.dns.set(self.NAME, *[s.address for s in self.servers])


class Virtual(Pair):
    NAME = '127.0.0.9'

    def begin(self):
        self.forward = Forward(self.NAME, self.port,
                               (self.master.address, self.port))

    def lead(self, server=None):
        target = (server or self.master).address, self.port
        if self.forward.target != target:
            # a router may know its connections, or not
            self.forward.to(target, cut=self.port % 2 == 0)
