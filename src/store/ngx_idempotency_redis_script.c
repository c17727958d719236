
/*
 * What Redis runs for each operation.
 *
 * A record is one value: a header of fixed length, see record.c, and behind
 * it head and body of the answer.  Every script reads it once and writes it
 * at most once.  Time is the server's.
 */


#include "ngx_idempotency_redis_script.h"


/*
 * r says whether a record is there that counts, r_... are its fields; st is
 * its state now: an executing one whose lease is over is unknown (3), a done
 * one past its ttl a tombstone (5).  A script sets result; put, if the record
 * is to be written, with what is behind its header in tail; and whole, if
 * who asked wants the answer too.
 *
 * Behind the header of what is not done are the last eight owners that gave
 * the key up or lost it.  A claim of theirs that arrives late must not be
 * granted, since nobody waits for it.
 *
 * Locals and text instead of a table and functions: making these anew costs
 * Redis more than all that the scripts decide.
 */

#define NGX_IDEMPOTENCY_REDIS_LUA_RECORD                                      \
    "r_state, r_kept, r_x, r_status, r_how, r_owner, r_fp, r_fence,\n"        \
    "r_lease, r_until, r_created, r_attempts, r_keep, r_tomb, r_head,\n"      \
    "r_body, r_issued"

/* a record as this owner would have claimed it */
#define NGX_IDEMPOTENCY_REDIS_LUA_NEW                                         \
    "r, " NGX_IDEMPOTENCY_REDIS_LUA_RECORD " =\n"                             \
    "true, 2, 0, 0, 0, how, own, fp, fence > 0 and fence or us,\n"            \
    "now + lease, 0, t[1], 1, keep, 0, 0, 0, 0\n"

/* without an answer */
#define NGX_IDEMPOTENCY_REDIS_LUA_BARE                                        \
    "r_kept, r_status, r_head, r_body = 0, 0, 0, 0\n"

/*
 * Free, but for its last owner.  The scripts of older gateways do not know
 * r_how and keep it when they claim: it must be 0, or it would describe a
 * fingerprint that they have replaced.
 */
#define NGX_IDEMPOTENCY_REDIS_LUA_NONE                                        \
    NGX_IDEMPOTENCY_REDIS_LUA_BARE                                            \
    "r_state, r_issued, r_how = 0, 0, 0\n"

/* free, or issued if it was */
#define NGX_IDEMPOTENCY_REDIS_LUA_BACK                                        \
    "if r_issued > now then\n"                                                \
    NGX_IDEMPOTENCY_REDIS_LUA_BARE                                            \
    "r_state, r_until, r_how = 1, r_issued, 0\n"                              \
    "else\n"                                                                  \
    NGX_IDEMPOTENCY_REDIS_LUA_NONE                                            \
    "end\n"

#define NGX_IDEMPOTENCY_REDIS_LUA_FENCE                                       \
    "math.max(r_fence + 1, us)"

/* a claim of this owner is not granted any more */
#define NGX_IDEMPOTENCY_REDIS_LUA_BURY(owner)                                 \
    "if " owner " ~= string.rep('\\0', 16)\n"                                 \
    "   and not string.find(tail, " owner ", 1, true) then\n"                 \
    "  tail = string.sub(tail .. " owner ", -128)\n"                          \
    "end\n"

/* from whoever has given it up or lost it */
#define NGX_IDEMPOTENCY_REDIS_LUA_TAKE                                        \
    NGX_IDEMPOTENCY_REDIS_LUA_BARE                                            \
    NGX_IDEMPOTENCY_REDIS_LUA_BURY("r_owner")                                 \
    "r_state, r_owner, r_fp, r_how = 2, own, fp, how\n"                       \
    "r_lease, r_keep, r_attempts = now + lease, keep, r_attempts + 1\n"

/*
 * Who asks runs.  Where nothing is there its claim was lost, and also where
 * the key reads as free and this owner has not given it up: that is an older
 * copy, or came after the loss.  It is claimed anew.
 */
