#!/usr/bin/env python3
"""Numbers of a sequence while their slot moves from node to node.

Redis answers TRYAGAIN to a script for two keys of which one is there and one
is not, on both nodes.  A new number waits for the move, within the timeout,
and is refused with a reason of its own when it takes longer; none is executed
twice, and the next one is taken as soon as the slot has moved.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, same, until)
from redisset import Cluster  # noqa: E402

cluster = Cluster(masters=3, replicas=0)
up = Ledger()
gw = Gateway(up, http='''
    idempotency_store quick %s prefix=q: timeout=600ms;
    idempotency_store slow %s prefix=s: timeout=15s;
''' % (cluster.url, cluster.url), locations='''
    location = /stats { idempotency_stats; }
    location /quick/ {
        idempotency quick;
        idempotency_sequence increasing;
        proxy_pass http://up;
    }
    location /patient/ {
        idempotency slow;
        idempotency_sequence increasing;
        proxy_pass http://up;
    }
''')


def tell(name, what):
    reply = gw.post('/stats?format=json', None, body=None, method='GET')
    return [s[what] for s in json.loads(reply.body)['stores']
            if s['name'] == name][0]


def refusing(name):
    return tell(name, 'refusing')


class Move:
    """one slot, from the node that has this mark to another one"""

    def __init__(self, prefix):
        for node in cluster.nodes:
            marks = [n for n in node('KEYS', prefix + '{*}')]
            if marks:
                self.mark, self.source = marks[0], node
        self.target = [n for n in cluster.nodes if n is not self.source][0]
        self.slot = self.source('CLUSTER', 'KEYSLOT', self.mark)

    def begin(self):
        self.target('CLUSTER', 'SETSLOT', self.slot, 'IMPORTING',
                    cluster.id(self.source))
        self.source('CLUSTER', 'SETSLOT', self.slot, 'MIGRATING',
                    cluster.id(self.target))

    def keys(self):
        names = self.source('CLUSTER', 'GETKEYSINSLOT', self.slot, 100)
        if names:
            self.source('MIGRATE', '127.0.0.1', self.target.port, '', 0, 5000,
                        'KEYS', *names)

    def end(self):
        for node in (self.target, self.source, *cluster.nodes):
            node('CLUSTER', 'SETSLOT', self.slot, 'NODE',
                 cluster.id(self.target))


for number in ('1', '2'):
    ok(until(lambda: gw.post('/quick/ok', number).status == 201, 20),
       'number ' + number)
    same(gw.post('/patient/ok', '10' + number).status, 201, 'and of the other')

move = Move('q:')
move.begin()
same(gw.post('/quick/ok', '3').status, 503, 'the slot moves: a new number')
same(refusing('quick'), 'moving', 'the slot moves: why')
same(gw.post('/quick/ok', '2').status, 201, 'the slot moves: a known one')
move.keys()
same(gw.post('/quick/ok', '3').status, 503, 'its keys have moved')
same(refusing('quick'), 'moving', 'its keys have moved: why')
same(gw.post('/quick/ok', '2').status, 201, 'its keys have moved: a known one')
executed(up, '3', 0, 'until now')
move.end()
ok(until(lambda: gw.post('/quick/ok', '3').status == 201, 20), 'it has moved')
executed(up, '3', 1, 'then')
same(refusing('quick'), 'none', 'it has moved')

move = Move('s:')
move.begin()
waits = background(gw.post, '/patient/ok', '103')
ok(until(lambda: tell('slow', 'in_flight') == 1, 10), 'with time: it waits')
move.keys()
move.end()
same(waits.join().status, 201, 'with time: it is taken when the slot has moved')
executed(up, '103', 1, 'with time')
gw.stop()
cluster.stop()
finish()
