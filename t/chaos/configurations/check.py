"""The rules, judged from what clients got and what upstreams have executed.

    S1  at most one execution of a key, by all upstreams together
    S2  all answers of a key are the same
    S3  an answer is that of an execution of this key by this user
    S4  a changed body gets no stored answer
    S5  Idempotent-Replayed is on all answers but that of the execution
    S6  after an answer every later attempt gets it again
    S7  nobody gets an answer, or an execution, through a location that does
        not let him in; the reference tells who is let in; nor an execution
        by the error page of a protected location that has refused him
    S8  a replay has what the location adds to the first answer
    S9  a first attempt gets what it gets without the module
    A   every attempt ends, and nothing alarming is logged
    T   the same, when the upstreams were slow
"""

import collections

Violation = collections.namedtuple('Violation', 'rule text')

# A busy machine makes time-outs, in one of the two and not in the other: what
# breaks one of these rules has to break it again, and so has all but A where
# the upstreams stood still themselves, by which auth_request fails as well.
TIMED = ('S6', 'S7', 'S8', 'S9', 'T')


def is_timed(case, rule):
    return rule in TIMED or case.stalled and rule != 'A'



class Operation:
    """All attempts of one lane with one key and user, and its executions."""

    def __init__(self, case, outcomes, reference):
        self.case = case
        self.config = case.config
        self.outcomes = outcomes
        self.reference = reference
        self.entries = [e for o in outcomes for e in operations(o)]
        self.effects = {e.effect for o in outcomes for e in o.executions}
        self.unsteady = case.config.unsteady()
        self.shared = case.config.shared_cache()

    def exempt(self, entry):
        return is_exempt(self.config, entry)

    def released(self, entry):
        """Answered, as a whole, in a way that frees the key."""
        if entry.do == 'release':
            return entry.status != 0
        return self.config.released(entry.path, entry.method, entry.status)

    def identity(self, entry):
        if self.config.mixed(entry.path):
            return entry.attempt
        # an error page that lets in does not tell whom, see auth_request_set
        path = '>'.join(entry.path).split('aux_auth')
        return self.config.identity(entry.path, entry.method) + (
            len(path) > 1 and path[-1].startswith('>aux_page'),)

    def kept(self, entry):
        if self.exempt(entry) or entry.do in ('release', 'unknown') \
                or entry.status == 0:
            return False
        return entry.do == 'final' or self.config.kept(
            entry.path, entry.method, entry.status)


def is_exempt(config, entry):
    if entry.subrequest:
        # only what its last location says is known of it
        return config.gives_up(entry.path[-1:], entry.method)
    return config.mingled(entry.path) \
        or config.gives_up(entry.path, entry.method)


def operations(outcome):
    """Executions of the operation itself, not those of mirrors."""
    return [e for e in outcome.executions if not e.mirror]


def check(case):
    found = []
    for n, outcomes in enumerate(case.module):
        reference = case.plain[n] + (case.open[n] if case.open else [])
        for group in groups(outcomes):
            op = Operation(case, group, reference)
            for rule in RULES:
                found += rule(op)
        found += keyless(case, outcomes)
    found += [Violation('A', line) for line in case.alarms]
    return found + late(case)


def late(case):
    """No answer: a matter of time where this process stood still itself."""
    return [Violation('T' if case.stalled else 'A',
                      'no answer within the bound: %s' % o)
            for lane, reference in zip(case.module, case.plain)
            for o, p in zip(lane, reference) if o.hung and not p.hung]


def groups(outcomes):
    """By key and user."""
    by = collections.defaultdict(list)
    for o in outcomes:
        if not o.attempt.keyless:
            by[o.attempt.op.key, o.attempt.user].append(o)
    return by.values()


def keyless(case, outcomes):
    for o in outcomes:
        if not o.attempt.keyless:
            continue
        for e in operations(o):
            if case.config.needs_key(e.path, e.method) \
                    and not is_exempt(case.config, e):
                yield Violation('S1', 'executed without a key: %s' % e)


