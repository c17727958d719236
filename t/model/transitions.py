#!/usr/bin/env python3
"""Every transition of a record: one table for the model and for the code.

    transitions.py pml      the table as Promela, for idempotency.pml

t/220-model-transitions.py drives both stores through the same lines.

A line is an operation, the state it meets, and who asks: the owner that the
record names, an other, or a dead one, that is an other who has given the key
back or lost it.  Then what is answered, the state afterwards, who owns it
then, and whether that is a new try (a higher fence, one more attempt), only a
new fence, or makes the one who asks a dead one.  "=" is as before.  A "*"
stands for all states that the operation does not name itself.

"lost" is a new try as well: an owner who runs and meets a key that reads as
free, though it never gave it up, has been forgotten by the store and is
written anew.  The embedded store forgets nothing and refuses.

The dead are a matter of claims that arrive late, and so of Redis: a claim in
the embedded store arrives before anybody can give up.
"""

import sys

STATES = {
    'none': 'nothing is there',
    'stub': 'nothing, and one owner who must not have it any more',
    'issued': 'a token that nobody has spent',
    'executing': 'claimed, and the lease runs',
    'lapsed': 'claimed, and the lease is over: reads as unknown',
    'unknown': 'sent, and nobody knows',
    'asked': 'unknown, and somebody has the right to probe',
    'done': 'with its answer',
    'tombstone': 'done, and the ttl is over',
    'cancelled': 'by its caller, before it was executed: reads as done',
}

# "back" is a stub, or issued if the key was claimed as an issued one; that
# mark, a plus, stays with it until it is done or free.
MARKED = ('executing', 'lapsed', 'unknown', 'asked')

# operation    before     who    result      after       owner   new
TABLE = '''
claim          none       other  granted     executing   me      try
claim          stub       owner  refused     =           =       -
claim          stub       other  granted     executing   me      try
claim          stub       dead   refused     =           =       -
claim          issued     owner  refused     =           =       -
claim          issued     other  granted     executing+  me      try
claim          issued     dead   refused     =           =       -
claim          executing  owner  granted     executing   =       -
claim          executing  other  exists      =           =       -
claim          lapsed     owner  granted     executing   =       -
claim          lapsed     other  exists      =           =       -
claim          unknown    any    exists      =           =       -
claim          asked      any    exists      =           =       -
claim          done       any    exists      =           =       -
claim          tombstone  any    exists      =           =       -
claim          cancelled  any    exists      =           =       -
claim          cancelled  dead   exists      =           =       -

claim_retry    lapsed     other  granted     executing   me      try
claim_retry    unknown    other  granted     executing   me      try
claim_retry    asked      other  granted     executing   me      try
claim_retry    (claim)

claim_told     (claim_retry)
claim_told_old (claim)
claim_other_fp (claim)

claim_issued   none       other  not_issued  =           =       -
claim_issued   stub       any    not_issued  =           =       -
claim_issued   stub       dead   not_issued  =           =       -
claim_issued   (claim)

complete       none       other  ok          done        me      try
complete       stub       owner  refused     =           =       -
complete       stub       other  ok          done        me      lost
complete       stub       dead   refused     =           =       -
complete       issued     owner  refused     =           =       -
complete       issued     other  ok          done        me      lost
complete       issued     dead   refused     =           =       -
complete       executing  owner  ok          done        =       -
complete       executing  other  refused     =           =       -
complete       lapsed     owner  ok          done        =       -
complete       lapsed     other  refused     =           =       -
complete       unknown    owner  ok          done        =       -
complete       unknown    other  refused     =           =       -
complete       asked      owner  ok          done        =       -
complete       asked      other  refused     =           =       -
complete       done       owner  ok          =           =       -
complete       done       other  refused     =           =       -
complete       tombstone  owner  ok          =           =       -
complete       tombstone  other  refused     =           =       -
complete       cancelled  any    refused     =           =       -

release        none       other  ok          stub        me      try
release        stub       any    ok          =           me      -
release        issued     any    ok          =           me      -
release        executing  owner  ok          back        =       -
release        executing  other  refused     =           =       dead
release        lapsed     owner  ok          back        =       -
release        lapsed     other  refused     =           =       dead
release        unknown    owner  refused     =           =       -
release        unknown    other  refused     =           =       dead
release        asked      owner  refused     =           =       -
release        asked      other  refused     =           =       dead
release        *          any    refused     =           =       -

mark_unknown   none       other  ok          unknown     me      try
mark_unknown   stub       owner  refused     =           =       -
mark_unknown   stub       other  ok          unknown     me      lost
mark_unknown   stub       dead   refused     =           =       -
mark_unknown   issued     owner  refused     =           =       -
mark_unknown   issued     other  ok          unknown+    me      lost
mark_unknown   issued     dead   refused     =           =       -
mark_unknown   executing  owner  ok          unknown     =       -
mark_unknown   executing  other  refused     =           =       -
mark_unknown   lapsed     owner  ok          unknown     =       -
mark_unknown   lapsed     other  refused     =           =       -
mark_unknown   unknown    owner  ok          =           =       -
mark_unknown   unknown    other  refused     =           =       -
mark_unknown   asked      owner  ok          =           =       -
mark_unknown   asked      other  refused     =           =       -
mark_unknown   *          any    refused     =           =       -

renew          none       other  ok          executing   me      try
renew          stub       owner  refused     =           =       -
renew          stub       other  ok          executing   me      lost
renew          stub       dead   refused     =           =       -
renew          issued     owner  refused     =           =       -
renew          issued     other  ok          executing+  me      lost
renew          issued     dead   refused     =           =       -
renew          executing  owner  ok          executing   =       -
renew          executing  other  refused     =           =       -
renew          lapsed     owner  ok          executing   =       -
renew          lapsed     other  refused     =           =       -
renew          *          any    refused     =           =       -

probe          lapsed     any    granted     asked       =       fence
probe          unknown    any    granted     asked       =       fence
probe          *          any    exists      =           =       -

probe_end      unknown    any    ok          unknown     =       -
probe_end      asked      any    ok          unknown     =       -
probe_end      *          any    refused     =           =       -
probe_end_old  *          any    refused     =           =       -

issue          none       other  ok          issued      nobody  fence
issue          stub       any    ok          issued      =       fence
issue          *          any    refused     =           =       -

executed       lapsed     any    ok          done        nobody  -
executed       unknown    any    ok          done        nobody  -
executed       asked      any    ok          done        nobody  -
executed       *          any    refused     =           =       -
executed_old   *          any    refused     =           =       -

not_executed   lapsed     any    ok          back        =       -
not_executed   unknown    any    ok          back        =       -
not_executed   asked      any    ok          back        =       -
not_executed   *          any    refused     =           =       -
not_executed_old  *       any    refused     =           =       -

purge          none       other  refused     =           =       -
purge          stub       any    refused     =           =       -
purge          executing  any    refused     =           =       -
purge          *          any    ok          stub        =       -
purge_old      *          any    refused     =           =       -

cancel         none       other  ok          cancelled   nobody  fence
cancel         stub       any    ok          cancelled   nobody  fence
cancel         issued     any    ok          cancelled   nobody  fence
cancel         cancelled  any    ok          =           =       -
cancel         *          any    refused     =           =       -

fetch          *          any    ok          =           =       -
'''

