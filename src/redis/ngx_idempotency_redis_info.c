
/*
 * What a server says about itself, and whether it is the one that was known.
 */


#include "ngx_idempotency_redis_info.h"


static ngx_int_t ngx_idempotency_redis_info_line(ngx_str_t *text,
    const char *name, ngx_str_t *value);
static ngx_int_t ngx_idempotency_redis_info_id(ngx_str_t *text,
    const char *name, u_char *id);
static int64_t ngx_idempotency_redis_info_number(
    ngx_idempotency_redis_reply_t *reply, ngx_uint_t i);
static ngx_uint_t ngx_idempotency_redis_info_is(u_char *a, u_char *b);
static ngx_uint_t ngx_idempotency_redis_info_is_nobody(u_char *id);


void
ngx_idempotency_redis_info_read(ngx_idempotency_redis_reply_t *reply,
    ngx_idempotency_redis_info_t *info)
{
    ngx_int_t  n;
    ngx_str_t  text, value, policy;

    if (ngx_idempotency_redis_reply_type(reply)
        != NGX_IDEMPOTENCY_REDIS_STRING)
    {
        return;
    }

    ngx_idempotency_redis_reply_string(reply, &text);

    info->identified =
        (ngx_idempotency_redis_info_id(&text, "run_id:",
                                       info->identity.run_id)
         == NGX_OK
         && ngx_idempotency_redis_info_id(&text, "master_replid:",
                                          info->identity.replid)
            == NGX_OK
         && ngx_idempotency_redis_info_id(&text, "master_replid2:",
                                          info->predecessor)
            == NGX_OK);

    if (ngx_idempotency_redis_info_line(&text, "redis_version:", &value)
        == NGX_OK)
    {
        for (n = 0; n < (ngx_int_t) value.len && value.data[n] != '.'; n++) {
            /* void */
        }

        n = ngx_atoi(value.data, n);
        info->version = (n > 0) ? n : 0;
    }

    if (ngx_idempotency_redis_info_line(&text, "maxmemory_policy:", &policy)
        != NGX_OK
        || ngx_idempotency_redis_info_line(&text, "evicted_keys:", &value)
           != NGX_OK)
    {
        return;
    }

    n = ngx_atoi(value.data, value.len);

    if (n < 0) {
        return;
    }

    info->watched = 1;
    info->evicted = n;
    info->evicts = (policy.len != sizeof("noeviction") - 1
                    || ngx_strncmp(policy.data, "noeviction", policy.len)
                       != 0);

    info->policy_len = ngx_min(policy.len, sizeof(info->policy));
    ngx_memcpy(info->policy, policy.data, info->policy_len);
}


/* a line of "name:value"; the name must not be the end of a longer one */

static ngx_int_t
ngx_idempotency_redis_info_line(ngx_str_t *text, const char *name,
    ngx_str_t *value)
{
    size_t   len;
    u_char  *p, *last;

    len = ngx_strlen(name);
    last = text->data + text->len;

    for (p = text->data; p < last; p++) {

        if ((size_t) (last - p) > len
            && ngx_strncmp(p, name, len) == 0)
        {
            break;
        }

        p = ngx_strlchr(p, last, LF);

        if (p == NULL) {
            return NGX_DECLINED;
        }
    }

    if (p >= last) {
        return NGX_DECLINED;
    }

    value->data = p + len;

    for (p = value->data; p < last && *p != CR && *p != LF; p++) { /* void */ }

    value->len = p - value->data;

    return value->len ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_idempotency_redis_info_id(ngx_str_t *text, const char *name, u_char *id)
{
    ngx_str_t  value;

    if (ngx_idempotency_redis_info_line(text, name, &value) != NGX_OK
        || value.len != NGX_IDEMPOTENCY_REDIS_ID_LEN)
    {
        return NGX_DECLINED;
    }

    ngx_memcpy(id, value.data, value.len);

    return NGX_OK;
}


void
ngx_idempotency_redis_info_time(ngx_idempotency_redis_reply_t *reply,
    ngx_idempotency_redis_info_t *info)
{
    int64_t  sec, usec;

    sec = ngx_idempotency_redis_info_number(reply, 0);
    usec = ngx_idempotency_redis_info_number(reply, 1);

    if (sec < 0 || sec > NGX_MAX_INT_T_VALUE / 1000 || usec < 0) {
        return;
    }

    info->time = sec * 1000 + usec / 1000;
    info->timed = 1;
}


static int64_t
ngx_idempotency_redis_info_number(ngx_idempotency_redis_reply_t *reply,
    ngx_uint_t i)
{
    ngx_str_t                       text;
    ngx_idempotency_redis_reply_t  *element;

    element = ngx_idempotency_redis_reply_element(reply, i);

    if (element == NULL) {
        return NGX_ERROR;
    }

    ngx_idempotency_redis_reply_string(element, &text);

    return ngx_atoi(text.data, text.len);
}


ngx_idempotency_redis_server_e
ngx_idempotency_redis_info_judge(ngx_idempotency_redis_identity_t *known,
    ngx_idempotency_redis_info_t *info, ngx_idempotency_redis_hint_e hint,
    ngx_uint_t slots)
{
    ngx_uint_t  process, history, promoted;

    process = 0;
    history = 0;
    promoted = 0;

    if (info->identified) {
        promoted = !ngx_idempotency_redis_info_is_nobody(info->predecessor);
    }

    if (known && info->identified) {
        process = ngx_idempotency_redis_info_is(known->run_id,
                                                info->identity.run_id);
        history = ngx_idempotency_redis_info_is(known->replid,
                                                info->identity.replid);
    }

    /*
     * The first replica of a server gives it a new replid and no predecessor.
     * With another history and a predecessor it was a replica meanwhile.
     */

    if (process && (history || !promoted)) {
        return NGX_IDEMPOTENCY_REDIS_SERVER_SAME;
    }

    switch (hint) {

    case NGX_IDEMPOTENCY_REDIS_HINT_HANDED_OVER:
        return NGX_IDEMPOTENCY_REDIS_SERVER_OTHER;

    case NGX_IDEMPOTENCY_REDIS_HINT_TAKEN_OVER:
        return NGX_IDEMPOTENCY_REDIS_SERVER_SUCCESSOR;

    default: /* NGX_IDEMPOTENCY_REDIS_HINT_NONE */
        break;
    }

    if (known == NULL || !info->identified) {
        return NGX_IDEMPOTENCY_REDIS_SERVER_SAME;
    }

    if (process || history
        || ngx_idempotency_redis_info_is(known->replid, info->predecessor))
    {
        return NGX_IDEMPOTENCY_REDIS_SERVER_SUCCESSOR;
    }

    /*
     * There may have been two failovers since the last login.  In a cluster a
     * slot may move to a node that was promoted long ago; there the map shows
     * which node has taken over.
     */

    return promoted && !slots ? NGX_IDEMPOTENCY_REDIS_SERVER_SUCCESSOR
                              : NGX_IDEMPOTENCY_REDIS_SERVER_OTHER;
}


static ngx_uint_t
ngx_idempotency_redis_info_is(u_char *a, u_char *b)
{
    return ngx_memcmp(a, b, NGX_IDEMPOTENCY_REDIS_ID_LEN) == 0;
}


/* all zeros: it has no predecessor */

static ngx_uint_t
ngx_idempotency_redis_info_is_nobody(u_char *id)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_ID_LEN; i++) {
        if (id[i] != '0') {
            return 0;
        }
    }

    return 1;
}
