#!/usr/bin/env python3
"""What "nginx -t" can see of a mistake that does not stop nginx, it says: as a
warning, with the file and the line of the directive, and once.  A right
configuration is silent.

A line that ends with "# HERE" is the one that the warning must name.
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import MODULE, NGINX, TOP, finish, ok, same  # noqa: E402

STORE = 'idempotency_store pay shm:64k;\n'
ON = 'idempotency pay; idempotency_source $remote_user;'
PASS = 'proxy_pass http://127.0.0.1:9000;'


def test(http):
    """the messages of the module: level, text, file, line"""
    with tempfile.TemporaryDirectory(prefix='warn-',
                                     dir=TOP + '/build') as root:
        os.mkdir(root + '/logs')
        with open(root + '/users', 'w') as f:
            f.write('alice:{PLAIN}a\n')
        text = ('load_module %s;\npid %s/nginx.pid;\nevents { }\nhttp {\n'
                'access_log off;\nproxy_cache_path %s/cache '
                'keys_zone=cache:1m;\n' % (MODULE, root, root))
        text += ''.join('%s_temp_path %s/%s;\n' % (name, root, name) for name
                        in ('client_body', 'proxy', 'fastcgi', 'uwsgi',
                            'scgi'))
        text += http + '\n}\n'
        with open(root + '/nginx.conf', 'w') as f:
            f.write(text.replace('@ROOT@', root))
        done = subprocess.run([NGINX, '-t', '-e', 'stderr', '-p', root, '-c',
                               root + '/nginx.conf'], capture_output=True,
                              text=True)
        here = [n for n, line in enumerate(text.split('\n'), 1)
                if line.endswith('# HERE')]
        if done.returncode:
            return here, [('failed', done.stderr, '', 0)]
        found = re.findall(r'\[(warn|notice)\] \d+#\d+: (.*) in '
                           r'(\S+):(\d+)$', done.stderr, re.M)
        found += [('odd', line, '', 0) for line in done.stderr.split('\n')
                  if 'idempotency' in line
                  and not re.search(r' in \S+:\d+$', line)]
        return here, [(level, text, os.path.relpath(path, root), int(line))
                      for level, text, path, line in found]


def warns(name, http, *words, level='warn'):
    here, found = test(STORE + http)
    same([(level, path, line) for level, _, path, line in found],
         [(level, 'nginx.conf', line) for line in here], name)
    lacks = [word for word in words
             if not found or word not in found[0][1]]
    ok(not lacks, name + ': its words', 'no %s in %s' % (lacks, found))


def silent(name, http):
    _, found = test(STORE + http)
    same(found, [], name)


def server(text, more=''):
    return 'server {\nlisten 127.0.0.1:1;\n%s\n%s\n}\n' % (more, text)


def location(text, name='/pay'):
    return 'location %s {\n%s\n}\n' % (name, text)


# ---- sources ----

warns('a constant source',
      server(location('idempotency pay;\nidempotency_source all;   # HERE\n'
                      + PASS)), '"all"', 'no variable')
warns('all of an Authorization header',
      server(location('idempotency pay;\n'
                      'idempotency_source $http_authorization;   # HERE\n'
                      + PASS)), 'signed', level='notice')
warns('the same with brackets',
      server(location('idempotency pay;\n'
                      'idempotency_source "${HTTP_Authorization}";   # HERE\n'
                      + PASS)), 'signed', level='notice')
silent('a part of a source',
       server(location('idempotency pay;\nidempotency_source '
                       '"$http_authorization:$http_tenant";\n' + PASS)))
silent('a map of it',
       'map $http_authorization $bearer { default ""; "~^Bearer (.+)$" $1; }\n'
       + server(location('idempotency pay; idempotency_source $bearer;\n'
                         + PASS)))

# ---- fields of a body ----

warns('a nested field by a dot',
      'idempotency_json_set $id order.id;   # HERE\n'
      + server(location(ON + PASS)), '"order.id"', 'blanks',
      'idempotency_json_set $id order id;')
silent('a nested field', 'idempotency_json_set $id order id;\n'
       + server(location(ON + PASS)))

# ---- servers ----


def two(first, second, a='server_name a;', b='server_name b;', **args):
    return server(first, a) + server(second, b)


protected = location(ON + PASS)
below = location('idempotency pay;   # HERE\n'
                 'idempotency_source $remote_user;\n' + PASS)
warns('one store in two servers', two(protected, below), '"a"', '"b"',
      'idempotency_scope "$server_name $request_method $idempotency_uri"',
      'store of its own')
warns('two of many locations, once',
      two(protected + location(ON + PASS, '/x'),
          below + location(ON + PASS, '/pay/b') + location(ON + PASS, '/x')))
warns('inherited from http{}',
      'idempotency pay;   # HERE\nidempotency_source $remote_user;\n'
      + two(location(PASS), location(PASS)))
warns('servers without names',
      server(protected) + server(below, 'listen 127.0.0.1:2;'),
      'idempotency_scope "$server_port $request_method $idempotency_uri"')
stripe = 'idempotency_profile stripe;'
warns('an empty default scope, and other paths',
      two(location(ON + stripe + PASS),
          location('idempotency pay;   # HERE\n'
                   'idempotency_source $remote_user;\n' + stripe + PASS,
                   '/other')), 'idempotency_scope "$server_name"')
warns('a prefix of it',
      two(protected, location('idempotency pay;   # HERE\n'
                              'idempotency_source $remote_user;\n' + PASS,
                              '/')))
warns('a regular expression',
      two(protected, location('idempotency pay;   # HERE\n'
                              'idempotency_source $remote_user;\n' + PASS,
                              '~ p')))
scope = 'idempotency_scope "$server_name $request_method $uri";'
silent('a scope', 'idempotency_scope "$server_name $request_method $uri";\n'
       + two(protected, location(ON + PASS)))
silent('a scope in one of two', two(protected, location(ON + scope + PASS)))
silent('two stores', 'idempotency_store b shm:64k;\n'
       + two(protected, location('idempotency b; idempotency_source '
                                 '$remote_user;' + PASS)))
silent('one server in two blocks',
       two(protected, location(ON + PASS), b='server_name a c;'))
silent('other methods',
       two(protected, location(ON + 'idempotency_methods PUT;' + PASS)))
silent('other paths', two(protected, location(ON + PASS, '/orders')))
silent('exact ones', two(location(ON + PASS, '= /pay'),
                         location(ON + PASS, '= /pay/it')))
silent('a source that tells servers apart',
       two(*[location('idempotency pay; idempotency_source '
                      '"$server_name:$remote_user";' + PASS)] * 2))
silent('a server that only redirects',
       'idempotency pay; idempotency_source $remote_user;\n'
       + two(location(PASS), 'return 301 https://$host$request_uri;'))
silent('a server without it', two(protected, location(PASS)))

# ---- probes ----

probing = location(ON + '\nidempotency_unknown probe=/probe;   # HERE\n'
                   + PASS)
warns('a probe without a location', server(probing), '"/probe"',
      'no location')
warns('a probe of files', server(probing + location('', '= /probe')),
      'no content handler')
warns('a probe of arguments',
      server(location(ON + '\nidempotency_unknown probe=/p?x=1;   # HERE\n'
                      + PASS) + location('root /tmp;', '/p')))
warns('a probe with a cache', server(
    probing + location('proxy_cache cache;' + PASS, '= /probe')),
    'cache', 'proxy_cache off')
warns('one of a server', server(
    probing + location('internal;' + PASS, '/probe'), 'proxy_cache cache;'),
    'cache')
warns('of nested locations the one that it is', server(
    location(ON + '\nidempotency_unknown probe=/a/b/c;   # HERE\n' + PASS)
    + location(PASS + location('proxy_cache cache;' + PASS, '/a/b'), '/a')),
    'location "/a/b"')
warns('one directive of several locations, once', server(
    location(ON + PASS) + location(ON + PASS, '/x'),
    'idempotency_unknown probe=/probe;   # HERE\n'
    'location = /probe { proxy_cache cache; ' + PASS + ' }'))
silent('a right probe', server(
    location(ON + 'idempotency_unknown probe=/probe;' + PASS)
    + location('internal; proxy_method GET; proxy_cache off;' + PASS,
               '= /probe'), 'proxy_cache cache;'))
silent('the cache of another module', server(
    location(ON + 'idempotency_unknown probe=/probe;' + PASS)
    + location('internal; fastcgi_pass 127.0.0.1:9000;', '= /probe'),
    'proxy_cache cache;'))
silent('a probe that a regular expression may take', server(
    location(ON + 'idempotency_unknown probe=/probe;' + PASS)
    + location('proxy_pass http://127.0.0.1:9000;', '~ ^/pro')))
silent('a probe that is rewritten', server(
    location(ON + 'idempotency_unknown probe=/probe;' + PASS)
    + location('rewrite ^ /ask last;', '= /probe') + location(PASS, '/ask')))
silent('a probe that is tried', server(
    location(ON + 'idempotency_unknown probe=/probe;' + PASS)
    + location('try_files /none @ask;', '= /probe')
    + location(PASS, '@ask')))

# ---- operators ----

SCOPE = 'idempotency_source $arg_client; idempotency_scope pay;'
admin = 'idempotency_lookup pay admin;   # HERE\n' + SCOPE
warns('a lookup of operators that is open', server(location(admin)),
      '"/pay"', 'deny all')
warns('and one with auth_basic off', server(
    location(admin + 'auth_basic off;'),
    'auth_basic x; auth_basic_user_file @ROOT@/users;'))
warns('and one with auth_request off', server(
    location(admin + 'auth_request off;'), 'auth_request /a;'))
admin = admin.replace('# HERE', '')
for guard in ('allow 127.0.0.1; deny all;', 'allow ::1; deny all;',
              'deny all;', 'allow unix:; deny all;', 'internal;',
              'auth_basic x; auth_basic_user_file @ROOT@/users;',
              'auth_request /auth;', 'if ($http_x != y) { return 403; }'):
    silent('one with ' + guard, server(location(admin + guard)))
silent('one that inherits it', server(location(admin), 'deny all;'))
silent('one for callers', server(location(
    'idempotency_lookup pay;' + SCOPE)))

# ---- what is not protected ----

switch = 'idempotency pay;   # HERE\nidempotency_source $remote_user;\n'
warns('only files', server(location(switch)), '"/pay"', 'has no effect')
warns('return', server(location(switch + 'return 200;')), 'has no effect')
warns('the statistics', server(location(switch + 'idempotency_stats;')),
      'has no effect')
warns('a token', server(location(switch + 'idempotency_scope x;'
                                 'idempotency_token pay;')), 'has no effect')
plain = switch.replace('# HERE', '')
for name, text in (
        ('try_files', location(plain + 'try_files $uri @x;')
         + location(PASS, '@x')),
        ('error_page', location(plain + 'error_page 405 = @x;')
         + location(plain + PASS, '@x')),
        ('rewrite', location(plain + 'rewrite ^ /x last;')
         + location(PASS, '/x')),
        ('a conditional return', location(
            plain + 'if ($http_x) { rewrite ^ /x; } return 403;')
         + location(PASS, '/x')),
        ('return and error_page', location(
            plain + 'error_page 418 = @x; return 418;')
         + location(PASS, '@x')),
        ('index', location(plain + 'index index.php;')),
        ('a nested location', location(plain + location(PASS, '/pay/x'))),
        ('if', location(plain + 'if ($http_x) { ' + PASS + ' }')),
        ('limit_except', location(plain + PASS
                                  + 'limit_except PATCH { deny all; }')),
        ('internal', location(plain + 'internal;')),
        ('off', location('idempotency off;'))):
    silent(name, server(text))
if '--with-http_dav_module' in subprocess.run(
        [NGINX, '-V'], capture_output=True, text=True).stderr:
    silent('dav', server(location(plain + 'dav_methods PUT;')))
silent('a whole server', server(
    location('') + location('return 200;', '/x') + location(PASS, '/y'),
    ON))

# ---- bodies that are too large ----

large = 'error_page 413 = @large;'
warns('413 goes to a location that is not protected', server(
    location(switch + large + PASS) + location(PASS, '@large')),
    '@large', '413', 'idempotency pay')
warns('also where try_files leads elsewhere', server(
    location(switch + large + 'try_files $uri @x;')
    + location(plain + PASS, '@x') + location(PASS, '@large')))
warns('once for a server', server(
    location(switch + PASS) + location(plain + PASS, '/x')
    + location(PASS, '@large'), 'error_page 413 502 @large;'))
silent('413 to one that is', server(
    location(plain + large + PASS) + location(plain + PASS, '@large')))
silent('413 to a page', server(
    location(plain + 'error_page 413 /large.html;' + PASS)))
silent('413 to an answer', server(
    location(plain + large + PASS) + location('return 413;', '@large')))
silent('413 where nothing is protected', server(
    location(large + PASS) + location(PASS, '@large')))
silent('another status', server(
    location(plain + 'error_page 502 = @large;' + PASS)
    + location(PASS, '@large')))

finish()
