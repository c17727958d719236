"""All rows beside their controls, with few and with many connections."""

import rows
import svg
import zone
from table import number, table


def compare(bench, connections, rounds):
    """Returns the samples by case, the table, and what misses its bound."""
    cases = bench.cases
    print('%d client connections, %d rounds of %d s'
          % (connections, rounds, bench.args.seconds), flush=True)
    found = bench.pairs(cases, rounds, connections)
    missed, lines = [], []
    for case in cases:
        one = found[case.name]
        ratio = one.ratio('cpu') if case.control in found else None
        low, middle, high = one.quartiles('cpu')
        against = found.get('%s, %s' % (rows.LUA, case.name.split(', ')[-1]))
        times = None
        if against and case.control == rows.BARE:
            times = one.ratio('rate') / against.ratio('rate')
        bound = case.many if connections > 32 and case.many else case.bound
        if bound and ratio and ratio > bound:
            missed.append('%s, %d connections: %.2f times the control, at '
                          'most %.2f' % (case.name, connections, ratio,
                                         bound))
        if case.lua and times and times < case.lua:
            missed.append('%s, %d connections: %.2f times the Lua gateway, '
                          'at least %.1f' % (case.name, connections, times,
                                             case.lua))
        lines.append([
            '`%s`' % case.name if case.name == rows.BARE else case.name,
            '%d' % one.median('rate'),
            number(middle), '%s-%s' % (number(low), number(high)),
            number(ratio, 2), number(bound, 2),
            number(one.median('redis') or None),
            number(one.median('p50'), 2), number(one.median('p99'), 2),
            number(times, 2)])
    return found, table(['%d connections' % connections, 'requests/s',
                         'CPU us', 'quartiles', 'x control', 'bound',
                         'Redis us', 'p50 ms', 'p99 ms', 'x Lua req/s'],
                        lines), missed


def store_table(bench, found):
    """What a record takes, and what a request asks of Redis."""
    lines = []
    for case in bench.cases:
        one = found[case.name]
        if not (case.zone or one.median('sent')):
            continue
        memory = one.median('memory')
        if case.zone and case.kind == 'first':
            memory = zone.record_size(bench, case)
        lines.append([case.name, number(one.median('sent') or None, 2),
                      number(one.median('inside') or None, 2),
                      number(memory, 0)])
    return table(['', 'commands sent', 'called in scripts',
                  'bytes per record'], lines)


def plot(folder, bench, found):
    """A figure for each control: their scales differ."""
    for name, control in (('gateways', rows.BARE), ('express', rows.EXPRESS)):
        bars = [(case.name, found[case.name].median('cpu'),
                 found[case.name].median('redis'), case.kind)
                for case in bench.cases
                if (case.control == rows.EXPRESS) == (control == rows.EXPRESS)]
        if bars:
            svg.bars('%s/%s.svg' % (folder, name),
                     'CPU time per request, beside ' + control,
                     'microseconds', bars)
