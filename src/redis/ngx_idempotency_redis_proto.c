
/*
 * RESP through hiredis: the only place that knows it.
 *
 * hiredis believes what a header announces: it allocates an array of that
 * many elements and waits for a string of that length.  So the bytes are
 * framed here first, headers only, and hiredis never sees what is not RESP,
 * too long, too wide or too deep.
 */


#include <hiredis/hiredis.h>

#include "ngx_idempotency_redis_proto.h"


/* arguments of a command for which no memory is allocated */
#define NGX_IDEMPOTENCY_REDIS_ARGS      32

/* a status, an error, a number or a header */
#define NGX_IDEMPOTENCY_REDIS_LINE      65536

#define NGX_IDEMPOTENCY_REDIS_ELEMENTS  16384

/* hiredis stops at 8 */
#define NGX_IDEMPOTENCY_REDIS_DEPTH     7


typedef enum {
    NGX_IDEMPOTENCY_REDIS_AT_TYPE = 0,
    NGX_IDEMPOTENCY_REDIS_AT_LINE,
    NGX_IDEMPOTENCY_REDIS_AT_LINE_LF,
    NGX_IDEMPOTENCY_REDIS_AT_BULK,
    NGX_IDEMPOTENCY_REDIS_AT_BULK_CR,
    NGX_IDEMPOTENCY_REDIS_AT_BULK_LF
} ngx_idempotency_redis_place_e;


struct ngx_idempotency_redis_reader_s {
    redisReader                    *parser;
    size_t                          held;      /* bytes it had at most */
    size_t                          max;
    const char                     *error;

    /* the frame around the next byte */

    ngx_idempotency_redis_place_e   place;
    u_char                          type;
    size_t                          line;      /* bytes of this line */
    size_t                          number;    /* of its header */
    size_t                          bulk;      /* bytes of the string to come */
    size_t                          size;      /* bytes of this reply so far */
    ngx_uint_t                      depth;
    ngx_uint_t                      left[NGX_IDEMPOTENCY_REDIS_DEPTH];

    unsigned                        digits:1;
    unsigned                        negative:1;
};


static ngx_int_t ngx_idempotency_redis_reader_parser(
    ngx_idempotency_redis_reader_t *reader);
static size_t ngx_idempotency_redis_scan(
    ngx_idempotency_redis_reader_t *reader, u_char *data, size_t len);
static void ngx_idempotency_redis_scan_type(
    ngx_idempotency_redis_reader_t *reader, u_char ch);
static void ngx_idempotency_redis_scan_line(
    ngx_idempotency_redis_reader_t *reader, u_char ch);
static void ngx_idempotency_redis_scan_header(
    ngx_idempotency_redis_reader_t *reader);
static void ngx_idempotency_redis_scan_element(
    ngx_idempotency_redis_reader_t *reader);


ngx_int_t
ngx_idempotency_redis_encode(ngx_str_t *args, ngx_uint_t n, ngx_str_t *bytes)
{
    char         *target;
    size_t       *lens, len_buf[NGX_IDEMPOTENCY_REDIS_ARGS];
    long long     len;
    ngx_uint_t    i;
    const char  **argv, *argv_buf[NGX_IDEMPOTENCY_REDIS_ARGS];

    if (n == 0) {
        return NGX_ERROR;
    }

    argv = argv_buf;
    lens = len_buf;

    if (n > NGX_IDEMPOTENCY_REDIS_ARGS) {
        argv = ngx_alloc(n * (sizeof(char *) + sizeof(size_t)),
                         ngx_cycle->log);
        if (argv == NULL) {
            return NGX_ERROR;
        }

        lens = (size_t *) (argv + n);
    }

    for (i = 0; i < n; i++) {
        argv[i] = args[i].data ? (char *) args[i].data : "";
        lens[i] = args[i].len;
    }

    /* redisFormatCommandArgv() would print each length by sprintf() */

    target = NULL;
    len = redisFormatSdsCommandArgv(&target, (int) n, argv, lens);

    if (argv != argv_buf) {
        ngx_free(argv);
    }

    if (len < 0 || target == NULL) {
        return NGX_ERROR;
    }

    bytes->data = (u_char *) target;
    bytes->len = (size_t) len;

    return NGX_OK;
}


void
ngx_idempotency_redis_encode_free(ngx_str_t *bytes)
{
    redisFreeSdsCommand((sds) bytes->data);
    ngx_str_null(bytes);
}


ngx_idempotency_redis_reader_t *
ngx_idempotency_redis_reader_create(size_t max)
{
    ngx_idempotency_redis_reader_t  *reader;

    reader = ngx_calloc(sizeof(ngx_idempotency_redis_reader_t),
                        ngx_cycle->log);
    if (reader == NULL) {
        return NULL;
    }

    if (ngx_idempotency_redis_reader_parser(reader) != NGX_OK) {
        ngx_free(reader);
        return NULL;
    }

    reader->max = max;

    return reader;
}


/*
 * A new one with a small buffer.  hiredis would replace a large one itself,
 * with an assertion that there is memory for it: "maxbuf" switches that off.
 */

