"""Random configurations that nginx accepts, and what they ask the module for.

    config = generate(seed)
    config.render(...)            nginx.conf text of one server, or without
                                  the module's directives: the reference
    config.policy(path, method)   what protects a request that went this way

A configuration is a tree of blocks and lines, so that a line or a block can
be left out: see shrink.py.  Everything the checker has to know is read from
that tree again.
"""

import random
import re

TIMEOUT = '1s'            # of nginx, for an upstream that does not answer

# what profiles keep, and what they release: see docs/reference/directives.md
FINAL = {'ietf': (*range(200, 500), 500, 501), 'stripe': range(200, 600),
         'acp': range(200, 500)}
RETRYABLE = {'ietf': (401, 403, 407, 408, 425, 429, 503), 'stripe': (),
             'acp': (401, 403, 407, 408, 425, 429, *range(500, 600))}

# what may refuse a request
ACCESS = ('auth_basic', 'auth_request', 'deny', 'limit_req', 'limit_conn')

# what tells who somebody is
AUTH = ('auth_basic', 'auth_request')

# what is never left out, of a server and of a location
SERVER = ('listen LISTEN;', 'listen LISTEN2;', 'server_name NAME;',
          'root ROOT/html;')
OVERTAKEN = ['idempotency_lease 1s;', 'idempotency_unknown retry;',
             'idempotency_failpoint $http_x_fail;']
NO_PAGES = 'error_page 418 /none;'        # nor those of the server
VIA = 'set $via "$via>%s";'


class Block:
    """name: of a location, to be told to upstreams"""

    def __init__(self, head, items=(), name=None):
        self.head = head
        self.items = list(items)
        self.name = name

    def copy(self):
        return Block(self.head, [i.copy() if isinstance(i, Block) else i
                                 for i in self.items], self.name)

    def lines(self, module, depth=0):
        blank = '    ' * depth
        yield blank + self.head + ' {'
        if self.head == 'server':
            for line in SERVER:
                yield blank + '    ' + line
        if self.name:
            yield blank + '    ' + VIA % self.name
        for item in self.items:
            if isinstance(item, Block):
                yield from item.lines(module, depth + 1)
            elif module or not item.startswith('idempotency'):
                yield blank + '    ' + item
        yield blank + '}'

    def own(self, directive):
        """The value here, or None."""
        for item in self.items:
            if isinstance(item, str) and item.startswith(directive + ' '):
                return item[len(directive) + 1:].rstrip(';').strip()
        return None

    def text(self):
        return '\n'.join(self.lines(True))


