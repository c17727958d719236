"""The rows of the tables: what is measured, and beside what.

A feature that changes what a request costs adds its row to ROWS; with
module() that is one entry, and it is measured as first request and as replay:

    *module('Redis, TCP, json fingerprint', TCP,
            'idempotency_fingerprint json;'),
"""

import dataclasses
import re

import load
import rig
import servers

TCP = 'redis://127.0.0.1:%(port)d/%(db)d timeout=10s'
UNIX = 'redis+unix://%(socket)s?db=%(db)d timeout=10s'
TLS = ('rediss://127.0.0.1:%(tls)d/%(db)d timeout=10s '
       'ssl_trusted_certificate=%(ca)s ssl_name=localhost')

SQLITE = 'sqlite:%(folder)s/keys.db timeout=10s'

BARE = 'bare proxy_pass'
EXPRESS = 'Express'
LUA = 'Lua gateway'

PROXY = '''
            proxy_pass http://upstream;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
'''

PROTECTED = '''
            idempotency pay;
            idempotency_source $http_authorization;
            idempotency_max_response 2m;
'''

# old keys expire, as in a zone that has been there for a day: memory that is
# new to the machine has to be cleared first
DAILY = 'idempotency_ttl 1s; '

# the buffers are so large that no body goes to a file
GATEWAY = '''
    upstream upstream {
        server 127.0.0.1:%(back)d;
        keepalive 128;
        keepalive_requests 1000000000;
        keepalive_timeout 3600s;
    }
%(http)s
    server {
        listen 127.0.0.1:%(port)d;
        client_max_body_size 4m;
        client_body_buffer_size 2m;
        proxy_max_temp_file_size 0;
        location / {%(location)s        }
%(server)s    }
'''

EXERCISE = '        location = /exercise { idempotency_exercise pay; }\n'

# a claim is one command: the key is set, or what it holds comes back
LUA_LOCATION = '''
            lua_socket_pool_size 1024;
            content_by_lua_block {
                local redis = require "nginx.redis"
                local key = ngx.var.http_idempotency_key
                if not key then
                    return ngx.exit(400)
                end
                key = "lua:" .. ngx.var.http_authorization .. ":" .. key
                local red = redis:new()
                red:set_timeout(10000)
                local ok, err = red:connect("127.0.0.1", %(port)d)
                if not ok then
                    return ngx.exit(503)
                end
                if red:get_reused_times() == 0 then
                    red:select(%(db)d)
                end
                local old, err = red:set(key, "executing", "NX", "EX", 86400,
                                         "GET")
                if not old then
                    return ngx.exit(503)
                end
                if old ~= ngx.null then
                    red:set_keepalive(60000, 1024)
                    local status, kind, body =
                        old:match("^(%%d+)\\n([^\\n]*)\\n(.*)$")
                    if not status then
                        return ngx.exit(409)
                    end
                    ngx.status = tonumber(status)
                    ngx.header["Content-Type"] = kind
                    ngx.header["Content-Length"] = #body
                    ngx.header["Idempotent-Replayed"] = "true"
                    ngx.print(body)
                    return
                end
                ngx.req.read_body()
                local res = ngx.location.capture("/upstream"
                                                 .. ngx.var.uri, {
                    method = ngx.HTTP_POST, always_forward_body = true })
                local kind = res.header["Content-Type"] or ""
                local ok, err = red:set(key, res.status .. "\\n" .. kind
                                        .. "\\n" .. res.body, "EX", 86400)
                if ok then
                    red:set_keepalive(60000, 1024)
                end
                ngx.status = res.status
                ngx.header["Content-Type"] = kind
                ngx.header["Content-Length"] = #res.body
                ngx.print(res.body)
            }
        }
        location /upstream/ {
            internal;
            # a captured answer has to fit into them
            proxy_buffers 256 8k;
            proxy_pass http://upstream/;
'''
LUA_MODULES = ['/usr/lib/nginx/modules/ndk_http_module.so',
               '/usr/lib/nginx/modules/ngx_http_lua_module.so']


