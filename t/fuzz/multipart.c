
/*
 * A multipart body: the first byte is the size of the pieces, the Content-Type
 * ends with the line, the rest is the body.  What is told does not depend on
 * the pieces; it is all of the body but the boundary, and with another boundary
 * it is the same.
 */


#include "fuzz.h"
#include "ngx_idempotency_multipart.h"


/* what was told, and the body made of it again with "dash" */

typedef struct {
    ngx_int_t   rc;
    ngx_str_t   told;
    ngx_str_t   body;
    ngx_str_t   dash;
    ngx_uint_t  delimiter;    /* was the last */
    ngx_uint_t  first;
} fuzz_read_t;


static void fuzz_read(ngx_pool_t *pool, fuzz_read_t *read, ngx_str_t *type,
    ngx_str_t *body, ngx_uint_t parts, size_t piece);
static ngx_int_t fuzz_told(ngx_idempotency_multipart_t *mp,
    ngx_idempotency_multipart_event_e event, const u_char *data,
    size_t len);
static void fuzz_field(ngx_str_t *told, ngx_str_t *field);
static void fuzz_add(ngx_str_t *to, const void *data, size_t len);
static ngx_uint_t fuzz_same(ngx_str_t *one, ngx_str_t *two);
static ngx_int_t fuzz_other(ngx_pool_t *pool, ngx_str_t *body,
    ngx_str_t *dash);


static ngx_idempotency_multipart_t  fuzz_mp;


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    u_char       *end;
    size_t        piece;
    ngx_str_t     type, other;
    ngx_uint_t    parts;
    fuzz_read_t   whole, pieces, again[2];

    piece = fuzz_byte(in) + 1;

    end = ngx_strlchr(in->data, in->data + in->len, '\n');

    if (end == NULL) {
        return;
    }

    type.data = in->data;
    type.len = end - in->data;
    type = fuzz_copy(pool, &type);

    in->len -= end + 1 - in->data;
    in->data = end + 1;

    for (parts = 0; parts < 2; parts++) {
        ngx_str_null(&whole.dash);
        ngx_str_null(&pieces.dash);

        fuzz_read(pool, &whole, &type, in, parts, in->len + 1);
        fuzz_read(pool, &pieces, &type, in, parts, piece);

        fuzz_want(whole.rc == pieces.rc);

        if (whole.rc != NGX_OK) {
            continue;
        }

        fuzz_want(fuzz_same(&whole.told, &pieces.told));
        fuzz_want(parts || fuzz_same(&whole.body, in));

        if (fuzz_other(pool, in, &other) != NGX_OK) {
            continue;
        }

        /* the body with another boundary, and what is told of that */

        again[0].dash = other;
        fuzz_read(pool, &again[0], &type, in, 0, piece);
        fuzz_want(again[0].rc == NGX_OK);

        ngx_str_null(&again[1].dash);

        type.data = ngx_pnalloc(pool, 128);
        fuzz_want(type.data != NULL);
        type.len = ngx_sprintf(type.data, "multipart/x;boundary=%*s",
                               other.len - 2, other.data + 2)
                   - type.data;

        fuzz_read(pool, &again[1], &type, &again[0].body, parts, piece);

        fuzz_want(again[1].rc == NGX_OK);
        fuzz_want(fuzz_same(&whole.told, &again[1].told));

        *in = again[0].body;
    }
}


