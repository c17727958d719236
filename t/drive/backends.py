"""Small servers of other protocols, which write down what they execute.

The request header X-Do says what they do: "ok" (201 with a length), "nolength",
"cut" (a length, and less than that), "head" (a part of the header), "reset",
"slow", "missing" (404).  X-Line has the status line, with %-escapes, instead of
"201 Created".  The gRPC server does "ok", "error" (grpc-status 13 in the
trailers), "reset" and "slow"; "trailers:N" and "only:N" (grpc-status N, after a
message or as all that there is), "none" (a message and no trailers) and "other"
(trailers without a status).  A GET is not an execution.
"""

import socket
import struct
import threading
import time
import urllib.parse

from h2 import (DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS,
                fields, frame)


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                    struct.pack('ii', 1, 0))
    sock.close()


class Server:
    def __init__(self):
        self.entries = []         # keys
        self.requests = []        # parameters, but not for gRPC
        self.lock = threading.Lock()
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            sock, _ = self.listener.accept()
            threading.Thread(target=self.run, args=(sock,),
                             daemon=True).start()

    def run(self, sock):
        file = sock.makefile('rb')
        try:
            while self.serve(sock, file):
                pass
        except (OSError, struct.error, ValueError):
            pass
        file.close()
        sock.close()

    def count(self, key):
        with self.lock:
            return self.entries.count(key)

    def until(self, key, n=1):
        end = time.time() + 20
        while self.count(key) < n and time.time() < end:
            time.sleep(0.005)
        return self.count(key) >= n

    def execute(self, key):
        with self.lock:
            self.entries.append(key)
            return len(self.entries)

    def answer(self, params, status):
        """the bytes of an answer, or None for a reset"""
        with self.lock:
            self.requests.append(params)
            effect = len(self.entries)
        if params.get('REQUEST_METHOD') != 'GET':
            effect = self.execute(params.get('HTTP_IDEMPOTENCY_KEY'))
        do = params.get('HTTP_X_DO', 'ok')
        body = b'effect %06d\n' % effect
        line = '404 Not Found' if do == 'missing' else '201 Created'
        line = urllib.parse.unquote(params.get('HTTP_X_LINE', line), 'latin-1')
        head = (status % line + 'Content-Type: text/plain\r\n'
                'X-Effect: %d\r\n' % effect).encode('latin-1')
        if do == 'slow':
            time.sleep(0.4)
        if do == 'reset':
            return None
        if do == 'cut':
            return head + b'Content-Length: 1000\r\n\r\n' + body
        if do == 'head':
            return head[:30]
        if do == 'nolength':
            return head + b'\r\n' + body
        return head + b'Content-Length: %d\r\n\r\n' % len(body) + body


class Http(Server):
    def serve(self, sock, file):
        if not file.readline():
            return False
        params = {}
        for line in iter(file.readline, b'\r\n'):
            name, _, value = line.decode('latin-1').partition(':')
            params['HTTP_' + name.upper().replace('-', '_')] = value.strip()
        file.read(int(params.get('HTTP_CONTENT_LENGTH') or 0))
        data = self.answer(params, 'HTTP/1.1 %s\r\n')
        if data is None:
            reset(sock)
        else:
            sock.sendall(data)
        return False


class Scgi(Server):
    status = 'Status: %s\r\n'

    def serve(self, sock, file):
        size = b''
        while not size.endswith(b':'):
            size += file.read(1) or b'?'
            if b'?' in size:
                return False
        words = file.read(int(size[:-1])).split(b'\0')
        file.read(1)
        params = {words[i].decode(): words[i + 1].decode()
                  for i in range(0, len(words) - 1, 2)}
        file.read(int(params['CONTENT_LENGTH'] or 0))
        data = self.answer(params, self.status)
        if data is None:
            reset(sock)
        else:
            sock.sendall(data)
        return False


