"""docs/understand/performance.md: the tables between its marks are written
anew."""

import datetime
import json
import os
import re
import shutil
import subprocess

import rig


class Page:
    """The page itself and its plots, or copies of them under build/."""

    def __init__(self, real):
        self.source = os.path.join(rig.TOP, 'docs', 'understand',
                                   'performance.md')
        self.path = self.source
        if not real:
            self.path = os.path.join(rig.WORK, 'performance.md')
            os.makedirs(rig.WORK, exist_ok=True)
            shutil.copy(self.source, self.path)
        self.plots = os.path.join(os.path.dirname(self.path), 'performance')
        os.makedirs(self.plots, exist_ok=True)

    def write(self, name, *parts):
        """Between "<!-- bench:NAME -->" and "<!-- end -->"."""
        text = '\n\n'.join(parts)
        print('\n%s\n' % text, flush=True)
        with open(self.path) as f:
            page = f.read()
        mark = '<!-- bench:%s -->\n' % name
        begin = page.index(mark) + len(mark)
        end = page.index('<!-- end -->', begin)
        with open(self.path, 'w') as f:
            f.write('%s\n%s\n\n%s' % (page[:begin], text, page[end:]))

    @staticmethod
    def plot(name, words):
        return '![%s](performance/%s.svg)' % (words, name)


def output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        return (done.stdout + done.stderr).strip()
    except OSError:
        return ''


def machine(args):
    """Where and with what it was measured."""
    with open('/proc/cpuinfo') as f:
        cpu = re.search(r'model name\s*: (.*)', f.read())
    with open(os.path.join(rig.HERE, 'node', 'package.json')) as f:
        packages = json.load(f)['dependencies']
    words = [
        '%s, commit %s' % (datetime.date.today(),
                           output('git', '-C', rig.TOP, 'describe',
                                  '--always', '--dirty')),
        '%d cores of %s, Linux %s' % (
            len(rig.CORES), cpu.group(1) if cpu else os.uname().machine,
            re.match(r'[0-9.]*[0-9]', os.uname().release).group()),
        re.sub(r'nginx version: ', '', output(rig.NGINX, '-v')),
        'redis-server ' + re.search(
            r'v=(\S+)|$', output('redis-server', '--version')).group(1),
        'Node ' + output('node', '--version'),
        *('%s %s' % item for item in packages.items()),
        '%d rounds of %d s, PIN=%s' % (args.rounds, args.seconds, rig.PIN),
    ]
    return 'Measured: %s.' % '; '.join(words)