def s1(op):
    """An upstream that names another one hands its execution over."""
    counted = []
    got = {o.effect for o in op.outcomes if o.whole}
    for o in op.outcomes:
        mine = operations(o)
        for e, after in zip(mine, mine[1:] + [None]):
            if op.exempt(e) or after and e.do.startswith('accel:@'):
                continue
            counted.append(e)
    for identity in {op.identity(e) for e in counted}:
        mine = [e for e in counted if op.identity(e) == identity]
        binding = [e for e in mine if not op.released(e)]
        for e in mine:
            # without an answer that is kept, and that somebody got, it may
            # be unknown, and executed again by policy
            before = [b for b in binding if b.effect < e.effect
                      and (b.effect in got and op.kept(b)
                           or not op.config.retries(e.path))]
            if before:
                yield Violation('S1', 'executed again: %s, after %s'
                                % (e, before[0]))
                break


def answers(op):
    """Outcomes with an execution's answer that is meant to last."""
    ledger = {e.effect: e for e in op.entries}
    for o in op.outcomes:
        e = ledger.get(o.effect)
        if o.effect is None or not o.whole or e is None:
            continue
        if op.kept(e):
            yield o, e


def s2(op):
    seen = {}
    for o, e in answers(op):
        # the module does not see what SSI makes of it, and a probe may have
        # other words for it
        text = o.effect
        if not op.config.has('ssi on') and not op.config.has('probe='):
            text = o.body
        # "error_page 503 @name" gives another status to the same answer
        status = o.status
        if status not in (401, 403) and status in {p.status for p in plainly(op, o) if p.effect}:
            status = 0
        before = seen.setdefault((o.attempt.body, op.identity(e)),
                                 (text, status, o))
        if before[0] != text or before[1] and status \
                and before[1] != status:
            yield Violation('S2', 'two answers: %s, and before %s'
                            % (o, before[2]))


def s3(op):
    for o in op.outcomes:
        if o.effect and o.effect not in op.effects:
            # A cache with one key for all gives its answer to all, but not
            # to somebody whose own request was sent and not answered.
            if op.shared and not (o.replayed and any(
                    e.status == 0 and not op.exempt(e)
                    and not op.config.retries(e.path) for e in op.entries)):
                continue
            yield Violation('S3', 'an answer of another operation: %s' % o)
        if o.replayed and not o.effect and o.status >= 500 and any(
                e.do.startswith('cut') and not op.exempt(e)
                for e in op.entries):
            yield Violation('S3', 'a replay that no upstream has said: %s'
                            % o)
        if o.replayed and not op.config.has('probe=') and any(
                e.effect == o.effect and e.do.startswith('cut')
                for e in op.entries):
            yield Violation('S3', 'a replay of half an answer: %s' % o)


def s4(op):
    if op.config.caches():
        return
    done = [o.ended for o, e in answers(op) if not o.attempt.changed]
    for o in op.outcomes:
        if o.attempt.changed and o.effect and done \
                and o.started > min(done) and o.effect in [
                    e.effect for _, e in answers(op)
                    if e.attempt != attempt_of(o)]:
            yield Violation('S4', 'a changed body got an answer: %s' % o)


def attempt_of(o):
    return o.executions[0].attempt if o.executions else None


def s5(op):
    for o, e in answers(op):
        own = e in o.executions
        if own and o.replayed:
            yield Violation('S5', 'the execution is marked: %s' % o)
        if not own and not o.replayed and not op.config.caches():
            yield Violation('S5', 'a replay is not marked: %s' % o)


def spec(o):
    """Attempts that are alike."""
    a = o.attempt
    return a.op.path, a.op.method, a.right, a.user, a.keyless


def good(o):
    a = o.attempt
    return a.right and not a.changed and not a.leave and not a.fail \
        and a.do == 'ok'


