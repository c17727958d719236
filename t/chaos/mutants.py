"""The module, broken on purpose: a campaign that does not notice proves nothing.

A mutant is a list of edits of the source.  It is built under
build/mutants/NAME from a copy of the tree and of the objects of build/debug,
so that only the files with edits are compiled.  An edit whose text is not
there, exactly once, stops everything: the source has moved on, and so must
this file.
"""

import os
import shutil
import subprocess
import sys

from gateway import TOP

# where the nginx was configured that build/debug is for
NGINX_SRC = os.environ.get('NGINX_SRC', '/usr/share/nginx/src')

SCRIPT = 'src/store/ngx_idempotency_redis_script.c'
SHM = 'src/store/ngx_idempotency_shm.c'
STEPS = 'src/store/ngx_idempotency_shm_steps.c'
ACT = 'src/request/ngx_http_idempotency_act.c'
POLICY = 'src/request/ngx_http_idempotency_policy.c'
OP = 'src/store/ngx_idempotency_redis_op.c'
LATER = 'src/store/ngx_idempotency_redis_later.c'
SAFE = 'src/store/ngx_idempotency_redis_safe.c'
CAPTURE = 'src/request/ngx_http_idempotency_capture.c'
HANDLER = 'src/request/ngx_http_idempotency_handler.c'
GATE = 'src/request/ngx_http_idempotency_upstream_gate.c'
UPSTREAM = 'src/request/ngx_http_idempotency_upstream.c'
LOCATION = 'src/request/ngx_http_idempotency_location.c'
PROBE = 'src/request/ngx_http_idempotency_probe.c'
PROBED = 'src/request/ngx_http_idempotency_upstream_probe.c'
ANSWER = 'src/request/ngx_http_idempotency_answer.c'
NAME = 'src/redis/ngx_idempotency_redis_name.c'
ROUTE = 'src/redis/ngx_idempotency_redis_route.c'