#define NGX_IDEMPOTENCY_REDIS_LUA_LOST                                        \
    "if not r then\n"                                                         \
    NGX_IDEMPOTENCY_REDIS_LUA_NEW                                             \
    "elseif (st == 0 or st == 1) and r_owner ~= own\n"                        \
    "   and not string.find(tail, own, 1, true) then\n"                       \
    NGX_IDEMPOTENCY_REDIS_LUA_TAKE                                            \
    "  r_created = t[1]\n"                                                    \
    "  r_fence = math.max(r_fence + 1, fence > 0 and fence or us)\n"          \
    "end\n"

#define NGX_IDEMPOTENCY_REDIS_LUA_DONE                                        \
    "r_state, r_kept, r_status = 4, kept, status\n"                           \
    "r_until, r_tomb = now + ttl * 1000, tomb\n"                              \
    "tail = ARGV[2]\n"                                                        \
    "r_head, r_body = head, #tail - head\n"


static char  ngx_idempotency_redis_script_begin[] =
    "local own = string.sub(ARGV[1], 1, 16)\n"
    "local t = redis.call('TIME')\n"
    "local us = t[1] * 1000000 + t[2]\n"
    "local now = (us - us % 1000) / 1000\n"
    "local v = redis.call('GET', KEYS[1])\n";


/*
 * A claim of what is done gets the record as it is, whoever asks: what most
 * duplicates get is not taken apart.
 */

static char  ngx_idempotency_redis_script_replay[] =
    "if v and #v >= 116 and string.sub(v, 1, 2) == '\\1\\4'\n"
    "   and struct.unpack('>I8', v, 73) > now then\n"
    "  return struct.pack('>BI8c16', 2, now, own) .. v\n"
    "end\n";


static char  ngx_idempotency_redis_script_decode[] =
    "local fp, lease, keep, ttl, tomb, fence, head, status, flags, kept, how\n"
    "  = struct.unpack('>c32I8I8I8I8I8I4I2BBI2', ARGV[1], 17)\n"
    "local tell = flags >= 32\n"
    "if tell then flags = flags - 32 end\n"
    "local F = '>BBBBI2I2c16c32I8I8I8I8I4I4I4I4I4I8'\n"
    "local result, put, whole, st, r\n"
    "local tail, value = '', ''\n"
    "local version, " NGX_IDEMPOTENCY_REDIS_LUA_RECORD "\n"
    "if v then\n"
    "  if #v >= 116 then\n"
    "    version, " NGX_IDEMPOTENCY_REDIS_LUA_RECORD " = struct.unpack(F, v)\n"
    "  end\n"
    "  if version ~= 1 then\n"
    "    return struct.pack('>BI8c16', 9, now, own)\n"
    "  end\n"
    "  st = r_state\n"
    "  if st == 2 and r_lease <= now then st = 3 end\n"
    "  if st == 4 and r_until <= now then st = 5 end\n"
    "  r = not (st == 5 and r_until + r_tomb * 1000 <= now\n"
    "           or st == 1 and r_until <= now)\n"
    "  if not r then st = nil\n"
    "  elseif r_state < 4 and #v > 116 then tail = string.sub(v, 117) end\n"
    "end\n";


static char  ngx_idempotency_redis_script_end[] =
    "if put then\n"
    "  local px = flags >= 4 and r_keep * 1000 or 600000\n"
    "  if r_state == 2 or r_state == 3 then\n"
    "    px = r_lease - now + r_keep * 1000\n"
    "  elseif r_state == 4 then\n"
    "    px = r_until - now + r_tomb * 1000\n"
    "  elseif r_state == 1 then\n"
    "    px = r_until - now\n"
    "  end\n"
    "  if px < 1 then px = 1 end\n"
    "  value = struct.pack(F, 1, " NGX_IDEMPOTENCY_REDIS_LUA_RECORD ")\n"
    "  redis.call('SET', KEYS[1], value .. tail, 'PX', px)\n"
    "  if tell and result == 0 then\n"
    "    local said = redis.pcall('SPUBLISH', KEYS[1], '')\n"
    "    if type(said) == 'table' then\n"
    "      redis.pcall('PUBLISH', KEYS[1], '')\n"
    "    end\n"
    "  end\n"
    "elseif r then\n"
    "  value = whole and st == 4 and v or string.sub(v, 1, 116)\n"
    "end\n"
    "return struct.pack('>BI8c16', result, now, own) .. value\n";


