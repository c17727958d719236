"""Plots as SVG: lines with logarithmic axes, and bars.

The colours follow the reader's preference for light or dark, and the
background is drawn, so that text can be read wherever the file is shown.
"""

import collections
import math
from xml.sax.saxutils import escape

# middle is drawn, low and high as a thin line: lines = [(name, [(x, middle,
# low, high)])]
Panel = collections.namedtuple('Panel', 'title x y lines')

STYLE = '''
  text { font: 12px sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: bold }
  .panel { font-weight: bold }
  .small { font-size: 11px; fill: #57606a }
  .back { fill: #ffffff }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .axis { stroke: #57606a; stroke-width: 1; fill: none }
  .line { fill: none; stroke-width: 2 }
  .whisker { stroke-width: 1 }
%s
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9da7b1 }
    .back { fill: #0d1117 }
    .grid { stroke: #30363d }
    .axis { stroke: #9da7b1 }
%s
  }
'''

# for light and for dark; no two of them differ by red and green alone
COLOURS = [('#57606a', '#9da7b1'), ('#0969da', '#58a6ff'),
           ('#bc4c00', '#f0883e'), ('#8250df', '#bc8cff'),
           ('#1f7a5c', '#3fb99a'), ('#bf3989', '#f778ba'),
           ('#7d5e00', '#d4a72c'), ('#0b7285', '#66d9e8')]

WIDTH, HEIGHT = 430, 270            # of a panel
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 26, 46
TITLE = 34
LEGEND = 20                         # height of its lines


def style():
    def rules(which, indent):
        return '\n'.join(
            '%s.c%d { stroke: %s } .f%d { fill: %s }'
            % (indent, i, c[which], i, c[which])
            for i, c in enumerate(COLOURS))
    return STYLE % (rules(0, '  '), rules(1, '    '))


def document(path, width, height, title, parts):
    with open(path, 'w') as f:
        f.write('<svg xmlns="http://www.w3.org/2000/svg" width="%d" '
                'height="%d" viewBox="0 0 %d %d" role="img">\n'
                '<title>%s</title>\n<style>%s</style>\n'
                '<rect class="back" width="%d" height="%d"/>\n%s\n</svg>\n'
                % (width, height, width, height, escape(title), style(),
                   width, height, '\n'.join(parts)))


def text(x, y, words, kind='', anchor='start', turn=''):
    return ('<text x="%.1f" y="%.1f" class="%s" text-anchor="%s"%s>%s</text>'
            % (x, y, kind, anchor,
               ' transform="rotate(-90 %.1f %.1f)"' % (x, y) if turn else '',
               escape(words)))


def rule(kind, x1, y1, x2, y2):
    return ('<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>'
            % (kind, x1, y1, x2, y2))


def short(value):
    """1000 as 1k, 0.05 as it is."""
    for unit, letter in ((1e6, 'M'), (1e3, 'k')):
        if value >= unit:
            return '%g%s' % (value / unit, letter)
    return '%g' % value


class Scale:
    """Logarithmic: from the powers of ten around the values to pixels."""

    def __init__(self, values, begin, end, tight=False):
        self.low = math.log10(min(values))
        self.high = math.log10(max(values))
        if not tight:
            self.low, self.high = self._around(min(values), max(values))
        if self.high == self.low:
            self.high += 1
        self.begin, self.end = begin, end

    @staticmethod
    def _around(low, high):
        """The nearest 1, 2 or 5 times a power of ten outside."""
        steps = [math.log10(m) + p for p in range(-6, 13) for m in (1, 2, 5)]
        return (max(s for s in steps if s <= math.log10(low) + 1e-9),
                min(s for s in steps if s >= math.log10(high) - 1e-9))

    def __call__(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self):
        few = self.high - self.low > 3
        for power in range(-6, 13):
            for m in (1,) if few else (1, 2, 5):
                if self.low - 1e-9 <= math.log10(m) + power \
                        <= self.high + 1e-9:
                    yield m * 10.0 ** power


