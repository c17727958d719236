"""A redis-server with a clock of its own.

    clock = Clock(90)                 a minute and a half ahead
    server = Redis(clock=clock)
    clock.set(0), clock.set(-3600)    it jumps, while the server runs
    clock.shows(server)               how far ahead the server is, in seconds

Only the time of day jumps: timers of the server go on.  The shim is that of
wallclock.py, since libfaketime and jemalloc, which Debian's Redis is linked
with, wait for each other at the start.
"""

import os
import struct
import time

from preload import shim


class Clock:
    def __init__(self, ahead=0):
        self.library, self.path, self.offset = shim('wallclock', 8)
        self.set(ahead)

    def set(self, ahead):
        self.offset[0:8] = struct.pack('q', ahead)
        self.ahead = ahead

    def env(self):
        return dict(os.environ, LD_PRELOAD=self.library,
                    WALL_CLOCK_FILE=self.path)

    @staticmethod
    def shows(server):
        seconds, micro = (int(n) for n in server('TIME'))
        return seconds + micro / 1e6 - time.time()
