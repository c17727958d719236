#!/usr/bin/env python3
"""What README and the pages show can be pasted.

Each piece of configuration loads; a command is valid, and what it runs is
there; a line of the log is one that the module writes; those commands that
follow a whole configuration do what the page says, and so do those of the
README and of "make run".  What this test does not know, it refuses.
"""

import concurrent.futures
import glob
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (MODULE, NGINX, TOP, Ledger, finish,  # noqa: E402
                     free_port, ok, same, until)
from pages import Page  # noqa: E402
from pasted import blocks, snippet  # noqa: E402

PAGES = ['README.md'] + sorted(
    os.path.relpath(path, TOP) for folder in ('docs', 'examples')
    for path in glob.glob('%s/%s/**/*.md' % (TOP, folder), recursive=True))

# neither configuration nor command: how they begin; settings and users of
# Redis are in t/310-redis-server-states.py
TEXT = ('(none) --claim--> executing', 'done --ttl-->', '2: claim: granted',
        'records = ', 'POST /pay', 'ACL SETUSER', 'maxmemory ', '2026/11/16 ',
        'scrape_configs:', 'ngx_http_idempotency_module.c', 'phase ',
        'redis/client', 'record is settled by', 'redis/login',
        'reference,amount', 'import csv, json, sys', 'GET ?state=unknown',
        'POST ?resolve=batch')

# answers of commands that follow a configuration, where they are not 201
STATUSES = {'docs/guides/tokens.md': [200, 403]}

os.chdir(TOP)
os.makedirs('build', exist_ok=True)
found = [block for page in PAGES for block in blocks(page)]
of = {kind: [block for block in found if block.kind == kind]
      for kind in ('nginx', 'shell', 'sql', 'json', 'prometheus', 'log',
                   'header', 'text')}
print('# ' + ', '.join('%d %s' % (len(v), k) for k, v in of.items()))

same([b.name for b in of['text'] if not b.text.startswith(TEXT)], [],
     'each block is of a known kind')

# ---- documents, in which ... may stand for a value ----

bad = []
for block in of['json']:
    try:
        json.loads(re.sub(r'(?<=[:\[,])\.\.\.', 'null', block.text))
    except ValueError as e:
        bad.append('%s: %s' % (block.name, e))
same(bad, [], 'each of them can be read')

for block in of['prometheus']:
    if shutil.which('promtool') is None:
        print('# promtool is not installed')
        break
    with tempfile.NamedTemporaryFile('w', suffix='.yml') as f:
        f.write(block.text + '\n')
        f.flush()
        done = subprocess.run(['promtool', 'check', 'config', f.name],
                              capture_output=True, text=True)
    ok(done.returncode == 0, block.name + ': Prometheus takes it',
       done.stdout + done.stderr)

# ---- statements: an example runs them, or they name what a schema has ----


def words(*paths):
    out = ''
    for path in paths:
        with open(path) as f:
            out += ' ' + ' '.join(f.read().split())
    return out


example = words('examples/payments/schema.sql', 'examples/payments/service')
schema = words(*glob.glob('src/store/postgres/**/*.sql', recursive=True))
POSTGRES = {'as', 'by', 'on', 'in', 'count', 'encode', 'hex', 'to_timestamp',
            'nullif', 'nginx', 'pg_stat_user_tables', 'n_tup_hot_upd',
            'n_tup_upd', 'n_dead_tup', 'last_autovacuum', 'schemaname',
            'relname', 'hot_percent', 'pg_size_pretty',
            'pg_total_relation_size'}


def foreign(block):
    """names of a statement that are neither PostgreSQL's nor the schema's"""
    if ' '.join(block.text.split()) in example:
        return set()
    code = re.sub(r'--.*', '', block.text)
    return {word for word in re.findall(r'\b[a-z_]+\b', code)
            if word not in POSTGRES
            and not re.search(r'\b%s\b' % word, schema)}


same([(b.name, foreign(b)) for b in of['sql'] if foreign(b)], [],
     'each statement names what is there')

