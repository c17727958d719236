#!/usr/bin/env python3
"""examples/ci: its checks pass with the gateway, and fail without it, so that
an API that copies them learns of a gateway that does not protect.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from example import Example  # noqa: E402
from gateway import TOP, finish, ok, same  # noqa: E402

example = Example('ci')
upstream = 'http://127.0.0.1:%d' % example.service


def check(gateway):
    done = subprocess.run([TOP + '/examples/ci/check', gateway + '/orders',
                           upstream], capture_output=True, text=True,
                          timeout=300)
    lines = done.stdout.splitlines()
    print(''.join('# %s\n' % line for line in lines), end='')
    return (done.returncode, done.stderr,
            sum(line.startswith('ok') for line in lines),
            [line for line in lines if line.startswith('not ok')])


code, error, passed, failed = check('http://127.0.0.1:%d' % example.port)
same((code, error, failed), (0, '', []), 'all checks pass with the gateway')
with open(TOP + '/examples/ci/README.md') as f:
    ok('| %d assertions' % passed in f.read(), 'the page says how many')

code, error, passed, failed = check(upstream)
same((code, error), (1, ''), 'and fail without it')
for what in ('a retry gets the same answer', 'executed once', 'another body',
             'without a key', 'five at once get one answer',
             'lost: a retry is held', 'cut: nothing is executed again',
             'error: is an answer'):
    ok(any(what in line for line in failed), 'among them: ' + what)

example.stop()
finish()