# What only time does.
TIME = '''
lease_end      executing  lapsed
lease_end      asked      unknown
ttl_end        done       tombstone
ttl_end        tombstone  none
ttl_end        issued     none
ttl_end        stub       none
ttl_end        cancelled  none
'''

# What must not be built: lines that take the place of those above when the
# model is made with this switch.
BROKEN = '''
LEASE_FREES    claim      lapsed     other  granted  executing  me      try
NO_STUB        release    none       other  ok       none       nobody  -
NO_STUB        release    executing  owner  ok       none       nobody  -
NO_STUB        release    lapsed     owner  ok       none       nobody  -
ONE_STUB       claim      stub       dead   granted  executing  me      try
NO_OWNER       complete   executing  other  ok       done       =       -
NO_OWNER       complete   lapsed     other  ok       done       =       -
NO_OWNER       complete   unknown    other  ok       done       =       -
NO_OWNER       complete   done       other  ok       =          =       -
LOSER_FREES    release    executing  other  ok       stub       me      -
'''

# What the model knows; the rest is compared with the code only.
MODEL_STATES = ('none', 'stub', 'executing', 'lapsed', 'unknown', 'done')
MODEL_OPS = ('claim', 'claim_retry', 'complete', 'release', 'mark_unknown',
             'renew')


NAMES = {'owner': 'its owner', 'other': 'another', 'dead': 'a dead owner'}


class Line:
    def __init__(self, op, before, who, result, after, owner, new):
        self.op, self.before, self.who = op, before, who
        self.result, self.owner, self.new = result, owner, new
        self.after = before if after == '=' else after

    def __str__(self):
        return '%s of %s by %s: %s, %s' % (
            self.op, self.before, NAMES[self.who], self.result, self.after)


def words(text):
    return [line.split() for line in text.strip().splitlines() if line]