# ---- configurations ----


def load(text):
    with tempfile.TemporaryDirectory(prefix='snippet-',
                                     dir=TOP + '/build') as root:
        os.mkdir(root + '/logs')
        with open(root + '/nginx.conf', 'w') as f:
            f.write(snippet(text, root, MODULE))
        done = subprocess.run([NGINX, '-t', '-q', '-p', root, '-c',
                               root + '/nginx.conf'], capture_output=True,
                              text=True)
        return done.stderr or 'failed' * (done.returncode != 0)


def check(block):
    """alternatives may stand in one block"""
    wrong = load(block.text)
    if 'is duplicate' in wrong:
        wrong = ''.join(map(load, block.text.split('\n')))
    return wrong


pool = concurrent.futures.ThreadPoolExecutor(2)
wrong = [(b.name, error) for b, error in
         zip(of['nginx'], pool.map(check, of['nginx'])) if error]
ok(len(of['nginx']) > 50, 'there are configurations', len(of['nginx']))
ok(not wrong, 'each of them loads, without a warning', '\n'.join('%s: %s' % w for w in wrong))
ok('unknown directive' in load('idempotency_nonsense on;'),
   'a directive that does not exist would be found')

# ---- commands ----

with open('Makefile') as f:
    makefile = f.read()


def commands(block):
    """without prompts, what they print, and what is said of them"""
    if '$ ' in block.text[:2]:
        kept, inside = [], False
        for line in block.text.split('\n'):
            inside = line.startswith('$ ') or inside
            if inside:
                kept.append(line[2:] if line.startswith('$ ') else line)
                inside = line.endswith('\\')
        return '\n'.join(kept)
    return re.sub(r'^(make .*?)   +.*', r'\1', block.text, flags=re.M)


def lacks(text):
    """what a command needs and this folder has not"""
    for target in re.findall(r'(?:^|[^\w.])make ([\w-]+)', text):
        if not re.search(r'^%s:' % target, makefile, re.M) \
                and target != 'modules':
            yield 'make ' + target
    for path in re.findall(r'(?:^| )((?:t|examples)/[\w/.-]+)', text):
        if not os.path.exists(path):
            yield path


bad = []
for block in of['shell']:
    text = commands(block)
    if subprocess.run(['bash', '-n', '-c', text],
                      capture_output=True).returncode:
        bad.append(block.name + ': not a command')
    bad += ['%s: no %s' % (block.name, what) for what in lacks(text)]
ok(len(of['shell']) > 20, 'there are commands', len(of['shell']))
same(bad, [], 'each of them is valid')
same(list(lacks('make nothing; t/none')), ['make nothing', 't/none'],
     'one that does not exist would be found')


def run_curl(text, port):
    """the answers to the commands, a status line and what follows"""
    out = []
    text = re.sub(r'127\.0\.0\.1:8080', '127.0.0.1:%d' % port, text)
    for command in re.split(r'\n(?=curl )', text):
        words = shlex.split(command.replace('\\\n', ' '), comments=True)
        assert words[0] == 'curl', words
        done = subprocess.run(['curl', '-si', '-m', '30',
                               *[w for w in words[1:] if w != '-i']],
                              capture_output=True, text=True)
        out.append(done.stdout)
    return out


def statuses(answers):
    return [int(a.split()[1]) if a else 0 for a in answers]


tried = 0
for config, after in zip(found, found[1:]):
    if config.kind != 'nginx' or after.kind != 'shell' \
            or not config.text.startswith('http') \
            or config.page != after.page or 'curl ' not in after.text:
        continue
    texts = [commands(block) for block in found
             if block.page == after.page and block.heading == after.heading
             and block.kind == 'shell' and block.line >= after.line]
    gw = Page(Ledger(), config.text)
    got = statuses(run_curl('\n'.join(texts), gw.port))
    same(got, STATUSES.get(after.page, [201] * len(got)),
         after.name + ': what follows the configuration')
    gw.stop()
    tried += 1
ok(tried >= 4, 'there were such', tried)