# name: (what it does, [(file, text, text instead)])
MUTANTS = {
    'owner-off': ('a change of a record does not look at its owner', [
        (SCRIPT, 'if r_owner == own and (r_state == 2 or r_state == 3) then',
         'if r_state == 2 or r_state == 3 then'),
        (SCRIPT, 'elseif r_owner == own and r_state == 4 then result = 0',
         'elseif r_state == 4 then result = 0'),
        (SCRIPT, 'elseif r_owner == own and r_state == 2 then',
         'elseif r_state == 2 then'),
        (SCRIPT, '"if r_owner == own then\\n"', '"if true then\\n"'),
        (SCRIPT, 'if r_state == 2 and r_owner == own then',
         'if r_state == 2 then'),
        (STEPS,
         '    if (ngx_idempotency_shm_owns(node, op->owner)) {\n\n'
         '        switch (node->state) {',
         '    if (1) {\n\n        switch (node->state) {'),
        (STEPS,
         '        && ngx_idempotency_shm_owns(node, lease->owner))\n',
         '        && 1)\n'),
        (SHM, '        && ngx_idempotency_shm_owns(node, op->owner))\n',
         '        && 1)\n'),
        (SHM,
         '    if (ngx_idempotency_shm_owns(node, op->owner)) {\n\n'
         '        if (node->state == ',
         '    if (1) {\n\n        if (node->state == '),
    ]),

    # within 20 ms nobody sees the claim of another one
    'get-then-set': ('a claim is a read and then a write', [
        (SCRIPT, '    "-- claim\\n"\n',
         '    "-- claim\\n"\n'
         '    "if r and r_owner ~= own and r_state == 2\\n"\n'
         '    "   and r_lease - lease > now - 20 then r, st = nil, nil end\\n"'
         '\n'),
        (SHM,
         '    switch (ngx_idempotency_shm_state(node, now)) {\n\n'
         '    case NGX_IDEMPOTENCY_NONE:\n',
         '    switch (ngx_idempotency_shm_state(node, now)) {\n\n'
         '    case NGX_IDEMPOTENCY_EXECUTING:\n'
         '        return node->lease + 20 > now + op->lease;\n\n'
         '    case NGX_IDEMPOTENCY_NONE:\n'),
    ]),

    'fail-open': ('a request passes when its claim is lost', [
        (ACT,
         'ctx->conf->store_error == NGX_HTTP_IDEMPOTENCY_STORE_ERROR_PASS\n'
         '        && op->type',
         'op->type'),
    ]),

    'no-fingerprint': ('another body is taken for the same', [
        (POLICY, 'return differ == 0 || any == 0;',
         'return differ == 0 || any == 0 || 1;'),
    ]),

    'lease-frees': ('the end of a lease frees the key', [
        (SCRIPT, 'if st == 2 and r_lease <= now then st = 3 end',
         'if st == 2 and r_lease <= now then st = 0 end'),
        (SHM,
         '        return (op->flags & NGX_IDEMPOTENCY_CLAIM_UNKNOWN)\n',
         '        if (node->state == NGX_IDEMPOTENCY_EXECUTING) {\n'
         '            return 1;\n        }\n\n'
         '        return (op->flags & NGX_IDEMPOTENCY_CLAIM_UNKNOWN)\n'),
    ]),

    'unknown-frees': ('an unknown outcome frees the key', [
        (POLICY,
         'return facts->sent ? NGX_IDEMPOTENCY_MARK_UNKNOWN\n',
         'return 0 ? NGX_IDEMPOTENCY_MARK_UNKNOWN\n'),
    ]),

    'cut-kept': ('an answer that breaks off is kept', [
        (CAPTURE,
         '    ctx->keep = 0;\n    ctx->cut = 1;\n\n'
         '    return ngx_http_idempotency_capture_store(r, ctx,\n'
         '                                       '
         '       NGX_IDEMPOTENCY_MARK_UNKNOWN);',
         '    return ngx_http_idempotency_capture_store(r, ctx,\n'
         '                                       '
         '       NGX_IDEMPOTENCY_COMPLETE);'),
    ]),

    'abort-cancels': ('a client that leaves cancels its call', [
        (GATE,
         '    r->read_event_handler = ngx_http_block_reading;\n\n'
         '    if (!u->header_sent) {\n',
         '    if (0) {\n'),
    ]),

    'amnesia-everywhere': ('a loss of one node is one of the whole store', [
        (SAFE,
         '        ngx_idempotency_redis_shard_refuse(shard, ngx_current_msec '
         '+ amnesia);\n',
         '        for (losses = 0; losses < NGX_IDEMPOTENCY_REDIS_SHARDS;\n'
         '             losses++)\n        {\n'
         '            ngx_idempotency_redis_shard_refuse('
         '&shared->shards[losses],\n'
         '                                   ngx_current_msec + amnesia);\n'
         '        }\n'),
    ]),

    'no-wait': ('a claim does not wait for replicas', [
        (OP, 'rop->cmd.wait = ngx_idempotency_redis_safe_waits(rop);',
         'rop->cmd.wait = 0;'),
    ]),

    'background-lost': ('an exiting worker forgets what it has to store', [
        (LATER,
         '    ev->cancelable = rop->later\n'
         '                     && ngx_idempotency_redis_handover_is_due(ctx);',
         '    ev->cancelable = rop->later;'),
        (OP, '        ngx_idempotency_redis_handover_give(op, op->type);\n',
         '        ;\n'),
        (OP, '        ngx_idempotency_redis_handover_give(op, '
         'NGX_IDEMPOTENCY_RELEASE);\n', '        ;\n'),
    ]),

    'handover-lost': ('an exiting worker leaves nothing to others', [
        (OP, '        ngx_idempotency_redis_handover_give(op, op->type);\n',
         '        ;\n'),
        (OP, '        ngx_idempotency_redis_handover_give(op, '
         'NGX_IDEMPOTENCY_RELEASE);\n', '        ;\n'),
    ]),

    'old-address': ('what a name leads to is learnt once', [
        (NAME,
         '    } else {\n'
         '        rc = ngx_idempotency_redis_name_take(node, ctx);\n',
         '    } else if (node->names) {\n        rc = NGX_ERROR;\n\n'
         '    } else {\n'
         '        rc = ngx_idempotency_redis_name_take(node, ctx);\n'),
    ]),

    'demoted-stays': ('a server that is demoted is not left', [
        (ROUTE, '    if (!ngx_idempotency_redis_says_no_master(reply)) {\n',
         '    if (1) {\n'),
    ]),

    'wall-clock': ('leases go by the time of day', [
        (SHM, '    now = ngx_current_msec;\n',
         '    now = (uint64_t) ngx_time() * 1000 + ngx_cached_time->msec;\n'),
    ]),

    # for configurations with several locations: C14

    'first-decides': ('the first location that protects decides', [
        (LOCATION, '    if (early\n        && imcf->try_files',
         '    return early;\n\n    if (early\n        && imcf->try_files'),
    ]),

    'last-only': ('only the location that executes protects', [
        (LOCATION,
         '    } else if (!ngx_http_idempotency_location_protects(r, '
         'ctx->conf)) {\n',
         '    } else {\n'),
    ]),

    'passed-stays': ('what one location lets pass, the next one does', [
        (LOCATION, '        ngx_http_idempotency_context_restart(ctx);\n',
         ''),
    ]),

    'gate-open': ('a second try is sent', [
        (POLICY, '        return !facts->settled && facts->sent == 0;\n',
         '        return 1;\n'),
    ]),

    'probe-anyone': ('a probe believes whoever answers', [
        (PROBE,
         '(ctx->probe.handlers == 1\n'
         '                       && !ctx->probe.error\n'
         '                       && ngx_http_idempotency_upstream_speaks(r));'
         '\n', '1;\n'),
    ]),

    'probe-cached': ('a cache answers a probe', [
        (PROBE,
         'ngx_http_idempotency_upstream_uncached(r, '
         'probe->content_handler);', 'probe->content_handler(r);'),
        (PROBED, '    if (u == NULL || u->cleanup == NULL',
         '    if (r->cached) {\n        return 1;\n    }\n\n'
         '    if (u == NULL || u->cleanup == NULL'),
    ]),

    'half-header': ('the word of a header that broke off counts', [
        (ANSWER, '    if (facts->upstream && !facts->answered) {\n',
         '    if (0) {\n'),
    ]),

    'stale-settles': ('a stale answer of a cache settles a request', [
        (GATE, '        return NGX_OK;\n    }\n\n'
         '    conf = ngx_palloc(', '        return NGX_OK;\n    }\n\n'
         '    return NGX_OK;\n\n    conf = ngx_palloc('),
        (UPSTREAM, '        facts->answered = !facts->stale;\n',
         '        facts->stale = 0;\n        facts->answered = 1;\n'),
    ]),

    'refused-runs': ('an error page executes whom a location has refused', [
        (HANDLER,
         '(ctx->barred && ngx_http_idempotency_policy_refused('
         'ctx->barred))', '(0)'),
    ]),

    'first-byte': ('the lease is not looked at before the first byte', [
        (GATE,
         '        if (ngx_http_idempotency_upstream_try(r, ctx) != NGX_OK) {\n'
         '            u->peer.tries = 0;',
         '        if (0) {\n            u->peer.tries = 0;'),
    ]),

    'method-lies': ('handlers are told that the method is LOCK', [
        (UPSTREAM, '    rc = up->handler(r);\n',
         '    r->method = NGX_HTTP_LOCK;\n    rc = up->handler(r);\n'
         '    r->method = up->method;\n'),
    ]),
}

