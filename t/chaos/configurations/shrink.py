"""The smallest configuration, and the shortest history, that still show it.

All candidates with one line, block or lane less are tried in one nginx, each
as a server of its own; then what could be spared alone is left out together.
"""

from .check import check
from .grammar import Block

ROUNDS = 12
AT_ONCE = 60


def places(config):
    """Paths to all that can be left out, outer ones first."""
    def walk(block, path):
        for n, item in enumerate(block.items):
            yield path + (n,)
            if isinstance(item, Block):
                yield from walk(item, path + (n,))
    for n, group in enumerate(config.groups):
        yield ('group', n)
        yield from walk(group, ('group', n))
    yield from walk(config.server, ('server',))


def without(config, removed):
    """A copy that lacks these places."""
    small = config.copy()
    for path in sorted(removed, key=lambda p: (len(p), p[1:]), reverse=True):
        if path[0] == 'group':
            holder = small.groups if len(path) == 2 \
                else small.groups[path[1]].items
            inner = path[2:-1] if len(path) > 2 else ()
        else:
            holder, inner = small.server.items, path[1:-1]
        for n in inner:
            holder = holder[n].items
        del holder[path[-1]]
    return small


def kept_by_all(removed):
    """Without those inside of others."""
    return [p for p in removed
            if not any(p != q and p[:len(q)] == q for q in removed)]


async def shows(batch, planned, rule, tries):
    """Which of them show it, in one of the tries."""
    bad = set()
    for _ in range(tries):
        left = [n for n in range(len(planned)) if n not in bad]
        if not left:
            break
        for i in range(0, len(left), AT_ONCE):
            part = left[i:i + AT_ONCE]
            cases = await batch.run([planned[n] for n in part])
            bad |= {n for n, case in zip(part, cases)
                    if case.refused is None
                    and any(v.rule == rule for v in check(case))}
    return bad


async def shrink(batch, config, lanes, rule, tries=1):
    """(config, lanes) that still break the rule"""
    bad = await shows(batch, [(config, [lane]) for lane in lanes], rule,
                      tries)
    if bad:
        lanes = [lanes[min(bad)]]
    lanes = await shorter(batch, config, lanes, rule, tries)
    for _ in range(ROUNDS):
        all_places = list(places(config))
        planned = [(without(config, [p]), lanes) for p in all_places]
        bad = await shows(batch, planned, rule, tries)
        spare = kept_by_all([all_places[n] for n in sorted(bad)])
        if not spare:
            break
        config = await together(batch, config, lanes, rule, spare, tries)
    return config, lanes


async def together(batch, config, lanes, rule, spare, tries):
    """Leaves out all of it, or half of it, or one."""
    while len(spare) > 1:
        small = without(config, spare)
        if await shows(batch, [(small, lanes)], rule, tries):
            return small
        spare = spare[:len(spare) // 2]
    return without(config, spare)


async def shorter(batch, config, lanes, rule, tries):
    """Without the steps that do not matter."""
    if len(lanes) != 1:
        return lanes
    lane = lanes[0]
    while len(lane) > 1:
        less = [lane[:n] + lane[n + 1:] for n in range(len(lane))]
        bad = await shows(batch, [(config, [l]) for l in less], rule, tries)
        if not bad:
            break
        # all that can be spared alone, if they can together
        small = [step for n, step in enumerate(lane) if n not in bad]
        if not small or not await shows(batch, [(config, [small])], rule,
                                        tries):
            small = less[max(bad)]
        lane = small
    return [lane]
