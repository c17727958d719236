"""Tables that can be read in a terminal and in Markdown."""


def table(head, rows):
    """Lists of texts; the columns but the first are set to the right."""
    rows = [[str(c) for c in row] for row in rows]
    width = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]

    def line(row):
        cells = [row[0].ljust(width[0])]
        cells += [c.rjust(w) for c, w in zip(row[1:], width[1:])]
        return '| %s |' % ' | '.join(cells)

    rule = ['-' * width[0]] + ['-' * (w - 1) + ':' for w in width[1:]]
    return '\n'.join([line(head), line(rule), *map(line, rows)])


def number(value, digits=1):
    return '' if value is None else '%.*f' % (digits, value)
