#!/usr/bin/env python3
"""The fragment of OpenAPI 3.1 of idempotency_policy is one to validators.

Two of them read it, for a server with locations of all kinds, with one and
with none.  Its schema of a key accepts what the gateway accepts, and an API
that refers to its components is valid, too.
"""

import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import Gateway, Ledger, finish, free_port, ok, same  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODULES = TOP + '/build/npm/node_modules'
NEEDED = ('@seriousme/openapi-schema-validator', '@readme/openapi-parser')

for package in NEEDED:
    if not os.path.isdir(MODULES + '/' + package) or not shutil.which('node'):
        print('1..0 # SKIP %s is not in build/npm: run t/tools/npm' % package)
        sys.exit(0)

none = free_port()
gw = Gateway(Ledger(), http='''
    idempotency_json_set $order_id order;
    server {
        listen 127.0.0.1:%d;
        location /policy { idempotency_policy; }
    }
''' % none, locations='''
        location = "/policy {x} y" { idempotency_policy; }
        location /strict/ {
            idempotency main; idempotency_strict_key on;
            idempotency_max_key 20;
            idempotency_replayed_header X-Again!;
            proxy_pass http://up;
        }
        location /json/ {
            idempotency main; idempotency_key $order_id;
            proxy_pass http://up;
        }
        location /arg/ {
            idempotency main; idempotency_key $arg_id; proxy_pass http://up;
        }
        location /cookie/ {
            idempotency main; idempotency_key $cookie_id;
            proxy_pass http://up;
        }
        location /numbers/ {
            idempotency main; idempotency_sequence strict;
            idempotency_scope n; idempotency_replayed_header off;
            proxy_pass http://up;
        }
        location /stripe/ {
            idempotency main; idempotency_profile stripe;
            proxy_pass http://up;
        }
        location /rpc/ {
            idempotency main; idempotency_profile jsonrpc;
            proxy_pass http://up;
        }
        location /oasis/ {
            idempotency main; idempotency_profile oasis;
            proxy_pass http://up;
        }
        location "/<\\"quoted\\">/" {
            idempotency main; idempotency_ttl 1h; proxy_pass http://up;
        }
''')

SCRIPT = '''
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const require = createRequire(process.argv[1] + "/");
const load = name => import(pathToFileURL(require.resolve(name)));
const { Validator } = await load("@seriousme/openapi-schema-validator");
const parser = await load("@readme/openapi-parser");
const text = await new Response(process.stdin).text();
const validator = new Validator();
const one = await validator.validate(JSON.parse(text));
const two = await parser.validate(JSON.parse(text));
console.log(JSON.stringify([one.valid, validator.version, two.valid,
                            one.errors ?? [], two.errors ?? []]));
'''


def validate(document):
    return subprocess.run(
        ['node', '--input-type=module', '-e', SCRIPT, MODULES],
        input=json.dumps(document), capture_output=True, text=True,
        timeout=60)


def judged(document, name):
    done = validate(document)
    ok(done.returncode == 0, name + ': both validators run', done.stderr)
    if done.returncode == 0:
        same(json.loads(done.stdout), [True, '3.1', True, [], []], name)


def fragment(port=None, path='/policy'):
    a = gw.post(path + '?format=openapi', None, method='GET', body=None,
                port=port)
    return json.loads(a.body)


document = fragment(path='/policy%20%7Bx%7D%20y')
judged(document, 'locations of all kinds')
judged(fragment(none), 'a server without keys')

broken = json.loads(json.dumps(document))
del broken['components']['responses']['key_missing']['description']
same(json.loads(validate(broken).stdout)[0:3:2], [False, False],
     'a mistake is found by both')

api = json.loads(json.dumps(document))
api['paths']['/payments'] = {'post': {
    'operationId': 'pay', 'parameters': [
        {'$ref': '#/components/parameters/IdempotencyKey'}],
    'responses': {
        '201': {'description': 'paid', 'headers': {
            'Idempotency-Expires': {
                '$ref': '#/components/headers/Idempotency-Expires'}}},
        '400': {'$ref': '#/components/responses/key_missing'},
        '409': {'$ref': '#/components/responses/in_progress'}}}}
judged(api, 'an API that refers to it')

parameters = document['components']['parameters']
same(sorted((p['in'], p['name']) for p in parameters.values()),
     [('cookie', 'id'), ('header', 'Idempotency-Key'),
      ('header', 'Idempotency-Key'), ('header', 'Idempotency-Key'),
      ('header', 'Idempotency-Key'), ('header', 'Idempotency-Key'),
      ('header', 'Idempotency-Key'), ('header', 'Repeatability-Request-ID'),
      ('query', 'id')], 'the parameters')
same(sorted(document['components']['headers']),
     ['Idempotency-Expires', 'Idempotency-Retry', 'Idempotent-Replayed',
      'Retry-After'], 'the headers')


def accepts(schema, value):
    if 'anyOf' in schema and not any(accepts(s, value)
                                     for s in schema['anyOf']):
        return False
    return (schema.get('minLength', 0) <= len(value)
            <= schema.get('maxLength', 1 << 30)
            and re.search(schema.get('pattern', ''), value) is not None)


KEYS = ['k', 'k' * 20, 'k' * 255, 'k' * 256, '"k"', '"%s"' % ('k' * 255),
        '"a b"', 'a b', '"a\\"b"', '"a\\xb"', '"', '""', '7', 'a"b', '"k',
        '"k"x', '"k";a=1', '"%s"' % ('\\"' * 20), '"%s"' % ('\\"' * 21), '~', '!#$%&()*+,-./:;<=>?@[]^_`{|}']

where = {p['path']: 'IdempotencyKey%s' % (i + 1 if i else '')
         for i, c in enumerate(document['x-idempotency']['contracts'])
         for p in c['paths']}

for path, key_name in (('/', where['/']), ('/strict/', where['/strict/'])):
    for key in KEYS:
        a = gw.post(path + 'ok', key)
        same(accepts(parameters[key_name]['schema'], key),
             a.code != 'key_invalid',
             'the schema of %s judges %.30s as the gateway does'
             % (path, key))

gw.stop()
finish()