class Subject:
    """A server under measurement, and how to look into it."""

    def __init__(self, parts, back, redis=None, db=None):
        self.parts = parts          # processes, the first one listens
        self.back = back            # the application
        self.port = parts[0].port
        self.executed = back.executed
        self.redis = redis
        self.db = db
        self.keep = False           # records are not forgotten

    def cpu(self):
        return rig.cpu([pid for part in self.parts for pid in part.pids()])

    def complaints(self):
        return [line for part in self.parts for line in part.complaints()]

    def stop(self):
        for part in (*self.parts, self.back):
            part.stop()

    def forget(self):
        if self.db is not None and not self.keep:
            self.redis.forget(self.db)


@dataclasses.dataclass
class Case:
    row: str
    kind: str                       # plain, first, replay
    start: object                   # of a Bench: a Subject
    control: str = BARE             # the case that it is compared with
    bound: float = None             # of its CPU time, times the control's
    many: float = None              # the same, with more than 32 connections
    lua: float = None               # of its requests/s, times the Lua one's
    executes: bool = True           # a plain one, whether anybody does
    zone: bool = False              # it has records in a zone
    module: bool = False            # it is ours
    marks: bool = True              # it tells that a replay is one
    size: int = 0                   # of the body, where nobody says another
    keys: int = 0                   # of its replays, the same
    stays: bool = False             # it is not started anew

    @property
    def name(self):
        if self.kind == 'plain':
            return self.row
        return '%s, %s' % (self.row, {'first': 'first request',
                                      'replay': 'replay'}[self.kind])

    @property
    def slug(self):
        return re.sub(r'[^a-z0-9]+', '-', self.name.lower()).strip('-')

    def expected(self, requests):
        """How many of them the application sees."""
        return requests if self.executes and self.kind != 'replay' else 0


def gateway(bench, case, back, location, http='', modules=(), server=''):
    port = rig.free_port()
    return rig.Nginx(case.slug, GATEWAY % {
        'back': back.port, 'port': port, 'http': http, 'location': location,
        'server': server}, modules, before=bench.before,
        workers=bench.workers,
        cores=rig.CORES if bench.workers > 1 else rig.SERVER_CORES
    ).start(port)


def upstream(bench, case):
    """An application of its own, so that it is known what it executes."""
    return servers.Upstream(case.slug + '-upstream', bench.answers)


def plain(row, location, **more):
    def start(bench, case):
        back = upstream(bench, case)
        return Subject([gateway(bench, case, back, location)], back)

    return Case(row, 'plain', start, **more)


def both(row, start, bounds=(None, None), **more):
    return [Case(row, kind, start, bound=bound, **more)
            for kind, bound in zip(('first', 'replay'), bounds)]


def module(row, store, location='', express=False, **more):
    """The module with this store, in front of nginx or of Express."""
    zone = store.startswith('shm:')
    durable = store.startswith('sqlite:')

    def start(bench, case, path=None, server=''):
        more = location
        if bench.before:            # counted: the same in each run
            more = more.replace(DAILY, '')
        db = None
        if store in servers.SETS:
            address = '%s timeout=10s prefix=%s:' % (bench.set(store).url,
                                                     case.slug)
        elif zone:
            address = store
        elif durable:
            address = store % {'folder': servers.folder(case.slug + '-db')}
        else:
            db = bench.redis.database()
            address = store % bench.redis.names(db)
        if express:
            back = servers.Node(case.slug + '-upstream', bench.answers)
        else:
            back = upstream(bench, case)
        nginx = gateway(
            bench, case, back,
            PROTECTED + '            %s\n' % more.replace(
                'SECRET', servers.secret()) + PROXY,
            '    idempotency_store pay %s;\n' % address,
            [path or rig.MODULE], server)
        load.until_ready(nginx.port)
        return Subject([nginx, back] if express else [nginx], back,
                       bench.redis, db)

    return both(row, start, zone=zone, module=True,
                stays=express or store in servers.SETS, **more)


def variant(case, name, path, server=''):
    """A case of the module with another build of it."""
    def start(bench, copy):
        return case.start(bench, copy, path, server)

    return dataclasses.replace(case, row='%s, %s' % (case.row, name),
                               start=start)


