
/*
 * The store in Redis: the records of one state, some at a time.
 *
 * A list is a few calls of its script, each of which scans some keys of one
 * server.  Its cursor is "part.cursor": which part of the keys, a node of a
 * cluster or all of them, and the cursor of SCAN there.
 */


#include "ngx_idempotency_redis_op.h"


/* calls for one list, and the milliseconds after which it makes no more */
#define NGX_IDEMPOTENCY_REDIS_LIST_STEPS  64
#define NGX_IDEMPOTENCY_REDIS_LIST_TIME   250

/* digits of a number of 64 bits */
#define NGX_IDEMPOTENCY_REDIS_LIST_DIGITS 20

/* the length of a record in a reply, without its note */
#define NGX_IDEMPOTENCY_REDIS_LIST_ENTRY                                      \
    (1 + 2 * NGX_IDEMPOTENCY_DIGEST_LEN + NGX_IDEMPOTENCY_RECORD_HEADER)


static u_char *ngx_idempotency_redis_list_dot(ngx_str_t *cursor);
static ngx_int_t ngx_idempotency_redis_list_entry(ngx_idempotency_op_t *op,
    u_char **pos, u_char *last, uint64_t now);


ngx_uint_t
ngx_idempotency_redis_list_is_cursor(ngx_str_t *cursor)
{
    return cursor->len == 0 || ngx_idempotency_redis_list_dot(cursor);
}


/* a number, a dot, a number of 64 bits */

static u_char *
ngx_idempotency_redis_list_dot(ngx_str_t *cursor)
{
    u_char     *p, *last, *dot;
    ngx_int_t   part;

    last = cursor->data + cursor->len;

    dot = ngx_strlchr(cursor->data, last, '.');

    if (dot == NULL || last - dot < 2
        || last - dot - 1 > NGX_IDEMPOTENCY_REDIS_LIST_DIGITS)
    {
        return NULL;
    }

    for (p = dot + 1; p < last; p++) {
        if (*p < '0' || *p > '9') {
            return NULL;
        }
    }

    part = ngx_atoi(cursor->data, dot - cursor->data);

    return part > 0 ? dot : NULL;
}


