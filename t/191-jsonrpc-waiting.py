#!/usr/bin/env python3
"""Profile jsonrpc: many callers of one operation get one answer, each with its
own id.

Duplicates that wait share the stored answer, and none of them changes it for
the others.  Large answers, which a store reads in pieces, differ in their id
only.  The length is right: the next request on the connection is understood.
gzip works on an answer with another id.
"""

import gzip
import http.client
import http.server
import json
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import Gateway, finish, ok, same, until  # noqa: E402


class Tools(http.server.BaseHTTPRequestHandler):
    """executes calls; /wait answers once the gate is open"""

    protocol_version = 'HTTP/1.1'
    executions = []
    gate = threading.Event()

    def do_POST(self):
        message = json.loads(self.rfile.read(
            int(self.headers['Content-Length'])))
        self.executions.append(message)
        n = len(self.executions)
        if self.path == '/wait':
            self.gate.wait(30)
        size = message['params']['arguments'].get('size', 10)
        body = json.dumps({'jsonrpc': '2.0', 'id': message['id'], 'result': {
            'execution': n, 'text': ('%d ' % n * size)[:size]}}).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


up = Server(('127.0.0.1', 0), Tools)
up.port = up.server_address[1]
threading.Thread(target=up.serve_forever, daemon=True).start()

gw = Gateway(up, default='''
    idempotency_profile jsonrpc;
    idempotency_in_progress wait=20s;
''', http='''
    gzip_types application/json;
    gzip_proxied any;
''', server='''
    location = /short {
        idempotency main;
        idempotency_profile jsonrpc;
        idempotency_in_progress wait=100ms;
        idempotency_scope "$request_method /wait";
        proxy_pass http://up;
    }
    location = /gzip {
        gzip on;
        idempotency main;
        idempotency_profile jsonrpc;
        proxy_pass http://up;
    }
''', workers=2)


def call(id, **arguments):
    return ('{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":'
            '{"name":"pay","arguments":%s,"_meta":{"progressToken":%s}}}'
            % (id, json.dumps(arguments), id)).encode()


def with_id(body, id):
    """the bytes of the first answer, with another id"""
    return body.replace(b'"id": 1,', b'"id": %s,' % id.encode(), 1)


# ---- waiting ----

ids = ['2', '"three"', 'null', '4.50', '"\\u0066ive"', '1', '-6e2']
first = gw.call('/wait', 'w', call('1'))
ok(until(lambda: len(Tools.executions) == 1), 'the first runs')
waiters = [(id, gw.call('/wait', 'w', call(id))) for id in ids]

late = gw.post('/short', 'w', call('"late"'))
same((late.status, late.code, json.loads(late.body)['id']),
     (409, 'in_progress', 'late'), 'the deadline of one of them')
same(json.loads(late.body)['error']['data'].get('retry_after'), 1,
     'it is told when to come again')

Tools.gate.set()
a = first.read()
same((a.status, json.loads(a.body)['id']), (200, 1), 'the first is answered')
for id, waiter in waiters:
    b = waiter.read()
    same((b.status, b.body, b.replayed), (200, with_id(a.body, id), True),
         'a waiter with the id ' + id)
same(len(Tools.executions), 1, 'executed once')

# ---- large answers ----

for size in (1, 4000, 70000, 600000):
    key = 'large-%d' % size
    a = gw.post('/', key, call('1', size=size))
    for id in ('2', '"%s"' % ('x' * 1000), '3'):
        b = gw.post('/', key, call(id, size=size))
        same((b.status, b.replayed, b.body == with_id(a.body, id), b.whole),
             (200, True, True, True), '%d bytes, id %.9s' % (size, id))

# ---- one connection ----

conn = http.client.HTTPConnection('127.0.0.1', gw.port, timeout=20)
seen = []
for id in ('1', '"a longer id than the first"', '3', 'null'):
    conn.request('POST', '/', call(id), {'Idempotency-Key': 'kept'})
    answer = conn.getresponse()
    seen.append((answer.status, json.loads(answer.read())['id']))
same(seen, [(200, 1), (200, 'a longer id than the first'), (200, 3),
            (200, None)], 'four requests on one connection')
conn.close()

# ---- compressed by nginx ----

headers = [('Accept-Encoding', 'gzip')]
a = gw.post('/gzip', 'z', call('1', size=500), headers=headers)
b = gw.post('/gzip', 'z', call('"two"', size=500), headers=headers)
same((a.get('content-encoding'), b.get('content-encoding')),
     ('gzip', 'gzip'), 'both are compressed')
same(gzip.decompress(b.body), with_id(gzip.decompress(a.body), '"two"'),
     'and differ in the id only')

gw.stop()
finish()