# ---- the README, and what "make run" prints ----


def listens(port):
    try:
        socket.create_connection(('127.0.0.1', port), 1).close()
        return True
    except OSError:
        return False


def run_demo(port):
    """starts "make run"; returns the process and the lines that it prints"""
    demo = subprocess.Popen(['t/tools/demo/run', NGINX, MODULE, str(port)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)
    printed = []
    for line in demo.stdout:
        printed.append(line)
        if 'Ctrl-C stops it' in line:
            break
    threading.Thread(target=demo.stdout.read, daemon=True).start()
    until(lambda: listens(port), 20)
    return demo, printed


def stop_demo(demo):
    demo.terminate()
    demo.wait(20)


port = free_port()
shutil.rmtree('build/run/%d' % port, ignore_errors=True)
demo, printed = run_demo(port)
try:
    readme = next(b for b in of['shell'] if b.page == 'README.md'
                  and b.text.startswith('curl'))
    got = run_curl(readme.text.replace('order-1', 'order-0'), port)
    same((statuses(got), got[0].split('\n')[-2:] == got[1].split('\n')[-2:],
          ['Idempotent-Replayed: true' in a for a in got]),
         ([201, 201], True, [False, True]), 'README.md: try it')
    lines = [line for line in printed if re.match('curl |fence=', line)]
    out = subprocess.run(['bash', '-c', ''.join(lines)], capture_output=True,
                         text=True, timeout=120).stdout
    first = ['HTTP/' + a for a in out.split('HTTP/')[1:]]
    same(statuses(first), [201, 201, 422, 400, 201,
                           504, 409, 200, 201, 504, 200],
         'make run: what it prints')
    ok('found in the books' in first[8], 'an unknown is settled', first[8])
    ok('found by its key' in first[10], 'another by a probe', first[10])
    pages = [line.split()[0] for line in printed
             if re.match(r' +http://[\w.:]+/', line)]
    same([p.rpartition('/')[2] for p in pages], ['stats', 'policy'],
         'make run: pages')
    for page in pages:
        got = subprocess.run(['curl', '-si', '-m', '30', '-H',
                              'Accept: text/html', page],
                             capture_output=True, text=True).stdout
        ok(' 200 ' in got[:15] and '</html>' in got, 'which is there: ' + page,
           got[:300])
    loop, = [line for line in printed if line.startswith('for i')]
    out = subprocess.run(['bash', '-c', loop], capture_output=True,
                         text=True, timeout=60).stdout
    same(sorted(re.findall(r'HTTP/1.1 (\d+)', out)), ['201', '409'],
         'make run: two at a time')
    stop_demo(demo)
    until(lambda: not listens(port), 20)
    demo, printed = run_demo(port)
    again, = run_curl(lines[0].strip(), port)
    same(('Idempotent-Replayed: true' in again,
          again.strip().split('\n')[-1]),
         (True, first[0].strip().split('\n')[-1]),
         'make run: a restart keeps the key')
    ok('still known' in ''.join(printed), 'make run: and says so', printed)
finally:
    stop_demo(demo)
    shutil.rmtree('build/run/%d' % port, ignore_errors=True)

# ---- logs ----

formats = set()
for path in glob.glob('src/**/*.c', recursive=True):
    with open(path) as f:
        joined = re.sub(r'"\s*\n\s*"', '', f.read())
    formats |= set(re.findall(r'"(idempotency (?:\\.|[^"\\])*)"', joined))
formats = [re.compile(re.sub(r'%[\d*]*(?:xs|u?[A-Za-z])', '.*',
                             re.sub(r'([?.+()\[\]])', r'\\\1',
                                    f.replace('\\"', '"'))))
           for f in formats]
missing = [(block.name, line) for block in of['log'] for line in
           re.sub(r'\n(?!idempotency)', ' ', block.text).split('\n')
           if not any(f.match(line) for f in formats)]
same(missing, [], 'lines of the log are those that the module writes')
ok(len(of['log']) > 1, 'there were such', len(of['log']))

finish()
