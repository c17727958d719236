
/*
 * What a server says about itself, and whether it is the one that was known:
 * a table of what the loss detector believes.  Replies are texts here.
 */


#include "ngx_idempotency_redis_info.h"
#include <stdio.h>


#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define C "cccccccccccccccccccccccccccccccccccccccc"
#define D "dddddddddddddddddddddddddddddddddddddddd"
#define O "0000000000000000000000000000000000000000"

#define SAME       NGX_IDEMPOTENCY_REDIS_SERVER_SAME
#define OTHER      NGX_IDEMPOTENCY_REDIS_SERVER_OTHER
#define SUCCESSOR  NGX_IDEMPOTENCY_REDIS_SERVER_SUCCESSOR

#define NONE       NGX_IDEMPOTENCY_REDIS_HINT_NONE
#define HANDED     NGX_IDEMPOTENCY_REDIS_HINT_HANDED_OVER
#define TAKEN      NGX_IDEMPOTENCY_REDIS_HINT_TAKEN_OVER


typedef struct {
    const char                      *what;
    const char                      *run_id;     /* known; NULL: nobody */
    const char                      *replid;
    const char                      *now;        /* run_id; NULL: not told */
    const char                      *history;
    const char                      *predecessor;
    ngx_idempotency_redis_hint_e     hint;
    ngx_idempotency_redis_server_e   want;
    ngx_uint_t                       slots;
} unit_judge_t;


static unit_judge_t  judged[] = {

    { "the first server", NULL, NULL, A, B, O, NONE, SAME, 0 },
    { "the same", A, B, A, B, O, NONE, SAME, 0 },
    { "the same, its first replica came", A, B, A, C, O, NONE, SAME, 0 },
    { "a replica meanwhile, and back", A, B, A, C, D, NONE, SUCCESSOR, 0 },
    { "the same, and back by hand", A, B, A, C, D, HANDED, OTHER, 1 },
    { "started anew", A, B, C, D, O, NONE, OTHER, 0 },
    { "a replica was promoted", A, B, C, D, B, NONE, SUCCESSOR, 0 },
    { "a replica that was not", A, B, C, B, O, NONE, SUCCESSOR, 0 },
    { "two failovers at once", A, B, C, D, C, NONE, SUCCESSOR, 0 },
    { "slots came to it", A, B, C, D, C, NONE, OTHER, 1 },

    { "taken over, and another worker knows", A, B, A, B, O, TAKEN, SAME, 0 },
    { "taken over, of another shard", A, B, C, D, O, TAKEN, SUCCESSOR, 0 },
    { "taken over, nobody known", NULL, NULL, C, D, O, TAKEN, SUCCESSOR, 0 },
    { "handed over", A, B, C, D, B, HANDED, OTHER, 0 },

    { "nothing is told", A, B, NULL, NULL, NULL, NONE, SAME, 0 },
    { "nothing is told, taken over", A, B, NULL, NULL, NULL, TAKEN,
      SUCCESSOR, 0 },
    { "nothing is told, handed over", A, B, NULL, NULL, NULL, HANDED,
      OTHER, 0 },
    { "nothing at all", NULL, NULL, NULL, NULL, NULL, NONE, SAME, 0 },

    { NULL, NULL, NULL, NULL, NULL, NULL, NONE, SAME, 0 }
};


typedef struct {
    const char                      *what;
    const char                      *text;
    ngx_uint_t                       identified;
    ngx_uint_t                       watched;
    ngx_uint_t                       evicts;
    ngx_uint_t                       version;
} unit_text_t;


#define IDS                                                                   \
    "run_id:" A "\r\n" "master_replid:" B "\r\n" "master_replid2:" O "\r\n"


static unit_text_t  texts[] = {

    { "all of it", "# Server\r\nredis_version:7.0.15\r\n" IDS
      "maxmemory_policy:noeviction\r\nevicted_keys:7\r\n", 1, 1, 0, 7 },

    { "a policy that evicts", IDS
      "maxmemory_policy:volatile-lru\r\nevicted_keys:0\r\n", 1, 1, 1, 0 },

    { "a policy that begins as the right one", IDS
      "maxmemory_policy:noevictions\r\nevicted_keys:0\r\n", 1, 1, 1, 0 },

    { "no count", IDS "maxmemory_policy:noeviction\r\n", 1, 0, 0, 0 },

    { "a count that is none", IDS
      "maxmemory_policy:noeviction\r\nevicted_keys:x\r\n", 1, 0, 0, 0 },

    { "names that end alike",
      "x_run_id:" A "\r\nmaster_replid:" B "\r\nmaster_replid2:" O "\r\n",
      0, 0, 0, 0 },

    { "an identity that is too short",
      "run_id:abc\r\nmaster_replid:" B "\r\nmaster_replid2:" O "\r\n",
      0, 0, 0, 0 },

    { "no line end", "redis_version:10.1", 0, 0, 0, 10 },
    { "no value", "redis_version:\r\n", 0, 0, 0, 0 },
    { "nothing", "", 0, 0, 0, 0 },
    { "a line feed", "\n", 0, 0, 0, 0 },

    { NULL, NULL, 0, 0, 0, 0 }
};


