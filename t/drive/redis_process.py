"""A redis-server of its own: it can be killed, paused and started again.

    redis = Redis(root, 'appendonly yes')
    redis.kill(), redis.start(), redis.pause(), redis.resume(), redis.quit()
    redis.ask('PING')
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from redis_binary import SERVER
from shm import free_port

CONF = '''
bind 127.0.0.1
port %(port)d
unixsocket %(root)s/redis.sock
dir %(root)s
logfile %(root)s/redis.log
daemonize no
save ""
tcp-backlog 511
%(more)s
'''


class Redis:
    def __init__(self, root, *lines, before=None):
        self.root = root
        self.before = before
        self.port = free_port()
        self.process = None
        self.starts = 0
        shutil.rmtree(root, ignore_errors=True)
        os.makedirs(root)
        with open(root + '/redis.conf', 'w') as f:
            f.write(CONF % dict(root=root, port=self.port,
                                more='\n'.join(lines)))
        atexit.register(self.end)
        self.start()
        if not self.wait():
            print('Bail out! redis-server does not start: see %s/redis.log'
                  % root)
            sys.exit(1)

    def start(self):
        self.starts += 1
        self.process = subprocess.Popen(
            [SERVER, self.root + '/redis.conf'],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            preexec_fn=self.before)

    def wait(self, timeout=20):
        """until it answers"""
        end = time.time() + timeout
        while time.time() < end:
            if self.ask('PING') == b'+PONG':
                return True
            time.sleep(0.02)
        return False

    def ask(self, *args, timeout=1):
        """the first line of its answer, b'' without one"""
        words = [str(a).encode() for a in args]
        data = b'*%d\r\n' % len(words) + b''.join(
            b'$%d\r\n%s\r\n' % (len(w), w) for w in words)
        try:
            with socket.create_connection(('127.0.0.1', self.port),
                                          timeout) as s:
                s.sendall(data)
                return s.makefile('rb').readline().rstrip(b'\r\n')
        except OSError:
            return b''

    def info(self, name):
        data = b'*1\r\n$4\r\nINFO\r\n'
        with socket.create_connection(('127.0.0.1', self.port), 5) as s:
            s.sendall(data)
            f = s.makefile('rb')
            text = f.read(int(f.readline()[1:])).decode()
        for line in text.splitlines():
            if line.startswith(name + ':'):
                return line.partition(':')[2]
        return None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def quit(self):
        """as an operator ends it"""
        self.process.terminate()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        if self.process and self.process.poll() is None:
            self.resume()
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if os.environ.get('KEEP'):
            print('# kept ' + self.root)
        else:
            shutil.rmtree(self.root, ignore_errors=True)
