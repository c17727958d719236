"""Histories with one thing wrong, to test the checker.

    for good, name, detail in cases(): ...
"""

from .batch import Case
from .check import check
from .clients import Attempt, Outcome
from .grammar import Block, Config
from .scenario import Operation
from .upstreams import Execution, Request

SERVER = Block('server', [
    'idempotency main;',
    Block('location /a/', ['proxy_pass http://up;'], 'L1'),
    Block('location /off/', ['idempotency off;'], 'L2'),
    Block('location /dry/', ['idempotency_dry_run on;'], 'L3'),
    Block('location /stripe/', ['idempotency_profile stripe;'], 'L4'),
    Block('location /closed/', ['auth_basic closed;',
                                'error_page 401 = @n0;'], 'L5'),
    Block('location @n0', ['proxy_pass http://up;'], 'L6'),
    Block('location @n1', ['auth_basic closed;'], 'L7'),
    Block('location /retry/', ['idempotency_unknown retry;'], 'L8'),
    Block('location /router/', ['auth_basic closed;', 'return 418;'],
          'L9')])


class History:
    """One lane, with the module and without."""

    def __init__(self):
        self.op = Operation(1, '/a/op', 'POST', 'ann')
        self.module, self.plain = [], []
        self.clock = 0

    def add(self, lane, status=201, effect=None, runs=(), replayed=False,
            loc='L1', path=('L1',), said=201, **args):
        """runs: numbers of the executions that this attempt has caused"""
        o = Outcome(Attempt(self.op, **args))
        headers = [('x-loc', loc)]
        if effect:
            headers.append(('x-effect', str(effect)))
        if replayed:
            headers.append(('idempotent-replayed', 'true'))
        o.take(status, headers, b'effect %d\n' % effect if effect else b'',
               True)
        for number in runs:
            e = Execution(number, Request('POST', '/', {}, b'', 'h0'),
                          args.get('do', 'ok'))
            e.path, e.status, e.attempt = list(path), said, len(lane)
            o.executions.append(e)
        o.started, o.ended = self.clock, self.clock + 1
        self.clock += 2
        lane.append(o)
        return o

    def first(self, **args):
        self.add(self.plain, effect=900 + self.clock, runs=[900 + self.clock])
        return self.add(self.module, effect=1, runs=[1], **args)

    def replay(self, **args):
        self.add(self.plain, effect=900 + self.clock, runs=[900 + self.clock])
        args.setdefault('effect', 1)
        args.setdefault('replayed', True)
        return self.add(self.module, **args)

    def rules(self):
        case = Case(Config('0', [], SERVER, [], []), [])
        case.module, case.plain = [self.module], [self.plain]
        return sorted({v.rule for v in check(case)})


def good(h):
    h.first()
    h.replay()


def twice(h):
    h.first(status=504, do='timeout', said=0)
    h.add(h.module, effect=2, runs=[2])


def after_503(h):
    h.first(status=503, do='status:503', said=503)
    h.replay(effect=2, runs=[2], replayed=False)


def after_503_stripe(h):
    h.first(status=503, do='status:503', said=503, path=['L4'])
    h.replay(effect=2, runs=[2], replayed=False, path=['L4'])


def subrequest(h):
    h.first(status=504, do='timeout', said=0)
    h.replay(effect=2, runs=[2], replayed=False, path=['L1', 'aux_auth'])


def mirror_page(h, last='L6'):
    """The error page of a mirror, which executes beside the request."""
    h.add(h.plain, effect=900, runs=[900])
    page = h.add(h.module, effect=1, runs=[1, 2]).executions[1]
    page.subrequest, page.path = True, ['L1', 'aux_mirror', last]


def mirror_page_off(h):
    mirror_page(h, 'L2')


def redirected(h):
    h.first(path=['L1', 'L2'], status=502, do='reset', said=0)
    h.replay(effect=2, runs=[2], replayed=False, path=['L1', 'L2'])


def dry(h):
    h.first(path=['L1', 'L3'])
    h.replay(effect=2, runs=[2], replayed=False, path=['L1', 'L3'])


def off(h):
    h.first(path=['L2'])
    h.replay(effect=2, runs=[2], replayed=False, path=['L2'])


def no_key(h):
    h.first(keyless=True)


def handed_over(h):
    h.add(h.plain, effect=900, runs=[899, 900])
    h.add(h.module, effect=2, runs=[1, 2], do='accel:@n0')


