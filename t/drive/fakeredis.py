"""A Redis that lies.

It logs everybody in and is asked what it answers to a script: a function that
gets the arguments and returns

    bytes             what is sent
    a list            bytes, and numbers: seconds of silence between them
    RESET, CLOSE      ends the connection
    NOTHING           no reply at all

A granted claim is GRANTED, its record made of what was asked.
"""

import socket
import struct
import threading
import time

RESET, CLOSE, NOTHING = object(), object(), object()
HEADER = '>BBBBHH16s32sQQQQIIIIIQ'


def bulk(data):
    return b'$%d\r\n%s\r\n' % (len(data), data)


def answer(result, record=b'', now=None, owner=b''):
    now = int(time.time() * 1000) if now is None else now
    return bulk(struct.pack('>BQ16s', result, now, owner) + record)


def owner(args):
    """who asks"""
    return args[4][:16]


def granted(args):
    now = int(time.time() * 1000)
    record = struct.pack(HEADER, 1, 2, 0, 0, 0, 0, owner(args),
                         args[4][16:48], now * 1000, now + 30000, 0, now // 1000, 1,
                         30 * 86400, 0, 0, 0, 0)
    return answer(1, record, now, owner(args))


def is_claim(args):
    return len(args) == 5


def is_list(args):
    """the only script without a key"""
    return args[2] == b'0'


def empty_list(args):
    return answer(0, struct.pack('>BI', 1, 0) + b'0', owner=args[3][:16])


class Fake:
    def __init__(self):
        self.reply = None         # to scripts, see above
        self.login = b'+OK\r\n'   # to anything else
        self.scripts = 0
        self.open = 0
        self.connections = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            sock, _ = self.listener.accept()
            self.connections += 1
            threading.Thread(target=self.serve, args=(sock,),
                             daemon=True).start()

    def serve(self, sock):
        with self.lock:
            self.open += 1
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        file = sock.makefile('rb')
        try:
            while True:
                head = file.readline()
                if not head:
                    break
                args = []
                for _ in range(int(head[1:])):
                    n = int(file.readline()[1:])
                    args.append(file.read(n + 2)[:-2])
                if not self.one(sock, args):
                    break
        except (OSError, ValueError):
            pass
        with self.lock:
            self.open -= 1
        file.close()
        sock.close()

    def one(self, sock, args):
        if args[0][:4].upper() != b'EVAL':
            reply = self.login(args) if callable(self.login) else self.login
        elif is_list(args):       # a gateway counts in background
            reply = empty_list(args)
        else:
            self.scripts += 1
            reply = self.reply(args) if callable(self.reply) else self.reply
        if reply is NOTHING:
            return True
        if reply is CLOSE or reply is RESET:
            if reply is RESET:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                struct.pack('ii', 1, 0))
            return False
        for part in reply if isinstance(reply, list) else [reply]:
            if part is RESET or part is CLOSE:
                return False
            if isinstance(part, bytes):
                sock.sendall(part)
            else:
                time.sleep(part)
        return True
