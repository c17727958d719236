
/*
 * The bytes of a stored answer's head.
 *
 *     version          1 byte
 *     status           number
 *     status line      string, content type, charset: strings
 *     content length   number, plus one; 0 is "none"
 *     last modified    number, plus one; 0 is "none"
 *     headers          number of lines, then name and value of each
 *     trailers         the same
 *
 * A number has seven bits in a byte, the lowest first; the high bit says that
 * another byte follows.  A string is its length, as a number, and its bytes.
 */


#include "ngx_idempotency_record.h"


#define NGX_IDEMPOTENCY_HEAD_VERSION     1
#define NGX_IDEMPOTENCY_HEAD_STRING_MAX  (16 * 1024 * 1024 - 1)

#define NGX_IDEMPOTENCY_MAX_TIME                                              \
    ((uint64_t) 1 << (8 * sizeof(time_t) - 1))

/* is one of the eight bytes of "w" below 0x20? */
#define ngx_idempotency_head_has_control(w)                                   \
    ((((w) - 0x2020202020202020ULL) & ~(w) & 0x8080808080808080ULL) != 0)


typedef struct {
    u_char  *pos;
    u_char  *last;
} ngx_idempotency_head_t;


static ngx_int_t ngx_idempotency_head_len(ngx_idempotency_answer_t *answer,
    size_t *len);
static ngx_int_t ngx_idempotency_head_lines_len(ngx_array_t *lines,
    size_t *len);
static ngx_int_t ngx_idempotency_head_string_len(ngx_str_t *s, size_t *len);
static size_t ngx_idempotency_head_number_len(uint64_t n);
static u_char *ngx_idempotency_head_put_lines(u_char *p, ngx_array_t *lines);
static u_char *ngx_idempotency_head_put_string(u_char *p, ngx_str_t *s);
static u_char *ngx_idempotency_head_put_number(u_char *p, uint64_t n);
static ngx_int_t ngx_idempotency_head_get_lines(ngx_pool_t *pool,
    ngx_idempotency_head_t *h, ngx_array_t *lines);
static ngx_int_t ngx_idempotency_head_get_string(ngx_idempotency_head_t *h,
    ngx_str_t *s);
static ngx_int_t ngx_idempotency_head_get_number(ngx_idempotency_head_t *h,
    uint64_t max, uint64_t *n);
static ngx_uint_t ngx_idempotency_head_is_status_line(ngx_str_t *line,
    ngx_uint_t status);
static ngx_uint_t ngx_idempotency_head_is_text(ngx_str_t *s);