/* the reply is its text */

ngx_idempotency_redis_type_e
ngx_idempotency_redis_reply_type(ngx_idempotency_redis_reply_t *reply)
{
    (void) reply;

    return NGX_IDEMPOTENCY_REDIS_STRING;
}


void
ngx_idempotency_redis_reply_string(ngx_idempotency_redis_reply_t *reply,
    ngx_str_t *s)
{
    s->data = (u_char *) reply;
    s->len = ngx_strlen(reply);
}


ngx_idempotency_redis_reply_t *
ngx_idempotency_redis_reply_element(ngx_idempotency_redis_reply_t *reply,
    ngx_uint_t i)
{
    const char  **parts = (const char **) reply;

    return (ngx_idempotency_redis_reply_t *) parts[i];
}


/* nginx's own, which are not linked */

ngx_int_t
ngx_atoi(u_char *line, size_t n)
{
    ngx_int_t  value;

    if (n == 0) {
        return NGX_ERROR;
    }

    for (value = 0; n--; line++) {
        if (*line < '0' || *line > '9') {
            return NGX_ERROR;
        }

        value = value * 10 + (*line - '0');
    }

    return value;
}


static ngx_uint_t  n, failed;


static void
check(ngx_uint_t fine, const char *kind, const char *what)
{
    n++;
    failed += !fine;

    printf("%sok %lu - %s: %s\n", fine ? "" : "not ", (unsigned long) n, kind,
           what);
}


static void
judge(unit_judge_t *t)
{
    ngx_idempotency_redis_info_t      info;
    ngx_idempotency_redis_identity_t  known;

    ngx_memzero(&info, sizeof(info));

    if (t->run_id) {
        ngx_memcpy(known.run_id, t->run_id, NGX_IDEMPOTENCY_REDIS_ID_LEN);
        ngx_memcpy(known.replid, t->replid, NGX_IDEMPOTENCY_REDIS_ID_LEN);
    }

    if (t->now) {
        info.identified = 1;
        ngx_memcpy(info.identity.run_id, t->now,
                   NGX_IDEMPOTENCY_REDIS_ID_LEN);
        ngx_memcpy(info.identity.replid, t->history,
                   NGX_IDEMPOTENCY_REDIS_ID_LEN);
        ngx_memcpy(info.predecessor, t->predecessor,
                   NGX_IDEMPOTENCY_REDIS_ID_LEN);
    }

    check(ngx_idempotency_redis_info_judge(t->run_id ? &known : NULL, &info,
                                           t->hint, t->slots)
          == t->want,
          "server", t->what);
}


static void
read_text(unit_text_t *t)
{
    ngx_idempotency_redis_info_t  info;

    ngx_memzero(&info, sizeof(info));

    ngx_idempotency_redis_info_read((ngx_idempotency_redis_reply_t *) t->text,
                                    &info);

    check(info.identified == t->identified && info.watched == t->watched
          && info.evicts == t->evicts && info.version == t->version,
          "INFO", t->what);
}


static void
read_time(const char *sec, const char *usec, int64_t want)
{
    const char                    *parts[2];
    ngx_idempotency_redis_info_t   info;

    ngx_memzero(&info, sizeof(info));

    parts[0] = sec;
    parts[1] = usec;

    ngx_idempotency_redis_info_time((ngx_idempotency_redis_reply_t *) parts,
                                    &info);

    check(info.timed == (want >= 0) && (want < 0 || info.time == want),
          "TIME", sec ? sec : "none");
}


int
main(void)
{
    unit_text_t   *text;
    unit_judge_t  *t;

    for (t = judged; t->what; t++) {
        judge(t);
    }

    for (text = texts; text->what; text++) {
        read_text(text);
    }

    read_time("1700000000", "123456", 1700000000123);
    read_time("0", "0", 0);
    read_time("x", "1", -1);
    read_time(NULL, NULL, -1);

    printf("1..%lu\n", (unsigned long) n);

    return failed != 0;
}
