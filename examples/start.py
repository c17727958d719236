"""Runs the programs of an example; see the script "start", which calls this.

Its nginx.conf is run as it is, but for the ports if others are given than 8080
and 9000, and for /etc/nginx/users, which is a file of its own; its programs "service" and "database", if there is one, are started
with the port and a folder of their own, and again when they die.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
sys.path.insert(0, TOP + '/t/drive')
sys.dont_write_bytecode = True
from pasted import frame, secrets  # noqa: E402

NGINX = os.environ.get('TEST_NGINX_BINARY', '/usr/sbin/nginx')
MODULE = os.environ.get('TEST_NGINX_LOAD_MODULES',
                        TOP + '/build/ngx_http_idempotency_module.so')


class Program:
    """It is started again whenever it dies; its id is in a file."""

    def __init__(self, name, *command):
        self.name, self.command = name, command
        self.start()

    def start(self):
        with open(self.name + '.log', 'ab') as log:
            self.process = subprocess.Popen(self.command, stdout=log,
                                            stderr=log, start_new_session=True)
        with open(self.name + '.pid.new', 'w') as f:
            f.write(str(self.process.pid))
        os.rename(self.name + '.pid.new', self.name + '.pid')

    def watch(self):
        if self.process.poll() is not None:
            self.start()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()


def listens(port):
    try:
        socket.create_connection(('127.0.0.1', port), 1).close()
        return True
    except OSError:
        return False


def main(name, port=8080, service=9000):
    port, service = int(port), int(service)
    folder = os.path.join(HERE, name)
    root = '%s/build/examples/%s-%d' % (TOP, name, port)
    for used in (port, service):
        if listens(used):
            sys.exit('port %d is in use; others: examples/start %s 8081 9001'
                     % (used, name))
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root + '/logs')
    with open(folder + '/nginx.conf') as f:
        text = frame(secrets(f.read(), root), root, MODULE, port, service)
    with open(root + '/nginx.conf', 'w') as f:
        f.write(text)
    os.chdir(root)
    os.environ.pop('NGINX', None)         # sockets to inherit, for nginx
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    programs = []
    try:
        for part in ('database', 'service'):
            if os.path.exists(folder + '/' + part):
                programs.append(Program(part, folder + '/' + part,
                                        str(service), root))
        programs.append(Program('nginx', NGINX, '-p', root, '-c',
                                root + '/nginx.conf', '-g', 'daemon off;'))
        end = time.time() + 120
        while not (listens(port) and listens(service)):
            if time.time() > end:
                sys.exit('it does not start: see ' + root)
            time.sleep(0.05)
        print('%s: http://127.0.0.1:%d/, logs in build/examples/%s'
              % (name, port, os.path.basename(root)), flush=True)
        while True:
            time.sleep(0.1)
            for program in programs:
                program.watch()
    except KeyboardInterrupt:
        pass
    finally:
        for program in reversed(programs):
            program.stop()


main(*sys.argv[1:])