def plainly(op, o):
    """What the reference says to such attempts: a list of outcomes"""
    return [p for p in op.reference if spec(p) == spec(o)]


def reached(o):
    """Whether a content handler got it, as far as can be told."""
    return o.effect or o.executions or o.status in (502, 504) \
        or o.get('x-cache')


def s6(op):
    if op.config.has('limit_'):
        return
    done = sorted(answers(op), key=lambda found: found[0].ended)
    if not done or done[0][0].attempt.changed:
        return
    first, entry = done[0]
    for o in op.outcomes:
        if o.started <= first.ended or not good(o) \
                or o.effect == first.effect:
            continue
        alike = [p for p in plainly(op, o) if good(p)]
        runs = [[e for e in p.executions if not e.subrequest] for p in alike]
        if alike and all(
                p.effect and mine
                and not op.exempt(mine[-1])
                and not op.config.refusals(mine[-1].path)
                and op.identity(mine[-1]) == op.identity(entry)
                for p, mine in zip(alike, runs)):
            yield Violation('S6', 'no replay: %s, after %s' % (o, first))


def s7(op):
    if op.config.side_door():
        return
    for o in op.outcomes:
        if not o.effect and not operations(o):
            continue
        alike = [p for p in op.reference if spec(p)[:3] == spec(o)[:3]]
        if any(reached(p) for p in alike):
            continue
        yield Violation('S7', '%s for a client whom nginx does not let in: '
                        '%s' % ('an execution' if o.executions
                                else 'an answer', o))


def s7_refused(op):
    """Whom a protected location has refused no error page executes."""
    if op.config.has('limit_'):
        return
    for o in op.outcomes:
        for e in operations(o):
            name = None if op.exempt(e) else op.config.barred_by(
                e.path, e.method, o.attempt.right)
            if name:
                yield Violation('S7', 'an execution for a client whom %s has '
                                'refused: %s' % (name, o))


def s8(op):
    first = [o for o, e in answers(op) if e in o.executions]
    if not first or op.config.has('limit_'):
        return
    for o, _ in answers(op):
        known = [first[0].added] + [p.added for p in plainly(op, o)
                                    if p.effect]
        if o.replayed and o.added not in known:
            yield Violation('S8', 'a replay with other headers: %s, first %s'
                            % (o, first[0]))


def s9(op):
    """Those whom nginx does not let in do not count as attempts."""
    if op.unsteady or op.config.stops_auth():
        return
    for o in op.outcomes:
        mine = plainly(op, o)
        if any(op.config.barred_by(e.path, e.method, True, False)
               for p in mine for e in p.executions):
            return                # not so with the module
        if not good(o):
            if o.attempt.right or any(p.status not in (401, 403)
                                      for p in mine):
                return
            continue
        # dav's PUT behind a mirror fails, and does not with the module
        page = o.attempt.op.method in ('GET', 'HEAD')
        alike = [p for p in mine if good(p) and (
            not page or p.attempt.page == o.attempt.page)]
        first = [p for p in alike if page or p.effect or p.status < 500]
        # a time-out of the reference proves nothing, but excuses another
        forms = {(p.status, p.effect is not None, tuple(p.added), p.whole)
                 for p in alike}
        if first and (o.status, o.effect is not None,
                                tuple(o.added), o.whole) not in forms \
                and not op.shared:
            yield Violation('S9', 'a first attempt: %s, without the module '
                            '%s' % (o, first[0]))
        return


RULES = (s1, s2, s3, s4, s5, s6, s7, s7_refused, s8, s9)


def story(case):
    """What happened, as text."""
    lines = []
    for name, lanes in (('with the module', case.module),
                        ('without', case.plain)):
        lines.append(name)
        for lane in lanes:
            lines += ['    ' + str(o) for o in lane] + ['']
    return '\n'.join(lines)
