#!/usr/bin/env python3
"""The monitoring files in docs/ fit the metrics of nginx.

Alerts are valid rules for Prometheus, and fire when they should and not
otherwise; dashboard, alerts and docs name no metric that does not exist, and
docs name each one that does.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, finish, free_port, ok,  # noqa: E402
                     same, until)

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ALERTS = TOP + '/docs/monitoring/alerts.yml'

gw = Gateway(Ledger(), store='shm:1m', http='''
    idempotency_store away redis://127.0.0.1:%d;
    idempotency_store next shm:1m from=main;
''' % free_port(), locations='''
        location = /stats { idempotency_stats; }
        location /away { idempotency away; proxy_pass http://up; }
        location /dry/ {
            idempotency main;
            idempotency_dry_run on;
            proxy_pass http://up;
        }
''')
gw.post('/ok', 'a')
gw.post('/dry/ok', 'b')


def tell():
    return gw.post('/stats?format=prometheus', None, body=None,
                   method='GET').body.decode()


# a request is counted when it has ended
until(lambda: tell().count('result="new"} 1\n') == 2)
text = tell()
told = set(re.findall(r'^# TYPE (\w+)', text, re.M))
samples = set(re.findall(r'^(idempotency_\w+)', text, re.M))
gw.stop()


def read(path):
    with open(TOP + '/docs/' + path) as f:
        return f.read()


def names(text):
    return set(re.findall(r'\bidempotency_[a-z_]+', text))


def promtool(name, *args):
    if shutil.which('promtool') is None:
        print('# skipped: promtool is not installed')
        return
    done = subprocess.run(['promtool', *args], capture_output=True, text=True,
                          timeout=120)
    ok(done.returncode == 0, name, done.stdout + done.stderr)


same(samples - told, {'idempotency_store_duration_seconds_' + part
                      for part in ('bucket', 'sum', 'count')},
     'each sample is of a metric')
same(told - samples, {'idempotency_store_duration_seconds'},
     'each metric has a sample')

section = read('reference/metrics.md')
listed = set(re.findall(r'`(idempotency_\w+)`',
                        ''.join(re.findall(r'^\| (`.*?) \|', section, re.M))))
same(listed, told, 'docs list what is told')

rules = read('monitoring/alerts.yml')
code = ''.join(line for line in rules.splitlines(True)
               if not line.lstrip().startswith('#'))
same(names(code) - samples, set(), 'alerts name what is told')
promtool('the alerts are rules', 'check', 'rules', ALERTS)
promtool('which go off as they should', 'test', 'rules', TOP
         + '/t/drive/alerts.yml')
alerts = re.findall(r'- alert: (\w+)', rules)
with open(TOP + '/t/drive/alerts.yml') as f:
    tests = f.read()
same([a for a in alerts if a not in tests], [], 'each of them is tested')
same([a for a in alerts if '`%s`' % a not in read('operate/monitoring.md')],
     [],
     'and docs say what to do')

runbooks = re.findall(r"runbook_url: https://[^/]+/(\S+?)#(\S+)$", rules, re.M)
same(len(runbooks), len(alerts), 'each alert has a page of docs')
for page, anchor in sorted(set(runbooks)):
    ok(anchor in [re.sub(r'[^a-z0-9 _-]', '', h.lower()).replace(' ', '-')
                  for h in re.findall(r'^#+ (.*)$', read(page), re.M)],
       'which exists: %s#%s' % (page, anchor))

board = json.loads(read('monitoring/grafana.json'))
exprs = [t['expr'] for p in board['panels'] for t in p['targets']]
ok(len(exprs) > 10, 'a dashboard')
same(names(' '.join(exprs)) - samples, set(), 'it shows what is told')
same(told - names(' '.join(exprs)) - names(rules)
     - {'idempotency_store_duration_seconds'}, set(),
     'all of it is on the dashboard or alerted on')
ids = [p['id'] for p in board['panels']]
same(len(ids), len(set(ids)), 'no panel is there twice')

with tempfile.NamedTemporaryFile('w', suffix='.yml') as f:
    f.write('groups:\n- name: dashboard\n  rules:\n')
    for i, expr in enumerate(exprs):
        expr = expr.replace('$__rate_interval', '5m')
        f.write('  - record: r%d\n    expr: %s\n' % (i, json.dumps(expr)))
    f.flush()
    promtool('with queries that Prometheus takes', 'check', 'rules', f.name)

finish()
