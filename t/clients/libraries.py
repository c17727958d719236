"""The clients of the table, as they are: how each is started, its version,
and why it cannot run here.

    for client in libraries():
        client.name, client.version, client.missing
        client.start()            loads it
        client.run(cells)         each cell gets its result
"""

import json
import os
import re
import shutil
import subprocess
import uuid

from guide import BUILD, GO, NPM, build_go, python_with

HERE = os.path.dirname(os.path.abspath(__file__))


class Library:
    """sdk: it has no request to send before, for a kept connection;
    retries: by itself, when an answer was lost"""

    def __init__(self, name, command, version=None, missing=None, sdk=False,
                 retries=True, settings=''):
        self.name, self.command = name, command
        self.version, self.missing = version, missing
        self.sdk, self.retries, self.settings = sdk, retries, settings

    def takes(self, fault):
        return not (self.sdk and fault.name == 'kept')

    def start(self):
        """All begin at the same time, however long they take to load."""
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def run(self, cells, timeout=170):
        given = [{'fault': c.fault.name, 'url': c.url,
                  'kept': c.fault.name == 'kept', 'key': str(uuid.uuid4())}
                 for c in cells]
        try:
            said, errors = self.process.communicate(json.dumps(given),
                                                    timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            said, errors = self.process.communicate()
        if self.process.returncode:
            print('# %s: %s' % (self.name, errors[-500:].replace('\n', ' ')))
        results = {}
        for line in said.splitlines():
            try:
                result = json.loads(line)
                results[result['fault']] = result
            except (ValueError, KeyError):
                print('# %s says %r' % (self.name, line[:200]))
        for cell in cells:
            cell.result = results.get(cell.fault.name)
            cell.over = True


def output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ''
    return done.stdout or done.stderr


def word(text, pattern=r'(\d[\w.+~-]*)'):
    found = re.search(pattern, text)
    return found.group(1) if found else None


def npm_version(package):
    try:
        with open('%s/node_modules/%s/package.json' % (NPM, package)) as f:
            return json.load(f)['version']
    except OSError:
        return None


def node_library(name, package=None, title=None, **args):
    node = shutil.which('node')
    missing = None
    if node is None:
        missing = 'node is not installed'
    elif package and npm_version(package) is None:
        missing = 'npm could not install ' + package
    elif package:
        shutil.copy(HERE + '/drive.mjs', NPM + '/drive.mjs')
    version = npm_version(package) if package else word(
        output('node', '--version') if node else '')
    drive = (NPM if package else HERE) + '/drive.mjs'
    return Library(title or name, ['node', drive, name], version, missing,
                   **args)


def python_library(name):
    python = python_with('requests', 'urllib3')
    return Library(
        name, [python, '-B', HERE + '/drive.py', name],
        python and output(python, '-c', 'import %s; print(%s.__version__)'
                          % (name, name)).strip(),
        None if python else 'no Python has ' + name,
        settings='`Retry` with POST and 429, 502, 503, 504')


def curl(title, *options, **args):
    return Library(title, ['python3', '-B', HERE + '/drive.py', 'curl',
                           *options],
                   word(output('curl', '--version')),
                   None if shutil.which('curl') else 'curl is not installed',
                   **args)


def go_library(name, **args):
    binary = BUILD + '/drive-go'
    package, = GO
    if shutil.which('go') is None:
        return Library(name, None, None, 'go is not installed')
    if not os.path.isdir(GO[package]):
        return Library(name, None, None, package + ' is not installed')
    done = build_go(HERE + '/drive.go', binary)
    if done.returncode:
        raise SystemExit('Bail out! drive.go: ' + done.stderr)
    version = word(output('go', 'version'), r'go(\d[\w.]*)')
    if name != 'net/http':
        version = word(output('dpkg-query', '-W', '-f', '${Version}',
                              'golang-github-hashicorp-go-retryablehttp-dev'))
    return Library('Go ' + name, [binary, name], version, **args)


def java_library(**args):
    if shutil.which('javac') is None:
        return Library('Java HttpClient', None, None, 'javac is not installed')
    done = subprocess.run(['javac', '-d', BUILD, HERE + '/Drive.java'],
                          capture_output=True, text=True)
    if done.returncode:
        raise SystemExit('Bail out! Drive.java: ' + done.stderr)
    return Library('Java HttpClient',
                   ['java', '-XX:TieredStopAtLevel=1', '-cp', BUILD, 'Drive'],
                   word(output('javac', '-version')), **args)


def libraries():
    no = dict(retries=False, settings='does not retry')
    return [
        curl('curl', **no),
        curl('curl --retry', '--retry', '5', '--retry-max-time', '50',
             retries=False,
             settings='retries time-outs and 429, 500 to 504, not resets'),
        curl('curl --retry-all-errors', '--retry', '5', '--retry-all-errors',
             '--retry-max-time', '50', '--fail-with-body',
             settings='with `--fail-with-body`'),
        python_library('requests'),
        python_library('urllib3'),
        node_library('fetch', title='Node fetch', **no),
        node_library('got', 'got', settings='`methods: [\'POST\']`'),
        node_library('axios-retry', 'axios-retry',
                     settings='`isRetryableError`, `shouldResetTimeout`'),
        node_library('undici', 'undici',
                     settings='`RetryAgent`, `methods: [\'POST\']`'),
        node_library('ky', 'ky',
                     settings='`methods: [\'post\']`, `retryOnTimeout`'),
        node_library('superagent', 'superagent', settings='`.retry(5)`'),
        go_library('net/http', **dict(no, settings='does not retry, except on '
                                      'a kept connection')),
        go_library('retryablehttp', settings='defaults'),
        java_library(**no),
        node_library('paypal', '@paypal/paypal-server-sdk', 'PayPal SDK',
                     sdk=True, settings='`httpMethodsToRetry` with POST'),
        node_library('square', 'square', 'Square SDK', sdk=True,
                     retries=False,
                     settings='`maxRetries: 5`: statuses only'),
        node_library('adyen', '@adyen/api-library', 'Adyen SDK', sdk=True,
                     **no),
    ]