# where both stores do not know the difference
STORES = {
    'fail-open': ('redis',),
    'no-wait': ('redis',),
    'amnesia-everywhere': ('redis',),
    'background-lost': ('redis',),
    'handover-lost': ('redis',),
    'old-address': ('redis',),
    'demoted-stays': ('redis',),
    'wall-clock': ('shm',),
}

MODULE = 'ngx_http_idempotency_module.so'


def build(name, base=TOP + '/build/debug'):
    """Builds it unless it is there; its path."""
    root = '%s/build/mutants/%s' % (TOP, name)
    module = root + '/' + MODULE
    newest = max(os.path.getmtime(f) for f in (base + '/' + MODULE, __file__))

    if os.path.exists(module) and os.path.getmtime(module) > newest:
        return module

    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root)
    subprocess.run(['cp', '-a', TOP + '/src', root], check=True)
    subprocess.run(['cp', '-a', base + '/objs', root], check=True)
    for file, old, new in MUTANTS[name][1]:
        edit(root + '/' + file, old, new, name)

    makefile = root + '/objs/Makefile'
    with open(makefile) as f:
        text = f.read()
    with open(makefile, 'w') as f:
        f.write(text.replace(base + '/objs', root + '/objs')
                    .replace(TOP + '/src', root + '/src'))
    made = subprocess.run(
        ['make', '-C', NGINX_SRC, '-f', makefile, 'modules'],
        capture_output=True, text=True)
    if made.returncode:
        sys.exit('the mutant "%s" does not compile:\n%s%s'
                 % (name, made.stdout[-1000:], made.stderr[-3000:]))
    shutil.copy(root + '/objs/' + MODULE, module)
    return module


def edit(path, old, new, name):
    with open(path) as f:
        text = f.read()
    if text.count(old) != 1:
        sys.exit('the mutant "%s" has to be written anew: %s has %d times\n%s'
                 % (name, os.path.relpath(path, TOP), text.count(old), old))
    with open(path, 'w') as f:
        f.write(text.replace(old, new))