static void
fuzz_read(ngx_pool_t *pool, fuzz_read_t *read, ngx_str_t *type,
    ngx_str_t *body, ngx_uint_t parts, size_t piece)
{
    size_t                        i, n;
    ngx_int_t                     rc;
    ngx_str_t                     some;
    ngx_idempotency_multipart_t  *mp;

    mp = &fuzz_mp;

    mp->handler = fuzz_told;
    mp->data = read;

    read->first = 1;
    read->delimiter = 0;
    read->told.len = 0;
    read->told.data = ngx_pnalloc(pool, 16 * body->len + 64);
    read->body.len = 0;
    read->body.data = ngx_pnalloc(pool, 80 * body->len + 64);

    fuzz_want(read->told.data && read->body.data);

    rc = ngx_idempotency_multipart_start(mp, type, parts);

    if (rc == NGX_OK && read->dash.len == 0) {
        read->dash.data = mp->dash;
        read->dash.len = mp->dash_len;
    }

    for (i = 0; rc == NGX_OK && i < body->len; i += n) {
        n = ngx_min(piece, body->len - i);

        some.data = body->data + i;
        some.len = n;
        some = fuzz_copy(pool, &some);

        rc = ngx_idempotency_multipart_read(mp, some.data, n);
    }

    if (rc == NGX_OK) {
        rc = ngx_idempotency_multipart_end(mp);
    }

    fuzz_want(rc == NGX_OK || (rc == NGX_DECLINED && mp->error));
    fuzz_want(mp->offset <= body->len);

    if (rc == NGX_OK && read->delimiter) {
        fuzz_add(&read->body, "--", 2);

        if (mp->epilogue) {
            fuzz_add(&read->body, "\r\n", 2);
        }
    }

    read->rc = rc;
}


static ngx_int_t
fuzz_told(ngx_idempotency_multipart_t *mp,
    ngx_idempotency_multipart_event_e event, const u_char *data,
    size_t len)
{
    fuzz_read_t *read = mp->data;

    ngx_uint_t  epilogue;

    if (event == NGX_IDEMPOTENCY_MULTIPART_PART) {
        fuzz_want(mp->parts && mp->part.name.data);

        fuzz_add(&read->told, "(", 1);
        fuzz_field(&read->told, &mp->part.name);
        fuzz_field(&read->told, &mp->part.filename);
        fuzz_field(&read->told, &mp->part.filename_ext);
        fuzz_field(&read->told, &mp->part.type);
        fuzz_field(&read->told, &mp->part.encoding);

        return NGX_OK;
    }

    epilogue = (mp->state == NGX_IDEMPOTENCY_MULTIPART_EPILOGUE);

    if (read->delimiter) {
        fuzz_add(&read->body, epilogue ? "--\r\n" : "\r\n",
                 epilogue ? 4 : 2);
        read->delimiter = 0;
    }

    if (event == NGX_IDEMPOTENCY_MULTIPART_BYTES) {
        fuzz_want(len != 0);

        fuzz_add(&read->told, data, len);
        fuzz_add(&read->body, data, len);

        return NGX_OK;
    }

    fuzz_add(&read->told, ")", 1);

    if (!read->first || mp->preamble) {
        fuzz_add(&read->body, "\r\n", 2);
    }

    fuzz_add(&read->body, read->dash.data, read->dash.len);

    read->first = 0;
    read->delimiter = 1;

    return NGX_OK;
}


static void
fuzz_field(ngx_str_t *told, ngx_str_t *field)
{
    if (field->data == NULL) {
        fuzz_add(told, "-", 1);
        return;
    }

    fuzz_add(told, "+", 1);
    fuzz_add(told, field->data, field->len);
}


static void
fuzz_add(ngx_str_t *to, const void *data, size_t len)
{
    ngx_memcpy(to->data + to->len, data, len);
    to->len += len;
}


static ngx_uint_t
fuzz_same(ngx_str_t *one, ngx_str_t *two)
{
    return one->len == two->len
           && (one->len == 0
               || ngx_memcmp(one->data, two->data, one->len) == 0);
}


/* one that is nowhere in the body */

static ngx_int_t
fuzz_other(ngx_pool_t *pool, ngx_str_t *body, ngx_str_t *dash)
{
    size_t  n;

    dash->data = ngx_pnalloc(pool, NGX_IDEMPOTENCY_MULTIPART_BOUNDARY + 2);
    fuzz_want(dash->data != NULL);

    ngx_memset(dash->data, 'q', NGX_IDEMPOTENCY_MULTIPART_BOUNDARY + 2);
    dash->data[0] = '-';
    dash->data[1] = '-';

    for (n = 3; n <= NGX_IDEMPOTENCY_MULTIPART_BOUNDARY + 2; n++) {

        if (memmem(body->data, body->len, dash->data, n) == NULL) {
            dash->len = n;
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}
