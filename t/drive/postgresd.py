"""PostgreSQL servers for tests.

    db = Server()
    db.schema('gateway')
    gw = Gateway(up, store=db.target('gateway'))
    db.sql('SELECT ...')
    db.stop()
    db.start()
"""

import atexit
import glob
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))


def binaries():
    found = sorted(glob.glob('/usr/lib/postgresql/*/bin'),
                   key=lambda x: int(x.split('/')[4]))
    if not found:
        sys.exit('Bail out! PostgreSQL is not installed')
    return found[-1]


class Server:
    """Below /tmp, since PostgreSQL refuses to be root."""

    def __init__(self, options='-c fsync=off'):
        self.dir = tempfile.mkdtemp(prefix='idempotency-postgres-')
        self.data = self.dir + '/data'
        self.options = options
        self.bin = binaries()
        if os.getuid() == 0:
            os.chmod(self.dir, 0o755)
            user = pwd.getpwnam('postgres')
            os.chown(self.dir, user.pw_uid, user.pw_gid)
        self.run('initdb', '-D', self.data, '-U', 'postgres', '-A', 'trust',
                 '-E', 'UTF8', '--locale', 'C', '-N')
        atexit.register(self.remove)
        self.start()
        self.sql('CREATE ROLE idempotency_gateway',
                 'CREATE ROLE idempotency_service',
                 'CREATE ROLE nginx LOGIN IN ROLE idempotency_gateway',
                 'CREATE ROLE app LOGIN IN ROLE idempotency_service')

    def run(self, name, *args, check=True):
        command = [self.bin + '/' + name, *args]
        if os.getuid() == 0:
            command = ['setpriv', '--reuid', 'postgres', '--regid',
                       'postgres', '--init-groups', *command]
        return subprocess.run(command, check=check, cwd='/tmp',
                              stdout=subprocess.DEVNULL,
                              env=dict(os.environ, HOME=self.dir))

    def start(self):
        self.run('pg_ctl', '-D', self.data, '-s', '-w', '-l',
                 self.dir + '/log', '-o',
                 '-c listen_addresses= -c unix_socket_directories=%s '
                 '-c max_connections=200 -c shared_buffers=32MB %s'
                 % (self.dir, self.options), 'start')

    def stop(self, mode='fast'):
        self.run('pg_ctl', '-D', self.data, '-s', '-m', mode, 'stop')

    def pid(self):
        with open(self.data + '/postmaster.pid') as f:
            return int(f.readline())

    def kill(self, pid, sig=signal.SIGKILL):
        os.kill(pid, sig)

    def remove(self):
        if os.path.exists(self.data + '/postmaster.pid'):
            self.run('pg_ctl', '-D', self.data, '-s', '-m', 'immediate',
                     'stop', check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def env(self):
        return dict(os.environ, PGHOST=self.dir, PGUSER='postgres',
                    PGDATABASE='postgres')

    def sql(self, *statements, check=True):
        """The rows of the last one, as text."""
        args = [x for s in statements for x in ('-c', s)]
        done = subprocess.run(['psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', *args],
                              env=self.env(), capture_output=True, text=True)
        if check and done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip() if check else done

    def schema(self, name):
        subprocess.run([TOP + '/t/tools/postgres-schema', name],
                       env=self.env(), check=True)

    def target(self, schema, user='nginx', options='timeout=2s'):
        return 'postgres://%s@/postgres?host=%s schema=%s %s' % (
            user, self.dir, schema, options)

    def dsn(self, user='app'):
        return 'host=%s user=%s dbname=postgres' % (self.dir, user)
