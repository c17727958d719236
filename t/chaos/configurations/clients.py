"""Clients of HTTP/1.1 and HTTP/2 that retry, leave and give wrong passwords.

An attempt is what is planned, an Outcome what became of it.
"""

import asyncio
import base64
import gzip
import re
import struct
import time

from gateway import Answer
from h2 import (DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS,
                WINDOW_UPDATE, fields, frame)
from . import hpack

BOUND = 15                # seconds in which everybody gets an answer


class Attempt:
    """One request; at: when it starts, in seconds after its step."""

    def __init__(self, op, right=True, do='ok', body=None, leave=None,
                 http2=False, page=404, at=0, keyless=False, user=None,
                 packed=False, fail=None):
        self.op = op
        self.right = right
        self.do = do
        self.changed = body is not None
        self.body = body or op.body
        self.leave = leave
        self.http2 = http2
        self.page = page
        self.at = at
        self.keyless = keyless
        self.user = user or op.user
        self.packed = packed
        self.fail = fail          # a failpoint of the module
        self.number = 0           # set by the scenario

    def __str__(self):
        more = [word for word, on in (
            ('wrong credentials', not self.right), ('changed body',
                                                    self.changed),
            ('HTTP/2', self.http2), ('no key', self.keyless),
            ('leaves after %s s' % self.leave, self.leave),
            ('by ' + self.user, self.user != self.op.user),
            ('pages %d' % self.page, self.page != 404),
            ('gzip', self.packed), (self.fail, self.fail)) if on]
        return '%s %s, %s%s' % (self.op.method, self.op.path, self.do,
                                ''.join(', ' + m for m in more))

    def headers(self, host, prefix):
        password = 'right' if self.right else 'wrong'
        text = base64.b64encode(('%s:%s' % (self.user, password)).encode())
        lines = [('authorization', 'Basic ' + text.decode()),
                 ('x-user', self.user),
                 ('x-attempt', '%s%s.%d' % (prefix, host, self.number)),
                 ('x-do', self.do), ('x-page', str(self.page))]
        if not self.keyless:
            lines.append(('idempotency-key', prefix + host + self.op.key))
        if self.fail:
            lines.append(('x-fail', self.fail))
        if self.packed:
            lines.append(('accept-encoding', 'gzip'))
        return lines


class Outcome:
    def __init__(self, attempt):
        self.attempt = attempt
        self.started = time.monotonic()
        self.ended = None
        self.status = 0
        self.headers = []
        self.body = b''
        self.whole = False
        self.left = False
        self.hung = False
        self.executions = []      # of this attempt, from the ledger

    def get(self, name):
        found = [v for n, v in self.headers if n == name]
        return ', '.join(found) if found else None

    @property
    def effect(self):
        text = self.get('x-effect')
        if text and text.isdigit():
            return int(text)
        found = re.search(rb'effect (\d+)', self.body)
        return int(found.group(1)) if found else None

    @property
    def replayed(self):
        return self.get('idempotent-replayed') == 'true'

    @property
    def code(self):
        """of an error that the module has written"""
        found = re.search(rb'"(?:code|type)":"(\w+)"', self.body)
        return found.group(1).decode() if found else None

    @property
    def added(self):
        return [v for n, v in self.headers if n == 'x-loc']

    def take(self, status, headers, body, whole):
        self.status, self.headers, self.whole = status, headers, whole
        self.body = body
        if self.get('content-encoding') == 'gzip' and whole and body:
            try:
                self.body = gzip.decompress(body)
            except (OSError, EOFError):
                self.whole = False

    def __str__(self):
        if not self.status:
            text = 'hung' if self.hung else 'left' if self.left else 'closed'
        else:
            text = '%d%s%s%s%s%s' % (
                self.status, ' replayed' if self.replayed else '',
                ' effect %d' % self.effect if self.effect else '',
                ' ' + self.code if self.code else '',
                ' X-Loc %s' % self.added if self.added else '',
                '' if self.whole else ' cut')
        return '%s -> %s%s' % (self.attempt, text, ''.join(
            '\n            ' + str(e) for e in self.executions))


async def send(attempt, ports, host, prefix):
    """ports: of HTTP/1.1 and of HTTP/2"""
    outcome = Outcome(attempt)
    port = ports[1] if attempt.http2 else ports[0]
    talk = http2 if attempt.http2 else http1
    writer = None
    try:
        reader, writer = await asyncio.open_connection('127.0.0.1', port)
        bound = attempt.leave or BOUND
        await asyncio.wait_for(talk(reader, writer, outcome, host, prefix),
                               bound)
    except asyncio.TimeoutError:
        outcome.left = attempt.leave is not None
        outcome.hung = not outcome.left
    except (OSError, EOFError):
        pass
    finally:
        if writer:
            writer.transport.abort() if outcome.left else writer.close()
        outcome.ended = time.monotonic()
    return outcome


async def http1(reader, writer, outcome, host, prefix):
    a = outcome.attempt
    lines = ['%s %s HTTP/1.1' % (a.op.method, a.op.path), 'Host: ' + host,
             'Connection: close', 'Content-Length: %d' % len(a.body)]
    lines += ['%s: %s' % h for h in a.headers(host, prefix)]
    writer.write('\r\n'.join(lines + ['', '']).encode() + a.body)
    data = b''
    while True:
        more = await reader.read(65536)
        if not more:
            break
        data += more
    answer = Answer(data, a.op.method)
    outcome.take(answer.status, answer.headers, answer.body, answer.whole)


async def http2(reader, writer, outcome, host, prefix):
    a = outcome.attempt
    lines = [(':method', a.op.method), (':scheme', 'http'),
             (':path', a.op.path), (':authority', host),
             ('content-length', str(len(a.body)))]
    lines += a.headers(host, prefix)
    writer.write(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
                 + frame(SETTINGS, 0, 0, struct.pack('>HI', 4, 0x7fffffff))
                 + frame(WINDOW_UPDATE, 0, 0, struct.pack('>I', 0x7fff0000))
                 + frame(HEADERS, END_HEADERS, 1, fields(*lines))
                 + frame(DATA, END_STREAM, 1, a.body))
    headers, body = [], b''
    while True:
        head = await reader.readexactly(9)
        kind, flags, stream = struct.unpack('>BBI', head[3:])
        data = await reader.readexactly(int.from_bytes(head[:3], 'big'))
        if kind == SETTINGS and not flags & 1:
            writer.write(frame(SETTINGS, 1, 0))
        if stream != 1:
            continue
        if kind == HEADERS and not headers:
            headers = hpack.decode(data)
        elif kind == DATA:
            body += data
        if kind == RST_STREAM or flags & END_STREAM and kind in (DATA,
                                                                 HEADERS):
            break
    status = int(dict(headers).get(':status', 0))
    outcome.take(status, headers, body, kind != RST_STREAM)
