#!/usr/bin/env python3
"""Stripe's library for Node retries as it does, and nothing is charged twice.

It is pointed at the gateway and taken through connections that break before
and after the request and within the answer, through 409 while the first one
runs, through 5xx, and through an upstream that is away for a while.  The
upstream counts what it executes.  The profile is "stripe".
"""

import collections
import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (TOP, Gateway, finish, free_port, ok,  # noqa: E402
                     same, until)

LIBRARY = TOP + '/build/npm/node_modules/stripe'

if not os.path.isdir(LIBRARY) or shutil.which('node') is None:
    print("1..0 # SKIP Stripe's library is not in build/npm: run t/tools/npm")
    sys.exit(0)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, handler, port=0):
        super().__init__(('127.0.0.1', port), handler)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.05,),
                         daemon=True).start()

    def handle_error(self, request, client_address):
        pass              # connections break here, that is the point


# ---- the upstream ----

lock = threading.Lock()
executions = collections.Counter()    # by the job in the metadata
number = 0


class Upstream(socketserver.StreamRequestHandler):
    def handle(self):
        global number
        line = self.rfile.readline()
        length = 0
        while True:
            header = self.rfile.readline().strip().lower()
            if not header:
                break
            if header.startswith(b'content-length:'):
                length = int(header.split(b':')[1])
        form = dict(urllib.parse.parse_qsl(self.rfile.read(length).decode()))
        if not line:
            return
        act = form.get('metadata[act]', 'ok')
        with lock:
            executions[form.get('metadata[job]')] += 1
            number += 1
            mine = number
        if act.startswith('slow'):
            # until somebody was told that it is still running
            until(lambda: (409, form['metadata[job]']) in seen, 15)
        status = 200
        body = {'id': 'ch_%d' % mine, 'object': 'charge',
                'amount': int(form['amount'])}
        if act.startswith('fail'):
            status = int(act[4:])
            body = {'error': {'type': 'api_error' if status >= 500
                              else 'card_error', 'message': 'no',
                              'code': 'ch_%d' % mine}}
        text = json.dumps(body).encode()
        self.wfile.write(b'HTTP/1.1 %d Said\r\nConnection: close\r\n'
                         b'Content-Type: application/json\r\n'
                         b'Content-Length: %d\r\n\r\n%s'
                         % (status, len(text), text))


up = Server(Upstream)
away = free_port()                    # somebody will be there later

gw = Gateway(up, workers=2, locations='''
    location /v1/ {
        idempotency main;
        idempotency_profile stripe;
        idempotency_source $http_authorization;
        proxy_pass http://up;
    }
    location /v1/refunds {
        idempotency main;
        idempotency_profile stripe;
        idempotency_source $http_authorization;
        proxy_pass http://127.0.0.1:%d;
    }
''' % away)

# ---- the network between them ----

broken = collections.Counter()        # by what was done
tries = collections.Counter()         # by job
seen = set()                          # statuses that a job was answered with


class Network(socketserver.BaseRequestHandler):
    """One request on a connection, broken as its act says, at first."""

    def handle(self):
        data = b''
        while b'\r\n\r\n' not in data:
            data += self.more(self.request)
        head, _, body = data.partition(b'\r\n\r\n')
        found = re.search(rb'content-length: (\d+)', head, re.I)
        while len(body) < int(found.group(1) if found else 0):
            body += self.more(self.request)
        form = dict(urllib.parse.parse_qsl(body.decode()))
        act, job = form.get('metadata[act]', ''), form.get('metadata[job]')
        with lock:
            tries[job] += 1
            first = tries[job] == 1
        if first and 'before' in act:
            return self.hang_up('before')
        # the gateway sees one connection for each request
        head = re.sub(rb'(?i)\r\nconnection: [^\r]*', b'', head)
        with socket.create_connection(('127.0.0.1', gw.port)) as out:
            out.sendall(head + b'\r\nConnection: close\r\n\r\n' + body)
            if first and 'after' in act:
                return self.hang_up('after')
            reply = b''
            while True:
                some = out.recv(65536)
                if not some:
                    break
                reply += some
        if reply:
            seen.add((int(reply.split()[1]), job))
        if first and 'middle' in act:
            # within the head: for the rest of a body the library would wait
            self.request.sendall(reply[:20])
            return self.hang_up('middle')
        self.request.sendall(reply)

    def more(self, sock):
        data = sock.recv(65536)
        if not data:
            raise ConnectionError
        return data

    def hang_up(self, when):
        with lock:
            broken[when] += 1
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                b'\x01\0\0\0\0\0\0\0')
        self.request.close()

    def finish(self):
        try:
            self.request.close()
        except OSError:
            pass