ngx_int_t
ngx_idempotency_redis_list_args(ngx_idempotency_redis_op_t *rop)
{
    u_char                       *p, *dot;
    ngx_str_t                    *arg, *cursor;
    ngx_idempotency_op_t         *op;
    ngx_idempotency_redis_ctx_t  *ctx;

    op = rop->op;
    ctx = op->store->data;
    cursor = &op->list->cursor;
    arg = rop->args;

    p = ngx_pnalloc(op->pool, NGX_IDEMPOTENCY_OWNER_LEN + 1
                              + op->list->digits.len
                              + NGX_IDEMPOTENCY_REDIS_LIST_DIGITS);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_str_set(&arg[0], "EVALSHA");

    arg[1] = rop->script->sha;

    ngx_str_set(&arg[2], "0");

    arg[3].data = p;
    arg[3].len = NGX_IDEMPOTENCY_OWNER_LEN + 1 + op->list->digits.len;

    p = ngx_cpymem(p, op->id.owner, NGX_IDEMPOTENCY_OWNER_LEN);
    *p++ = (u_char) op->list->state;
    p = ngx_cpymem(p, op->list->digits.data, op->list->digits.len);

    arg[4].data = p;

    if (cursor->len == 0) {
        rop->part = 1;
        arg[4].len = 1;
        *p = '0';

    } else {
        dot = ngx_idempotency_redis_list_dot(cursor);

        rop->part = ngx_atoi(cursor->data, dot - cursor->data);
        arg[4].len = cursor->data + cursor->len - dot - 1;
        ngx_memcpy(p, dot + 1, arg[4].len);
    }

    arg[5] = ctx->prefix;

    rop->nargs = 6;

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_redis_list_read(ngx_idempotency_redis_op_t *rop,
    ngx_str_t *value, uint64_t now)
{
    u_char                  *p, *last;
    size_t                   len;
    ngx_int_t                rc;
    ngx_str_t               *cursor;
    ngx_idempotency_list_t  *list;

    list = rop->op->list;
    cursor = &rop->args[4];

    p = value->data;
    last = p + value->len;

    if (last - p < 5) {
        return NGX_ERROR;
    }

    len = *p++;

    if (len == 0 || len > NGX_IDEMPOTENCY_REDIS_LIST_DIGITS
        || (size_t) (last - p) < 4 + len)
    {
        return NGX_ERROR;
    }

    list->seen += (ngx_uint_t) p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
    p += 4;

    ngx_memcpy(cursor->data, p, len);
    cursor->len = len;
    p += len;

    while (p < last) {

        rc = ngx_idempotency_redis_list_entry(rop->op, &p, last, now);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return NGX_OK;
}


/* the reply is gone when the list is read: its notes are copied */

static ngx_int_t
ngx_idempotency_redis_list_entry(ngx_idempotency_op_t *op, u_char **pos,
    u_char *last, uint64_t now)
{
    u_char                    *p;
    ngx_str_t                  header;
    ngx_idempotency_list_t    *list;
    ngx_idempotency_entry_t   *entry;
    ngx_idempotency_record_t  *record;

    p = *pos;
    list = op->list;

    if (last - p < NGX_IDEMPOTENCY_REDIS_LIST_ENTRY) {
        return NGX_ERROR;
    }

    header.data = p + 1 + 2 * NGX_IDEMPOTENCY_DIGEST_LEN;
    header.len = NGX_IDEMPOTENCY_RECORD_HEADER;

    *pos += NGX_IDEMPOTENCY_REDIS_LIST_ENTRY;

    if (header.data[0] == NGX_IDEMPOTENCY_RECORD_NOTED) {

        if (last - *pos < 2) {
            return NGX_ERROR;
        }

        header.len += 2 + ((*pos)[0] << 8 | (*pos)[1]);

        if (header.len > (size_t) (last - header.data)) {
            return NGX_ERROR;
        }

        *pos = header.data + header.len;
    }

    entry = ngx_array_push(&list->entries);
    if (entry == NULL) {
        return NGX_DECLINED;
    }

    record = &entry->record;

    entry->sequence = (*p == 1);

    if (ngx_idempotency_record_digest(p + 1, entry->digest) != NGX_OK
        || ngx_idempotency_record_decode(&header, now, record) != NGX_OK)
    {
        list->entries.nelts--;
        return NGX_ERROR;
    }

    /* it has expired, and Redis may not have removed it yet */

    if ((record->state != list->state && list->state != NGX_IDEMPOTENCY_NONE)
        || record->ttl_left == 0
        || ngx_idempotency_record_is_dry(entry->digest))
    {
        list->entries.nelts--;
        return NGX_OK;
    }

    if (record->note.len) {
        record->note.data = ngx_pstrdup(op->pool, &record->note);
        if (record->note.data == NULL) {
            list->entries.nelts--;
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_redis_list_next(ngx_idempotency_redis_op_t *rop)
{
    u_char                       *p;
    ngx_str_t                    *cursor;
    ngx_idempotency_op_t         *op;
    ngx_idempotency_list_t       *list;
    ngx_idempotency_redis_ctx_t  *ctx;

    op = rop->op;
    ctx = op->store->data;
    list = op->list;
    cursor = &rop->args[4];

    if (cursor->len == 1 && cursor->data[0] == '0') {

        rop->part = ngx_idempotency_redis_next_part(&ctx->redis, rop->part);

        if (rop->part == 0) {
            list->cursor.len = 0;
            return NGX_OK;
        }
    }

    p = ngx_sprintf(list->text, "%ui.%V", rop->part, cursor);

    list->cursor.len = p - list->text;

    if (++rop->steps == NGX_IDEMPOTENCY_REDIS_LIST_STEPS
        || list->entries.nelts >= NGX_IDEMPOTENCY_LIST_ENTRIES
        || ngx_current_msec - op->submitted >= NGX_IDEMPOTENCY_REDIS_LIST_TIME)
    {
        return NGX_OK;
    }

    rop->deadline = ngx_current_msec + ctx->redis.timeout;

    return NGX_AGAIN;
}