ngx_int_t
ngx_idempotency_record_encode_head(ngx_pool_t *pool,
    ngx_idempotency_answer_t *answer, ngx_str_t *head)
{
    u_char  *p;
    size_t   len;

    if (ngx_idempotency_head_len(answer, &len) != NGX_OK) {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    head->data = p;

    *p++ = NGX_IDEMPOTENCY_HEAD_VERSION;

    p = ngx_idempotency_head_put_number(p, answer->status);
    p = ngx_idempotency_head_put_string(p, &answer->status_line);
    p = ngx_idempotency_head_put_string(p, &answer->content_type);
    p = ngx_idempotency_head_put_string(p, &answer->charset);
    p = ngx_idempotency_head_put_number(p, answer->content_length + 1);
    p = ngx_idempotency_head_put_number(p, answer->last_modified + 1);
    p = ngx_idempotency_head_put_lines(p, &answer->headers);
    p = ngx_idempotency_head_put_lines(p, &answer->trailers);

    head->len = p - head->data;

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_record_decode_head(ngx_pool_t *pool, ngx_str_t *head,
    ngx_idempotency_answer_t *answer)
{
    uint64_t                n;
    ngx_int_t               rc;
    ngx_idempotency_head_t  h;

    ngx_memzero(answer, sizeof(ngx_idempotency_answer_t));

    h.pos = head->data;
    h.last = head->data + head->len;

    if (h.pos == h.last || *h.pos++ != NGX_IDEMPOTENCY_HEAD_VERSION) {
        return NGX_DECLINED;
    }

    if (ngx_idempotency_head_get_number(&h, 999, &n) != NGX_OK) {
        return NGX_DECLINED;
    }

    answer->status = (ngx_uint_t) n;

    if (ngx_idempotency_head_get_string(&h, &answer->status_line) != NGX_OK
        || ngx_idempotency_head_get_string(&h, &answer->content_type) != NGX_OK
        || ngx_idempotency_head_get_string(&h, &answer->charset) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    if (!ngx_idempotency_head_is_status_line(&answer->status_line,
                                             answer->status))
    {
        return NGX_DECLINED;
    }

    if (ngx_idempotency_head_get_number(&h, NGX_MAX_OFF_T_VALUE, &n)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    answer->content_length = (off_t) n - 1;

    if (ngx_idempotency_head_get_number(&h, NGX_IDEMPOTENCY_MAX_TIME - 1, &n)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    answer->last_modified = (time_t) n - 1;

    rc = ngx_idempotency_head_get_lines(pool, &h, &answer->headers);
    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_idempotency_head_get_lines(pool, &h, &answer->trailers);
    if (rc != NGX_OK) {
        return rc;
    }

    return (h.pos == h.last) ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_idempotency_head_len(ngx_idempotency_answer_t *answer, size_t *len)
{
    if (answer->status > 999
        || answer->content_length < -1
        || answer->content_length == NGX_MAX_OFF_T_VALUE
        || answer->last_modified < -1
        || (uint64_t) answer->last_modified == NGX_IDEMPOTENCY_MAX_TIME - 1
        || !ngx_idempotency_head_is_status_line(&answer->status_line,
                                                answer->status))
    {
        return NGX_ERROR;
    }

    *len = 1
           + ngx_idempotency_head_number_len(answer->status)
           + ngx_idempotency_head_number_len(answer->content_length + 1)
           + ngx_idempotency_head_number_len(answer->last_modified + 1);

    if (ngx_idempotency_head_string_len(&answer->status_line, len) != NGX_OK
        || ngx_idempotency_head_string_len(&answer->content_type, len)
           != NGX_OK
        || ngx_idempotency_head_string_len(&answer->charset, len) != NGX_OK
        || ngx_idempotency_head_lines_len(&answer->headers, len) != NGX_OK
        || ngx_idempotency_head_lines_len(&answer->trailers, len) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_head_lines_len(ngx_array_t *lines, size_t *len)
{
    ngx_uint_t                i;
    ngx_idempotency_field_t  *field;

    *len += ngx_idempotency_head_number_len(lines->nelts);

    field = lines->elts;

    for (i = 0; i < lines->nelts; i++) {
        if (ngx_idempotency_head_string_len(&field[i].name, len) != NGX_OK
            || ngx_idempotency_head_string_len(&field[i].value, len)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_head_string_len(ngx_str_t *s, size_t *len)
{
    if (s->len > NGX_IDEMPOTENCY_HEAD_STRING_MAX
        || !ngx_idempotency_head_is_text(s))
    {
        return NGX_ERROR;
    }

    *len += ngx_idempotency_head_number_len(s->len) + s->len;

    return NGX_OK;
}


static size_t
ngx_idempotency_head_number_len(uint64_t n)
{
    size_t  len;

    for (len = 1; n >= 0x80; len++) {
        n >>= 7;
    }

    return len;
}


static u_char *
ngx_idempotency_head_put_lines(u_char *p, ngx_array_t *lines)
{
    ngx_uint_t                i;
    ngx_idempotency_field_t  *field;

    p = ngx_idempotency_head_put_number(p, lines->nelts);

    field = lines->elts;

    for (i = 0; i < lines->nelts; i++) {
        p = ngx_idempotency_head_put_string(p, &field[i].name);
        p = ngx_idempotency_head_put_string(p, &field[i].value);
    }

    return p;
}


static u_char *
ngx_idempotency_head_put_string(u_char *p, ngx_str_t *s)
{
    p = ngx_idempotency_head_put_number(p, s->len);

    if (s->len == 0) {
        return p;
    }

    return ngx_cpymem(p, s->data, s->len);
}


static u_char *
ngx_idempotency_head_put_number(u_char *p, uint64_t n)
{
    while (n >= 0x80) {
        *p++ = (u_char) (n | 0x80);
        n >>= 7;
    }

    *p++ = (u_char) n;

    return p;
}


static ngx_int_t
ngx_idempotency_head_get_lines(ngx_pool_t *pool, ngx_idempotency_head_t *h,
    ngx_array_t *lines)
{
    uint64_t                  n;
    ngx_idempotency_field_t  *field;

    /* a line takes two bytes at least: this bounds the count */

    if (ngx_idempotency_head_get_number(h, (h->last - h->pos) / 2, &n)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    if (n == 0) {
        return NGX_OK;
    }

    if (ngx_array_init(lines, pool, (ngx_uint_t) n,
                       sizeof(ngx_idempotency_field_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    while (n--) {
        field = ngx_array_push(lines);
        if (field == NULL) {
            return NGX_ERROR;
        }

        if (ngx_idempotency_head_get_string(h, &field->name) != NGX_OK
            || ngx_idempotency_head_get_string(h, &field->value) != NGX_OK)
        {
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_head_get_string(ngx_idempotency_head_t *h, ngx_str_t *s)
{
    uint64_t  n;

    if (ngx_idempotency_head_get_number(h, NGX_IDEMPOTENCY_HEAD_STRING_MAX,
                                        &n)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    if (n > (uint64_t) (h->last - h->pos)) {
        return NGX_DECLINED;
    }

    if (n == 0) {
        ngx_str_null(s);
        return NGX_OK;
    }

    s->len = (size_t) n;
    s->data = h->pos;

    h->pos += s->len;

    return ngx_idempotency_head_is_text(s) ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_idempotency_head_get_number(ngx_idempotency_head_t *h, uint64_t max,
    uint64_t *n)
{
    u_char      ch;
    uint64_t    value;
    ngx_uint_t  shift;

    value = 0;

    for (shift = 0; h->pos < h->last && shift < 64; shift += 7) {

        ch = *h->pos++;

        if (shift == 63 && ch > 1) {
            return NGX_DECLINED;
        }

        value |= (uint64_t) (ch & 0x7f) << shift;

        if (ch & 0x80) {
            continue;
        }

        if (ch == 0 && shift) {
            /* no leading zeros: a number has one encoding */
            return NGX_DECLINED;
        }

        if (value > max) {
            return NGX_DECLINED;
        }

        *n = value;

        return NGX_OK;
    }

    return NGX_DECLINED;
}


/*
 * A line as nginx sends it: empty, or three digits that are the status, and
 * any text: "404.13 x" of HTTP, "200OK" of a CGI.  ngx_http_parse_status_line()
 * takes blanks between the digits and keeps the last three bytes of them.
 */

static ngx_uint_t
ngx_idempotency_head_is_status_line(ngx_str_t *line, ngx_uint_t status)
{
    u_char      ch;
    ngx_uint_t  i, code, blanks;

    if (line->len < 3) {
        return line->len == 0;
    }

    ch = 0;
    code = 0;
    blanks = 0;

    for (i = 0; i < 3; i++) {
        ch = line->data[i];

        if (ch == ' ') {
            blanks++;
            continue;
        }

        if (ch < '0' || ch > '9') {
            return 0;
        }

        code = code * 10 + (ch - '0');
    }

    if (blanks) {
        return ch != ' ' && code % 10 == status % 10;
    }

    return code == status;
}


/* the string will be a header line: no CR, LF or zero byte */

static ngx_uint_t
ngx_idempotency_head_is_text(ngx_str_t *s)
{
    u_char    *p, *last, *stop;
    uint64_t   w;

    p = s->data;
    last = p + s->len;

    while (p < last) {

        stop = last;

        if (last - p >= 8) {
            ngx_memcpy(&w, p, 8);

            if (!ngx_idempotency_head_has_control(w)) {
                p += 8;
                continue;
            }

            stop = p + 8;
        }

        for ( /* void */ ; p < stop; p++) {
            if (*p == CR || *p == LF || *p == '\0') {
                return 0;
            }
        }
    }

    return 1;
}