/*
 * Who first meets a tombstone drops its answer.  That gives memory back, and
 * is left to the next one where the server does not write: it is full, say.
 */

static char  ngx_idempotency_redis_script_claim[] =
    "-- claim\n"
    "if flags % 4 >= 2 and (not r or st == 0) then result = 3\n"
    "elseif r and r_owner == own then\n"
    "  if r_state == 2 then\n"
    "    result, put, r_lease = 1, true, now + lease\n"
    "  elseif st == 0 or st == 1 then result = 4\n"
    "  else result, whole = 2, true end\n"
    "elseif (st == 0 or st == 1) and string.find(tail, own, 1, true) then\n"
    "  result = 4\n"
    "elseif r and st ~= 0 and st ~= 1 and not (st == 3 and flags % 2 == 1\n"
    "   and (fence == 0 or fence == r_fence) and fp == r_fp) then\n"
    "  result, whole = 2, true\n"
    "  if st == 5 and r_head + r_body > 0 then\n"
    "    local was = r_status\n"
    NGX_IDEMPOTENCY_REDIS_LUA_BARE
    "    r_status = was\n"
    "    v = struct.pack(F, 1, " NGX_IDEMPOTENCY_REDIS_LUA_RECORD ")\n"
    "    redis.pcall('SET', KEYS[1], v, 'PX',\n"
    "                r_until - now + r_tomb * 1000)\n"
    "  end\n"
    "else\n"
    "  result, put = 1, true\n"
    "  if r then\n"
    "    if st ~= 3 then r_created = t[1] end\n"
    NGX_IDEMPOTENCY_REDIS_LUA_TAKE
    "    r_fence = " NGX_IDEMPOTENCY_REDIS_LUA_FENCE "\n"
    "  else\n"
    "    fence = 0\n"
    NGX_IDEMPOTENCY_REDIS_LUA_NEW
    "  end\n"
    "end\n";


static char  ngx_idempotency_redis_script_complete[] =
    "-- complete\n"
    NGX_IDEMPOTENCY_REDIS_LUA_LOST
    "if r_owner == own and (r_state == 2 or r_state == 3) then\n"
    "  result, put = 0, true\n"
    NGX_IDEMPOTENCY_REDIS_LUA_DONE
    "elseif r_owner == own and r_state == 4 then result = 0\n"
    "else result, whole = 4, true end\n";


/*
 * A release may overtake its claim on another connection: that owner is
 * refused from then on, and so are those that were refused before.
 */

static char  ngx_idempotency_redis_script_release[] =
    "-- release\n"
    "result = 4\n"
    "if not r then\n"
    NGX_IDEMPOTENCY_REDIS_LUA_NEW
    "  result, put, r_state, r_how = 0, true, 0, 0\n"
    "elseif r_owner == own and r_state == 2 then\n"
    "  result, put = 0, true\n"
    NGX_IDEMPOTENCY_REDIS_LUA_BACK
    "elseif st == 0 or st == 1 then\n"
    "  if r_owner ~= own then\n"
    NGX_IDEMPOTENCY_REDIS_LUA_BURY("r_owner")
    "  end\n"
    "  result, put, r_owner = 0, true, own\n"
    "elseif r_owner ~= own and r_state < 4 then\n"
    NGX_IDEMPOTENCY_REDIS_LUA_BURY("own")
    "  put = true\n"
    "end\n";


static char  ngx_idempotency_redis_script_mark_unknown[] =
    "-- unknown\n"
    "result = 4\n"
    NGX_IDEMPOTENCY_REDIS_LUA_LOST
    "if r_owner == own then\n"
    "  if r_state == 2 then\n"
    "    result, put = 0, true\n"
    NGX_IDEMPOTENCY_REDIS_LUA_BARE
    "    r_state, r_lease = 3, now\n"
    "  elseif st == 3 then result = 0 end\n"
    "end\n";


