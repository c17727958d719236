"""A wall clock that a test sets while nginx runs; the other one goes on.

    clock = WallClock()         builds the shim, before any nginx
    clock.set(-3600)            an hour ago, from now on
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


class WallClock:
    def __init__(self):
        os.makedirs(BUILD, exist_ok=True)
        self.root = tempfile.mkdtemp(prefix='wallclock-', dir=BUILD)
        atexit.register(shutil.rmtree, self.root, True)
        shim = self.root + '/wallclock.so'
        subprocess.run(['cc', '-shared', '-fPIC', '-O1', '-Wall', '-Wextra',
                        '-Werror', '-o', shim, HERE + '/wallclock.c'],
                       check=True)
        with open(self.root + '/offset', 'wb+') as f:
            f.write(bytes(8))
            f.flush()
            self.offset = mmap.mmap(f.fileno(), 8)
        os.environ['LD_PRELOAD'] = shim
        os.environ['WALL_CLOCK_FILE'] = self.root + '/offset'
        options = os.environ.get('ASAN_OPTIONS')
        os.environ['ASAN_OPTIONS'] = ','.join(
            filter(None, [options, 'verify_asan_link_order=0']))

    def set(self, seconds):
        self.offset[0:8] = struct.pack('q', seconds)