static ngx_int_t
ngx_idempotency_redis_reader_parser(ngx_idempotency_redis_reader_t *reader)
{
    redisReader  *parser;

    parser = redisReaderCreate();
    if (parser == NULL) {
        return NGX_ERROR;
    }

    parser->maxbuf = 0;

    if (reader->parser) {
        redisReaderFree(reader->parser);
    }

    reader->parser = parser;
    reader->held = 0;

    return NGX_OK;
}


void
ngx_idempotency_redis_reader_free(ngx_idempotency_redis_reader_t *reader)
{
    redisReaderFree(reader->parser);
    ngx_free(reader);
}


ngx_int_t
ngx_idempotency_redis_reader_feed(ngx_idempotency_redis_reader_t *reader,
    u_char *data, size_t len)
{
    size_t  good;

    if (reader->error) {
        return NGX_OK;
    }

    good = ngx_idempotency_redis_scan(reader, data, len);

    if (good == 0) {
        return NGX_OK;
    }

    if (reader->held > REDIS_READER_MAX_BUF
        && reader->parser->ridx == -1
        && reader->parser->pos == reader->parser->len)
    {
        /* without memory for another one this one goes on */

        (void) ngx_idempotency_redis_reader_parser(reader);
    }

    if (redisReaderFeed(reader->parser, (char *) data, good) != REDIS_OK) {
        return NGX_ERROR;
    }

    reader->held = ngx_max(reader->held, reader->parser->len);

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_redis_reader_next(ngx_idempotency_redis_reader_t *reader,
    ngx_idempotency_redis_reply_t **reply)
{
    void  *object;

    object = NULL;

    if (redisReaderGetReply(reader->parser, &object) != REDIS_OK) {

        if (object) {
            freeReplyObject(object);
        }

        reader->error = reader->parser->errstr;

        return NGX_ERROR;
    }

    if (object) {
        *reply = object;
        return NGX_OK;
    }

    return reader->error ? NGX_ERROR : NGX_AGAIN;
}


const char *
ngx_idempotency_redis_reader_error(ngx_idempotency_redis_reader_t *reader)
{
    return reader->error ? reader->error : "no error";
}


/* how many bytes, from the first on, hiredis may see */

static size_t
ngx_idempotency_redis_scan(ngx_idempotency_redis_reader_t *reader,
    u_char *data, size_t len)
{
    size_t   n;
    u_char  *p, *last;

    p = data;
    last = data + len;

    while (p < last) {

        n = 1;

        switch (reader->place) {

        case NGX_IDEMPOTENCY_REDIS_AT_TYPE:
            ngx_idempotency_redis_scan_type(reader, *p);
            break;

        case NGX_IDEMPOTENCY_REDIS_AT_LINE:
            ngx_idempotency_redis_scan_line(reader, *p);
            break;

        case NGX_IDEMPOTENCY_REDIS_AT_LINE_LF:
            if (*p != LF) {
                reader->error = "a line with CR but no LF";
                break;
            }

            reader->size++;
            ngx_idempotency_redis_scan_header(reader);
            break;

        case NGX_IDEMPOTENCY_REDIS_AT_BULK:
            n = ngx_min((size_t) (last - p), reader->bulk);

            reader->size += n;
            reader->bulk -= n;

            if (reader->bulk == 0) {
                reader->place = NGX_IDEMPOTENCY_REDIS_AT_BULK_CR;
            }

            break;

        case NGX_IDEMPOTENCY_REDIS_AT_BULK_CR:
            if (*p != CR) {
                reader->error = "a string longer than announced";
                break;
            }

            reader->size++;
            reader->place = NGX_IDEMPOTENCY_REDIS_AT_BULK_LF;
            break;

        default: /* NGX_IDEMPOTENCY_REDIS_AT_BULK_LF */
            if (*p != LF) {
                reader->error = "a string longer than announced";
                break;
            }

            reader->size++;
            ngx_idempotency_redis_scan_element(reader);
            break;
        }

        if (reader->size > reader->max) {
            reader->error = "a reply that is too long";
        }

        if (reader->error) {
            break;
        }

        p += n;
    }

    return p - data;
}


static void
ngx_idempotency_redis_scan_type(ngx_idempotency_redis_reader_t *reader,
    u_char ch)
{
    switch (ch) {

    case '+':
    case '-':
    case ':':
    case '$':
    case '*':
        break;

    default:
        reader->error = "a reply of unknown type";
        return;
    }

    reader->type = ch;
    reader->line = 0;
    reader->number = 0;
    reader->digits = 0;
    reader->negative = 0;

    reader->size++;
    reader->place = NGX_IDEMPOTENCY_REDIS_AT_LINE;
}


static void
ngx_idempotency_redis_scan_line(ngx_idempotency_redis_reader_t *reader,
    u_char ch)
{
    reader->size++;

    if (ch == CR) {
        reader->place = NGX_IDEMPOTENCY_REDIS_AT_LINE_LF;
        return;
    }

    if (++reader->line > NGX_IDEMPOTENCY_REDIS_LINE) {
        reader->error = "a line that is too long";
        return;
    }

    if (reader->type != '$' && reader->type != '*') {
        return;
    }

    if (ch == '-' && reader->line == 1) {
        reader->negative = 1;
        return;
    }

    if (ch < '0' || ch > '9') {
        reader->error = "a length that is not a number";
        return;
    }

    reader->digits = 1;
    reader->number = reader->number * 10 + (ch - '0');

    if (reader->number > reader->max) {
        reader->error = "a length that is too large";
    }
}


/* a whole line was seen */

static void
ngx_idempotency_redis_scan_header(ngx_idempotency_redis_reader_t *reader)
{
    if (reader->type != '$' && reader->type != '*') {
        ngx_idempotency_redis_scan_element(reader);
        return;
    }

    if (!reader->digits || (reader->negative && reader->number != 1)) {
        reader->error = "a length that is not a number";
        return;
    }

    if (reader->negative) {
        ngx_idempotency_redis_scan_element(reader);
        return;
    }

    if (reader->type == '$') {
        reader->bulk = reader->number;
        reader->place = reader->bulk ? NGX_IDEMPOTENCY_REDIS_AT_BULK
                                     : NGX_IDEMPOTENCY_REDIS_AT_BULK_CR;
        return;
    }

    if (reader->number == 0) {
        ngx_idempotency_redis_scan_element(reader);
        return;
    }

    if (reader->number > NGX_IDEMPOTENCY_REDIS_ELEMENTS) {
        reader->error = "an array that is too long";
        return;
    }

    if (reader->depth == NGX_IDEMPOTENCY_REDIS_DEPTH) {
        reader->error = "arrays that are too deep";
        return;
    }

    reader->left[reader->depth++] = reader->number;
    reader->place = NGX_IDEMPOTENCY_REDIS_AT_TYPE;
}


/* a value is complete, and perhaps the arrays that it was the last of */

static void
ngx_idempotency_redis_scan_element(ngx_idempotency_redis_reader_t *reader)
{
    reader->place = NGX_IDEMPOTENCY_REDIS_AT_TYPE;

    while (reader->depth > 0) {

        if (--reader->left[reader->depth - 1] > 0) {
            return;
        }

        reader->depth--;
    }

    reader->size = 0;
}


void
ngx_idempotency_redis_reply_free(ngx_idempotency_redis_reply_t *reply)
{
    freeReplyObject(reply);
}


ngx_idempotency_redis_type_e
ngx_idempotency_redis_reply_type(ngx_idempotency_redis_reply_t *reply)
{
    switch (((redisReply *) reply)->type) {

    case REDIS_REPLY_STATUS:
        return NGX_IDEMPOTENCY_REDIS_STATUS;

    case REDIS_REPLY_ERROR:
        return NGX_IDEMPOTENCY_REDIS_ERROR;

    case REDIS_REPLY_INTEGER:
        return NGX_IDEMPOTENCY_REDIS_INTEGER;

    case REDIS_REPLY_STRING:
        return NGX_IDEMPOTENCY_REDIS_STRING;

    case REDIS_REPLY_ARRAY:
        return NGX_IDEMPOTENCY_REDIS_ARRAY;

    default:
        return NGX_IDEMPOTENCY_REDIS_NIL;
    }
}


void
ngx_idempotency_redis_reply_string(ngx_idempotency_redis_reply_t *reply,
    ngx_str_t *s)
{
    redisReply  *object;

    object = (redisReply *) reply;

    switch (object->type) {

    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
    case REDIS_REPLY_STRING:
        s->data = (u_char *) object->str;
        s->len = object->len;
        break;

    default:
        ngx_str_set(s, "");
    }
}


ngx_uint_t
ngx_idempotency_redis_reply_is_error(ngx_idempotency_redis_reply_t *reply,
    const char *word)
{
    size_t       len;
    redisReply  *object;

    object = (redisReply *) reply;
    len = ngx_strlen(word);

    return object->type == REDIS_REPLY_ERROR
           && (size_t) object->len >= len
           && ngx_strncmp(object->str, word, len) == 0;
}


int64_t
ngx_idempotency_redis_reply_integer(ngx_idempotency_redis_reply_t *reply)
{
    redisReply  *object;

    object = (redisReply *) reply;

    return object->type == REDIS_REPLY_INTEGER ? object->integer : 0;
}


ngx_uint_t
ngx_idempotency_redis_reply_elements(ngx_idempotency_redis_reply_t *reply)
{
    redisReply  *object;

    object = (redisReply *) reply;

    return object->type == REDIS_REPLY_ARRAY ? object->elements : 0;
}


ngx_idempotency_redis_reply_t *
ngx_idempotency_redis_reply_element(ngx_idempotency_redis_reply_t *reply,
    ngx_uint_t i)
{
    redisReply  *object;

    object = (redisReply *) reply;

    if (object->type != REDIS_REPLY_ARRAY || i >= object->elements) {
        return NULL;
    }

    return (ngx_idempotency_redis_reply_t *) object->element[i];
}