def draw(panel, left, top, colour):
    """One pair of axes with its lines, at this place."""
    x0, x1 = left + LEFT, left + WIDTH - RIGHT
    y0, y1 = top + HEIGHT - BOTTOM, top + TOP
    points = [p for _, line in panel.lines for p in line]
    across = Scale([p[0] for p in points], x0 + 8, x1 - 8, tight=True)
    up = Scale([v for p in points for v in p[1:] if v > 0], y0, y1)

    out = [text(x0, top + 16, panel.title, 'panel')]
    for value in up.ticks():
        out.append(rule('grid', x0, up(value), x1, up(value)))
        out.append(text(x0 - 6, up(value) + 4, short(value), 'small', 'end'))
    for value in sorted({p[0] for p in points}):
        out.append(rule('axis', across(value), y0, across(value), y0 + 4))
        out.append(text(across(value), y0 + 17, short(value), 'small',
                        'middle'))
    out.append('<path class="axis" d="M%.1f %.1fV%.1fH%.1f"/>'
               % (x0, y1, y0, x1))
    out.append(text((x0 + x1) / 2, y0 + 36, panel.x, '', 'middle'))
    out.append(text(left + 14, (y0 + y1) / 2, panel.y, '', 'middle', 'up'))

    for name, line in panel.lines:
        c = colour(name)
        line = [p for p in line if p[1] > 0]
        for x, _, low, high in line:
            if low > 0:
                out.append(rule('whisker c%d' % c, across(x), up(low),
                                across(x), up(high)))
        out.append('<polyline class="line c%d" points="%s"/>'
                   % (c, ' '.join('%.1f,%.1f' % (across(p[0]), up(p[1]))
                                  for p in line)))
        for p in line:
            out.append('<circle class="f%d" cx="%.1f" cy="%.1f" r="3"/>'
                       % (c, across(p[0]), up(p[1])))
    return out


def figure(path, title, panels, names):
    """Panels two by two and a legend, which gives each name its colour."""
    def colour(name):
        return names.index(name) % len(COLOURS)

    columns = min(2, len(panels))
    lines = (len(panels) + columns - 1) // columns
    shown = [n for n in names if any(n == name for p in panels
                                     for name, _ in p.lines)]
    per_line = 2 * columns
    legend = (len(shown) + per_line - 1) // per_line
    width = columns * WIDTH
    height = TITLE + lines * HEIGHT + legend * LEGEND + 12

    out = [text(16, 23, title, 'title')]
    for i, panel in enumerate(panels):
        out += draw(panel, i % columns * WIDTH,
                    TITLE + i // columns * HEIGHT, colour)
    for i, name in enumerate(shown):
        x = 24 + i % per_line * (width - 24) / per_line
        y = TITLE + lines * HEIGHT + i // per_line * LEGEND + 10
        out.append(rule('line c%d' % colour(name), x, y - 4, x + 22, y - 4))
        out.append(text(x + 28, y, name))
    document(path, width, height, title, out)


def bars(path, title, unit, values):
    """Of (name, server, Redis, kind): server and Redis beside each other."""
    left, width, step = 300, 860, 24
    most = max(server + redis for _, server, redis, _ in values)
    room = width - left - 110
    height = TITLE + len(values) * step + 54
    colour = {'plain': 0, 'first': 1, 'replay': 4}

    out = [text(16, 23, title, 'title')]
    for i, (name, server, redis, kind) in enumerate(values):
        y = TITLE + i * step
        long = server / most * room
        out.append(text(left - 8, y + 15, name, '', 'end'))
        out.append('<rect class="f%d" x="%d" y="%d" width="%.1f" '
                   'height="16"/>' % (colour[kind], left, y + 3, long))
        if redis:
            out.append('<rect class="f2" x="%.1f" y="%d" width="%.1f" '
                       'height="16"/>' % (left + long, y + 3,
                                          redis / most * room))
        words = '%.1f' % server + (' + %.1f' % redis if redis else '')
        out.append(text(left + (server + redis) / most * room + 6, y + 15,
                        words, 'small'))
    y = TITLE + len(values) * step + 22
    out.append(text(left, y, unit))
    legend = (('plain', 0), ('first request', 1), ('replay', 4),
              ('redis-server', 2))
    for i, (name, c) in enumerate(legend):
        x = left + 110 + i * 110
        out.append('<rect class="f%d" x="%d" y="%d" width="12" '
                   'height="12"/>' % (c, x, y - 10))
        out.append(text(x + 17, y, name))
    document(path, width, height, title, out)
