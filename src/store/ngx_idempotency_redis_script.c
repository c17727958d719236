
/*
 * What Redis runs for each operation.
 *
 * A record is one value: a header of fixed length, see record.c, and behind
 * it head and body of the answer.  Every script reads it once and writes it
 * at most once.  Time is the server's.
 */


#include "ngx_idempotency_redis_script.h"


/*
 * r is the record or nil; st its state now: an executing one whose lease is
 * over is unknown (3), a done one past its ttl a tombstone (5), and nil
 * stands for what is not there or no longer counts.
 */

static char  ngx_idempotency_redis_script_begin[] =
    "local F = '>BBBBI2I2c16c32I8I8I8I8I4I4I4I4I4I8'\n"
    "local H = 116\n"
    "local t = redis.call('TIME')\n"
    "local us = t[1] * 1000000 + t[2]\n"
    "local now = math.floor(us / 1000)\n"
    "local own, fp = ARGV[1], ARGV[2]\n"
    "local lease, keep = tonumber(ARGV[3]), tonumber(ARGV[4])\n"
    "local ttl, tomb = tonumber(ARGV[5]), tonumber(ARGV[6])\n"
    "local flags, fence = tonumber(ARGV[7]), tonumber(ARGV[8])\n"
    "local v = redis.call('GET', KEYS[1])\n"
    "local r, st\n"
    "if v then\n"
    "  if #v < H or string.byte(v, 1) ~= 1 then\n"
    "    return {9, now, '', ARGV[1]}\n"
    "  end\n"
    "  r = {}\n"
    "  r.version, r.state, r.kept, r.x, r.status, r.y, r.owner, r.fp,\n"
    "  r.fence, r.lease, r.until_, r.created, r.attempts, r.keep, r.tomb,\n"
    "  r.head, r.body, r.issued = struct.unpack(F, v)\n"
    "  st = r.state\n"
    "  if st == 2 and r.lease <= now then st = 3 end\n"
    "  if st == 4 and r.until_ <= now then st = 5 end\n"
    "  if st == 5 and r.until_ + r.tomb * 1000 <= now\n"
    "     or st == 1 and r.until_ <= now then r, st = nil, nil end\n"
    "end\n"
    "local function pack()\n"
    "  return struct.pack(F, 1, r.state, r.kept, 0, r.status, 0, r.owner,\n"
    "    r.fp, r.fence, r.lease, r.until_, r.created, r.attempts, r.keep,\n"
    "    r.tomb, r.head, r.body, r.issued)\n"
    "end\n"
    "local function save(answer)\n"
    "  local px = 600000\n"
    "  if r.state == 2 or r.state == 3 then\n"
    "    px = r.lease - now + r.keep * 1000\n"
    "  elseif r.state == 4 then\n"
    "    px = r.until_ - now + r.tomb * 1000\n"
    "  elseif r.state == 1 then\n"
    "    px = r.until_ - now\n"
    "  end\n"
    "  if px < 1 then px = 1 end\n"
    "  v = pack()\n"
    "  if answer then v = v .. answer end\n"
    "  redis.call('SET', KEYS[1], v, 'PX', px)\n"
    "end\n"
    "local function new(state)\n"
    "  r = {state = state, kept = 0, status = 0, owner = own, fp = fp,\n"
    "       fence = fence > 0 and fence or us, lease = now + lease,\n"
    "       until_ = 0, created = tonumber(t[1]), attempts = 1,\n"
    "       keep = keep, tomb = 0, head = 0, body = 0, issued = 0}\n"
    "end\n"
    "local function bare()\n"
    "  r.kept, r.status, r.head, r.body = 0, 0, 0, 0\n"
    "end\n"
    "local function none()\n"
    "  bare() r.state, r.issued = 0, 0\n"
    "end\n"
    "local function back()\n"
    "  if r.issued > now then\n"
    "    bare() r.state, r.until_ = 1, r.issued\n"
    "  else none() end\n"
    "end\n"
    "local function next_fence()\n"
    "  return math.max(r.fence + 1, us)\n"
    "end\n"
    "local function done()\n"
    "  bare()\n"
    "  r.state, r.status = 4, tonumber(ARGV[9])\n"
    "  r.until_, r.tomb = now + ttl * 1000, tomb\n"
    "  if ARGV[10] == '1' then\n"
    "    r.kept, r.head, r.body = 1, #ARGV[11], #ARGV[12]\n"
    "    save(ARGV[11] .. ARGV[12])\n"
    "  else save() end\n"
    "end\n"
    "local function answer(result, whole)\n"
    "  local value = ''\n"
    "  if r then\n"
    "    value = whole and st == 4 and v or string.sub(v, 1, H)\n"
    "  end\n"
    "  return {result, now, value, ARGV[1]}\n"
    "end\n";


static char  ngx_idempotency_redis_script_claim[] =
    "if flags >= 2 and (not r or st == 0) then return answer(3) end\n"
    "if r and r.owner == own then\n"
    "  if r.state == 2 then\n"
    "    r.lease = now + lease save() return answer(1)\n"
    "  end\n"
    "  if st == 0 or st == 1 then return answer(4) end\n"
    "  return answer(2, true)\n"
    "end\n"
    "if r and st ~= 0 and st ~= 1 and not (st == 3 and flags % 2 == 1\n"
    "   and (fence == 0 or fence == r.fence) and fp == r.fp) then\n"
    "  if st == 5 and r.head + r.body > 0 then\n"
    "    local status = r.status\n"
    "    bare() r.status = status save()\n"
    "  end\n"
    "  return answer(2, true)\n"
    "end\n"
    "if r then\n"
    "  if st ~= 3 then r.created = tonumber(t[1]) end\n"
    "  bare()\n"
    "  r.state, r.owner, r.fp, r.fence = 2, own, fp, next_fence()\n"
    "  r.lease, r.keep, r.attempts = now + lease, keep, r.attempts + 1\n"
    "else fence = 0 new(2) end\n"
    "save() return answer(1)\n";