static char  ngx_idempotency_redis_script_probe[] =
    "-- probe\n"
    "if fence > 0 then\n"
    "  result = 4\n"
    "  if r and r_state == 3 and r_fence == fence then\n"
    "    result, put, r_lease = 0, true, now\n"
    "  end\n"
    "elseif st ~= 3 or r_lease > now then result, whole = 2, true\n"
    "else\n"
    NGX_IDEMPOTENCY_REDIS_LUA_BARE
    "  result, put, r_state, r_lease = 1, true, 3, now + lease\n"
    "  r_fence = " NGX_IDEMPOTENCY_REDIS_LUA_FENCE "\n"
    "end\n";


static char  ngx_idempotency_redis_script_renew[] =
    "-- renew\n"
    NGX_IDEMPOTENCY_REDIS_LUA_LOST
    "result = 4\n"
    "if r_state == 2 and r_owner == own then\n"
    "  result, put, r_lease = 0, true, now + lease\n"
    "end\n";


/* whom the stub refused is refused still */

static char  ngx_idempotency_redis_script_issue[] =
    "-- issue\n"
    "if r and st ~= 0 then result = 4\n"
    "else\n"
    "  local tries = r and r_attempts or 0\n"
    "  local dead = r and r_owner or string.rep('\\0', 16)\n"
    "  fence = r and " NGX_IDEMPOTENCY_REDIS_LUA_FENCE " or us\n"
    NGX_IDEMPOTENCY_REDIS_LUA_NEW
    "  r_owner, r_fp = dead, string.rep('\\0', 32)\n"
    "  r_until = now + ttl * 1000\n"
    "  r_state, r_lease, r_attempts, r_issued = 1, now, tries, r_until\n"
    "  result, put = 0, true\n"
    "end\n";


static char  ngx_idempotency_redis_script_fetch[] =
    "-- fetch\n"
    "result, whole = 0, flags < 16\n";


static char  ngx_idempotency_redis_script_executed[] =
    "-- executed\n"
    "if st == 3 and r_fence == fence then\n"
    NGX_IDEMPOTENCY_REDIS_LUA_DONE
    "  result, put, r_owner = 0, true, string.rep('\\0', 16)\n"
    "else result, whole = 4, true end\n";


static char  ngx_idempotency_redis_script_not_executed[] =
    "-- not executed\n"
    "result = 4\n"
    "if st == 3 and r_fence == fence then\n"
    "  result, put = 0, true\n"
    NGX_IDEMPOTENCY_REDIS_LUA_BACK
    "end\n";


static char  ngx_idempotency_redis_script_purge[] =
    "-- purge\n"
    "result = 4\n"
    "if r and st ~= 0 and st ~= 2 and r_fence == fence then\n"
    "  result, put = 0, true\n"
    NGX_IDEMPOTENCY_REDIS_LUA_NONE
    "  redis.pcall('PUBLISH', ARGV[2], '')\n"
    "end\n";


/*
 * Some of the server's keys, and of these the records that are in one state.
 * It stands alone: there is no KEYS[1], and it writes nothing.  A record has
 * 64 characters behind the prefix, or 66 if it is one of a sequence; whatever
 * else is there is somebody else's.
 */

