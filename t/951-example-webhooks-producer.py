#!/usr/bin/env python3
"""examples/webhooks and examples/producer do what their pages say: an event
is acted on once however often it is delivered, and a till that is killed
again and again has all of its sales booked once, in order.
"""

import os
import random
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from example import Example  # noqa: E402
from gateway import TOP, finish, ok, same  # noqa: E402


def lines(example, name):
    try:
        with open('%s/%s' % (example.root, name)) as f:
            return f.read().splitlines()
    except OSError:
        return []


# ---- webhooks ----

example = Example('webhooks')
done = subprocess.run([TOP + '/examples/webhooks/send', str(example.port)],
                      capture_output=True, text=True, timeout=120)
got = done.stdout.splitlines()
print(''.join('# %s\n' % line for line in got), end='')
same((done.returncode, done.stderr), (0, ''), 'all events are delivered')
same(sum('204' in line for line in got), 9, 'nine times')
same(sum('204 replayed' in line for line in got), 6, 'six of them again')
same(sum('503' in line for line in got) >= 1, True, 'one is refused at first')
same(sorted(lines(example, 'inbox')), ['evt-1', 'evt-2', 'evt-3'],
     'each is acted on once')

a = example.post('/events', None, b'{"id":"evt-4","type":"paid"}',
                 Content_Type='application/json', Webhook_Secret='guess')
same((a.status, a.code), (400, 'source_missing'), 'strangers are refused')
a = example.post('/events', None, b'{"id":"evt-1","type":"slow"}',
                 Content_Type='application/json', Webhook_Secret='s3cret')
same((a.status, a.code), (422, 'key_reused'), 'another event by that name')
same(len(lines(example, 'inbox')), 3, 'nothing of it is acted on')
example.stop()

# ---- producer ----

example = Example('producer')
state = example.root + '/till-7.json'
SALES = 300


def till(file=state, n=SALES):
    return subprocess.Popen([TOP + '/examples/producer/till',
                             str(example.port), file, str(n)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


kills = 0
end = time.time() + 60
while time.time() < end:
    program = till()
    try:
        program.wait(0.2 + random.random() * 0.3 if kills < 8 else 60)
        break
    except subprocess.TimeoutExpired:
        program.kill()
        program.communicate()
        kills += 1
out, err = program.communicate()
print('# killed %d times' % kills)
ok(kills > 0, 'the till was killed')
ok('%d sales' % SALES in out and not err, 'and is through', out + err)
book = lines(example, 'book')
same([int(re.search(r'number (\d+)', line).group(1)) for line in book],
     list(range(1, SALES + 1)), 'each sale is booked once, in order')

time.sleep(1.1)           # epochs are seconds
fresh = till(example.root + '/fresh.json', 1)
same(fresh.wait(30), 0, 'a till without its file begins anew')
fresh.communicate()
zombie = till(n=SALES + 1)
_, err = zombie.communicate(timeout=30)
ok('out of order' in err, 'after that the old one is refused', err)
same(len(lines(example, 'book')), SALES + 1, 'and books nothing')
example.stop()
finish()
