"""Memory that runs out at a chosen moment in a running worker.

    memory = FailMalloc()             builds the shim, before any nginx
    gw = Gateway(up)                  started with it: the environment is set
    memory.arm(pid, at=17)            the 17th allocation from now fails
    memory.arm(pid, at=1, every=10)   and then each tenth
    memory.disarm()                   how many have failed
    memory.seen                       allocations counted since arm()
"""

import atexit
import mmap
import os
import shutil
import struct
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.dirname(os.path.dirname(HERE)) + '/build'


class FailMalloc:
    def __init__(self):
        os.makedirs(BUILD, exist_ok=True)
        self.root = tempfile.mkdtemp(prefix='failmalloc-', dir=BUILD)
        atexit.register(shutil.rmtree, self.root, True)
        shim = self.root + '/failmalloc.so'
        # with frames, so that a sanitizer sees who has called
        subprocess.run(['cc', '-shared', '-fPIC', '-O1', '-g', '-Wall',
                        '-Wextra', '-Werror', '-fno-omit-frame-pointer',
                        '-fno-optimize-sibling-calls', '-o', shim,
                        HERE + '/failmalloc.c', '-ldl'], check=True)
        with open(self.root + '/control', 'wb+') as f:
            f.write(bytes(40))
            f.flush()
            self.control = mmap.mmap(f.fileno(), 40)
        os.environ['LD_PRELOAD'] = shim
        os.environ['FAIL_MALLOC_FILE'] = self.root + '/control'
        # the shim stands before the sanitizer, and asks it
        options = os.environ.get('ASAN_OPTIONS')
        os.environ['ASAN_OPTIONS'] = ','.join(
            filter(None, [options, 'verify_asan_link_order=0']))

    def arm(self, pid, at, every=0):
        self.control[0:40] = struct.pack('5q', 0, at, every, 0, 0)
        self.control[0:8] = struct.pack('q', pid)

    def disarm(self):
        self.control[0:8] = struct.pack('q', 0)
        return struct.unpack('q', self.control[32:40])[0]

    @property
    def seen(self):
        return struct.unpack('q', self.control[24:32])[0]