def whose(state, who):
    """any: both, but nothing has no owner"""
    if who != 'any':
        return [who]
    return ['other'] if state == 'none' else ['owner', 'other']


def read():
    """The table in full, {operation: {(before, who): Line}}."""
    table = {}
    for row in words(TABLE):
        op = row[0]
        lines = table.setdefault(op, {})
        if len(row) == 2:
            for key, x in table[row[1][1:-1]].items():
                lines.setdefault(key, Line(op, x.before, x.who, x.result,
                                           x.after, x.owner, x.new))
            continue
        named = [before for before, _ in lines]
        for state in STATES if row[1] == '*' else [row[1]]:
            if row[1] == '*' and state in named:
                continue
            for who in whose(state, row[2]):
                if (state, who) in lines:
                    raise SystemExit('%s of %s twice' % (op, state))
                lines[state, who] = Line(op, state, who, *row[3:])
    for op, lines in table.items():
        if op.startswith('claim'):
            add_dead(lines)
        for state in STATES:
            for who in whose(state, 'any'):
                if (state, who) not in lines:
                    raise SystemExit('no line: %s %s %s' % (op, state, who))
    return table


def add_dead(lines):
    """Claims of the dead are those of others, where nothing else is said."""
    for (state, who), x in list(lines.items()):
        if who == 'other' and state != 'none':
            lines.setdefault((state, 'dead'),
                             Line(x.op, state, 'dead', x.result, x.after,
                                  x.owner, x.new))


def marked():
    """The same for keys that were claimed as issued ones."""
    lines = []
    for op, by in read().items():
        for (before, who), x in by.items():
            if before in MARKED:
                after = {'back': 'issued'}.get(x.after, x.after)
                if after in MARKED:
                    after += '+'
                lines.append(Line(op, before + '+', who, x.result, after,
                                  x.owner, x.new))
    return lines


def plain():
    lines = [x for by in read().values() for x in by.values()]
    for x in lines:
        if x.after == 'back':
            x.after = 'stub'
    return lines


# ---- Promela ----

GUARDS = {'owner': 'own == me', 'other': 'own != me && !DEAD(me)',
          'dead': 'own != me && DEAD(me)'}


def guard(x):
    text = 'st == ' + x.before.upper()
    if x.before == 'none':
        return text
    if not (x.op.startswith('claim') or x.new == 'lost') and x.who == 'other':
        return text + ' && own != me'
    return text + ' && ' + GUARDS[x.who]


def change(x):
    does = ['res = ' + x.result.upper()]
    if x.new == 'dead':
        does.append('dead = dead | 1 << me')
    if x.owner == 'me' and x.before != 'none' and x.who != 'owner':
        does.append('dead = dead | 1 << own')
    if x.after != x.before:
        if x.after not in MODEL_STATES:
            raise SystemExit('the model does not know: %s' % x)
        does.append('st = ' + x.after.upper())
        if x.after == 'done':
            does.append('ans = value; dead = 0')
    if x.owner != '=':
        does.append('own = ' + {'me': 'me', 'nobody': '0'}[x.owner])
    return '; '.join(does)


def pml():
    lines = {(x.op, x.before, x.who): x for x in plain()}
    broken = {}
    for switch, *row in words(BROKEN):
        key = tuple(row[:3])
        if key not in lines or key in broken:
            raise SystemExit('nothing to break: %s' % ' '.join(row))
        broken[key] = switch, Line(*row)
    out = ['/* made by transitions.py */', '',
           'mtype = { %s };' % ', '.join(s.upper() for s in MODEL_STATES),
           'mtype = { OK, GRANTED, EXISTS, REFUSED };', '',
           '#define DEAD(me)  (dead & 1 << me)']
    for op in MODEL_OPS:
        out += ['', 'inline store_%s(me, value)' % op, '{', '    if']
        for key, x in lines.items():
            if x.op != op or x.before not in MODEL_STATES:
                continue
            text = '    :: %s ->\n       %s' % (guard(x), change(x))
            if key in broken:
                switch, bad = broken[key]
                text = ('#ifdef %s\n    :: %s ->\n       %s\n#else\n%s\n'
                        '#endif' % (switch, guard(bad), change(bad), text))
            out.append(text)
        out += ['    fi', '}']
    for name, before, after in words(TIME):
        if name == 'lease_end' and before in MODEL_STATES:
            out += ['', '#define can_%s  (st == %s)'
                    % (name.upper(), before.upper()),
                    'inline time_%s() { st = %s }' % (name, after.upper())]
    return '\n'.join(out) + '\n'


if __name__ == '__main__':
    if sys.argv[1:] != ['pml']:
        raise SystemExit(__doc__)
    sys.stdout.write(pml())
