
/*
 * A multipart body (RFC 2046), read piece by piece.
 */


#ifndef _NGX_IDEMPOTENCY_MULTIPART_H_INCLUDED_
#define _NGX_IDEMPOTENCY_MULTIPART_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* RFC 2046, 5.1.1 */
#define NGX_IDEMPOTENCY_MULTIPART_BOUNDARY  70

/* the header lines of one part */
#define NGX_IDEMPOTENCY_MULTIPART_HEADER    4096


/* the header of a part; data is NULL where the part does not have it */

typedef struct {
    ngx_str_t                               name;
    ngx_str_t                               filename;
    ngx_str_t                               filename_ext;   /* "filename*" */
    ngx_str_t                               type;
    ngx_str_t                               encoding;
} ngx_idempotency_multipart_part_t;


/*
 * What the handler is called with.  With "parts": PART, BYTES any number of
 * times and END for each part; preamble and epilogue are left out.  Without:
 * BYTES and END for the preamble and for each part, and BYTES for the epilogue;
 * header lines are bytes like all others and need not be well-formed.
 */

typedef enum {
    NGX_IDEMPOTENCY_MULTIPART_PART = 0,
    NGX_IDEMPOTENCY_MULTIPART_BYTES,
    NGX_IDEMPOTENCY_MULTIPART_END
} ngx_idempotency_multipart_event_e;


/*
 * The states of a reader, each at the next byte:
 *
 *     TEXT -> DELIMITER     behind "--boundary" at the start of a line
 *     DELIMITER -> RETURN   a CR, the rest of the line must be LF
 *     RETURN -> TEXT        a part begins
 *     DELIMITER -> DASH     "-", which must be followed by another one
 *     DASH -> CLOSED        behind the closing delimiter
 *     CLOSED -> LAST        a CR, the rest of the line must be LF
 *     LAST -> EPILOGUE      nothing counts any more
 */

typedef enum {
    NGX_IDEMPOTENCY_MULTIPART_TEXT = 0,
    NGX_IDEMPOTENCY_MULTIPART_DELIMITER,
    NGX_IDEMPOTENCY_MULTIPART_RETURN,
    NGX_IDEMPOTENCY_MULTIPART_DASH,
    NGX_IDEMPOTENCY_MULTIPART_CLOSED,
    NGX_IDEMPOTENCY_MULTIPART_LAST,
    NGX_IDEMPOTENCY_MULTIPART_EPILOGUE
} ngx_idempotency_multipart_state_e;


/* where the line begins that may be a delimiter */

typedef enum {
    NGX_IDEMPOTENCY_MULTIPART_CRLF = 0,
    NGX_IDEMPOTENCY_MULTIPART_LF,        /* without a CR */
    NGX_IDEMPOTENCY_MULTIPART_START,     /* of the body */
    NGX_IDEMPOTENCY_MULTIPART_BEGUN      /* of a part */
} ngx_idempotency_multipart_line_e;


typedef struct ngx_idempotency_multipart_s
    ngx_idempotency_multipart_t;

typedef ngx_int_t (*ngx_idempotency_multipart_pt)(
    ngx_idempotency_multipart_t *mp,
    ngx_idempotency_multipart_event_e event, const u_char *data,
    size_t len);


struct ngx_idempotency_multipart_s {
    ngx_idempotency_multipart_pt       handler;
    void                                   *data;      /* the handler's */
    ngx_idempotency_multipart_part_t   part;      /* of PART */

    char                                   *error;     /* of NGX_DECLINED */
    size_t                                  offset;    /* of a piece's begin */

    ngx_idempotency_multipart_state_e  state;
    ngx_idempotency_multipart_line_e   line;
    size_t                                  match;     /* of "dash", so far */
    size_t                                  header_len;
    size_t                                  dash_len;

    unsigned                                parts:1;
    unsigned                                preamble:1;  /* there is one */
    unsigned                                epilogue:1;
    unsigned                                inside:1;    /* a part */
    unsigned                                content:1;   /* behind its header */
    unsigned                                candidate:1; /* "line" may be one */
    unsigned                                cr:1;        /* held back */

    /* "--boundary" */
    u_char                                  dash
                                 [NGX_IDEMPOTENCY_MULTIPART_BOUNDARY + 2];
    u_char                                  header
                                       [NGX_IDEMPOTENCY_MULTIPART_HEADER];
};


/*
 * Is this the value of a Content-Type of multipart?  Everything else about it
 * is checked by start().
 */
ngx_uint_t ngx_idempotency_multipart_is(const ngx_str_t *type);

/*
 * Begins to read a body of this Content-Type; "handler" and "data" are set by
 * the caller before or afterwards.  NGX_OK, or NGX_DECLINED with mp->error
 * when there is no boundary in it.
 */
ngx_int_t ngx_idempotency_multipart_start(
    ngx_idempotency_multipart_t *mp, const ngx_str_t *type,
    ngx_uint_t parts);

/*
 * Reads the next piece of the body, of any length, and calls the handler with
 * bytes of that piece, or of mp itself.  NGX_OK; NGX_DECLINED with mp->error
 * when the body is malformed; or what the handler returned if not NGX_OK.
 */
ngx_int_t ngx_idempotency_multipart_read(
    ngx_idempotency_multipart_t *mp, const u_char *data, size_t len);

/* The body is over.  NGX_OK, or NGX_DECLINED: no closing delimiter came. */
ngx_int_t ngx_idempotency_multipart_end(
    ngx_idempotency_multipart_t *mp);


/* what the two files of this reader share */

/*
 * mp->header has "len" bytes of whole lines: sets mp->part and calls the
 * handler.  NGX_OK, NGX_DECLINED, or what the handler returned.
 */
ngx_int_t ngx_idempotency_multipart_header(
    ngx_idempotency_multipart_t *mp, size_t len);

/*
 * The next "; name=value".  A quoted value is what stands between the quotes,
 * as it is written: a backslash before a quote or a backslash stays.  NGX_OK;
 * NGX_DONE: there is no other; NGX_DECLINED: malformed.
 */
ngx_int_t ngx_idempotency_multipart_parameter(const u_char **pos,
    const u_char *last, ngx_str_t *name, ngx_str_t *value);

/* Are these equal without case?  "word" is in lower case. */
ngx_uint_t ngx_idempotency_multipart_equal(const ngx_str_t *text,
    const char *word);

/* Notes the error and returns NGX_DECLINED. */
ngx_int_t ngx_idempotency_multipart_error(
    ngx_idempotency_multipart_t *mp, char *error);


/* more than RFC 9110 allows: clients do not quote all that must be */
#define ngx_idempotency_multipart_token(ch)                              \
    ((ch) > ' ' && (ch) != 0x7f && (ch) != ';' && (ch) != '"' && (ch) != '\\')


#endif /* _NGX_IDEMPOTENCY_MULTIPART_H_INCLUDED_ */
