"""A gateway whose http{} is the text of a page; see pasted.py."""

from gateway import MODULE, Gateway
from pasted import frame, secrets


class Page(Gateway):
    def __init__(self, up, text):
        self.text = text
        super().__init__(up)

    def write(self, **changes):
        with open(self.root + '/nginx.conf', 'w') as f:
            f.write(frame(secrets(self.text, self.root), self.root, MODULE,
                          self.port, self.conf['up'],
                          self.default_store('1m'), 'info'))

    def send(self, path, key=None, body=b'x', **headers):
        """headers by their names, with _ for -"""
        return self.post(path, key, body, headers=[
            (name.replace('_', '-'), value)
            for name, value in headers.items()])
