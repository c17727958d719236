#!/usr/bin/env python3
"""The stores do what the model does: every line of the table of transitions
that t/model is made of, from every way there is into its state, gives the
result, the state, the owner, the fence and the attempts that the table says.
"""

import http.client
import os
import re
import sqlite3
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE + '/drive', HERE + '/model']
from gateway import (POSTGRES, REDIS, SQLITE, Gateway,  # noqa: E402
                     Ledger, finish, ok, same, until)
from redisd import Client  # noqa: E402
import transitions  # noqa: E402

MINUTE = 60000

# stores in which a claim may arrive behind its release
LATE = REDIS or POSTGRES

# how the endpoint is asked for an operation; FENCE: as it is, OLD: another
OPS = {
    'claim': dict(op='claim'),
    'claim_retry': dict(op='claim', flags='unknown'),
    'claim_told': dict(op='claim', flags='unknown', fence='FENCE'),
    'claim_told_old': dict(op='claim', flags='unknown', fence='OLD'),
    'claim_other_fp': dict(op='claim', flags='unknown', fp='G'),
    'claim_issued': dict(op='claim', flags='issued'),
    'probe_end': dict(op='probe', fence='FENCE'),
    'probe_end_old': dict(op='probe', fence='OLD'),
    'executed': dict(op='resolve', executed=1, fence='FENCE'),
    'executed_old': dict(op='resolve', executed=1, fence='OLD'),
    'not_executed': dict(op='resolve', fence='FENCE'),
    'not_executed_old': dict(op='resolve', fence='OLD'),
    'purge': dict(op='purge', fence='FENCE'),
    'purge_old': dict(op='purge', fence='OLD'),
}

# ways into each state; a capital letter is the owner, who is A in the end or,
# behind "-", nobody
LAPSED = 'A claim lease=0'
WAYS = {
    'none': ['-'],
    'stub': ['A claim; A release', 'A release', 'C release; A release',
             LAPSED + '; purge', LAPSED + '; not_executed', '- issue; purge',
             'A claim; A complete; purge', 'issue; A release; purge'],
    'issued': ['- issue', 'issue; A claim; A release', 'issue; A release',
               'issue; ' + LAPSED + '; not_executed',
               'A claim; A release; issue'],
    'executing': ['A claim', 'A renew', 'C claim; C release; A claim',
                  'C claim; C mark_unknown; A claim_retry',
                  'C claim lease=0; A claim_told', LAPSED + '; A renew'],
    'executing+': ['issue; A claim',
                   'issue; C claim; C mark_unknown; A claim_retry'],
    'lapsed': [LAPSED, 'A renew lease=0',
               'C claim; C release; ' + LAPSED],
    'lapsed+': ['issue; ' + LAPSED],
    'unknown': ['A claim; A mark_unknown', 'A mark_unknown',
                LAPSED + '; probe lease=0', LAPSED + '; probe; probe_end'],
    'unknown+': ['issue; A claim; A mark_unknown',
                 'issue; ' + LAPSED + '; probe lease=0'],
    'asked': ['A claim; A mark_unknown; probe', LAPSED + '; probe'],
    'asked+': ['issue; A claim; A mark_unknown; probe'],
    'done': ['A claim; A complete', 'A complete',
             LAPSED + '; A complete', 'A claim; A mark_unknown; A complete',
             'A claim keep=0; A complete',
             '- C claim lease=0; executed', 'issue; A claim; A complete'],
    'tombstone': ['A claim; A complete ttl=0 tombstone=100',
                  '- C claim lease=0; executed ttl=0 tombstone=100'],
    'cancelled': ['- cancel', '- C claim; C release; cancel',
                  '- issue; cancel', '- cancel; cancel',
                  '- cancel ttl=0 tombstone=100'],
}

# the same with a dead owner B; what is refused on the way has a "!"
DEAD = {
    'stub': ['B claim; B release; A claim; A release', 'B release; A release',
             'A claim; !B release; A release',
             'A claim; A mark_unknown; !B release; not_executed',
             'B claim lease=0; A claim_retry; A release'],
    'issued': ['issue; B claim; B release; A claim; A release',
               'A claim; !B release; A release; issue'],
    'executing': ['B release; A claim', 'A claim; !B release'],
    'executing+': ['issue; B release; A claim'],
    'lapsed': ['B release; ' + LAPSED, LAPSED + '; !B release'],
    'lapsed+': ['issue; B release; ' + LAPSED],
    'unknown': ['B release; A claim; A mark_unknown'],
    'unknown+': ['issue; B release; A claim; A mark_unknown'],
    'asked': ['B release; ' + LAPSED + '; probe'],
    'asked+': ['issue; B release; ' + LAPSED + '; probe'],
    'done': ['B release; A claim; A complete'],
    'tombstone': ['B release; A claim; A complete ttl=0 tombstone=100'],
    'cancelled': ['- B release; cancel', '- B claim; B release; cancel'],
}

