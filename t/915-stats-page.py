#!/usr/bin/env python3
"""The page of idempotency_stats shows what the counters say, in Chromium.

While requests come its numbers follow, plots are drawn and show their values,
rare events have a strip of their own; unknowns are listed, as many as the tile
says, and one is settled, but not by a slip; clients that retry wrongly are
named.  The browser has nothing to complain about, which it would if anything
came from elsewhere or ran against the page's own policy.  Whatever names the
configuration has, they are text.  It fits on a phone.
"""

import json
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
import browser  # noqa: E402
from gateway import (Gateway, Ledger, finish, free_port, ok,  # noqa: E402
                     same, until)

if browser.missing():
    print('1..0 # SKIP ' + browser.missing())
    sys.exit(0)

EVIL = '/<img src=x onerror=document.title=1>/'
WAIT = 60                     # seconds: a browser on a busy machine

up = Ledger()
other = free_port()
gw = Gateway(up, workers=2, locations='''
        location = /stats { idempotency_stats; }
        location "%s" { idempotency main; proxy_pass http://up; }
        location /little/ { idempotency little; proxy_pass http://up; }
        location = /records {
            idempotency_lookup main admin;
            idempotency_scope none;
        }
''' % EVIL, http='''
    idempotency_store little shm:32k;
    server {
        listen 127.0.0.1:%d;
        location = /stats { idempotency_stats; }
        location = /list {
            default_type application/json;
            return 200 '{"records":[{"record":"<b>r</b>","fence":77,
                         "label":"<i>l</i>","reason":"timeout",
                         "attempts":1,"age":1}],"cursor":null}';
        }
    }
''' % other)

CELL = '''
    const row = [...document.querySelectorAll('#locations tbody tr')]
        .find(r => r.dataset.location === arguments[0]);
    const cell = row && row.querySelector(
        '[data-result="' + arguments[1] + '"]');
    return cell ? Number(cell.textContent.replace(/,/g, '')) : 0;
'''
TILE = '''
    const tile = document.querySelector(
        '[data-tile="' + arguments[0] + '"] b');
    return tile && tile.textContent;
'''
NAMES = '''
    return [...document.querySelectorAll('#stores svg text')]
        .map(t => t.textContent);
'''
TICKS = '''
    return [...document.querySelectorAll('#rates text')]
        .some(t => /^\\d\\d:\\d\\d/.test(t.textContent));
'''
BARS = '''
    return document.querySelectorAll(
        '#events rect[data-event=' + arguments[0] + ']').length;
'''
DOCTOR = '''
    return [...document.querySelectorAll('#doctor [data-kind=key_reused]')]
        .map(c => c.textContent);
'''
TEXT = 'return document.querySelector(arguments[0]).innerText'


def counted(location, result):
    a = gw.post('/stats?format=json', None, body=None, method='GET')
    return [loc['results'][result] for loc in json.loads(a.body)['locations']
            if loc['location'] == location][0]


def shows(script, want, *args):
    ok(until(lambda: b.run(script, *args) == want, WAIT, 0.2),
       'the page shows %s: %r' % (' '.join(args), want), b.run(script, *args))