static char  ngx_idempotency_redis_script_list[] =
    "-- list\n"
    "local own, want = struct.unpack('>c16B', ARGV[1])\n"
    "local prefix, len, seen, out = ARGV[3], #ARGV[3], 0, {}\n"
    "local call, sub = redis.pcall, string.sub\n"
    "local was = want == 3 and 2 or want == 5 and 4 or want\n"
    "local t = redis.call('TIME')\n"
    "local now = t[1] * 1000 + (t[2] - t[2] % 1000) / 1000\n"
    "local some = redis.call('SCAN', ARGV[2], 'COUNT', 250)\n"
    "local keys = some[2]\n"
    "for i = 1, #keys do\n"
    "  local key = keys[i]\n"
    "  local n = #key - len\n"
    "  if (n == 64 or n == 66) and sub(key, 1, len) == prefix then\n"
    "    local begin = call('GETRANGE', key, 0, 1)\n"
    "    local version, st\n"
    "    if type(begin) == 'string' then\n"
    "      version, st = string.byte(begin, 1, 2)\n"
    "    end\n"
    "    if version == 1 then seen = seen + 1 end\n"
    "    if version == 1 and (st == want or st == was) then\n"
    "      local name, sequence = sub(key, len + 1), '\\0'\n"
    "      local v = call('GETRANGE', key, 0, 115)\n"
    "      if n == 66 then\n"
    "        name, sequence = string.gsub(name, '[{}]', ''), '\\1'\n"
    "      end\n"
    "      if #name == 64 and not string.find(name, '%X') and #v == 116 then\n"
    "        local lease, stop = struct.unpack('>I8I8', v, 65)\n"
    "        if st == 2 and lease <= now then st = 3\n"
    "        elseif st == 4 and stop <= now then st = 5 end\n"
    "        if st == want then out[#out + 1] = sequence .. name .. v end\n"
    "      end\n"
    "    end\n"
    "  end\n"
    "end\n"
    "return struct.pack('>BI8c16BI4', 0, now, own, #some[1], seen)\n"
    "       .. some[1] .. table.concat(out)\n";


/*
 * A number of a sequence.  m is its mark or nil: 1, epoch and the lowest number
 * that was never claimed.  Numbers have halves, since those of Lua are exact up
 * to 2^53 only.  known: there is a record; below: the number is below the
 * mark; a stub there is one that was released.
 */

#define NGX_IDEMPOTENCY_REDIS_LUA_MARK                                        \
    "local n1, n2, x1, x2, e1, e2 = struct.unpack('>I4I4I4I4I4I4', ARGV[1],\n"\
    "                                             99)\n"                      \
    "local m = redis.call('GET', KEYS[2])\n"                                  \
    "local E1, E2, N1, N2\n"                                                  \
    "if m then\n"                                                             \
    "  if #m ~= 17 or string.byte(m) ~= 1 then\n"                             \
    "    return struct.pack('>BI8c16', 9, now, own)\n"                        \
    "  end\n"                                                                 \
    "  E1, E2, N1, N2 = struct.unpack('>I4I4I4I4', m, 2)\n"                   \
    "end\n"                                                                   \
    "local old = m and (e1 < E1 or e1 == E1 and e2 < E2)\n"                   \
    "local same = m and e1 == E1 and e2 == E2\n"                              \
    "local below = same and (n1 < N1 or n1 == N1 and n2 < N2)\n"              \
    "local life = (math.max(keep, ttl + tomb) + 86400) * 1000\n"


static char  ngx_idempotency_redis_script_number[] =
    NGX_IDEMPOTENCY_REDIS_LUA_MARK
    "local known = r and st ~= 0\n"
    "local strict = flags >= 8\n"
    "local gap = strict and m and not known and not below\n"
    "            and not (same and n1 == N1 and n2 == N2)\n"
    "            and not (not same and n1 == 0 and n2 <= 1)\n"
    "if old or gap or below and not r then\n"
    "  local expected = ''\n"
    "  if strict and not old then\n"
    "    expected = same and string.sub(m, 10) or string.rep('\\0', 8)\n"
    "  end\n"
    "  return struct.pack('>BI8c16', 5, now, own) .. expected\n"
    "end\n";


/*
 * Where the record is there and the mark is not, the mark is made anew if the
 * server writes; what is known is answered in any case.
 */

static char  ngx_idempotency_redis_script_number_end[] =
    "if (result == 1 or result == 2) and not below then\n"
    "  local set = result == 1 and redis.call or redis.pcall\n"
    "  set('SET', KEYS[2], '\\1' .. string.sub(ARGV[1], 115, 122)\n"
    "             .. string.sub(ARGV[1], 107, 114), 'PX', life)\n"
    "elseif result == 1 then redis.call('PEXPIRE', KEYS[2], life) end\n";


/*
 * A stub says that the number was claimed and never executed: a release that
 * finds nothing below the mark leaves none.
 */