class Uwsgi(Server):
    status = 'HTTP/1.1 %s\r\n'

    def serve(self, sock, file):
        head = file.read(4)
        if len(head) < 4:
            return False
        _, size, _ = struct.unpack('<BHB', head)
        data, params, i = file.read(size), {}, 0
        while i < size:
            pair = []
            for _ in range(2):
                n = struct.unpack('<H', data[i:i + 2])[0]
                pair.append(data[i + 2:i + 2 + n].decode())
                i += 2 + n
            params[pair[0]] = pair[1]
        file.read(int(params.get('CONTENT_LENGTH') or 0))
        data = self.answer(params, self.status)
        if data is None:
            reset(sock)
        else:
            sock.sendall(data)
        return False


class Fastcgi(Server):
    def serve(self, sock, file):
        params, body, keep = b'', b'', False
        while True:
            head = file.read(8)
            if len(head) < 8:
                return False
            _, kind, _, size, pad, _ = struct.unpack('>BBHHBB', head)
            data = file.read(size)
            file.read(pad)
            if kind == 1:
                keep = data[2] & 1
            elif kind == 4:
                params += data
            elif kind == 5:
                body += data
                if size == 0:
                    break
        params = self.params(params)
        data = self.answer(params, 'Status: %s\r\n')
        if data is None:
            reset(sock)
            return False
        for i in range(0, len(data), 40):
            self.record(sock, 6, data[i:i + 40])
        if params.get('HTTP_X_DO') in ('cut', 'head'):
            return False
        self.record(sock, 6, b'')
        self.record(sock, 3, struct.pack('>IB3x', 0, 0))
        return keep

    @staticmethod
    def record(sock, kind, data):
        sock.sendall(struct.pack('>BBHHBB', 1, kind, 1, len(data), 0, 0)
                     + data)

    @staticmethod
    def params(data):
        out, i = {}, 0
        while i < len(data):
            sizes = []
            for _ in range(2):
                n = data[i]
                i += 1
                if n & 0x80:
                    n = (n & 0x7f) << 24 | int.from_bytes(data[i:i + 3],
                                                          'big')
                    i += 3
                sizes.append(n)
            name = data[i:i + sizes[0]].decode()
            i += sizes[0]
            out[name] = data[i:i + sizes[1]].decode()
            i += sizes[1]
        return out


class Grpc(Server):
    """Unary calls; the message is the key, a blank, and what to do."""

    type = 'application/grpc'

    def serve(self, sock, file):
        file.read(24)
        sock.sendall(frame(SETTINGS, 0, 0))
        bodies = {}
        while True:
            head = file.read(9)
            if len(head) < 9:
                return False
            size = int.from_bytes(head[:3], 'big')
            kind, flags, stream = struct.unpack('>BBI', head[3:])
            data = file.read(size)
            if kind == SETTINGS and not flags & 1:
                sock.sendall(frame(SETTINGS, 1, 0))
            if kind == DATA:
                bodies[stream] = bodies.get(stream, b'') + data
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                self.call(sock, stream, bodies.pop(stream, b''))

    def call(self, sock, stream, message):
        key, do = message[5:].decode().split(' ')
        effect = self.execute(key)
        text = b'effect %06d' % effect
        if do == 'slow':
            time.sleep(0.4)
        if do == 'reset':
            sock.sendall(frame(RST_STREAM, 0, stream, struct.pack('>I', 2)))
            return
        do, _, status = do.partition(':')
        trailers = [('grpc-status', status or ('13' if do == 'error' else '0')),
                    ('grpc-message', 'from trailers')]
        head = [('content-type', self.type), ('x-effect', str(effect))]
        if do == 'only':
            sock.sendall(frame(HEADERS, END_HEADERS | END_STREAM, stream,
                               b'\x88' + fields(*head, *trailers)))
            return
        out = frame(HEADERS, END_HEADERS, stream, b'\x88' + fields(*head))
        if do != 'error':
            out += frame(DATA, END_STREAM if do == 'none' else 0, stream,
                         b'\0' + struct.pack('>I', len(text)) + text)
        if do == 'other':
            trailers = trailers[1:]
        if do != 'none':
            out += frame(HEADERS, END_HEADERS | END_STREAM, stream,
                         fields(*trailers))
        sock.sendall(out)
