"""A disk that fails at a chosen moment, for the files of databases "*.db".

    disk = FaultyDisk()                 builds the shim, before any nginx
    disk.fails(WRITE, WAL, errno.ENOSPC)
    disk.holds(SYNC, WAL)               until disk.works()
    disk.stops(WRITE, WAL)              the process that comes first
    disk.seen(SYNC, WAL)                how many calls there were

SYNC are those of commits, OWN_SYNC those that SQLite makes of itself.
"""

import struct

from preload import preload

WRITE, SYNC, OWN_SYNC = 1, 2, 4
WAL, DATABASE, RESERVE = 1, 2, 4
ERROR, STOP, KILL, HOLD, SLOW = 1, 2, 3, 4, 5


class FaultyDisk:
    def __init__(self):
        self.control = preload('faultydisk', 39 * 8, 'FAULTY_DISK_FILE',
                               '-ldl')

    def _get(self, n):
        return struct.unpack_from('q', self.control, n * 8)[0]

    def _set(self, n, value):
        struct.pack_into('q', self.control, n * 8, value)

    def _meet(self, act, calls, files, value=0, times=0):
        self._set(0, 0)
        for n, v in (5, 0), (6, 0), (1, calls), (2, files), (3, value), \
                (4, times):
            self._set(n, v)
        self._set(0, act)

    def works(self):
        self._set(0, 0)

    def fails(self, calls, files, error, times=0):
        self._meet(ERROR, calls, files, error, times)

    def stops(self, calls, files):
        self._meet(STOP, calls, files, 0, 1)

    def kills(self, calls, files):
        self._meet(KILL, calls, files, 0, 1)

    def holds(self, calls, files):
        self._meet(HOLD, calls, files)

    def slow(self, calls, files, ms):
        self._meet(SLOW, calls, files, ms)

    @property
    def hits(self):
        return self._get(5)

    @property
    def pid(self):
        """of the process that has met it last"""
        return self._get(6)

    def seen(self, call, file):
        return self._get(7 + call * 5 + file)
