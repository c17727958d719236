"""Which redis-server the tests start, and what that one can do.

    SERVER                        the binary: TEST_REDIS_SERVER, or the system's
    can('acl'), VERSION >= (7,)   what it has
    known('--cluster-port', ...)  options, without those that it has not
    skipped('a user', 'acl')      True, and a skipped test in TAP, if it cannot
    skip_all('tls')               ends a test file that needs it

"make test-redis REDIS=/path/to/redis-server" runs the tests against another
binary, and prints at the end what was skipped for what reason.  All knowledge
about versions is in this file.
"""

import functools
import os
import re
import subprocess
import sys

import shm

SERVER = os.environ.get('TEST_REDIS_SERVER') or 'redis-server'

# what tests need: the version that has it, and what to call it
FEATURES = {
    'acl': ((6, 0), 'a user with rights of its own (ACL)'),
    'tls': ((6, 0), 'TLS'),
    'min-replicas': ((6, 0), 'min-replicas-to-write in scripts'),
    'failover': ((6, 2), 'FAILOVER'),
    'config-set': ((7, 0), 'CONFIG SET of several options at once'),
    'sharded': ((7, 0), 'sharded channels (SPUBLISH)'),
    'hostnames': ((7, 0), 'host names in a cluster'),
    'waitaof': ((7, 2), 'WAITAOF'),
}

# options that came later, or had another name before
SINCE = {
    'cluster-port': ((7, 0), None),
    'cluster-announce-hostname': ((7, 0), None),
    'cluster-preferred-endpoint-type': ((7, 0), None),
    'busy-reply-threshold': ((7, 0), 'lua-time-limit'),
}


def ask(*args):
    try:
        done = subprocess.run([SERVER, *args], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise SystemExit('Bail out! %s cannot be run: %s' % (SERVER, e))
    return done.stdout + done.stderr


def parse(text):
    """the product's name and version, of the output of --version"""
    found = re.match(r'(\S+) server v=(\d+)\.(\d+)\.(\d+)', text)
    if not found:
        raise SystemExit('Bail out! %s is no redis-server: %s'
                         % (SERVER, text[:200]))
    return found.group(1), tuple(int(n) for n in found.groups()[1:])


PRODUCT, VERSION = parse(ask('--version'))
NAME = '%s %d.%d.%d' % (PRODUCT, *VERSION)


@functools.lru_cache(None)
def built_with_tls():
    # with nothing to listen on it ends, but reads its options before
    return 'Bad directive' not in ask('--port', '0', '--tls-port', '0')


def lacks(feature):
    """why it cannot be tested with this server; None if it can"""
    since, name = FEATURES[feature]
    if VERSION < since:
        return '%s needs Redis %d.%d, this is %s' % (name, *since, NAME)
    if feature == 'tls' and not built_with_tls():
        return '%s was built without TLS' % NAME
    return None


def can(feature):
    return lacks(feature) is None


def known(*words):
    """Options of the command line, as this server knows them."""
    result, keep, option = [], True, ''
    for word in words:
        if word.startswith('--'):
            option = word
            since, before = SINCE.get(word[2:], ((0,), None))
            keep = VERSION >= since or before is not None
            if VERSION < since and before:
                word = '--' + before
        if keep and option in ('--replicaof', '--slaveof'):
            result += word.split()      # two words, before 7.0
        elif keep:
            result.append(word)
    return result


def bus_is_fixed():
    """The port of a cluster's bus is 10000 above that for clients."""
    return VERSION < SINCE['cluster-port'][0]


def note(name, reason):
    path = os.environ.get('TEST_REDIS_SKIPPED')
    if path:
        with open(path, 'a') as f:
            f.write('%s: %s: %s\n' % (os.path.basename(sys.argv[0]), name,
                                      reason))


def skipped(name, feature):
    reason = lacks(feature)
    if reason is None:
        return False
    note(name, reason)
    shm.count += 1
    print('ok %d - %s # SKIP %s' % (shm.count, name, reason), flush=True)
    return True


def skip_all(feature):
    reason = lacks(feature)
    if reason is not None:
        note('the whole file', reason)
        print('1..0 # SKIP ' + reason, flush=True)
        sys.exit(0)
