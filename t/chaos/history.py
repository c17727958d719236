"""What clients saw and what the upstream did: the input of the checker.

An attempt is one request of a client.  Its kind is

    answer    the upstream's word, whole, first hand or replayed
    refused   the module's own answer; "code" tells which
    nginx     any other answer, as 502
    none      no whole answer: the client left, or nginx or its worker died

An effect is one line of the upstream's ledger, written before it answered.
"""

import collections
import json
import os

Attempt = collections.namedtuple(
    'Attempt', 'key n body begin end kind status code replayed effect digest '
               'whole aborted keyless')

Effect = collections.namedtuple('Effect', 't effect key n body status')

# what the module releases by default, and what it takes for unknown
RETRYABLE = (401, 403, 407, 408, 425, 429, 503)
NEITHER = (502, 504)


def read_ledger(path):
    effects = []
    with open(path) as f:
        for line in f:
            t, effect, key, n, body, status = line.rstrip('\n').split('\t')
            effects.append(Effect(float(t), effect, key, int(n or 0), body,
                                  int(status)))
    return effects


def write(path, attempts):
    """One line for each attempt, in the order of their beginnings."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w') as f:
        for a in sorted(attempts, key=lambda a: a.begin):
            f.write(json.dumps(a._asdict()) + '\n')


def story(key, attempts, effects):
    """All that is known about a key, for people."""
    lines = []
    for e in effects:
        if e.key == key:
            lines.append((e.t, '%.3f executed as %s by attempt %d, body %s, '
                          'status %d' % (e.t, e.effect, e.n, e.body,
                                         e.status)))
    for a in attempts:
        if a.key == key:
            lines.append((a.begin, '%.3f-%.3f attempt %d, body %s: %s %s %s%s%s'
                          % (a.begin, a.end, a.n, a.body, a.kind, a.status,
                             a.code or a.effect or '',
                             ' replayed' if a.replayed else '',
                             ' left' if a.aborted else '')))
    return '\n'.join(line for _, line in sorted(lines))
