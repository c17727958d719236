"""Requests: wrk for many, one Python connection to look at answers."""

import collections
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time

import rig

PATH = '/payments'

HEADERS = ('Host: localhost\r\n'
           'User-Agent: bench/1.0\r\n'
           'Accept: application/json\r\n'
           'Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n'
           'Content-Type: application/json\r\n')

# an order and its receipt, about 200 bytes each
REQUEST = ('{"order":"4711-0815","customer":"c-20231","currency":"EUR",'
           '"amount":12995,"items":[{"sku":"A-100","quantity":2,'
           '"price":4995},{"sku":"B-7","quantity":1,"price":3005}],'
           '"note":"please ring twice, thank you"}')
ANSWER = ('{"id":"pay_20489125","order":"4711-0815","state":"captured",'
          '"currency":"EUR","amount":12995,"captured":12995,"refunded":0,'
          '"method":"card","last4":"4242","created":"2024-05-01T10:11:12Z",'
          '"receipt":"r-99"}')

# in the place of a size: an order of 1 KB that is as JSON bodies are
ORDER = -1
LARGE = json.dumps({
    'order': '4711-0815', 'merchant': {'id': 'm-20231', 'shop': 'north'},
    'currency': 'EUR', 'amount': 12995.50, 'capture': True, 'coupon': None,
    'customer': {'id': 20231, 'name': 'J\u00f6rg M\u00fcller',
                 'mail': 'joerg@example.com'},
    'items': [{'sku': 'SKU-%05d' % (77 * i), 'title': 'An article to wear',
               'quantity': i, 'price': 10 * i + 4.99} for i in range(1, 9)],
    'note': 'please ring twice, thank you', 'nonce': 'f81d4fae7dec11d0a765',
}, separators=(',', ':'))
LARGE += ' ' * (1024 - len(LARGE))

Result = collections.namedtuple('Result', 'requests seconds p50 p99')


def keys_for(size):
    """How many keys a set of replays has; wrk keeps a request for each."""
    return max(64, min(5000, (32 << 20) // max(size, 1)))


def text(size, name):
    """JSON of so many bytes."""
    empty = json.dumps({name: ''})
    return json.dumps({name: 'x' * (size - len(empty))})


def request_body(size):
    if size == ORDER:
        return LARGE
    return text(size, 'order') if size else REQUEST


def answer_body(size):
    return text(size, 'receipt') if size > 0 else ANSWER


def path(size):
    """The upstreams answer with as many bytes as the last word says."""
    return '/sized/%d' % size if size > 0 else PATH


def wrk(port, size, seconds, prefix, keys=0, connections=32):
    """Keys named PREFIX-n, new ones or KEYS in a circle; all must get 2xx."""
    body = os.path.join(rig.WORK, 'request.%d' % size)
    if not os.path.exists(body):
        with open(body, 'w') as f:
            f.write(request_body(size))
    env = dict(os.environ, BENCH_BODY=body, BENCH_PREFIX=prefix,
               BENCH_KEYS=str(keys), BENCH_HEADERS=HEADERS)
    out = subprocess.run(
        ['wrk', '-t1', '-c%d' % connections, '-d%ds' % seconds,
         '--timeout', '20s', '-s', os.path.join(rig.HERE, 'load.lua'),
         'http://127.0.0.1:%d%s' % (port, path(size))],
        env=env, check=True, capture_output=True, text=True,
        preexec_fn=rig.on_other_cores).stdout
    m = re.search(r'BENCH (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)', out)
    requests, errors, status, us, p50, p99 = (int(x) for x in m.groups())
    if errors or status:
        sys.exit('port %d, keys %s: %d requests, %d of them failed, %d with '
                 'a bad status' % (port, prefix, requests, errors, status))
    return Result(requests, us / 1e6, p50 / 1000, p99 / 1000)


def until_ready(port, key='ready', pause=0.1):
    """A gateway that answers may still be on its way to Redis."""
    for _ in range(300):
        with Client(port) as client:
            if client.post(key)[0] == 201:
                return
        time.sleep(pause)
    sys.exit('no answer but errors on port %d' % port)


class Client:
    """One connection, kept alive; the requests are those of wrk."""

    def __init__(self, port):
        self.sock = socket.create_connection(('127.0.0.1', port), 60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def post(self, key, size=0):
        """status, whether it says to be a replay, body"""
        body = request_body(size)
        answer, data = self._ask(
            'POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n'
            'Idempotency-Key: %s\r\n\r\n%s'
            % (path(size), HEADERS, len(body), key, body))
        return (answer.status, 'Idempotent-Replayed' in answer.headers,
                data.decode())

    def get(self, where):
        return self._ask('GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n'
                         % where)[1].decode()

    def _ask(self, text):
        self.sock.sendall(text.encode())
        answer = http.client.HTTPResponse(self.sock)
        answer.begin()
        data = answer.read()
        answer.close()
        return answer, data
