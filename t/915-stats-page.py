#!/usr/bin/env python3
"""The page of idempotency_stats shows what the counters say, in Chromium.

While requests come its numbers follow, plots are drawn, an unknown is listed;
the browser has nothing to complain about, which it would if anything came
from elsewhere or ran against the page's own policy.  Whatever names the
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
    ok(until(lambda: 'half within' in b.run(TEXT, '#stores .legend'), WAIT,
             0.2), 'and the time that the store takes')
    load.stop()
    for result in ('new', 'replayed'):
        shows(CELL, counted('/', result), '/', result)
    shows('return document.querySelector("#stores .pill").textContent', 'ok')


def test_now():
    up.hold()
    held = gw.call('/wait', 'held')
    up.until('held')
    shows(TILE, '1', 'in_flight')
    up.go()
    held.read()
    shows(TILE, '0', 'in_flight')


def first_unknown():
    """a page of a list may be empty, with more behind it"""
    records, cursor = [], ''
    while not records and cursor is not None:
        a = gw.post('/records?state=unknown&cursor=' + cursor, None,
                    body=None, method='GET')
        page = json.loads(a.body)
        records, cursor = page['records'], page['cursor']
    return records[0]


def test_unknown():
    same(b.run(TILE, 'unknown'), '0', 'nothing is unknown')
    gw.post('/reset', 'lost')
    shows(TILE, '1', 'unknown')
    record = first_unknown()
    ok(until(lambda: record['record'] in b.run(TEXT, '#unknowns'), WAIT, 0.2),
       'and which one, as an operator may see it', b.run(TEXT, '#unknowns'))
    ok(str(record['fence']) in b.run(TEXT, '#unknowns'), 'with its fence')
    test_phone()
    b.look(1100, 900)


def test_full():
    for i in range(200):
        if gw.post('/little/reset', 'full%d' % i).status == 503:
            break
    card = 'return document.querySelector("[data-store=little] %s").innerText'
    shows(card % '.pill', 'down')
    shows(card % '.why', 'full: new keys are refused (full)')
    ok('in unknowns' in b.run(card % 'dl'), 'by unknowns', b.run(card % 'dl'))


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
    ok(until(lambda: '<b>r</b>' in b.run(TEXT, '#unknowns'), WAIT, 0.2),
       'the list of an operator is text too', b.run(TEXT, '#unknowns'))
    b.run('''document.getElementById('lookup').value = '/stats';
             document.querySelector('#admin button').click()''')
    ok(until(lambda: 'No list: /stats' in b.run(TEXT, '#unknowns'), WAIT,
             0.2), 'what is no list is named', b.run(TEXT, '#unknowns'))
    harmless()


def harmless():
    same(b.run('return document.querySelectorAll("img").length'), 0,
         'no name became an element')
    same(b.run('return document.title'), 'Idempotency', 'and none ran')


def test_phone():
    b.look(360, 740, dark=True)
    same(b.run('return document.documentElement.scrollWidth'), 360,
         'it fits on a phone')
    ok(b.run('''return getComputedStyle(document.body).backgroundColor''')
       != 'rgb(246, 246, 243)', 'and can be dark')


def test_complaints():
    same(b.complaints(), [], 'the browser has nothing to say')


with browser.Browser() as b:
    b.look(1100, 900)
    b.open('http://127.0.0.1:%d/stats' % gw.port)
    test_load()
    test_now()
    test_unknown()
    test_full()
    test_names()
    test_complaints()

gw.stop()
finish()
