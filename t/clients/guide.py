"""The programs of docs/clients/guide.md, taken out of the page and run.

    for program in programs():
        program.title, program.missing     why it cannot run here, or None
        program.run(url, folder)           {'status', 'body'} or {'error'}
"""

import json
import os
import re
import shutil
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
PAGE = TOP + '/docs/clients/guide.md'
BUILD = TOP + '/build/clients'
NPM = BUILD + '/npm'
ORDER = json.dumps({'amount': 1999, 'currency': 'EUR', 'order': 'A-17'},
                   indent=1).encode() + b'\n'

# modules of other packages; the standard ones are always there
PYTHON = ('requests', 'urllib3')
GO = {'github.com/hashicorp/go-retryablehttp':
      '/usr/share/gocode/src/github.com/hashicorp/go-retryablehttp'}


def python_with(*modules):
    """Debian's Python before any other: its packages are the ones that the
    installer brings."""
    for python in ('/usr/bin/python3', sys.executable):
        if os.path.exists(python) and subprocess.run(
                [python, '-c', 'import ' + ', '.join(modules)],
                capture_output=True).returncode == 0:
            return python
    return None


def go_environment():
    """Debian's packages are found by a path, without a network."""
    return dict(os.environ, GO111MODULE='off', GOPATH='/usr/share/gocode',
                GOCACHE=BUILD + '/go', GOFLAGS='')


def build_go(source, binary):
    return subprocess.run(['go', 'build', '-o', binary, source],
                          env=go_environment(), capture_output=True,
                          text=True)


class Program:
    def __init__(self, title, language, text):
        self.title, self.language, self.text = title, language, text
        self.name = re.sub(r'\W+', '-', title.lower())
        self.folder = '%s/guide/%s' % (BUILD, self.name)
        self.command = None
        os.makedirs(self.folder, exist_ok=True)
        self.missing = getattr(self, 'prepare_' + language)()

    def write(self, path):
        with open(path, 'w') as f:
            f.write(self.text)
        return path

    def prepare_sh(self):
        if shutil.which('curl') is None:
            return 'curl is not installed'
        self.command = ['bash', '-eu', self.write(self.folder + '/curl.sh')]

    def prepare_python(self):
        modules = re.findall(r'^import (%s)$' % '|'.join(PYTHON), self.text,
                             re.M)
        python = python_with('json', *modules)
        if python is None:
            return 'no Python has ' + ', '.join(modules)
        self.command = [python, self.write(self.folder + '/pay.py')]

    def prepare_js(self):
        if shutil.which('node') is None:
            return 'node is not installed'
        # packages are looked for from where the program is
        folder = self.folder
        for package in re.findall(r"from '([a-z-]+)'", self.text):
            folder = NPM
            if not os.path.isdir('%s/node_modules/%s' % (NPM, package)):
                return 'npm could not install ' + package
        self.command = ['node', self.write('%s/%s.mjs' % (folder, self.name))]

    def prepare_go(self):
        if shutil.which('go') is None:
            return 'go is not installed'
        for package in re.findall(r'^ +"(\w+\.\w+/.*)"$', self.text, re.M):
            if not os.path.isdir(GO[package]):
                return package + ' is not installed'
        self.command = [self.folder + '/pay']
        return self.built(build_go(self.write(self.folder + '/pay.go'),
                                   self.command[0]))

    def prepare_java(self):
        if shutil.which('javac') is None:
            return 'javac is not installed'
        self.command = ['java', '-XX:TieredStopAtLevel=1', '-cp', self.folder,
                        'Pay']
        return self.built(subprocess.run(
            ['javac', '-d', self.folder,
             self.write(self.folder + '/Pay.java')], capture_output=True,
            text=True))

    def built(self, done):
        """A program that does not compile is a mistake in the page."""
        if done.returncode:
            raise SystemExit('Bail out! %s does not compile: %s'
                             % (self.title, done.stderr))

    def run(self, url, folder, timeout=120):
        os.makedirs(folder, exist_ok=True)
        with open(folder + '/order.json', 'wb') as f:
            f.write(ORDER)
        try:
            done = subprocess.run(self.command, cwd=folder, timeout=timeout,
                                  env=dict(os.environ, API_URL=url),
                                  capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            return None
        body = done.stdout
        if os.path.exists(folder + '/answer.json'):
            with open(folder + '/answer.json') as f:
                body = f.read()
        if done.returncode:
            return {'error': (done.stderr + body).strip()[-600:]}
        return {'status': 201, 'body': body}


def sources():
    """(heading, language, text) of each program on the page"""
    with open(PAGE) as f:
        page = f.read()
    found = []
    for section in re.split(r'^## ', page, flags=re.M)[1:]:
        heading = section.split('\n')[0]
        found += [(heading, language, text) for language, text in re.findall(
            r'^```(\w+)\n(.*?)^```$', section, re.M | re.S)]
    return found


def programs(only=None):
    return [Program(*source) for source in sources()
            if only is None or only(*source)]