SHOWN = {'stub': 'none', 'lapsed': 'unknown', 'asked': 'unknown',
         'cancelled': 'done'}


class Store:
    """One connection to the endpoint; a key of its own for each walk."""

    def __init__(self, gw):
        self.conn = http.client.HTTPConnection('127.0.0.1', gw.port,
                                               timeout=60)
        self.keys = 0

    def ask(self, **args):
        query = '&'.join('%s=%s' % item for item in args.items())
        self.conn.request('GET', '/store?' + query)
        text = self.conn.getresponse().read().decode('latin-1')
        return {name: value.strip('"') for name, value
                in re.findall(r'^(\w+): (.*)$', text, re.M)}

    def key(self):
        self.keys += 1
        return 'k%d' % self.keys

    def fetch(self, key):
        return self.ask(op='fetch', key=key)

    def do(self, key, op, owner='', **more):
        args = dict(key=key, fp='F', owner=owner, body='of-' + owner)
        args.update(OPS.get(op, dict(op=op)))
        args.update(more)
        if 'fence' in args:
            fence = int(self.fetch(key)['fence'])
            args['fence'] = {'FENCE': fence or 1,
                             'OLD': fence + 1}[args['fence']]
        answer = self.ask(**args)
        # a renewal has one result for each lease
        return dict(answer, result=answer.get('lease', answer.get('result')))

    def walk(self, way):
        """Goes there; the key, and who owns it: A or nobody."""
        key = self.key()
        nobody = way.startswith('-')
        for step in way.lstrip('- ').split(';'):
            words = step.split()
            if not words:
                continue
            refused = words[0].startswith('!')
            owner = words.pop(0)[-1] if len(words[0]) < 3 else ''
            answer = self.do(key, words[0], owner,
                             **dict(w.split('=') for w in words[1:]))
            if (answer['result'] == 'refused') != refused:
                raise SystemExit('Bail out! %s: %s %r' % (way, step, answer))
        return key, '' if nobody else 'A'


def owns(store, key, state, who):
    """Does the store take it for the owner's?  Alters what is free only."""
    if state in ('executing', 'lapsed'):
        return store.do(key, 'renew', who)['result'] == 'ok'
    if state in ('unknown', 'asked'):
        return (store.do(key, 'renew', who)['result'] == 'refused'
                and store.do(key, 'mark_unknown', who)['result'] == 'ok')
    if state in ('done', 'tombstone', 'cancelled'):
        return store.do(key, 'complete', who)['result'] == 'ok'
    return store.do(key, 'claim', who)['result'] == 'refused'


def owner_of(store, key, state, expected):
    """A, B or nobody; the one who is expected is asked first"""
    for who in sorted('AB', key=lambda x: x != expected):
        if owns(store, key, state, who):
            return who
    return ''


def give_back(store, key, state, owner):
    """Frees it; an issued key is an issued one again."""
    if state in ('unknown', 'asked'):
        store.do(key, 'not_executed')
    else:
        store.do(key, 'release', owner)
    return store.fetch(key)['state']


def numbers(record):
    return int(record['fence']), int(record['attempts'])


def wrong(store, line, way):
    """What differs from the table, or nothing."""
    key, owner = store.walk(way)
    before = store.fetch(key)
    who = owner if line.who == 'owner' else 'B'
    answer = store.do(key, line.op, who, status=202)
    after = store.fetch(key)

    state = line.after.rstrip('+')
    shown = SHOWN.get(state, state)
    owner = {'=': owner, 'me': who, 'nobody': ''}[line.owner]
    fence, attempts = numbers(before)
    wants = [('result', answer['result'], line.result),
             ('state', after['state'], shown),
             ('lease', int(after['lease_left']) > 0,
              state in ('executing', 'asked')),
             ('a new fence', int(after['fence']) > fence,
              line.new in ('try', 'lost', 'fence')),
             ('attempts', int(after['attempts']),
              0 if state == 'cancelled'
              else attempts + (line.new in ('try', 'lost')))]
    if 'cancelled' in (state, line.before) and after['state'] != 'none':
        shown = after['state'] if after['state'] == 'tombstone' else 'done'
        wants[1:2] = [('state', after['state'], shown),
                      ('status', after['status'], '410')]
    if line.new == '-':
        wants.append(('fence', int(after['fence']), fence))
    if 'state' in answer and line.result != 'not_issued':
        wants.append(('state in the answer', answer['state'], shown))
    if state == 'done':
        body = before['body'] if line.before == 'done' else 'of-' + who
        wants.append(('answer kept', after['body'], body))
        if line.result == 'exists' or line.op == 'complete' \
                and line.result == 'refused':
            wants.append(('answer shown', answer['body'], body))
    wants.append(('owner', owner_of(store, key, state, owner), owner))
    if state in transitions.MARKED and owner:
        wants.append(('given back',
                      give_back(store, key, state, owner),
                      'issued' if line.after.endswith('+') else 'none'))
        if line.new == 'dead' and LATE:
            wants.append(('a claim then', store.do(key, 'claim', who)['result'],
                          'refused'))
    return ['%s %r, not %r' % (name, got, want)
            for name, got, want in wants if got != want]


