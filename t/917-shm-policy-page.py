#!/usr/bin/env python3
"""The page of idempotency_policy, in Chromium: it is readable, and harmless.

Its styles apply under its own content policy, the browser has nothing to
complain about, an anchor leads to its error, names from the configuration are
text, and it fits on a phone, in light and in dark.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
import browser  # noqa: E402
from gateway import Gateway, Ledger, finish, ok, same  # noqa: E402

if browser.missing():
    print('1..0 # SKIP ' + browser.missing())
    sys.exit(0)

EVIL = '/<img src=x onerror=document.title=1>/'

gw = Gateway(Ledger(), locations='''
        location = /policy { idempotency_policy; }
        location "%s" {
            idempotency main; idempotency_ttl 1h; proxy_pass http://up;
        }
        location /%s/ {
            idempotency main; idempotency_ttl 2h; proxy_pass http://up;
        }
''' % (EVIL, 'long' * 60))

COLOR = 'return getComputedStyle(document.body).backgroundColor'
ARTICLE = '''
    const at = document.getElementById(arguments[0]).getBoundingClientRect();
    return at.top >= 0 && at.top < innerHeight;
'''

with browser.Browser() as b:
    colors = set()
    for width, dark in ((1100, False), (1100, True), (360, False),
                        (360, True)):
        name = '%d pixels, %s' % (width, 'dark' if dark else 'light')
        b.look(width, 740, dark=dark)
        b.open('http://127.0.0.1:%d/policy?format=html' % gw.port)
        same(b.run('return document.documentElement.scrollWidth'), width,
             name + ': it fits')
        colors.add(b.run(COLOR))
        same(b.run('return document.querySelectorAll(".card").length'), 5,
             name + ': three contracts, the rules and the errors')
        same(b.run('return document.querySelectorAll("img, script").length'),
             0, name + ': no name became an element')
        same(b.run('return document.title'), 'Idempotency keys',
             name + ': and none ran')
        ok(EVIL in b.run('return document.body.innerText'),
           name + ': it is text')
    same(colors, {'rgb(246, 246, 243)', 'rgb(22, 24, 28)'},
         'the styles of the statistics page apply, light and dark')
    b.open('http://127.0.0.1:%d/policy?format=html#outcome_unknown'
           % gw.port)
    ok(b.run(ARTICLE, 'outcome_unknown'), 'an anchor leads to its error')
    ok(not b.run(ARTICLE, 'key_missing'), 'and not to another')
    same(b.complaints(), [], 'the browser has nothing to say')

gw.stop()
finish()
