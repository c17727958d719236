"""Loss of power: the files as they may be after it, from a record of disk.c.

    recording = Recording(path)
    for cut in recording.cuts(points):        points: see boundaries()
        cut.moment                            nothing later has happened
        cut.restore(folder, rng)

What was synced is there.  Of what was not, restore() keeps a random part, in
pieces of 512 bytes or of 4 KB, and without a generator nothing.  That a file
exists, or no longer does, is known for sure when its folder was synced; until
then any beginning of what happened in the folder may be there.
"""

import os
import struct

RECORD = struct.Struct('<qqqiiq')


class File:
    def __init__(self):
        self.durable = bytearray()
        self.pending = []         # (position, offset, data; None: truncated)

    def sync(self, position):
        """What was written before this position is on the disk."""
        while self.pending and self.pending[0][0] < position:
            apply(self.durable, *self.pending.pop(0)[1:])

    def content(self, rng, size, share):
        data = bytearray(self.durable)
        for _, offset, piece in self.pending:
            if rng is None:
                break
            if piece is None:
                if rng.random() < share:
                    apply(data, offset, None)
                continue
            for at in range(0, len(piece), size):
                if rng.random() < share:
                    apply(data, offset + at, piece[at:at + size])
        return data


def apply(data, offset, piece):
    if piece is None:
        del data[offset:]
        data.extend(bytes(offset - len(data)))
        return
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset:offset + len(piece)] = piece


class Cut:
    def __init__(self, recording, moment):
        self.recording = recording
        self.moment = moment

    def restore(self, folder, rng=None):
        """Bytes that were written and not synced."""
        r = self.recording
        size = rng.choice((512, 4096)) if rng else 0
        share = rng.choice((0.1, 0.5, 0.9, 1)) if rng else 0
        happened = r.synced_names + (
            rng.randint(0, len(r.names) - r.synced_names) if rng else 0)
        there = {}
        for name, file in r.names[:happened]:
            there[name] = file
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for name in os.listdir(folder):
            os.unlink(folder + '/' + name)
        for name, file in there.items():
            if file:
                with open(folder + '/' + name, 'wb') as f:
                    f.write(file.content(rng, size, share))
                os.chmod(folder + '/' + name, 0o600)
        return sum(len(piece or b'') for file in there.values() if file
                   for _, _, piece in file.pending)


class Recording:
    def __init__(self, path):
        self.records = []
        with open(path, 'rb') as f:
            while True:
                head = f.read(RECORD.size)
                if len(head) < RECORD.size:
                    break
                t, file, offset, kind, thread, n = RECORD.unpack(head)
                self.records.append((t / 1e9, chr(kind), file, offset, thread,
                                     f.read(n)))
        self.names = []           # (name, its file or None), as it happened
        self.synced_names = 0
        self.of_name = {}
        self.of_inode = {}
        self.began = {}           # by thread: where its sync began

    def boundaries(self):
        """Just before and just after each sync that came to its end."""
        ends = [i for i, r in enumerate(self.records) if r[1] == 'E']
        return sorted({at for i in ends for at in (i, i + 1)})

    def cuts(self, points):
        """Cuts before the records of these numbers, which must rise; once."""
        at = 0
        for point in points:
            while at < point:
                self.play(at, *self.records[at][1:])
                at += 1
            yield Cut(self, self.records[at][0] if at < len(self.records)
                      else float('inf'))

    def play(self, position, kind, inode, offset, thread, data):
        if kind == 'O':
            name = data.decode()
            if self.of_name.get(name) is None:
                self.of_name[name] = File()
                self.names.append((name, self.of_name[name]))
            self.of_inode[inode] = self.of_name[name]
            if offset:            # O_TRUNC
                self.of_inode[inode].pending.append((position, 0, None))
        elif kind == 'U':
            name = data.decode()
            self.of_name[name] = None
            self.names.append((name, None))
        elif kind == 'W':
            self.of_inode[inode].pending.append((position, offset, data))
        elif kind == 'T':
            self.of_inode[inode].pending.append((position, offset, None))
        elif kind == 'B':
            self.began[thread] = position, len(self.names)
        elif kind == 'E':
            began, names = self.began.pop(thread)
            if inode:
                self.of_inode[inode].sync(began)
            else:
                self.synced_names = max(self.synced_names, names)