static char  ngx_idempotency_redis_script_complete[] =
    "if not r then new(2) done() return answer(0) end\n"
    "if r.owner == own then\n"
    "  if r.state == 2 or r.state == 3 then done() return answer(0) end\n"
    "  if r.state == 4 then return answer(0) end\n"
    "end\n"
    "return answer(4, true)\n";


/*
 * A release may overtake its claim on another connection: a key that nobody
 * has refuses that owner from then on, whoever was refused before.
 */

static char  ngx_idempotency_redis_script_release[] =
    "if not r then new(0) save() return answer(0) end\n"
    "if r.owner == own and r.state == 2 then\n"
    "  back() save() return answer(0)\n"
    "end\n"
    "if st == 0 or st == 1 then\n"
    "  r.owner = own save() return answer(0)\n"
    "end\n"
    "return answer(4)\n";


static char  ngx_idempotency_redis_script_mark_unknown[] =
    "if not r then new(3) r.lease = now save() return answer(0) end\n"
    "if r.owner == own then\n"
    "  if r.state == 2 then\n"
    "    bare() r.state, r.lease = 3, now save()\n"
    "    return answer(0)\n"
    "  end\n"
    "  if st == 3 then return answer(0) end\n"
    "end\n"
    "return answer(4)\n";


static char  ngx_idempotency_redis_script_probe[] =
    "if fence > 0 then\n"
    "  if r and r.state == 3 and r.fence == fence then\n"
    "    r.lease = now save() return answer(0)\n"
    "  end\n"
    "  return answer(4)\n"
    "end\n"
    "if st ~= 3 or r.lease > now then return answer(2, true) end\n"
    "bare() r.state, r.fence, r.lease = 3, next_fence(), now + lease\n"
    "save() return answer(1)\n";


static char  ngx_idempotency_redis_script_renew[] =
    "if not r then new(2) save() return answer(0) end\n"
    "if r.state == 2 and r.owner == own then\n"
    "  r.lease = now + lease save() return answer(0)\n"
    "end\n"
    "return answer(4)\n";


static char  ngx_idempotency_redis_script_issue[] =
    "if r and st ~= 0 then return answer(4) end\n"
    "local last = r and next_fence() or us\n"
    "own, fp, lease = string.rep('\\0', 16), string.rep('\\0', 32), 0\n"
    "fence = 0 new(1)\n"
    "r.fence, r.attempts, r.until_ = last, 0, now + ttl * 1000\n"
    "r.issued = r.until_ save() return answer(0)\n";


static char  ngx_idempotency_redis_script_fetch[] =
    "return answer(0, true)\n";


static char  ngx_idempotency_redis_script_executed[] =
    "if st == 3 and r.fence == fence then\n"
    "  r.owner = string.rep('\\0', 16) done() return answer(0)\n"
    "end\n"
    "return answer(4, true)\n";


static char  ngx_idempotency_redis_script_not_executed[] =
    "if st == 3 and r.fence == fence then\n"
    "  back() save() return answer(0)\n"
    "end\n"
    "return answer(4)\n";


static char  ngx_idempotency_redis_script_purge[] =
    "if r and st ~= 0 and st ~= 2 and r.fence == fence then\n"
    "  none() save() return answer(0)\n"
    "end\n"
    "return answer(4)\n";


ngx_int_t
ngx_idempotency_redis_script(ngx_pool_t *pool, ngx_idempotency_op_e type,
    ngx_uint_t executed, ngx_str_t *script)
{
    char    *body;
    u_char  *p;
    size_t   len;

    switch (type) {

    case NGX_IDEMPOTENCY_CLAIM:
        body = ngx_idempotency_redis_script_claim;
        break;

    case NGX_IDEMPOTENCY_COMPLETE:
        body = ngx_idempotency_redis_script_complete;
        break;

    case NGX_IDEMPOTENCY_RELEASE:
        body = ngx_idempotency_redis_script_release;
        break;

    case NGX_IDEMPOTENCY_MARK_UNKNOWN:
        body = ngx_idempotency_redis_script_mark_unknown;
        break;

    case NGX_IDEMPOTENCY_PROBE:
        body = ngx_idempotency_redis_script_probe;
        break;

    case NGX_IDEMPOTENCY_RENEW:
        body = ngx_idempotency_redis_script_renew;
        break;

    case NGX_IDEMPOTENCY_ISSUE:
        body = ngx_idempotency_redis_script_issue;
        break;

    case NGX_IDEMPOTENCY_RESOLVE:
        body = executed ? ngx_idempotency_redis_script_executed
                        : ngx_idempotency_redis_script_not_executed;
        break;

    case NGX_IDEMPOTENCY_PURGE:
        body = ngx_idempotency_redis_script_purge;
        break;

    default: /* NGX_IDEMPOTENCY_FETCH */
        body = ngx_idempotency_redis_script_fetch;
        break;
    }

    len = ngx_strlen(body);

    script->len = sizeof(ngx_idempotency_redis_script_begin) - 1 + len;
    script->data = ngx_pnalloc(pool, script->len);
    if (script->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(script->data, ngx_idempotency_redis_script_begin,
                   sizeof(ngx_idempotency_redis_script_begin) - 1);
    ngx_memcpy(p, body, len);

    return NGX_OK;
}