def lua(row, **more):
    def start(bench, case):
        db = bench.redis.database()
        back = upstream(bench, case)
        nginx = gateway(bench, case, back,
                        LUA_LOCATION % bench.redis.names(db)
                        + PROXY.split(';', 1)[1], modules=LUA_MODULES)
        return Subject([nginx], back, bench.redis, db)

    return both(row, start, **more)


def express(row, package=None, proxy=False, **more):
    """The application itself; its control is the same without a package."""
    def start(bench, case):
        db = bench.redis.database() if package else None
        url = 'redis://127.0.0.1:%d/%s' % (bench.redis.port, db)
        node = servers.Node(case.slug, bench.answers, package, url)
        parts = [node]
        if proxy:
            parts.insert(0, gateway(bench, case, node, PROXY))
        return Subject(parts, node, bench.redis, db)

    more['control'] = EXPRESS
    more['stays'] = True            # it takes long to be warm
    if package:
        return both(row, start, **more)
    return [Case(row, 'plain', start, **more)]


ROWS = [
    plain(BARE, PROXY),
    plain('in-memory return', '''
            default_type application/json;
            return 201 '%s';
''' % load.ANSWER, executes=False),
    module('embedded', 'shm:3000m', DAILY, bounds=(1.35, None))[0],
    module('embedded', 'shm:3000m', bounds=(None, 0.60))[1],
    module('embedded, fresh zone', 'shm:3000m')[0],
    module('embedded, order of 1 KB', 'shm:3000m', DAILY,
           size=load.ORDER)[0],
    module('embedded, order of 1 KB, json fingerprint', 'shm:3000m',
           DAILY + 'idempotency_fingerprint json exclude=nonce;',
           size=load.ORDER, control='embedded, order of 1 KB, first request',
           bounds=(1.15, None))[0],
    module('embedded, sealed', 'shm:3000m',
           DAILY + 'idempotency_secret SECRET;',
           control='embedded, first request', bounds=(1.10, None))[0],
    *module('Redis, TCP', TCP, bounds=(1.9, 0.95), lua=2.0),
    # so few that each is asked for again before it is too old
    module('Redis, TCP, cache', TCP + ' cache=64m', bounds=(None, 0.60),
           keys=100)[1],
    *module('Redis, unix socket', UNIX, bounds=(1.9, 0.95), lua=2.0),
    *module('Redis, TLS', TLS),
    *module('Redis, Sentinel', 'Sentinel'),
    *module('Redis, Cluster of 3', 'Cluster'),
    # its threads are counted with the worker
    module('SQLite, sync=full', SQLITE, DAILY, bounds=(4.0, None))[0],
    module('SQLite, sync=full', SQLITE, bounds=(None, 1.3))[1],
    module('SQLite, sync=full, cache', SQLITE + ' cache=64m',
           bounds=(None, 0.60), keys=100)[1],
    module('SQLite, sync=normal', SQLITE + ' sync=normal', DAILY,
           bounds=(2.5, None), many=2.0)[0],
    module('SQLite, sync=normal', SQLITE + ' sync=normal',
           bounds=(None, 1.3))[1],
    module('SQLite, sync=normal, cache', SQLITE + ' sync=normal cache=64m',
           DAILY, bounds=(2.5, None), many=2.0)[0],
    *lua(LUA),
    *express(EXPRESS),
    *express('express-idempotency', 'express-idempotency', marks=False),
    *express('@node-idempotency/core', '@node-idempotency/core'),
    *express('Express behind bare proxy_pass', proxy=True),
    *module('Express behind the module, Redis', TCP, express=True,
            control=EXPRESS),
]

# the cases in the plots, and their names there
GROWTH = {
    BARE: BARE,
    'embedded, first request': 'embedded',
    'embedded, replay': 'embedded',
    'Redis, TCP, first request': 'Redis, TCP',
    'Redis, TCP, replay': 'Redis, TCP',
    LUA + ', first request': LUA,
    LUA + ', replay': LUA,
    EXPRESS: EXPRESS,
    'express-idempotency, first request': 'express-idempotency',
    'express-idempotency, replay': 'express-idempotency',
    '@node-idempotency/core, first request': '@node-idempotency/core',
    '@node-idempotency/core, replay': '@node-idempotency/core',
}