class Config:
    def __init__(self, seed, groups, server, http, entries):
        self.seed = seed
        self.groups = groups      # upstream{} blocks
        self.server = server
        self.http = http          # lines of http{} that all servers share
        self.entries = entries    # [(path, methods)] that clients ask for

    def copy(self):
        return Config(self.seed, [g.copy() for g in self.groups],
                      self.server.copy(), list(self.http), self.entries)

    def render(self, host, module=True, open_to_all=False):
        """As text; open_to_all: no limits or caches, all servers live."""
        groups = [line for g in self.groups for line in g.lines(module)]
        lines = list(self.server.lines(module))
        if open_to_all:
            groups = [re.sub(r'server (DEAD|\S*deaf.sock)[^;]*',
                             'server unix:SOCK/h0.sock', line).replace(
                                 '.sock;', '.sock max_fails=0;')
                      for line in groups]
            lines = [line for line in lines if not re.search(
                r'^ *(limit_(req|conn) |[a-z]+_cache)', line)]
        return '\n'.join(groups + lines).replace('NAME', host)

    def unsteady(self):
        """Whether the same request may get on, or not."""
        return self.has('limit_') or any(
            'DEAD' in g.text() or 'deaf' in g.text()
            or 'max_fails' not in g.text() for g in self.groups)

    def has(self, text):
        return any(text in b.text() for b in self.groups + [self.server])

    def side_door(self):
        """Whether a limit sends some requests past the access checks."""
        return self.has('limit_') and any(
            line.startswith('error_page') and ('503' in line or '429' in line)
            for block in self.blocks() for line in block.items
            if isinstance(line, str))

    def stops_auth(self):
        """Whether error pages answer an auth_request, but for the module."""
        return self.server.own('error_page') and any(
            b.name == 'aux_auth' and b.own('proxy_pass') == 'http://GONE'
            and not b.own('error_page') for b in self.blocks())

    def blocks(self):
        def walk(block):
            yield block
            for item in block.items:
                if isinstance(item, Block):
                    yield from walk(item)
        return walk(self.server)

    def caches(self):
        """[the cache key, or None for nginx's own]"""
        return [block.own(kind + '_cache_key') for block in self.blocks()
                for kind in ('proxy', 'fastcgi')
                if block.own(kind + '_cache')]

    def shared_cache(self):
        """Whether somebody may get the answer to another one's request."""
        return any('$http_idempotency_key' not in (key or '')
                   for key in self.caches())

    # what the module is asked for

    def chain(self, name):
        """The blocks from the location of that name outwards."""
        def find(block, outer):
            inner = [block] + outer
            if name and block.name == name:
                return inner
            for item in block.items:
                if isinstance(item, Block):
                    found = find(item, inner)
                    if found:
                        return found
            return None
        return find(self.server, []) or [self.server]

    def last(self, path):
        """The location where a request has arrived.

        The path is empty in a limit_except block, where "set" is not run.
        """
        return self.chain(path[-1] if path else None)[0]

    def value(self, name, directive, default):
        for block in self.chain(name) + [Block('http', self.http)]:
            found = block.own(directive)
            if found is not None:
                return found
        return default

    def policy(self, path, method):
        """The name of the location whose directives count, or None.

        path: names of the locations that the request has visited; it is the
        last one, if that is protected, or else the last one that is.
        """
        for name in reversed([p for p in path if not p.startswith('aux')]):
            if self.value(name, 'idempotency', 'off') != 'off' \
                    and method in self.value(name, 'idempotency_methods',
                                             'POST PATCH').split():
                return name
        return None

    def gives_up(self, path, method):
        """Whether such a request is not protected, by its configuration."""
        name = self.policy(path, method)
        return name is None \
            or self.value(name, 'idempotency_dry_run', 'off') == 'on'

    def mingled(self, path):
        """Whether locations of a mirror's error page may be in the path.

        Subrequests have the variables of the main request.
        """
        return 'aux_mirror' in path[:-1] \
            and not self.chain('aux_mirror')[0].own('error_page')

    def needs_key(self, path, method):
        name = self.policy(path, method)
        if name is None:
            return False
        stripe = self.value(name, 'idempotency_profile', 'ietf') == 'stripe'
        return self.value(name, 'idempotency_required',
                          'off' if stripe else 'on') == 'on'

    def identity(self, path, method):
        """What tells one operation from another, besides the key.

        Where locations differ in it, an operation that is sent through one
        and then through the other is two.
        """
        return self.own_identity(self.policy(path, method))

    def refusals(self, path):
        """Whether a location may have refused what the last one gets.

        Then nothing that is known already is given out, unless that one
        finds out itself who it is.
        """
        return not self.authenticates(path) and any(
            self.value(name, directive, 'off') != 'off'
            for name in path[:-1] for directive in ACCESS)

    def authenticates(self, path):
        return any(self.value(path[-1], directive, 'off') != 'off'
                   for directive in AUTH)

    def barred_by(self, path, method, right, surely=True):
        """The protected location on the way that has refused the request.

        Not where the last one authenticates it.  What is not surely refused
        may be refused, as nginx does not tell.
        """
        path = [p for p in path if not p.startswith('aux')]
        if not path or self.authenticates(path):
            return None
        for name in path[:-1]:
            if self.policy([name], method) and self.refuses(name, right,
                                                            surely):
                return name
        return None

    def refuses(self, name, right, surely):
        """Whether access to a location ends with 401 or 403."""
        block = self.chain(name)[0]
        if block.own('return') or (block.own('rewrite') or '').endswith(
                ' last'):
            return False          # before its access is checked
        checks = []
        for b in self.chain(name):
            if b.own('allow') or b.own('deny'):
                checks.append(bool(b.own('allow')))
                break
        if self.value(name, 'auth_basic', 'off') != 'off':
            checks.append(right)
        asked = self.value(name, 'auth_request', 'off')
        if asked.endswith(('500', 'down')):
            # it is 500, which may have the same page
            return not surely and any(
                re.match(r'error_page [0-9 ]*(401|403)', line)
                for b in self.chain(name) for line in b.items
                if isinstance(line, str))
        if asked != 'off':
            checks.append(right and asked.endswith('check'))
        if not checks:
            return False
        if self.value(name, 'satisfy', 'all') == 'any':
            return not any(checks)
        return not all(checks)

    def retries(self, path):
        """Whether an unknown outcome is executed again."""
        return any(self.value(name, 'idempotency_unknown', 'hold') == 'retry'
                   for name in path or [None])

    def mixed(self, path):
        """Whether it depends on more than the path who has claimed the key.

        A location with a dead upstream claims it, and error_page goes on with
        that claim; where a limit has refused the request first, the location
        of the error page claims it.
        """
        return self.unsteady() and len({
            self.own_identity(name) for name in path
            if not name.startswith('aux')}) > 1

    def own_identity(self, name):
        stripe = self.value(name, 'idempotency_profile', 'ietf') == 'stripe'
        return (self.value(name, 'idempotency_source', ''),
                self.value(name, 'idempotency_scope',
                           '' if stripe else 'method and path'))

    def released(self, path, method, status):
        name = self.policy(path, method)
        return status in RETRYABLE[
            self.value(name, 'idempotency_profile', 'ietf')]

    def kept(self, path, method, status):
        name = self.policy(path, method)
        return status in FINAL[
            self.value(name, 'idempotency_profile', 'ietf')] \
            and not self.released(path, method, status)


