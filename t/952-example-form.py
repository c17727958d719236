#!/usr/bin/env python3
"""examples/form in a browser: a double click gives one order, so does the
reload of the page that thanks for it, and a new form gives a new one.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from browser import Browser, missing  # noqa: E402
from example import Example  # noqa: E402
from gateway import finish, ok, same, until  # noqa: E402

if missing():
    print('1..0 # SKIP ' + missing())
    sys.exit(0)

example = Example('form')
url = 'http://127.0.0.1:%d/' % example.port


def lines(name, word=''):
    try:
        with open('%s/%s' % (example.root, name)) as f:
            return [line for line in f.read().splitlines() if word in line]
    except OSError:
        return []


with Browser() as b:
    def title():
        return b.run('return document.title')

    def heading():
        return b.run('return document.querySelector("h1").textContent')

    def show():
        b.open(url)
        ok(until(lambda: b.run('return !document.querySelector("button")'
                               '.disabled'), 30), 'the form has a token')

    # the second one while the shop still works on the first; a browser that
    # is too slow for that may have sent only one
    for forms in range(1, 6):
        show()
        b.run('const button = document.querySelector("button");'
              'setTimeout(() => button.click(), 0);'
              'setTimeout(() => button.click(), 400)')
        ok(until(lambda: title() == 'Thank you', 30), 'it is ordered')
        same((heading(), len(lines('orders'))), ('Order %d' % forms, forms),
             'a double click gives one order')
        if lines('access.log', 'waited'):
            break
    ok(lines('access.log', 'waited'), 'the second click waited for the first',
       lines('access.log'))

    b.reload()
    ok(until(lambda: lines('access.log', 'replayed'), 30),
       'a reload sends it again', lines('access.log'))
    same((heading(), len(lines('orders'))), ('Order %d' % forms, forms),
         'and is the same order')

    show()
    b.run('document.querySelector("button").click()')
    ok(until(lambda: len(lines('orders')) == forms + 1, 30), 'a new form is a new one')
    ok(until(lambda: title() == 'Thank you', 30), 'that is ordered as well')
    same(heading(), 'Order %d' % (forms + 1), 'with a number of its own')

a = example.post('/order', None, b'token=made-up&name=Eve',
                 Content_Type='application/x-www-form-urlencoded',
                 Cookie='visitor=eve')
same((a.status, a.code), (403, 'not_issued'), 'tokens cannot be made up')
print(''.join('# %s\n' % line for line in lines('access.log')), end='')
example.stop()
finish()
