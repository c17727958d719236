"""A wall clock that a test sets while nginx runs; the other one goes on.

    clock = WallClock()         builds the shim, before any nginx
    clock.set(-3600)            an hour ago, from now on
"""

import struct

from preload import preload


class WallClock:
    def __init__(self):
        self.offset = preload('wallclock', 8, 'WALL_CLOCK_FILE')

    def set(self, seconds):
        self.offset[0:8] = struct.pack('q', seconds)