network = Server(Network)


def stripe(jobs):
    done = subprocess.run(['node', TOP + '/t/drive/stripe.js', LIBRARY,
                           str(network.port)], input=json.dumps(jobs),
                          capture_output=True, text=True, timeout=120)
    if done.returncode:
        print('# ' + done.stderr.replace('\n', '\n# '))
        return [{}] * len(jobs)
    return json.loads(done.stdout)


def job(key, act='ok', amount=100, **more):
    return dict(key=key, act=act, amount=amount, **more)


# ---- whatever happens to the connection ----

jobs = [job('%s-%d' % (act, i), act)
        for act in ('ok', 'before', 'after', 'middle', 'slow-after')
        for i in range(4)]
answers = stripe(jobs)
same([a for a in answers if a.get('status') != 200], [],
     'each charge is made, through all that breaks')
same({j['key']: executions[j['key']] for j in jobs
      if executions[j['key']] != 1}, {}, 'and executed once')
same(dict(broken), {'before': 4, 'after': 8, 'middle': 4},
     'all that was to break has broken')
same([j['key'] for j in jobs if j['act'] == 'slow-after'
      and (409, j['key']) not in seen], [],
     'those whose first try was still running were told to wait')
ok('code "in_progress"' in gw.log(), 'by a 409')

again = stripe([dict(j, act=j['act']) for j in jobs])
same([a.get('id') for a in again], [a.get('id') for a in answers],
     'the same keys again are the same charges')
same(sum(executions.values()), len(jobs), 'and nothing is executed')

# ---- what the upstream has said ----

before = sum(executions.values())
answers = stripe([job('fail-500', 'fail500', retries=2),
                  job('fail-503', 'fail503', retries=2),
                  job('fail-402', 'fail402', retries=2)])
same([(a.get('status'), a.get('error')) for a in answers],
     [(500, 'StripeAPIError'), (503, 'StripeAPIError'),
      (402, 'StripeCardError')], 'errors of the upstream arrive')
same(sum(executions.values()) - before, 3,
     'and are said again, however often the client tries')
same((tries['fail-500'], tries['fail-402']), (3, 1), 'which it did')

# ---- the same key, another charge ----

first, = stripe([job('twice')])
other, = stripe([job('twice', amount=999)])
same((other.get('status'), other.get('error'), other.get('type')),
     (400, 'StripeIdempotencyError', 'idempotency_error'),
     'a key for another charge')
same((executions['twice'], tries['twice']), (1, 2),
     'is refused, and not tried again')

# ---- keys that the library makes up ----

answers = stripe([job(None), job(None)])
same((len({a.get('id') for a in answers}), executions['none']), (2, 2),
     'without a key of yours the library takes new ones')

# ---- nobody is there, for a while ----


def come_back():
    until(lambda: all((502, 'away-%d' % i) in seen for i in range(4)), 20)
    Server(Upstream, away)


threading.Thread(target=come_back, daemon=True).start()
answers = stripe([job('away-%d' % i, refund=True) for i in range(4)])
same([a.get('status') for a in answers], [200] * 4,
     'an upstream that comes back is asked')
same([executions['away-%d' % i] for i in range(4)], [1] * 4, 'once')
same([i for i in range(4) if (502, 'away-%d' % i) not in seen], [],
     'after some tries')

gw.stop()
finish()
