#!/usr/bin/env python3
"""docs/start/quickstart.md works as it is pasted.

Its service is started, its configuration is loaded, its commands are run in
order, each by a shell; only ports and the place of the store are other ones.
Each answer is what the page says, also that of the unknown outcome that is
settled in the end.
"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import TOP, finish, free_port, ok, same, until  # noqa: E402
from pages import Page  # noqa: E402
from pasted import blocks  # noqa: E402


class Service:
    """the upstream of the page"""

    def __init__(self, command):
        self.port = free_port()
        self.process = subprocess.Popen(
            command.replace('9000', str(self.port)).split(), cwd=TOP)

    def curl(self, command, port, fence=''):
        """status, headers and body together, and whether it is a replay"""
        command = re.sub(r'^curl (-i )?', 'curl -sS -i -m 20 ', command)
        command = command.replace(':8080', ':%d' % port) \
            .replace(':9000', ':%d' % self.port).replace('FENCE', fence)
        out = subprocess.run(['bash', '-c', command], capture_output=True,
                             text=True, timeout=30).stdout
        return out, int((out.split() or [0, 0])[1])


found = blocks('docs/start/quickstart.md')
start, = [b.text for b in found if b.text.startswith('python3 ')]
config, = [b.text for b in found if b.kind == 'nginx']
curls = [command for b in found if b.text.startswith('curl ')
         for command in re.split(r'\n(?=curl )', b.text)]
same(len(curls), 8, 'the commands of the page')

service = Service(start)
gw = Page(service, 'http {\n%s\n}\n' % config)
try:
    ok(until(lambda: service.curl(curls[5], gw.port)[1] == 200, 20),
       'the service starts')
    first, again, lost, held, lookup, asked = [
        service.curl(command, gw.port) for command in curls[:6]]
    same((first[1], again[1], 'Idempotent-Replayed: true' in first[0],
          'Idempotent-Replayed: true' in again[0]),
         (201, 201, False, True), 'a request is sent twice')
    same(first[0].split('\n\n')[1], again[0].split('\n\n')[1],
         'both answers have the same number')
    same((lost[1], '"code":"outcome_unknown"' in lost[0]), (502, True),
         'an answer is lost')
    same((held[1], '"code":"outcome_unknown"' in held[0]), (409, True),
         'its retry is not sent again')
    same((lookup[1], '"state":"unknown"' in lookup[0]), (200, True),
         'the key is looked up')
    ok('"executed": 1' in asked[0], 'the service has executed it', asked[0])
    fence = re.search(r'"fence":(\d+)', lookup[0]).group(1)
    settled = service.curl(curls[6], gw.port, fence)
    same((settled[1], '"state":"done"' in settled[0]), (200, True),
         'it is settled')
    last = service.curl(curls[7], gw.port)
    same((last[1], last[0].split('\n\n')[1]), (201, '{"number":2}'),
         'the retry gets that answer')
finally:
    service.process.terminate()
    service.process.wait(20)
gw.stop()
finish()
