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

SCRIPTS = 'src/store/redis/scripts/'
SHM = 'src/store/shm/ngx_idempotency_shm.c'
TRANSITION = 'src/store/ngx_idempotency_transition.c'
CLAIM = 'src/request/ngx_http_idempotency_claim.c'
POLICY = 'src/request/ngx_http_idempotency_policy.c'
OP = 'src/store/redis/ngx_idempotency_redis_op.c'
BACKGROUND = 'src/store/redis/ngx_idempotency_redis_background.c'
AMNESIA = 'src/store/redis/ngx_idempotency_redis_amnesia.c'
CAPTURE = 'src/request/ngx_http_idempotency_capture.c'
GATE = 'src/request/ngx_http_idempotency_upstream_gate.c'
UPSTREAM = 'src/request/ngx_http_idempotency_upstream.c'
PHASES = 'src/request/ngx_http_idempotency_phases.c'
PROBE = 'src/request/ngx_http_idempotency_probe.c'
ANSWER = 'src/request/ngx_http_idempotency_answer.c'
ADDRESS = 'src/redis/ngx_idempotency_redis_address.c'
SINGLE = 'src/redis/ngx_idempotency_redis_single.c'
SQLITE_DB = 'src/store/sqlite/ngx_idempotency_sqlite_db.c'

