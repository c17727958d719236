"""Redis servers that belong together: a master with sentinels, a cluster.

    set = Sentinels(replicas=2, sentinels=3)
    set.url, set.master(), set.crash(), set.failover(), set.heal()

    cluster = Cluster(masters=3, replicas=1)
    cluster.url, cluster.move(slots), cluster.crash(), cluster.heal()

All of them listen on ports of their own and end with the test.
"""

import atexit
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time

from redis_binary import SERVER
from redisd import Client, Redis, RedisError
from shm import TOP, free_port


def until(condition, timeout=20, step=0.05):
    end = time.time() + timeout
    while time.time() < end:
        try:
            if condition():
                return True
        except (OSError, RedisError):
            pass
        time.sleep(step)
    return False


def scheme(tls):
    return 'rediss' if tls else 'redis'


class Sentinel:
    """One sentinel; it writes its configuration, and so has a folder."""

    def __init__(self, name, port, quorum, down_after, lines=(), auth=(),
                 tls=()):
        os.makedirs(TOP + '/build', exist_ok=True)
        self.dir = tempfile.mkdtemp(prefix='sentinel-', dir=TOP + '/build')
        self.port = free_port()
        self.path = self.dir + '/socket'
        with open(self.dir + '/conf', 'w') as f:
            f.write('%s %d\nunixsocket %s\ndir %s\n'
                    'sentinel monitor %s 127.0.0.1 %d %d\n'
                    'sentinel down-after-milliseconds %s %d\n'
                    'sentinel failover-timeout %s 1500\n'
                    'sentinel parallel-syncs %s 2\n%s\n'
                    % ('port 0\ntls-replication yes\ntls-port' if tls
                       else 'port', self.port, self.path, self.dir, name,
                       port, quorum, name, down_after, name, name,
                       '\n'.join(lines)))
            for option, value in zip(tls[::2], tls[1::2]):
                f.write('%s %s\n' % (option[2:], value))
        self.process = None
        self.auth = auth
        atexit.register(self.remove)
        self.start()

    def start(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.log = open(self.dir + '/log', 'ab')
        self.process = subprocess.Popen(
            [SERVER, self.dir + '/conf', '--sentinel'],
            stdout=self.log, stderr=self.log)
        if not until(lambda: Client(self.path).close() or True, 10, 0.01):
            raise SystemExit('Bail out! a sentinel does not start')
        try:
            # looks at its servers more often than every ten seconds
            self('SENTINEL', 'DEBUG', 'INFO-PERIOD', 400)
        except RedisError:
            pass                  # Redis 6

    def __call__(self, *args):
        client = Client(self.path)
        try:
            if self.auth:
                client('AUTH', *self.auth)
            return client(*args)
        finally:
            client.close()

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None
            self.log.close()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def remove(self):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


class Sentinels:
    NAME = 'pay-master'

    def __init__(self, replicas=2, sentinels=3, down_after=500, options=(),
                 lines=(), auth=(), password=None, tls=()):
        self.tls = tls
        self.options = ('--repl-diskless-sync-delay', '0',
                        '--repl-ping-replica-period', '1',
                        '--repl-timeout', '5') + tuple(options)
        if tls:
            self.options += ('--tls-replication', 'yes')
        first = Redis(*self.options, tls=tls)
        self.servers = [first]
        for _ in range(replicas):
            self.servers.append(Redis(
                *self.options, '--replicaof', '127.0.0.1 %d' % first.port,
                tls=tls))
        for server in self.servers:
            server.auth = (password,) if password else ()
        self.sentinels = [Sentinel(self.NAME, first.port, sentinels // 2 + 1,
                                   down_after, lines, auth, tls)
                          for _ in range(sentinels)]
        if not self.healthy():
            raise SystemExit('Bail out! the sentinels do not agree')

    @property
    def url(self):
        return '%s-sentinel://%s/%s' % (scheme(self.tls), ','.join(
            '127.0.0.1:%d' % s.port for s in self.sentinels), self.NAME)

    def alive(self):
        return [s for s in self.servers if s.process]

    def healthy(self, timeout=60):
        """All servers replicate, and all sentinels know all of it."""
        def good():
            master = self.master()
            replicas = len(self.alive()) - 1
            role = master('ROLE') if master else [None]
            if role[0] != b'master' or len(role[2]) != replicas:
                return False
            for server in self.alive():
                role = server('ROLE')
                if server is not master and (
                        role[0] != b'slave' or role[3] != b'connected'):
                    return False
            for s in self.sentinels:
                if s.process is None:
                    continue
                if s('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', self.NAME)[1] \
                        != str(master.port).encode():
                    return False
                known = s('SENTINEL', 'REPLICAS', self.NAME)
                fine = [r for r in known
                        if dict(zip(r[::2], r[1::2]))[b'flags'] == b'slave'
                        and dict(zip(r[::2], r[1::2]))
                        [b'master-link-status'] == b'ok']
                if len(fine) < replicas:
                    return False
                others = s('SENTINEL', 'SENTINELS', self.NAME)
                if len(others) != len(self.sentinels) - 1:
                    return False
            return True
        return until(good, timeout)

    def master(self):
        """as most sentinels see it"""
        votes = {}
        for s in self.sentinels:
            try:
                said = s('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', self.NAME)
            except (OSError, RedisError):
                continue
            if said:
                votes[int(said[1])] = votes.get(int(said[1]), 0) + 1
        if not votes:
            return None
        port = max(votes, key=votes.get)
        for server in self.servers:
            if server.port == port:
                return server
        return None

    def switched(self, old, timeout=60):
        return until(lambda: self.master() not in (None, old)
                     and self.master()('ROLE')[0] == b'master', timeout)

    def crash(self, killed=lambda: None):
        """kill -9 of the master, until another one has taken over"""
        old = self.master()
        old.stop()
        killed()
        return old, self.switched(old)

    def failover(self):
        """as an operator does it"""
        old = self.master()
        sentinels = itertools.cycle(self.sentinels)
        until(lambda: next(sentinels)('SENTINEL', 'FAILOVER', self.NAME),
              step=0.2)
        return old, self.switched(old)

    def heal(self):
        """whoever is down comes back as a replica"""
        master = self.master()
        for server in self.servers:
            if server.process is None:
                server.start('--replicaof', '127.0.0.1 %d' % master.port)
        return self.healthy()

    def stop(self):
        for s in self.sentinels:
            s.stop()
        for s in self.servers:
            s.stop()


class Cluster:
    """With addresses, all nodes have one port; each: options of the n-th."""

    def __init__(self, masters=3, replicas=1, timeout=1000, options=(),
                 tls=(), addresses=None, port=None, each=lambda n: ()):
        self.tls = tls
        options = ('--cluster-enabled', 'yes', '--cluster-node-timeout',
                   str(timeout), '--repl-diskless-sync-delay', '0',
                   '--cluster-replica-validity-factor', '0') + tuple(options)
        if tls:
            options += ('--tls-cluster', 'yes', '--tls-replication', 'yes')
        if addresses:
            port = port or free_port()
        self.nodes = []
        for n in range(masters * (replicas + 1)):
            bind = ('--bind', addresses[n], '--cluster-announce-ip',
                    addresses[n], '--protected-mode',
                    'no') if addresses else ()
            own = tuple(each(n))
            node = Redis(*options, *bind, *self.bus(), *(() if tls else own),
                         tls=tls and tuple(tls) + own, port=port)
            node.address = addresses[n] if addresses else '127.0.0.1'
            self.nodes.append(node)
        self.cli('--cluster', 'create', *[
            '%s:%d' % (n.address, n.port) for n in self.nodes],
            '--cluster-replicas', str(replicas), '--cluster-yes')
        if not self.healthy():
            raise SystemExit('Bail out! the cluster does not form')

    @staticmethod
    def bus():
        return '--cluster-port', str(free_port())

    def cli(self, *args, check=True):
        options = ('--tls', '--insecure') if self.tls else ()
        done = subprocess.run(['redis-cli', *options, *args], capture_output=True,
                              text=True, timeout=120)
        if check and done.returncode:
            raise SystemExit('Bail out! redis-cli %s: %s' % (
                ' '.join(args[:2]), done.stdout[-2000:] + done.stderr))
        return done

    @property
    def url(self):
        return scheme(self.tls) + '-cluster://' + ','.join(
            '127.0.0.1:%d' % n.port for n in self.nodes[:3])

    def alive(self):
        return [n for n in self.nodes if n.process]

    def healthy(self, timeout=60):
        def good():
            views = set()
            for n in self.alive():
                info = n('CLUSTER', 'INFO')
                if b'cluster_state:ok' not in info \
                        or b'cluster_slots_ok:16384' not in info:
                    return False
                views.add(repr((
                    sorted((r[0], r[1], r[2][2], len(r))
                           for r in n('CLUSTER', 'SLOTS')),
                    sorted((line.split()[0], line.split()[6]) for line
                           in n('CLUSTER', 'NODES').splitlines()
                           if b'master' in line.split()[2]))))
                role = n('ROLE')
                if role[0] == b'slave' and role[3] != b'connected':
                    return False
            return len(views) == 1
        return until(good, timeout)

    def id(self, node):
        return node('CLUSTER', 'MYID').decode()

    def masters(self):
        found = []
        for r in self.alive()[0]('CLUSTER', 'SLOTS'):
            for n in self.nodes:
                if n.process and self.id(n) == r[2][2].decode() \
                        and n not in found:
                    found.append(n)
        return found

    def move(self, slots, a=None, b=None):
        """resharding as redis-cli does it"""
        self.healthy()            # all of them know of the last move
        masters = self.masters()
        a = a or masters[0]
        b = b or masters[1]
        return self.cli('--cluster', 'reshard',
                        '%s:%d' % (a.address, a.port),
                        '--cluster-from', self.id(a), '--cluster-to',
                        self.id(b), '--cluster-slots', str(slots),
                        '--cluster-yes', '--cluster-timeout', '5000',
                        check=False)

    def crash(self, i=0):
        """Kills a master, once all know its slots and its epoch: without
        them, its replica gets no votes."""
        self.healthy()
        node = self.masters()[i % 3]
        name = self.id(node).encode()
        node.stop()
        live = self.alive()[0]
        return node, until(lambda: b'cluster_state:ok' in
                           live('CLUSTER', 'INFO') and name not in
                           [r[2][2] for r in live('CLUSTER', 'SLOTS')], 60)

    def words(self):
        """What the nodes said last of their elections."""
        text = []
        for n in self.nodes:
            with open(n.dir + '/log', errors='replace') as f:
                said = [line for line in f if 'ailover' in line
                        or 'lection' in line or 'FAIL' in line]
            text += ['node %d' % n.port] + [s.rstrip() for s in said[-8:]]
        return '\n'.join(text)

    def heal(self):
        for n in self.nodes:
            if n.process is None:
                n.start()
        return self.healthy()

    def stop(self):
        for n in self.nodes:
            n.stop()
