#!/usr/bin/env python3
"""The largest answer that Redis accepts can be read back.

A body may have 64 MB.  With a long header the record would be longer than a
reply may be: then the answer is not kept, instead of breaking each connection
that reads it.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     refused, same)
from backends import Server  # noqa: E402
from redisd import Redis  # noqa: E402

MB = 1 << 20
SIZE = 64 * MB


class Large(Server):
    """X-Lines: how many header lines of 1000 bytes the answer has"""

    def serve(self, sock, file):
        fields = {}
        for line in iter(file.readline, b'\r\n'):
            if not line:
                return False
            name, _, value = line.partition(b':')
            fields[name.lower()] = value.strip().decode()
        file.read(int(fields.get(b'content-length', 0)))
        self.execute(fields.get(b'idempotency-key'))
        lines = b''.join(b'X-Line-%d: %s\r\n' % (i, b'h' * 1000)
                         for i in range(int(fields[b'x-lines'])))
        sock.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n'
                     % (SIZE, lines))
        for _ in range(SIZE // MB):
            sock.sendall(b'z' * MB)
        return False


server = Redis()
up = Large()
gw = Gateway(Ledger(), store='redis://127.0.0.1:%d timeout=60s' % server.port,
             http='''
    idempotency_max_response 64m;
    proxy_buffer_size 256k;
    proxy_buffers 16 256k;
    proxy_busy_buffers_size 512k;
''', locations='''
    location /large {
        idempotency main;
        proxy_pass http://127.0.0.1:%d;
    }
''' % up.port)

few, many = [('X-Lines', '20')], [('X-Lines', '100')]

a = gw.post('/large', 'few', headers=few, timeout=60)
same((a.status, len(a.body)), (200, SIZE), 'the largest body')
b = gw.post('/large', 'few', headers=few, timeout=60)
ok((b.status, b.replayed, b.body == a.body) == (200, True, True),
   'is replayed', (b.status, b.code))
executed(up, 'few', 1, 'the largest body')

a = gw.post('/large', 'many', headers=many, timeout=60)
same((a.status, len(a.body)), (200, SIZE), 'with a long header')
refused(gw, '/large', 'many', 'response_not_kept', 'is not kept',
        headers=many)
executed(up, 'many', 1, 'with a long header')
ok('broke the protocol' not in gw.log(), 'no connection was broken')
ok('is too large with its header, it is not kept' in gw.log(),
   'the log says so')

gw.stop()
finish()