# name: (what it does, [(file, text, text instead)])
MUTANTS = {
    'owner-off': ('a change of a record does not look at its owner', [
        (SCRIPTS + 'complete.lua',
         'if r_owner == owner and (r_state == EXECUTING or r_state == UNKNOWN)',
         'if (r_state == EXECUTING or r_state == UNKNOWN)'),
        (SCRIPTS + 'complete.lua',
         'elseif r_owner == owner and r_state == DONE then',
         'elseif r_state == DONE then'),
        (SCRIPTS + 'parts/release.lua',
         'elseif r_owner == owner and r_state == EXECUTING then',
         'elseif r_state == EXECUTING then'),
        (SCRIPTS + 'mark_unknown.lua', 'if r_owner == owner then',
         'if true then'),
        (SCRIPTS + 'renew.lua',
         'if r_state == EXECUTING and r_owner == owner then',
         'if r_state == EXECUTING then'),
        (TRANSITION,
         '    if (ngx_idempotency_transition_owns(t)) {\n\n'
         '        switch (t->stored.state) {',
         '    if (1) {\n\n        switch (t->stored.state) {'),
        (TRANSITION,
         '        if (!ngx_idempotency_transition_owns(t)) {\n'
         '            return NGX_IDEMPOTENCY_REFUSED;',
         '        if (0) {\n            return NGX_IDEMPOTENCY_REFUSED;'),
        (TRANSITION,
         '    if (!ngx_idempotency_transition_owns(t)) {\n'
         '        return NGX_IDEMPOTENCY_REFUSED;',
         '    if (0) {\n        return NGX_IDEMPOTENCY_REFUSED;'),
        (TRANSITION,
         '               && ngx_idempotency_transition_owns(t))\n',
         '               && 1)\n'),
    ]),

    # within 20 ms nobody sees the claim of another one
    'get-then-set': ('a claim is a read and then a write', [
        (SCRIPTS + 'parts/claim.lua', 'if flags % (2 * CLAIM_ISSUED) >=',
         'if found and r_owner ~= owner and r_state == EXECUTING\n'
         '   and r_lease - lease > now - 20 then\n'
         '  found, state = nil, nil\n'
         'end\n\n'
         'if flags % (2 * CLAIM_ISSUED) >='),
        (TRANSITION,
         '    switch (state) {\n\n    case NGX_IDEMPOTENCY_NONE:\n',
         '    switch (state) {\n\n    case NGX_IDEMPOTENCY_EXECUTING:\n\n'
         '        if (stored->lease + 20 <= t->now + op->lease) {\n'
         '            t->answer = 1;\n'
         '            return NGX_IDEMPOTENCY_EXISTS;\n        }\n\n'
         '        break;\n\n    case NGX_IDEMPOTENCY_NONE:\n'),
    ]),

    'fail-open': ('a request passes when its claim is lost', [
        (CLAIM,
         'ctx->conf->store_error == NGX_HTTP_IDEMPOTENCY_STORE_ERROR_PASS\n'
         '        && op->type',
         'op->type'),
    ]),

    'no-fingerprint': ('another body is taken for the same', [
        (POLICY, 'return differ == 0 || any == 0;',
         'return differ == 0 || any == 0 || 1;'),
    ]),

    'lease-frees': ('the end of a lease frees the key', [
        (SCRIPTS + 'parts/decode.lua', '    state = UNKNOWN\n',
         '    state = NONE\n'),
        (TRANSITION,
         '        if ((op->flags & NGX_IDEMPOTENCY_CLAIM_UNKNOWN)\n',
         '        if (stored->state == NGX_IDEMPOTENCY_EXECUTING) {\n'
         '            break;\n        }\n\n'
         '        if ((op->flags & NGX_IDEMPOTENCY_CLAIM_UNKNOWN)\n'),
    ]),

    'unknown-frees': ('an unknown outcome frees the key', [
        (POLICY,
         'return facts->sent ? NGX_IDEMPOTENCY_MARK_UNKNOWN\n',
         'return 0 ? NGX_IDEMPOTENCY_MARK_UNKNOWN\n'),
    ]),

    'cut-kept': ('an answer that breaks off is kept', [
        (CAPTURE,
         '    ctx->capture.keep = 0;\n'
         '    ctx->capture.send = NGX_HTTP_IDEMPOTENCY_SEND_ERROR;\n\n'
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
        (AMNESIA,
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
        (OP, 'rop->cmd.wait = ngx_idempotency_redis_op_needs_ack(rop);',
         'rop->cmd.wait = 0 && ngx_idempotency_redis_op_needs_ack(rop);'),
    ]),

    'background-lost': ('an exiting worker forgets what it has to store', [
        (BACKGROUND,
         '    ev->cancelable = rop->background\n'
         '                     && ngx_idempotency_redis_handover_is_due(ctx);',
         '    ev->cancelable = rop->background;'),
        (OP, '        ngx_idempotency_redis_handover_leave(op, op->type);\n',
         '        ;\n'),
        (OP, '        ngx_idempotency_redis_handover_leave(op, '
         'NGX_IDEMPOTENCY_RELEASE);\n', '        ;\n'),
    ]),

    'handover-lost': ('an exiting worker leaves nothing to others', [
        (OP, '        ngx_idempotency_redis_handover_leave(op, op->type);\n',
         '        ;\n'),
        (OP, '        ngx_idempotency_redis_handover_leave(op, '
         'NGX_IDEMPOTENCY_RELEASE);\n', '        ;\n'),
    ]),

    'old-address': ('what a name leads to is learnt once', [
        (ADDRESS,
         '    pool = ngx_create_pool(1024, ngx_cycle->log);\n'
         '    if (pool == NULL) {\n        return NGX_ERROR;\n    }\n',
         '    if (node->addrs_pool) {\n        return NGX_ERROR;\n    }\n\n'
         '    pool = ngx_create_pool(1024, ngx_cycle->log);\n'
         '    if (pool == NULL) {\n        return NGX_ERROR;\n    }\n'),
    ]),

    'demoted-stays': ('a server that is demoted is not left', [
        (SINGLE, '    if (!ngx_idempotency_redis_error_is_no_master(reply)) {\n',
         '    if (1) {\n'),
    ]),

    'wall-clock': ('leases go by the time of day', [
        (SHM, '    now = ngx_current_msec;\n',
         '    now = (uint64_t) ngx_time() * 1000 + ngx_cached_time->msec;\n'),
    ]),

    # for the durable store

    'no-sync': ('commits are not synced', [
        (SQLITE_DB, '    if (db->changed || db->version != db->synced) {\n',
         '    if (0) {\n'),
    ]),

    'grant-before-sync': ('what is synced is the commit before', [
        (SQLITE_DB,
         '        if (rc == SQLITE_OK) {\n'
         '            rc = ngx_idempotency_sqlite_commit(db);\n',
         '        if (rc == SQLITE_OK && db->changed && ctx->sync) {\n'
         '            rc = ngx_idempotency_sqlite_sync(ctx);\n        }\n\n'
         '        if (rc == SQLITE_OK) {\n'
         '            rc = ngx_idempotency_sqlite_commit(db);\n'),
        (SQLITE_DB, '    if (db->changed || db->version != db->synced) {\n',
         '    if (0) {\n'),
    ]),

    # for configurations with several locations: C14

    'first-decides': ('the first location that protects decides', [
        (PHASES,
         '    if ((r->content_handler == NULL && '
         '!ngx_http_idempotency_phases_dav(r))\n'
         '        || ngx_http_idempotency_phases_tries_files(r) != '
         'tries_files)\n',
         '    if (tries_files)\n'),
    ]),

    'last-only': ('only the location that executes protects', [
        (PHASES,
         '    } else if (!ngx_http_idempotency_protects(r, ctx->conf)) {\n',
         '    } else {\n'),
    ]),

    'passed-stays': ('what one location lets pass, the next one does', [
        (PHASES, '        ngx_http_idempotency_phases_restart(ctx);\n',
         '        if (0) { ngx_http_idempotency_phases_restart(ctx); }\n'),
    ]),

    'gate-open': ('a second try is sent', [
        (POLICY, '        return !facts->settled && facts->sent == 0;\n',
         '        return 1;\n'),
    ]),

    'probe-anyone': ('a probe believes whoever answers', [
        (PROBE,
         '(ctx->probe.handlers == 1\n'
         '                          && !ctx->probe.error\n'
         '                          && '
         'ngx_http_idempotency_upstream_is_answering(r));\n', '1;\n'),
    ]),

    'probe-cached': ('a cache answers a probe', [
        (PROBE,
         'ngx_http_idempotency_upstream_uncached(r, '
         'probe->content_handler);', 'probe->content_handler(r);'),
        (UPSTREAM, '    if (u == NULL || u->cleanup == NULL',
         '    if (r->cached) {\n        return 1;\n    }\n\n'
         '    if (u == NULL || u->cleanup == NULL'),
    ]),

    'half-header': ('X-Accel-Idempotency of a header that broke off counts', [
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
        (CLAIM,
         '    if (ctx->access.refused\n'
         '        && ngx_http_idempotency_policy_is_refusal('
         'ctx->access.refused))\n', '    if (0)\n'),
    ]),

    'subrequest-runs': ('an error page of a subrequest executes', [
        (PHASES, '    if (!ngx_http_idempotency_upstream_was_tried(r)\n',
         '    if (1\n'),
    ]),

    'first-byte': ('the lease is not looked at before the first byte', [
        (GATE,
         '        if (ngx_http_idempotency_upstream_try(r, ctx) != NGX_OK) {\n'
         '            u->peer.tries = 0;',
         '        if (0) {\n            u->peer.tries = 0;'),
    ]),

    'method-lies': ('handlers are told that the method is LOCK', [
        (GATE, '    rc = up->handler(r);\n',
         '    r->method = NGX_HTTP_LOCK;\n    rc = up->handler(r);\n'
         '    r->method = up->method;\n'),
    ]),
}

# where not all stores know the difference
STORES = {
    'fail-open': ('redis', 'sqlite'),
    'no-wait': ('redis',),
    'amnesia-everywhere': ('redis',),
    'background-lost': ('redis',),
    'handover-lost': ('redis',),
    'old-address': ('redis',),
    'demoted-stays': ('redis',),
    'wall-clock': ('shm',),
    'no-sync': ('sqlite',),
    'grant-before-sync': ('sqlite',),
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


def stale():
    """Mutants that have to be written anew, with the file that has changed."""
    found = []
    for name, (_, edits) in MUTANTS.items():
        texts = {}
        for file, old, new in edits:
            if file not in texts:
                with open(TOP + '/' + file) as f:
                    texts[file] = f.read()
            if texts[file].count(old) != 1:
                found.append('%s: %s' % (name, file))
            texts[file] = texts[file].replace(old, new)
    return found


def edit(path, old, new, name):
    with open(path) as f:
        text = f.read()
    if text.count(old) != 1:
        sys.exit('the mutant "%s" has to be written anew: %s has %d times\n%s'
                 % (name, os.path.relpath(path, TOP), text.count(old), old))
    with open(path, 'w') as f:
        f.write(text.replace(old, new))