static char  ngx_idempotency_redis_script_back[] =
    NGX_IDEMPOTENCY_REDIS_LUA_MARK
    "if not r and (below or old) then\n"
    "  return struct.pack('>BI8c16', 0, now, own)\n"
    "end\n"
    "if r and r_owner == own and r_state == 2\n"
    "   and same and x1 == N1 and x2 == N2 then\n"
    "  redis.call('SET', KEYS[2], '\\1' .. string.sub(ARGV[1], 115, 122)\n"
    "             .. string.sub(ARGV[1], 99, 106), 'PX', life)\n"
    "end\n";


typedef struct {
    char                              *early;     /* NULL: it stands alone */
    char                              *before;
    char                              *body;
    char                              *behind;
} ngx_idempotency_redis_parts_t;


/* in the order of ngx_idempotency_op_e and ngx_idempotency_redis_script_e */

static ngx_idempotency_redis_parts_t  ngx_idempotency_redis_scripts[] = {
    { ngx_idempotency_redis_script_replay, "",
      ngx_idempotency_redis_script_claim, "" },
    { "", "", ngx_idempotency_redis_script_complete, "" },
    { "", "", ngx_idempotency_redis_script_release, "" },
    { "", "", ngx_idempotency_redis_script_mark_unknown, "" },
    { "", "", ngx_idempotency_redis_script_probe, "" },
    { "", "", ngx_idempotency_redis_script_renew, "" },
    { "", "", ngx_idempotency_redis_script_issue, "" },
    { "", "", ngx_idempotency_redis_script_fetch, "" },
    { "", "", ngx_idempotency_redis_script_not_executed, "" },
    { "", "", ngx_idempotency_redis_script_purge, "" },
    { NULL, NULL, ngx_idempotency_redis_script_list, NULL },
    { "", "", ngx_idempotency_redis_script_executed, "" },
    { "", ngx_idempotency_redis_script_number,
      ngx_idempotency_redis_script_claim,
      ngx_idempotency_redis_script_number_end },
    { "", ngx_idempotency_redis_script_back,
      ngx_idempotency_redis_script_release, "" }
};


ngx_int_t
ngx_idempotency_redis_script(ngx_pool_t *pool,
    ngx_idempotency_redis_script_e type, ngx_str_t *script)
{
    u_char                         *p;
    ngx_idempotency_redis_parts_t  *parts;

    parts = &ngx_idempotency_redis_scripts[type];

    if (parts->early == NULL) {
        script->data = (u_char *) parts->body;
        script->len = ngx_strlen(parts->body);

        return NGX_OK;
    }

    script->data = ngx_pnalloc(pool,
                               sizeof(ngx_idempotency_redis_script_begin)
                               + ngx_strlen(parts->early)
                               + sizeof(ngx_idempotency_redis_script_decode)
                               + ngx_strlen(parts->before)
                               + ngx_strlen(parts->body)
                               + ngx_strlen(parts->behind)
                               + sizeof(ngx_idempotency_redis_script_end));
    if (script->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(script->data, "%s%s%s%s%s%s%s",
                    ngx_idempotency_redis_script_begin, parts->early,
                    ngx_idempotency_redis_script_decode, parts->before,
                    parts->body, parts->behind,
                    ngx_idempotency_redis_script_end);

    script->len = p - script->data;

    return NGX_OK;
}


ngx_uint_t
ngx_idempotency_redis_script_of(ngx_idempotency_op_t *op)
{
    if (op->type == NGX_IDEMPOTENCY_RESOLVE && op->executed) {
        return NGX_IDEMPOTENCY_REDIS_EXECUTED;
    }

    if (op->flags & NGX_IDEMPOTENCY_SEQUENCE) {

        if (op->type == NGX_IDEMPOTENCY_CLAIM) {
            return NGX_IDEMPOTENCY_REDIS_CLAIM_NUMBER;
        }

        if (op->type == NGX_IDEMPOTENCY_RELEASE) {
            return NGX_IDEMPOTENCY_REDIS_RELEASE_NUMBER;
        }
    }

    return op->type;
}