class Load(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.start()

    def run(self):
        n = 0
        while not self.over.wait(0.02):
            n += 1
            gw.post('/ok', 'k%d' % (n // 3))

    def stop(self):
        self.over.set()
        self.join()


def test_load():
    shows(TEXT.replace('.innerText', '.className'), 'live', '#state')
    same(b.run(CELL, '/', 'new'), 0, 'nothing has happened yet')
    load = Load()
    ok(until(lambda: b.run(CELL, '/', 'replayed') > 20, WAIT, 0.2),
       'numbers follow while requests come', b.run(TEXT, '#locations'))
    ok(until(lambda: float(b.run(TILE, 'rate').replace(',', '')) > 0, WAIT,
             0.2), 'so does the rate')
    names = '''return [...document.querySelectorAll('#results li')]
                   .map(li => li.dataset.result)'''
    ok(until(lambda: {'new', 'replayed'} <= set(b.run(names)), WAIT, 0.2),
       'which is plotted by result', b.run(names))
    ok(b.run('''return document.querySelectorAll('#rates path').length''')
       >= 2, 'as areas')
    ok(until(lambda: 'p99' in b.run(TEXT, '#stores .legend'), WAIT,
             0.2), 'and the time that the store takes')
    ok(until(lambda: {'claim p50', 'claim p99'} <= set(b.run(NAMES)), WAIT,
             0.2), 'by lines with names', b.run(NAMES))
    ok(until(lambda: b.run(TICKS), WAIT, 0.2), 'over the time of day')
    test_hover()
    load.stop()
    for result in ('new', 'replayed'):
        shows(CELL, counted('/', result), '/', result)
    shows('return document.querySelector("#stores .pill").textContent', 'ok')


def point(type, part=0.95):
    """on the plot of rates, at its right end"""
    b.run('''const svg = document.getElementById('rates');
             const at = svg.getBoundingClientRect();
             svg.dispatchEvent(new PointerEvent(arguments[0], {
                 clientX: at.left + at.width * arguments[1],
                 clientY: at.top + 60}))''', type, part)


def test_hover():
    tip = 'return !document.getElementById("tip").hidden'
    same(b.run(tip), False, 'nothing is pointed at')
    point('pointermove')
    ok(b.run(tip) and 'new' in b.run(TEXT, '#tip')
       and '/s' in b.run(TEXT, '#tip'), 'values of a moment are shown',
       b.run(TEXT, '#tip'))
    point('pointerleave')
    same(b.run(tip), False, 'and then no more')


def test_now():
    up.hold()
    held = gw.call('/wait', 'held')
    up.until('held')
    shows(TILE, '1', 'in_flight')
    up.go()
    held.read()
    shows(TILE, '0', 'in_flight')


def first_unknown(name=''):
    """a page of a list may be empty, with more behind it"""
    records, cursor = [], ''
    while not records and cursor is not None:
        a = gw.post('/records?state=unknown&cursor=' + cursor, None,
                    body=None, method='GET')
        page = json.loads(a.body)
        records = [r for r in page['records'] if r['record'].startswith(name)]
        cursor = page['cursor']
    return records[0]


def test_unknown():
    same(b.run(TILE, 'unknown'), '0', 'nothing is unknown')
    gw.post('/reset', 'lost')
    shows(TILE, '1', 'unknown')
    record = first_unknown()
    ok(until(lambda: rows() == [record['record']], WAIT, 0.2),
       'and which one, as an operator may see it', b.run(TEXT, '#unknowns'))
    ok(until(lambda: b.run(BARS, 'unknown') == 1, WAIT, 0.2),
       'it is an event of its own', b.run(BARS, 'unknown'))
    same(b.run('return document.querySelector("#results [data-result=unknown]"'
               ')'), None, 'and no hairline among the rates')
    test_phone()
    b.look(1100, 900)


def rows():
    return b.run('''return [...document.querySelectorAll(
                       '#unknowns tbody tr')].map(r => r.dataset.record)''')


def test_list():
    for i in range(4):
        gw.post('/reset', 'more-%d' % i)
    ok(until(lambda: len(rows()) == 5, WAIT, 0.2), 'five rows', rows())
    shows(TILE, '5', 'unknown')
    ok(b.run(TEXT, '#unknown-sum').startswith('5 unknown'),
       'the tile and the list agree', b.run(TEXT, '#unknown-sum'))
    links = b.run('''return [...document.querySelectorAll('#exports a')]
                      .map(a => a.pathname + a.search)''')
    same(links, ['/records?state=unknown&format=csv',
                 '/records?state=unknown&format=ndjson'], 'exports')
    for link in links:
        same(gw.post(link, None, body=None, method='GET').status, 200,
             'which are there: ' + link)
    for direction in (False, True):
        b.run('document.querySelector("[data-sort=record]").click()')
        same(rows(), sorted(rows(), reverse=direction),
             'sorted by record' + (', downwards' if direction else ''))
    b.run('document.querySelector("[data-sort=age]").click()')


GO = 'return !document.getElementById("settle-go").disabled'


def fill(verdict, confirm):
    b.run('''const form = document.getElementById('settle-form');
             form.verdict.value = arguments[0];
             form.confirm.value = arguments[1];
             form.dispatchEvent(new Event('input'));''', verdict, confirm)


def test_settle():
    record = rows()[0]
    b.run('document.querySelector("#unknowns .settle").click()')
    ok(record in b.run(TEXT, '#settle'), 'a dialog about that record')
    same(b.run(GO), False, 'which does nothing without a verdict')
    fill('not-executed', 'wrong')
    same(b.run(GO), False, 'nor if the confirmation is wrong')
    fill('not-executed', record[:6])
    same(b.run(GO), True, 'but if it is right')
    b.run('document.getElementById("settle-cancel").click()')
    same(len(rows()), 5, 'it was cancelled')

    b.run('document.querySelector("#unknowns .settle").click()')
    same(b.run(GO), False, 'the next time it has to be confirmed again')
    fill('answer', record[:6])
    b.run('''const form = document.getElementById('settle-form');
             form.status.value = '207'; form.body.value = '{"paid":true}';
             document.getElementById('settle-go').click()''')
    ok(until(lambda: record not in rows() and len(rows()) == 4, WAIT, 0.2),
       'it is settled', b.run(TEXT, '#settle'))
    shows(TILE, '4', 'unknown')
    a = [gw.post('/reset', k) for k in ['lost'] + ['more-%d' % i
                                                   for i in range(4)]]
    same([(x.status, x.body) for x in a if x.status != 409],
         [(207, b'{"paid":true}')], 'and its retry gets that answer')

    b.run('document.querySelector("#unknowns .settle").click()')
    gone = rows()[0]
    a = gw.post('/records?record=%s&fence=%s&resolve=not-executed'
                % (gone, first_unknown(gone)['fence']), None, body=None)
    same(a.status, 200, 'somebody else settles another one')
    fill('not-executed', gone[:6])
    b.run('document.getElementById("settle-go").click()')
    ok(until(lambda: 'Not settled' in b.run(TEXT, '#settle'), WAIT, 0.2),
       'that it was too late is said', b.run(TEXT, '#settle'))
    b.run('document.getElementById("settle-cancel").click()')
    ok(until(lambda: len(rows()) == 3, WAIT, 0.2), 'three are left', rows())


def test_doctor():
    gw.post('/ok', 'k0', body=b'another')
    ok(until(lambda: b.run(DOCTOR) == ['1'], WAIT, 0.2),
       'a client that uses a key again is named', b.run(TEXT, '#doctor'))


def test_full():
    for i in range(200):
        if gw.post('/little/reset', 'full%d' % i).status == 503:
            break
    card = 'return document.querySelector("[data-store=little] %s").innerText'
    shows(card % '.pill', 'down')
    shows(card % '.why', 'full: new keys are refused (full)')
    ok('in unknowns' in b.run(card % 'dl'), 'by unknowns', b.run(card % 'dl'))
    test_number_only()


def test_number_only():
    """a store without a list: what cannot be listed is said, and counted"""
    a = gw.post('/stats?format=json', None, body=None, method='GET')
    little = [s['unknown']['now'] for s in json.loads(a.body)['stores']
              if s['name'] == 'little'][0]
    ok(until(lambda: '%d in store little by number only' % little
             in b.run(TEXT, '#unknown-sum'), WAIT, 0.2),
       'what cannot be listed is said', b.run(TEXT, '#unknown-sum'))
    shows(TILE, str(3 + little), 'unknown')
    ok(b.run(TEXT, '#unknown-sum').startswith('%d unknown' % (3 + little)),
       'and the tile and the list agree', b.run(TEXT, '#unknown-sum'))


def test_names():
    gw.post('/%3Cimg%20src=x%20onerror=document.title=1%3E/ok', 'evil')
    shows(CELL, 1, EVIL, 'new')
    harmless()
    b.open('http://127.0.0.1:%d/stats' % other)
    ok(until(lambda: 'Store' in b.run(TEXT, '#unknowns'), WAIT, 0.2),
       'another server has no such location, but its own knowledge',
       b.run(TEXT, '#unknowns'))
    b.run('''document.getElementById('lookup').value = '/list';
             document.querySelector('#admin button').click()''')
    ok(until(lambda: '<b>r</b>' in b.run(TEXT, '#unknowns')
             and '<i>l</i>' in b.run(TEXT, '#unknowns'), WAIT, 0.2),
       'the list of an operator is text too', b.run(TEXT, '#unknowns'))
    b.run('''document.getElementById('lookup').value = '/stats';
             document.querySelector('#admin button').click()''')
    ok(until(lambda: 'no list: /stats' in b.run(TEXT, '#unknown-sum'), WAIT,
             0.2), 'what is no list is named', b.run(TEXT, '#unknown-sum'))
    harmless()


def harmless():
    same(b.run('return document.querySelectorAll("img").length'), 0,
         'no name became an element')
    same(b.run('return document.title'), 'Idempotency', 'and none ran')


def test_phone():
    b.look(360, 740, dark=True)
    same(b.run('return document.documentElement.scrollWidth'), 360,
         'it fits on a phone')
    same(b.run('''return [...document.querySelectorAll('td, dd, li, code')]
                   .filter(e => e.getBoundingClientRect().right > 360
                                || e.scrollWidth > e.clientWidth + 1
                                   && getComputedStyle(e).overflow !== 'visible'
                          ).length'''), 0, 'and nothing is cut off')
    ok(b.run('''return getComputedStyle(document.body).backgroundColor''')
       != 'rgb(246, 246, 243)', 'and can be dark')


def test_complaints():
    # but of the record that was settled by somebody else
    same([c for c in b.complaints() if '&resolve=not-executed' not in c], [],
         'the browser has nothing to say')


with browser.Browser() as b:
    b.look(1100, 900)
    b.open('http://127.0.0.1:%d/stats' % gw.port)
    test_load()
    test_now()
    test_unknown()
    test_list()
    test_settle()
    test_doctor()
    test_full()
    test_names()
    test_complaints()

gw.stop()
finish()
