
/*
 * What the two files of the JSON parser share.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_JSON_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_JSON_H_INCLUDED_


#include "ngx_http_idempotency_doc.h"


typedef enum {
    NGX_HTTP_IDEMPOTENCY_JSON_VALUE = 0,
    NGX_HTTP_IDEMPOTENCY_JSON_FIRST,       /* a value, or the array ends */
    NGX_HTTP_IDEMPOTENCY_JSON_NAME,
    NGX_HTTP_IDEMPOTENCY_JSON_FIRST_NAME,  /* a name, or the object ends */
    NGX_HTTP_IDEMPOTENCY_JSON_AFTER        /* a value */
} ngx_http_idempotency_json_state_e;


typedef struct {
    ngx_http_idempotency_doc_t         *doc;
    ngx_http_idempotency_doc_node_t    *node;     /* the last one added */
    const u_char                       *start;
    const u_char                       *pos;
    const u_char                       *last;
    uint32_t                            parent;   /* in which we are */
    ngx_uint_t                          depth;
    ngx_http_idempotency_json_state_e   state;
} ngx_http_idempotency_json_t;


#define ngx_http_idempotency_json_is_digit(c)  ((c) >= '0' && (c) <= '9')


/*
 * Reads the string that begins at j->pos.  "data" is the text itself, or what
 * it means where there are escapes.  NGX_OK, NGX_DECLINED or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_json_string(ngx_http_idempotency_json_t *j,
    const u_char **data, uint32_t *len, ngx_uint_t *escaped);

/* Notes an error at j->pos and returns NGX_DECLINED. */
ngx_int_t ngx_http_idempotency_json_error(ngx_http_idempotency_json_t *j,
    char *error);


#endif /* _NGX_HTTP_IDEMPOTENCY_JSON_H_INCLUDED_ */
