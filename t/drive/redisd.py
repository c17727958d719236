"""A Redis server of the test's own, and a proxy that comes in between.

    server = Redis('--requirepass', 'secret')
    server('SET', 'a', 1), server.pause(), server.stop(), server.start()

    proxy = Proxy(server)
    proxy.on('claim', 'lose')      the next claim is executed, its reply lost
"""

import atexit
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from redis_binary import SERVER, bus_is_fixed, known
from shm import TOP, free_port


# the names of records, for KEYS: a worker's counter is shorter
RECORDS = '*' + '?' * 64


class RedisError(Exception):
    pass


def encode(*args):
    args = [a if isinstance(a, bytes) else str(a).encode() for a in args]
    return b'*%d\r\n' % len(args) + b''.join(b'$%d\r\n%s\r\n' % (len(a), a)
                                             for a in args)


class Client:
    """Enough of a client to ask one thing after the other."""

    def __init__(self, path, timeout=5):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(path)
        self.file = self.sock.makefile('rb')

    def __call__(self, *args):
        self.sock.sendall(encode(*args))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b'\r\n'):
            raise ConnectionError('no reply')
        kind, rest = line[:1], line[1:-2]
        if kind == b'-':
            raise RedisError(rest.decode())
        if kind == b':':
            return int(rest)
        if kind == b'$':
            n = int(rest)
            return None if n < 0 else self.file.read(n + 2)[:-2]
        if kind == b'*':
            return [self.reply() for _ in range(int(rest))]
        return rest

    def close(self):
        self.file.close()
        self.sock.close()


class Redis:
    def __init__(self, *options, port=None, tls=(), clock=None):
        os.makedirs(TOP + '/build', exist_ok=True)
        self.dir = tempfile.mkdtemp(prefix='redis-', dir=TOP + '/build')
        self.port = port
        if port is None:
            self.port = free_port(10000 if '--cluster-enabled' in options
                                  and bus_is_fixed() else 0)
        self.path = self.dir + '/socket'
        self.data = self.dir + '/data'
        self.options = options
        if tls:
            self.options += ('--port', '0', '--tls-port', str(self.port),
                             *tls)
        self.auth = ()
        self.clock = clock        # its own one, see redis_clock.py
        self.process = None
        atexit.register(self.remove)
        self.start()

    def start(self, *more):
        os.makedirs(self.data, exist_ok=True)
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.log = open(self.dir + '/log', 'ab')
        self.process = subprocess.Popen(
            [SERVER, '--port', str(self.port), '--unixsocket',
             self.path, '--dir', self.data, '--save', '', '--daemonize', 'no',
             *known(*self.options, *more)], stdout=self.log, stderr=self.log,
            env=self.clock.env() if self.clock else None)
        end = time.time() + 30
        while time.time() < end and self.process.poll() is None:
            try:
                Client(self.path).close()
                return
            except OSError:
                time.sleep(0.01)
        raise SystemExit('Bail out! redis-server does not start')

    def __call__(self, *args):
        client = Client(self.path)
        try:
            if self.auth:
                client('AUTH', *self.auth)
            return client(*args)
        finally:
            client.close()

    def stop(self, sig=signal.SIGKILL):
        if self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(sig)
            self.process.wait()
            self.process = None
            self.log.close()

    def restart(self, *more):
        self.stop()
        self.start(*more)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def remove(self):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


def script_name(text):
    """a line of each script tells"""
    return re.search(rb'^-- (.*)$', text, re.M).group(1).decode()


class Proxy:
    """What is to happen to a command is said by on(); by default it passes.

        lose      it is executed, and the connection closed instead of a reply
        late      it is executed, and the reply never comes
        cut       the connection is closed before it is executed
        hold      it is executed once the test calls let_go()
        leave     the same, and the connection it came on is closed at once
        -TEXT     it is not executed, this is the reply
        bytes     the same, any bytes

    With a limit, what has more bytes does not get through, nor anything that
    comes behind it, as on a link that is too slow.
    """

    def __init__(self, server):
        self.server = server
        self.lock = threading.Lock()
        self.rules = []
        self.names = {}           # of scripts, by their sum
        self.seen = []            # names of the commands that came
        self.held = threading.Event()
        self.connections = 0
        self.limit = None         # of bytes
        self.stuck = 0            # commands beyond it
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def on(self, name, action, times=1):
        with self.lock:
            self.held.clear()
            self.rules.append([name, action, times])

    def clear(self):
        with self.lock:
            self.rules = []

    def let_go(self):
        self.held.set()

    def count(self, name):
        with self.lock:
            return self.seen.count(name)

    def accept(self):
        while True:
            sock, _ = self.listener.accept()
            self.connections += 1
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.server.path)
            except OSError:
                sock.close()
                continue
            pair = Pair(self, sock, server)
            threading.Thread(target=pair.there, daemon=True).start()
            threading.Thread(target=pair.back, daemon=True).start()

    def judge(self, args):
        name = args[0].decode().lower()
        if name == 'eval':
            digest = hashlib.sha1(args[1]).hexdigest().encode()
            self.names[digest] = script_name(args[1])
            name = self.names[digest]
        elif name == 'evalsha':
            name = self.names.get(args[1], 'script')
        with self.lock:
            self.seen.append(name)
            for rule in self.rules:
                if rule[0] in (name, 'any') and rule[2]:
                    rule[2] -= 1
                    return rule[1]
        return None


class Pair:
    def __init__(self, proxy, client, server):
        self.proxy = proxy
        self.client = client
        self.server = server
        self.lose = False
        self.late = False
        self.instead = {}         # replies by the words that are echoed

    def close(self):
        for sock in (self.client, self.server):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def there(self):
        file = self.client.makefile('rb')
        try:
            while True:
                head = file.readline()
                if not head:
                    break
                args = []
                for _ in range(int(head[1:])):
                    n = int(file.readline()[1:])
                    args.append(file.read(n + 2)[:-2])
                limit = self.proxy.limit
                if limit and sum(map(len, args)) > limit:
                    self.proxy.stuck += 1
                    while file.read1(65536):
                        pass
                    break
                if not self.one(args):
                    return
        except (OSError, ValueError):
            pass
        self.close()

    def one(self, args):
        action = self.proxy.judge(args)
        if action == 'cut':
            self.close()
            return False
        if action == 'leave':
            self.client.shutdown(socket.SHUT_RDWR)
        if action in ('hold', 'leave'):
            # whoever sent it may be gone by then
            self.proxy.held.wait(30)
        elif isinstance(action, bytes) or action and action[0] == '-':
            # in its turn, behind the replies that are still to come
            word = os.urandom(16).hex().encode()
            self.instead[word] = action if isinstance(action, bytes) \
                else action.encode() + b'\r\n'
            args = (b'ECHO', word)
        self.lose = self.lose or action == 'lose'
        self.late = self.late or action == 'late'
        self.server.sendall(encode(*args))
        return True

    def back(self):
        try:
            while True:
                data = self.server.recv(65536)
                if not data or self.lose:
                    break
                for word in list(self.instead):
                    bulk = b'$%d\r\n%s\r\n' % (len(word), word)
                    while bulk[:5] in data and bulk not in data:
                        more = self.server.recv(65536)
                        if not more:
                            break
                        data += more
                    if bulk in data:
                        data = data.replace(bulk, self.instead.pop(word))
                if not self.late:
                    self.client.sendall(data)
        except OSError:
            pass
        self.close()