def test_table(store):
    for line in transitions.plain() + transitions.marked():
        found = []
        if line.who == 'dead' and not LATE:
            continue
        if line.new == 'lost' and not LATE:
            line = transitions.Line(line.op, line.before, line.who, 'refused',
                                    '=', '=', '-')
        for way in (DEAD if line.who == 'dead' else WAYS)[line.before]:
            nobody = way.startswith('-') and line.before != 'none'
            if nobody and line.who == 'owner':
                continue
            found += ['%s [%s]' % (x, way) for x in wrong(store, line, way)]
        ok(not found, str(line), '\n'.join(found))


def lifetimes():
    """of all stubs in the database of this gateway, milliseconds"""
    if POSTGRES:
        schema = re.search(r'schema=(\S+)', gw.conf['store']).group(1)
        text = subprocess.run(
            ['psql', '-XAtc', 'SELECT until - clock_us() / 1000 FROM records '
             'WHERE state = 0'], check=True, capture_output=True, text=True,
            env=dict(os.environ, PGOPTIONS='-c search_path=' + schema)).stdout
        return [int(line) for line in text.split()]
    path = gw.conf['store'].split()[0].partition(':')[2]
    db = sqlite3.connect('file:%s?mode=ro' % path, uri=True)
    now = time.time() * 1000
    rows = db.execute('SELECT until FROM records WHERE state = 0').fetchall()
    db.close()
    return [row[0] - now for row in rows]


def test_time(store):
    """The clock alone; what lasts long is not waited for."""
    times = {tuple(row) for row in transitions.words(transitions.TIME)}
    short = {
        ('lease_end', 'executing', 'lapsed'): 'A claim lease=300',
        ('lease_end', 'asked', 'unknown'): LAPSED + '; probe lease=300',
        ('ttl_end', 'done', 'tombstone'):
            'A claim; A complete ttl=1 tombstone=100',
        ('ttl_end', 'tombstone', 'none'):
            'A claim; A complete ttl=0 tombstone=1',
        ('ttl_end', 'issued', 'none'): '- issue ttl=1',
        ('ttl_end', 'cancelled', 'none'): '- cancel ttl=1 tombstone=0',
    }
    keys = {name: store.walk(way)[0] for name, way in short.items()}
    for name, key in keys.items():
        _, before, after = name
        shown = SHOWN.get(after, after)
        ok(until(lambda: store.fetch(key)['state'] == shown
                 and store.fetch(key)['lease_left'] == '0', 10),
           '%s, after its time: %s' % (before, after), store.fetch(key))
        if after in ('lapsed', 'unknown'):
            same(owner_of(store, key, after, 'A'), 'A', 'and whose it was')
        if after == 'none':
            same(store.do(key, 'claim', 'A')['attempts'], '1', 'as if never')
    same(times - set(keys), {('ttl_end', 'stub', 'none')}, 'all of them')

    client = REDIS and Client(REDIS.partition('://')[2])
    others = set(client('KEYS', '*')) if client else ()
    key = store.walk('A claim; A release')[0]
    if SQLITE or POSTGRES:
        lives = lifetimes()
        ok(any(9 * MINUTE < x <= 10 * MINUTE for x in lives),
           'a stub lasts ten minutes', sorted(lives)[:9])
    elif REDIS is None:
        late = store.ask(op='claim', key=key, owner='A', after=11 * MINUTE)
        same(late['result'], 'granted', 'a stub lasts ten minutes')
    else:
        lives = [client('PTTL', name)
                 for name in set(client('KEYS', '*')) - others]
        ok(any(9 * MINUTE < x <= 10 * MINUTE for x in lives),
           'a stub lasts ten minutes', sorted(lives)[:9])


gw = Gateway(Ledger())
store = Store(gw)
test_table(store)
test_time(store)
gw.stop()
finish()
