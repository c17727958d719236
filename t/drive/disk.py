"""A disk that is recorded, slow, stuck or full, as disk.c says.

    disk = Disk(folder)                   what nginx does below this folder
    disk = Disk(folder, log=path)         and a record of it
    gw = Gateway(up, env=disk.env(), ...)
    disk.set('stall', 1)
    disk.get('stalled')
"""

import os
import struct

from preload import shim

FIELDS = 'delay', 'stall', 'full', 'broken', 'stalled', 'failed'
SIZE = 8 * len(FIELDS)


class Disk:
    def __init__(self, folder, log=None):
        self.library, self.path, self.control = shim('disk', SIZE, '-ldl')
        self.folder = folder
        self.log = log

    def env(self):
        more = dict(LD_PRELOAD=self.library, DISK_CONTROL=self.path,
                    DISK_DIR=self.folder)
        if self.log:
            more['DISK_LOG'] = self.log
        if 'ASAN_OPTIONS' in os.environ:
            more['ASAN_OPTIONS'] = (os.environ['ASAN_OPTIONS']
                                    + ',verify_asan_link_order=0')
        return dict(os.environ, **more)

    def set(self, field, value):
        at = 8 * FIELDS.index(field)
        self.control[at:at + 8] = struct.pack('q', value)

    def get(self, field):
        at = 8 * FIELDS.index(field)
        return struct.unpack('q', self.control[at:at + 8])[0]
