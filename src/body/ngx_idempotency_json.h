
/*
 * What the two files of the JSON parser share.
 */


#ifndef _NGX_IDEMPOTENCY_JSON_H_INCLUDED_
#define _NGX_IDEMPOTENCY_JSON_H_INCLUDED_


#include "ngx_idempotency_body_tree.h"


typedef enum {
    NGX_IDEMPOTENCY_JSON_ROOT = 0,
    NGX_IDEMPOTENCY_JSON_FIRST,       /* a value, or the array ends */
    NGX_IDEMPOTENCY_JSON_FIRST_NAME,  /* a name, or the object ends */
    NGX_IDEMPOTENCY_JSON_AFTER        /* a value */
} ngx_idempotency_json_state_e;


typedef struct {
    ngx_idempotency_body_tree_t         *tree;
    const u_char                       *start;
    const u_char                       *pos;
    const u_char                       *last;
    uint32_t                            parent;   /* in which we are */
    ngx_uint_t                          depth;
    ngx_idempotency_json_state_e   state;
} ngx_idempotency_json_t;


#define ngx_idempotency_json_is_digit(c)  ((c) >= '0' && (c) <= '9')


/* a byte, eight times */
#define ngx_idempotency_json_each(c)  ((c) * 0x0101010101010101ULL)


/*
 * Reads the string that begins at j->pos.  "data" is the text itself, or what
 * it means where there are escapes.  NGX_OK, NGX_DECLINED or NGX_ERROR.
 */
ngx_int_t ngx_idempotency_json_string_parts(
    ngx_idempotency_json_t *j, const u_char **data, uint32_t *len,
    ngx_uint_t *escaped);

/* Notes an error at j->pos and returns NGX_DECLINED. */
ngx_int_t ngx_idempotency_json_error(ngx_idempotency_json_t *j,
    char *error);


/* Skips plain characters, most of them eight bytes at a time. */

static ngx_inline const u_char *
ngx_idempotency_json_skip(const u_char *p, const u_char *last)
{
    uint64_t  x, stop;

    while (last - p >= 8) {

        ngx_memcpy(&x, p, 8);

        /*
         * the high bit of a byte below the space, of a quote, of a backslash,
         * and of what is not ASCII; a borrow only reaches bytes behind one
         * that has it already, if the first byte is the lowest
         */

        stop = ((x - ngx_idempotency_json_each(0x20))
                | ((x ^ ngx_idempotency_json_each('"'))
                   - ngx_idempotency_json_each(1))
                | ((x ^ ngx_idempotency_json_each('\\'))
                   - ngx_idempotency_json_each(1))
                | x)
               & ngx_idempotency_json_each(0x80);

        if (stop) {
#if (NGX_HAVE_LITTLE_ENDIAN)
            return p + (__builtin_ctzll(stop) >> 3);
#else
            break;
#endif
        }

        p += 8;
    }

    while (p < last && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\') {
        p++;
    }

    return p;
}


/* Reads a string; most have plain characters only. */

static ngx_inline ngx_int_t
ngx_idempotency_json_string(ngx_idempotency_json_t *j,
    const u_char **data, uint32_t *len, ngx_uint_t *escaped)
{
    const u_char  *p, *end;

    p = j->pos + 1;
    end = ngx_idempotency_json_skip(p, j->last);

    if (end == j->last || *end != '"') {
        return ngx_idempotency_json_string_parts(j, data, len, escaped);
    }

    *data = p;
    *len = (uint32_t) (end - p);
    *escaped = 0;

    j->pos = end + 1;

    return NGX_OK;
}


#endif /* _NGX_IDEMPOTENCY_JSON_H_INCLUDED_ */
