"""Memory that runs out at a chosen moment in a running worker.

    memory = FailMalloc()             builds the shim, before any nginx
    gw = Gateway(up)                  started with it: the environment is set
    memory.arm(pid, at=17)            the 17th allocation from now fails
    memory.arm(pid, at=1, every=10)   and then each tenth
    memory.disarm()                   how many have failed
    memory.seen                       allocations counted since arm()
"""

import struct

from preload import preload


class FailMalloc:
    def __init__(self):
        self.control = preload('failmalloc', 40, 'FAIL_MALLOC_FILE', '-ldl')

    def arm(self, pid, at, every=0):
        self.control[0:40] = struct.pack('5q', 0, at, every, 0, 0)
        self.control[0:8] = struct.pack('q', pid)

    def disarm(self):
        self.control[0:8] = struct.pack('q', 0)
        return struct.unpack('q', self.control[32:40])[0]

    @property
    def seen(self):
        return struct.unpack('q', self.control[24:32])[0]
