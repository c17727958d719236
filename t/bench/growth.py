"""How cost grows with the size of bodies, with connections, with records."""

import load
import rows
import svg
import zone
from table import number, table

KINDS = {'first': 'first requests', 'replay': 'replays'}
COLOURS = list(dict.fromkeys(rows.GROWTH.values()))


def cases_of(bench):
    cases = [case for case in bench.cases if case.name in rows.GROWTH]
    if bench.args.quick:
        cases = [c for c in cases if rows.GROWTH[c.name]
                 in (rows.BARE, 'embedded', 'Redis, TCP')]
    return cases


def series(points, cases, kind, name):
    """Lines of a plot: [(title, [(x, middle, low, high)])]"""
    lines = []
    for case in cases:
        if case.kind in ('plain', kind):
            lines.append((rows.GROWTH[case.name], [
                (x, found[case.name].median(name),
                 *found[case.name].range(name)) for x, found in points]))
    return lines


def panels(points, cases, name, x, y):
    return [svg.Panel(KINDS[kind], x, y, series(points, cases, kind, name))
            for kind in KINDS]


def show(points, cases, title, name, words, digits=1):
    return table([title] + [words(x) for x, _ in points],
                 [[case.name] + [number(found[case.name].median(name), digits)
                                 for _, found in points] for case in cases])


def size_words(n):
    return ('%g B' % n if n < 1000 else '%g KB' % (n / 1000) if n < 1000000
            else '%g MB' % (n / 1000000))


def bodies(bench, folder, rounds):
    cases = cases_of(bench)
    points = []
    for size in bench.args.sizes:
        print('bodies of %s' % size_words(size), flush=True)
        points.append((size, bench.rounds(cases, rounds, size=size)))
    svg.figure(folder + '/bodies.svg', 'CPU time per request by body size',
               panels(points, cases, 'cpu', 'bytes of the request body, and '
                      'of the answer', 'microseconds'), COLOURS)
    return show(points, cases, 'CPU us per request', 'cpu', size_words)


def connections(bench, folder, rounds):
    cases = cases_of(bench)
    points = []
    for n in bench.args.clients:
        print('%d connections' % n, flush=True)
        points.append((n, bench.rounds(cases, rounds, connections=n)))
    x = 'client connections'
    svg.figure(folder + '/connections.svg',
               'CPU time and 99th percentile by connections',
               panels(points, cases, 'cpu', x, 'microseconds of CPU')
               + panels(points, cases, 'p99', x, 'p99, milliseconds'),
               COLOURS)
    return '\n\n'.join((
        show(points, cases, 'CPU us per request', 'cpu', str),
        show(points, cases, 'p99 ms', 'p99', str, 2),
        show(points, cases, 'requests/s', 'rate', str, 0)))


def records(bench, folder, rounds):
    """Requests while the store holds so many records besides theirs."""
    wanted = ['%s, %s' % (row, kind) for row in ('embedded', 'Redis, TCP')
              for kind in ('first request', 'replay')]
    crowded = [zone.looked_into(case, 'many records')
               for case in bench.cases if case.name in wanted]
    cases = [case for case in bench.cases if case.name == rows.BARE] + crowded
    points, have = [], 0
    for case in crowded:
        bench.subject(case).keep = True
    for n in bench.args.records:
        print('%d records' % n, flush=True)
        for case in crowded:
            zone.crowd(bench.subject(case), have, n)
        have = n
        points.append((n, bench.rounds(cases, rounds)))
    for case in crowded:
        bench.subject(case).stop()

    def of(case, name, label):
        return label, [(x, found[case.name].median(name),
                        *found[case.name].range(name))
                       for x, found in points]

    figures = []
    lines = [[case.row] + [number(found[case.name].median('cpu'))
                           for _, found in points]
             for case in cases if case.kind == 'plain']
    for kind in KINDS:
        drawn = []
        for case in cases:
            if case.kind in ('plain', kind):
                label = case.row.replace(', many records', '')
                drawn.append(of(case, 'cpu', label))
                if 'Redis' in label:
                    drawn.append(of(case, 'redis', 'redis-server'))
        figures.append(svg.Panel(KINDS[kind], 'records in the store',
                                 'microseconds', drawn))
        lines += [['%s, %s' % (label, KINDS[kind])] + [number(p[1])
                                                       for p in line]
                  for label, line in drawn if label != rows.BARE]
    svg.figure(folder + '/records.svg', 'CPU time per request by records',
               figures, [rows.BARE, 'embedded', 'Redis, TCP',
                         'redis-server'])
    return table(['CPU us per request'] + ['%d' % n for n, _ in points],
                 lines)
