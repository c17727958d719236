"""Configurations of pages and examples, made to run here: with a folder, a
port, and an upstream of their own, and not changed otherwise.
"""

import os
import re

TEMP = ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi')


def frame(text, root, module, port=8080, up=9000, store=None):
    """All of a configuration whose http{} is this text."""
    text = text.replace('listen 8080;', 'listen 127.0.0.1:%d;' % port)
    text = text.replace('127.0.0.1:9000', '127.0.0.1:%d' % up)
    if store is not None:
        text = re.sub(r'^(\s*idempotency_store +\S+ +)shm:\w+',
                      r'\g<1>' + store, text, flags=re.M)
    text = text.replace('http {\n', 'http {\n    access_log off;\n' + ''.join(
        '    %s_temp_path %s/%s;\n' % (name, root, name) for name in TEMP), 1)
    return ('load_module %s;\n%serror_log %s/error.log notice;\n'
            'pid %s/nginx.pid;\nworker_processes 2;\nevents { }\n%s'
            % (module, 'user root;\n' if os.getuid() == 0 else '', root, root,
               text))
