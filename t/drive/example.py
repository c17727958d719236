"""Runs an example of the folder examples/ with ports of its own."""

import atexit
import os
import subprocess
import sys

from gateway import TOP, Client, free_port, ok, until


def children(pid, name=''):
    """processes whose parent it is, and whose command line has the name"""
    out = subprocess.run(['ps', '-o', 'pid=,args=', '--ppid', str(pid)],
                         capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in out.splitlines() if name in line]


class Example:
    def __init__(self, name):
        self.port, self.service = free_port(), free_port()
        self.root = '%s/build/examples/%s-%d' % (TOP, name, self.port)
        self.process = subprocess.Popen(
            [TOP + '/examples/start', name, str(self.port),
             str(self.service)],
            stdout=subprocess.PIPE, text=True)
        atexit.register(self.end)
        if not ok('http' in self.process.stdout.readline(), name + ' starts'):
            sys.exit(1)

    def pid(self, part):
        with open('%s/%s.pid' % (self.root, part)) as f:
            return int(f.read())

    def backends(self):
        """the connections of PostgreSQL"""
        return [pid for postgres in children(self.pid('database'), 'postgres')
                for pid in children(postgres, 'payments')]

    def post(self, path, key=None, body=b'x', method='POST', **headers):
        return Client(self.port, path, key, body, method,
                      [(name.replace('_', '-'), value)
                       for name, value in headers.items()]).read(30)

    def get(self, path, **headers):
        return self.post(path, None, None, 'GET', **headers)

    def end(self):
        self.process.terminate()
        self.process.wait(60)

    def stop(self):
        """Ends it; nothing may have gone wrong that was not meant to."""
        ok(self.process.poll() is None, 'it runs until it is stopped')
        self.end()
        atexit.unregister(self.end)
        ok(until(lambda: self.process.poll() is not None, 20), 'it ends')