def other_text(h):
    h.first()
    h.replay().body = b'effect 1, and more\n'


def foreign(h):
    h.first()
    h.replay(effect=77)


def never_said(h):
    h.first(status=502, do='cut-final', said=0).headers = []
    h.module[0].body = b''
    h.replay(status=502, effect=None)


def half(h):
    h.first(status=201, do='cutbody', said=0)
    h.replay()


def changed(h):
    h.first()
    h.replay(body=b'another')


def unmarked(h):
    h.first()
    h.replay(replayed=False)


def marked(h):
    h.first(replayed=True)


def forgotten(h):
    h.first()
    h.replay(status=409, effect=None, replayed=False)


def let_in(h):
    h.first()
    h.add(h.plain, status=401, right=False)
    h.add(h.module, effect=1, replayed=True, right=False)


def ran_for_him(h):
    h.add(h.plain, status=401, right=False)
    h.add(h.module, status=401, runs=[1], right=False)


def refused_first(h):
    h.add(h.plain, effect=900, runs=[900], right=False, path=['L5', 'L6'])
    h.add(h.module, effect=1, runs=[1], right=False, path=['L5', 'L6'])


def let_in_later(h):
    h.add(h.plain, effect=900, runs=[900], right=False, path=['L5', 'L7'])
    h.add(h.module, effect=1, runs=[1], right=False, path=['L5', 'L7'])


def not_checked(h):
    h.add(h.plain, effect=900, runs=[900], right=False, path=['L9', 'L6'])
    h.add(h.module, effect=1, runs=[1], right=False, path=['L9', 'L6'])


def retried(h):
    h.add(h.module, status=504, runs=[1], do='timeout', said=0, path=['L8'])
    h.replay(effect=2, runs=[2], replayed=False, path=['L8'])


def overtaken(h):
    h.first(path=['L8'])
    h.add(h.module, status=502, runs=[2], path=['L8'])


def other_header(h):
    h.first()
    h.replay(loc='L2')


def not_as_without(h):
    h.add(h.plain, effect=900, runs=[900])
    h.add(h.module, status=405)


def late_in_both(h):
    h.add(h.plain, effect=900, runs=[900])
    h.add(h.plain, status=504, runs=[901])
    h.add(h.module, status=504, runs=[1])


def hung(h):
    h.first()
    h.replay().hung = True


CASES = (
    (good, [], 'nothing is wrong'),
    (twice, ['S1'], 'executed again after a time-out'),
    (after_503, [], 'executed again after a 503'),
    (after_503_stripe, ['S1', 'S2'], 'a profile that keeps a 503'),
    (subrequest, ['S1'], 'a subrequest does not end the protection'),
    (mirror_page, ['S1'], 'the error page of a mirror executes'),
    (mirror_page_off, [], 'the same in a location that is not protected'),
    (redirected, ['S1'], 'an unprotected location behind a protected one'),
    (dry, [], 'a dry run of the last location'),
    (off, [], 'a location that is not protected'),
    (no_key, ['S1'], 'executed without a key'),
    (handed_over, [], 'an upstream that names another one'),
    (other_text, ['S2'], 'a replay with another body'),
    (foreign, ['S3', 'S6'], 'the answer of another operation'),
    (never_said, ['S3'], 'a replay that no upstream has said'),
    (half, ['S3'], 'a replay of half an answer'),
    (changed, ['S4'], 'another body gets the answer'),
    (unmarked, ['S5'], 'a replay that does not say so'),
    (marked, ['S5'], 'an execution that says it is a replay'),
    (forgotten, ['S6'], 'no replay after an answer'),
    (let_in, ['S7'], 'an answer for wrong credentials'),
    (ran_for_him, ['S7'], 'an execution for wrong credentials'),
    (refused_first, ['S7'], 'an execution for who was refused before'),
    (let_in_later, [], 'who was refused and then let in'),
    (not_checked, [], 'a location that leads on before its checks'),
    (retried, [], 'executed again by policy'),
    (overtaken, ['S1', 'S6'], 'executed again after an answer, by policy'),
    (other_header, ['S8'], 'the header of another location'),
    (not_as_without, ['S9'], 'a first attempt that is refused'),
    (late_in_both, [], 'a time-out that is met without the module as well'),
    (hung, ['A'], 'an attempt that does not end'),
)


def cases():
    for write, wanted, name in CASES:
        history = History()
        write(history)
        found = history.rules()
        yield found == wanted, name, 'found %s, wanted %s' % (found, wanted)