def http_lines(rng):
    """What all servers of one nginx inherit."""
    lines = ['idempotency_source $remote_user;']
    if rng.random() < 0.25:
        lines.append('idempotency main;')
    if rng.random() < 0.1:
        lines.append('idempotency_methods POST PATCH PUT DELETE;')
    return lines


def generate(seed, http):
    return Maker(random.Random(seed), seed, http).config()


class Maker:
    def __init__(self, rng, seed, http):
        self.rng = rng
        self.seed = seed
        self.http = http
        self.groups = []
        self.helpers = {}         # aux locations that are in use
        self.named = []           # names with "@"
        self.uris = []            # of content locations
        self.entries = []
        self.count = 0
        self.backup = 0.45        # how likely the server has error pages

    def maybe(self, p):
        return self.rng.random() < p

    def pick(self, *choices):
        return self.rng.choice(choices)

    def weighted(self, **weights):
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def name(self):
        self.count += 1
        return 'L%d' % self.count

    # upstreams

    def group(self):
        if self.groups and self.maybe(0.4):
            return self.rng.choice(self.groups).head.split()[1]
        peers = self.rng.choices(
            ['unix:SOCK/h0.sock', 'unix:SOCK/h1.sock', 'unix:SOCK/h2.sock',
             'DEAD', 'unix:SOCK/deaf.sock'], [6, 4, 3, 2, 1],
            k=self.pick(1, 1, 2, 2, 3))
        fails = ' max_fails=0' if self.maybe(0.8) else ''
        items = ['server %s%s;' % (p, fails) for p in peers]
        if len(peers) > 1 and self.maybe(0.2):
            items[-1] = items[-1].replace(';', ' backup;')
        if self.maybe(0.4):
            items.append('keepalive 4;')
        block = Block('upstream NAME_%d' % len(self.groups), items)
        self.groups.append(block)
        return block.head.split()[1]

    def handler(self, plain=True):
        """Lines of a content handler; plain: a URI may follow proxy_pass."""
        kind = self.weighted(proxy=11, fastcgi=1.5, uwsgi=1, scgi=1, grpc=1,
                             tls=0.7)
        if kind == 'tls':
            # nginx keeps a session to the end, and never frees it
            return ['proxy_pass https://unix:SOCK/tls.sock;',
                    'proxy_ssl_session_reuse off;'] + self.buffering('proxy')
        if kind != 'proxy':
            socket = {'fastcgi': 'fcgi'}.get(kind, kind)
            lines = ['%s_pass unix:SOCK/%s.sock;' % (kind, socket)]
            if kind == 'grpc':
                lines = ['grpc_pass grpc://unix:SOCK/grpc.sock;']
            if kind != 'grpc':
                lines += self.buffering(kind)
            if kind == 'fastcgi':
                lines += self.cache('fastcgi', 0.15)
            return lines
        uri = '/up/' if plain and self.maybe(0.15) else ''
        lines = ['proxy_pass http://%s%s;' % (self.group(), uri)]
        lines += self.buffering('proxy')
        if self.maybe(0.35):
            lines.append('proxy_next_upstream %s;' % ' '.join(
                self.rng.sample(['error', 'timeout', 'invalid_header',
                                 'http_500', 'http_502', 'http_503',
                                 'http_504', 'http_404', 'http_429'],
                                self.pick(1, 2, 3, 5))))
        if self.maybe(0.12):
            lines.append('proxy_intercept_errors on;')
        if self.maybe(0.1):
            lines.append('proxy_ignore_client_abort on;')
        return lines + self.cache('proxy', 0.25)

    def buffering(self, kind):
        return ['%s_%s off;' % (kind, what)
                for what in ('buffering', 'request_buffering')
                if self.maybe(0.15)]

    def cache(self, kind, p):
        if not self.maybe(p):
            return []
        own = '$http_idempotency_key$remote_user' if self.maybe(0.6) else ''
        lines = ['%s_cache %s;' % (kind, kind),
                 '%s_cache_key "$server_name$uri%s";' % (kind, own),
                 '%s_cache_valid any 10m;' % kind,
                 'add_header X-Cache $upstream_cache_status always;']
        if self.maybe(0.8):
            lines.append('%s_cache_methods GET HEAD POST;' % kind)
        if self.maybe(0.3):
            lines += ['%s_cache_lock on;' % kind,
                      '%s_cache_lock_timeout 300ms;' % kind]
        if self.maybe(0.5):
            lines.append('%s_cache_use_stale error timeout invalid_header '
                         'updating http_500 http_503%s;'
                         % (kind, '' if kind == 'fastcgi'
                            else ' http_502 http_504'))
        # a protected location with both is refused
        if self.maybe(0.1) and '%s_cache_methods GET HEAD POST;' % kind \
                not in lines:
            lines.append('%s_cache_background_update on;' % kind)
        return lines

    # what a location says besides

    def access(self, p=0.45):
        if not self.maybe(p):
            return []
        lines = []
        basic = ['auth_basic closed;', 'auth_basic_user_file ROOT/users;']
        kind = self.weighted(basic=5, request=4, deny=1, any=2, all=1)
        if kind in ('basic', 'any', 'all'):
            lines += basic
        if kind == 'request' or kind in ('any', 'all') and self.maybe(0.3):
            lines.append('auth_request %s;' % self.auth())
            if self.maybe(0.3):
                lines += ['auth_request_set $who $upstream_http_x_user;',
                          'idempotency_source "$who$remote_user";']
        if kind == 'deny':
            lines += [self.pick('deny all;', 'allow 127.0.0.1;')]
        if kind == 'all':
            lines += ['satisfy all;', 'allow 127.0.0.1;', 'deny all;']
        if kind == 'any':
            lines += ['satisfy any;', 'deny all;']
        return lines

    def auth(self):
        mode = self.weighted(check=6, s401=1, s500=2, down=2)
        uri = '/aux_auth_' + mode
        where = 'http://GONE' if mode == 'down' else \
            'http://unix:SOCK/auth.sock:/auth/' + mode.lstrip('s')
        lines = ['internal;', 'proxy_pass_request_body off;',
                 'proxy_set_header Content-Length "";',
                 'proxy_pass %s;' % where]
        if self.maybe(0.7):
            lines.append(NO_PAGES)
        self.helpers.setdefault(uri, Block('location = ' + uri, lines,
                                           'aux_auth'))
        return uri

    def probe(self):
        uri = '/aux_probe'
        if uri not in self.helpers:
            where = self.weighted(truth=6, s500=1, s202=1, dead=3, deaf=1)
            if where == 'dead':
                self.backup = 0.8
            where = {'dead': 'http://DEAD/probe/truth',
                     'deaf': 'http://unix:SOCK/deaf.sock:/probe/truth'}.get(
                where, 'http://unix:SOCK/h0.sock:/probe/'
                + where.lstrip('s'))
            self.helpers[uri] = Block('location = ' + uri, [
                'internal;', 'proxy_method GET;',
                'proxy_pass %s;' % where] + self.cache('proxy', 0.4),
                'aux_probe')
        return uri

    def policies(self, level):
        """level: how likely a location speaks up at all"""
        lines = []
        if not self.maybe(level):
            return lines
        on = self.weighted(on=6, off=1, same=6)
        if on == 'off':
            return ['idempotency off;']
        if on == 'on':
            lines.append('idempotency main;')
        for p, line in (
                (0.15, 'idempotency_dry_run on;'),
                (0.15, 'idempotency_required off;'),
                (0.12, 'idempotency_profile stripe;'),
                (0.1, 'idempotency_profile acp;'),
                (0.12, 'idempotency_in_progress wait=300ms;'),
                (0.08, 'idempotency_scope "$server_name";'),
                (0.08, 'idempotency_source $http_x_user;'),
                (0.1, 'idempotency_methods POST PUT DELETE;'),
                (0.06, 'idempotency_methods POST HEAD GET;')):
            if self.maybe(p) and not any(
                    line.split()[0] == other.split()[0] for other in lines):
                lines.append(line)
        if self.maybe(0.3):
            lines.append('idempotency_unknown probe=%s;' % self.probe())
        elif self.maybe(0.08):
            lines.append('idempotency_unknown retry;')
        return lines

    def error_page(self, codes=None):
        codes = codes or self.pick(
            '502 503 504', '502 504', '500 502 503 504', '500', '404 405',
            '401', '403', '409', '422', '503', '429 503')
        form = self.pick('', '', '= ', '= ', '= ', '=202 ', '=500 ')
        target = self.rng.choice(self.named + ['/aux_page'] + self.uris[:1])
        if target == '/aux_page':
            self.helpers[target] = Block('location = ' + target, [
                self.pick('return 200 "page";',
                          'proxy_pass http://unix:SOCK/h0.sock:/page;')],
                'aux_page')
        return 'error_page %s %s%s;' % (codes, form, target)

    def decorate(self, items, level=0.35, p=0.45):
        items += self.access(p)
        items += self.policies(level)
        if self.maybe(0.85):
            items.append('add_header X-Loc LOC always;')
        if self.maybe(0.3):
            items.append(self.error_page())
        if self.maybe(0.15):
            items.append('recursive_error_pages on;')
        if self.maybe(0.06):
            items.append('limit_req zone=req burst=1 nodelay;')
        if self.maybe(0.05):
            items.append('limit_conn conn 1;')
        if self.maybe(0.12):
            items += ['gzip on;', 'gzip_min_length 1;', 'gzip_types *;']
        if self.maybe(0.1):
            items.append('ssi on;')
        if self.maybe(0.08):
            items.append(self.condition())
        if self.maybe(0.08):
            items.append('mirror %s;' % self.mirror())
        return items

    def mirror(self):
        uri = '/aux_mirror'
        if uri not in self.helpers:
            where = self.weighted(up=3, gone=1)
            lines = ['internal;', 'proxy_pass http://%s;' % {
                'up': 'unix:SOCK/mirror.sock:/mirror'}.get(where, 'GONE'),
                'proxy_read_timeout 10s;']
            if where == 'up' or self.maybe(0.3):
                lines.append(NO_PAGES)
            else:
                self.backup = 0.8
            self.helpers[uri] = Block('location = ' + uri, lines,
                                      'aux_mirror')
        return uri

    def condition(self):
        """A location of its own, which inherits the content handler."""
        return Block(self.pick('if ($request_method != GET)',
                               'if ($http_idempotency_key)'),
                     [self.pick('set $condition 1;',
                                'add_header X-Loc LOCif always;')])

    def location(self, head, items):
        name = self.name()
        items = [i.replace('LOC', name) if isinstance(i, str) else i
                 for i in items]
        for i in items:
            if isinstance(i, Block) and i.head.startswith('if'):
                i.items = [line.replace('LOC', name) for line in i.items]
        return Block('location ' + head, items, name)

    # locations

    def contents(self):
        """Locations with a handler of their own."""
        found = []
        for n in range(self.pick(1, 1, 2)):
            self.named.append('@n%d' % n)
        for n, named in enumerate(self.named):
            found.append(self.location(named, self.decorate(
                self.handler(plain=False))))
        for n in range(self.pick(1, 1, 2)):
            kind = self.weighted(prefix=5, exact=2, regex=2, nested=2,
                                 put=1, dav=0.7, small=0.7)
            found.append(getattr(self, 'content_' + kind)('/c%d' % n))
        return found

    def entry(self, path, *methods):
        self.entries.append((path, methods or ('POST',)))

    def content_prefix(self, uri):
        self.uris.append(uri + '/x')
        self.entry(uri + '/op')
        return self.location(uri + '/', self.decorate(self.handler()))

    def content_exact(self, uri):
        self.uris.append(uri)
        self.entry(uri)
        return self.location('= ' + uri, self.decorate(self.handler()))

    def content_regex(self, uri):
        self.uris.append(uri + '.php')
        self.entry(uri + '.php')
        return self.location('~ ^%s.*\\.php$' % uri, self.decorate(
            self.handler(plain=False)))

    def content_nested(self, uri):
        self.uris.append(uri + '/in/x')
        self.entry(uri + '/in/op')
        inner = self.location(uri + '/in/', self.decorate(self.handler()))
        return self.location(uri + '/', self.decorate([inner]))

    def content_put(self, uri):
        self.entry(uri + '/op', 'PUT', 'DELETE', 'POST')
        items = self.decorate(self.handler(), level=0.2)
        if self.maybe(0.6):
            items = [i for i in items if not str(i).startswith(
                'idempotency_methods')]
            items.append('idempotency_methods PUT DELETE POST;')
        if self.maybe(0.4):
            items.append(Block('limit_except PUT POST', ['deny all;']))
        return self.location(uri + '/', items)

    def content_dav(self, uri):
        self.entry(uri + '/op', 'PUT', 'DELETE')
        return self.location(uri + '/', self.decorate(
            ['root ROOT/dav;', 'create_full_put_path on;',
             'dav_methods PUT DELETE;',
             'idempotency_methods PUT DELETE;'], level=0))

    def content_small(self, uri):
        self.entry(uri, 'HEAD', 'GET')
        return self.location('= ' + uri, self.decorate(
            [self.pick('empty_gif;', 'stub_status;',
                       'proxy_pass http://unix:SOCK/h0.sock;'),
             'idempotency_methods GET HEAD;'], level=0))

    def router(self, n):
        """A location that leads to another one."""
        uri = '/r%d' % n
        self.entry(uri + '/op')
        named = self.rng.choice(self.named)
        where = self.rng.choice(self.named + self.uris)
        kind = self.weighted(try_files=6, static=3, code=3, rewrite=2,
                             rewrite_break=1, index=2, auth_down=2)
        head, lines = uri + '/', []
        if kind == 'try_files':
            lines = ['try_files $uri %s;' % where]
            if self.maybe(0.15):
                lines = ['try_files $uri =404;',
                         'error_page 404 405 = %s;' % named]
            if self.maybe(0.3):
                lines += self.handler(plain=False)
        elif kind == 'static':
            lines = ['error_page 404 405 = %s;' % named]
        elif kind == 'code':
            lines = ['error_page 418 = %s;' % named, 'return 418;']
        elif kind == 'rewrite' and self.uris:
            lines = ['rewrite ^ %s last;' % self.rng.choice(self.uris)]
        elif kind == 'rewrite_break':
            lines = ['rewrite ^ /broken break;'] + self.handler(plain=False)
        elif kind == 'index':
            self.entries[-1] = '/dir/', ('POST',)
            head = '/dir/'
            lines = ['index index.php;', 'error_page 404 405 = ' + named]
            lines[1] += ';'
        elif kind == 'auth_down':
            lines = self.handler(plain=False)
            lines += ['auth_request %s;' % self.auth(),
                      self.error_page('500 502 503 504')]
            return self.location(head, self.decorate(lines, p=0))
        return self.location(head, self.decorate(lines, p=0.2))

    def config(self):
        locations = self.contents()
        used = set()
        for n in range(self.pick(1, 2, 2)):
            router = self.router(n)
            if router.head not in used:
                used.add(router.head)
                locations.append(router)
        if '/dir/' in [e[0] for e in self.entries] and self.maybe(0.7):
            locations.append(self.location(
                '~ ^/dir/.*\\.php$', self.decorate(self.handler(False))))
        server = []
        if self.maybe(0.85):
            server.append('idempotency main;')
        server += self.policies(0.3)
        server = list(dict.fromkeys(server))
        if len([i for i in server if i.startswith('idempotency ')]) > 1:
            server.remove('idempotency main;')
        if self.maybe(0.2) and not any('_unknown' in i for i in server):
            server.append('idempotency_unknown probe=%s;' % self.probe())
        if self.maybe(0.05):
            server = [i for i in server if '_unknown' not in i] + OVERTAKEN
        if self.maybe(self.backup):
            server.append(self.error_page(self.pick(None, '502 503 504')))
        if self.maybe(0.12):
            server += self.access(1)
        if self.maybe(0.1):
            server.append('recursive_error_pages on;')
        self.helpers['inc'] = Block('location = /aux_inc',
                                    ['return 200 "included";'], 'aux_inc')
        blocks = locations + list(self.helpers.values())
        return Config(self.seed, self.groups,
                      Block('server', server + blocks), self.http,
                      self.entries)
