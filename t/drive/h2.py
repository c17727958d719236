"""As much of HTTP/2 as a client needs that sends a request and goes away.

Header fields are written as literals; those that come back are not read, only
the data is.
"""

import socket
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE = 0, 1, 3, 4, 8
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags, stream, payload=b''):
    return (struct.pack('>I', len(payload))[1:]
            + struct.pack('>BBI', kind, flags, stream) + payload)


def integer(n, bits):
    top = (1 << bits) - 1
    if n < top:
        return bytes([n])
    out, n = [top], n - top
    while n >= 128:
        out.append(n % 128 + 128)
        n //= 128
    return bytes(out + [n])


def fields(*pairs):
    out = b''
    for name, value in pairs:
        name, value = name.encode(), value.encode()
        out += (b'\0' + integer(len(name), 7) + name
                + integer(len(value), 7) + value)
    return out


class H2:
    def __init__(self, port):
        self.sock = socket.create_connection(('127.0.0.1', port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
                          + frame(SETTINGS, 0, 0,
                                  struct.pack('>HI', 4, 0x7fffffff))
                          + frame(WINDOW_UPDATE, 0, 0,
                                  struct.pack('>I', 0x7fff0000)))
        self.stream = -1
        self.rest = b''

    def request(self, path, key, body=b'x', method='POST', end=True,
                headers=()):
        self.stream += 2
        lines = [(':method', method), (':scheme', 'http'), (':path', path),
                 (':authority', 'gateway'), ('idempotency-key', key),
                 *headers]
        self.sock.sendall(
            frame(HEADERS, END_HEADERS, self.stream, fields(*lines))
            + frame(DATA, END_STREAM if end else 0, self.stream, body))
        return self.stream

    def cancel(self, stream=None):
        self.sock.sendall(frame(RST_STREAM, 0, stream or self.stream,
                                struct.pack('>I', 8)))

    def close(self):
        self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                             struct.pack('ii', 1, 0))
        self.sock.close()

    def frames(self, timeout=10):
        """frames as they come: (kind, flags, stream, payload)"""
        self.sock.settimeout(timeout)
        while True:
            while len(self.rest) >= 9:
                size = int.from_bytes(self.rest[:3], 'big')
                if len(self.rest) < 9 + size:
                    break
                kind, flags, stream = struct.unpack('>BBI', self.rest[3:9])
                payload = self.rest[9:9 + size]
                self.rest = self.rest[9 + size:]
                if kind == SETTINGS and not flags & 1:
                    self.sock.sendall(frame(SETTINGS, 1, 0))
                yield kind, flags, stream, payload
            more = self.sock.recv(65536)
            if not more:
                return
            self.rest += more

    def data(self, stream=None, timeout=10):
        """the body of an answer, to its end"""
        stream = stream or self.stream
        body = b''
        for kind, flags, of, payload in self.frames(timeout):
            if of != stream:
                continue
            if kind == RST_STREAM:
                return None
            if kind == DATA:
                body += payload
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                return body
        return None
