"""A library that is loaded before nginx and obeys bytes that are shared.

    control = preload('failmalloc', 40, 'FAIL_MALLOC_FILE', '-ldl')

Builds t/drive/NAME.c, before any nginx; the variable names the file of the
bytes to it.  shim() only builds it: for a process with its own environment.
"""

import atexit
import mmap
import os
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.dirname(os.path.dirname(HERE)) + '/build'


def shim(name, size, *libraries):
    """paths of the library and of the file, and the shared bytes"""
    os.makedirs(BUILD, exist_ok=True)
    root = tempfile.mkdtemp(prefix=name + '-', dir=BUILD)
    atexit.register(shutil.rmtree, root, True)
    # with frames, so that a sanitizer sees who has called
    subprocess.run(['cc', '-shared', '-fPIC', '-O1', '-g', '-Wall', '-Wextra',
                    '-Werror', '-fno-omit-frame-pointer',
                    '-fno-optimize-sibling-calls', '-o', root + '/shim.so',
                    '%s/%s.c' % (HERE, name), *libraries], check=True)
    with open(root + '/control', 'wb+') as f:
        f.write(bytes(size))
        f.flush()
        control = mmap.mmap(f.fileno(), size)
    return root + '/shim.so', root + '/control', control


def preload(name, size, variable, *libraries):
    library, path, control = shim(name, size, *libraries)
    os.environ['LD_PRELOAD'] = library
    os.environ[variable] = path
    # the shim stands before the sanitizer, and asks it
    os.environ['ASAN_OPTIONS'] = ','.join(
        filter(None, [os.environ.get('ASAN_OPTIONS'),
                      'verify_asan_link_order=0']))
    return control
