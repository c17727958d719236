
/*
 * RESP: commands to bytes, bytes to replies, and what an error reply means.
 * hiredis formats and parses; no other file includes it.
 *
 * hiredis trusts a server more than we do, so three things are bounded here:
 * the bytes of one reply, the bytes of one line, and the elements of an array.
 * The last one cannot be left to the others: a header that announces two
 * billion elements has a few bytes, and hiredis allocates the array at once
 * and visits each element when it frees it, which takes seconds.
 */


#include <hiredis/hiredis.h>

#include "ngx_idempotency_redis_resp.h"


/* arguments of a command for which no memory is allocated */
#define NGX_IDEMPOTENCY_REDIS_ARGS        32

/* arguments of a command with a prefix, at most */
#define NGX_IDEMPOTENCY_REDIS_PREFIXED    8

/* bytes of a status, an error, a number or a header */
#define NGX_IDEMPOTENCY_REDIS_LINE        65536

/* bytes of the header of a string, at most */
#define NGX_IDEMPOTENCY_REDIS_HEADER      32

#define NGX_IDEMPOTENCY_REDIS_ELEMENTS    16384


#if (HIREDIS_MAJOR > 0)
typedef size_t  ngx_idempotency_redis_elements_t;
#else
typedef int     ngx_idempotency_redis_elements_t;
#endif


struct ngx_idempotency_redis_reader_s {
    redisReader  *parser;
    size_t        held;      /* bytes it had at most */
    size_t        max;
    size_t        size;      /* bytes fed since the last reply */
    const char   *error;
};


typedef struct {
    ngx_str_t                           text;
    ngx_idempotency_redis_refusal_e     refusal;
} ngx_idempotency_redis_refusal_t;


static ngx_int_t ngx_idempotency_redis_reader_parser(
    ngx_idempotency_redis_reader_t *reader);
static void *ngx_idempotency_redis_reader_array(const redisReadTask *task,
    ngx_idempotency_redis_elements_t n);
static const char *ngx_idempotency_redis_reader_overrun(
    ngx_idempotency_redis_reader_t *reader);
static ngx_uint_t ngx_idempotency_redis_has_word(ngx_str_t *text,
    ngx_str_t *word);


/* hiredis's own, but for arrays */

static redisReplyObjectFunctions  ngx_idempotency_redis_functions;
static redisReplyObjectFunctions  ngx_idempotency_redis_hiredis_functions;


/* the first word, or that of an error within the error of a script */

static ngx_idempotency_redis_refusal_t  ngx_idempotency_redis_refusal_words[] =
{
    { ngx_string("READONLY"), NGX_IDEMPOTENCY_REDIS_REFUSAL_READONLY },
    { ngx_string("OOM"), NGX_IDEMPOTENCY_REDIS_REFUSAL_OOM },
    { ngx_string("NOREPLICAS"), NGX_IDEMPOTENCY_REDIS_REFUSAL_NOREPLICAS },
    { ngx_string("NOPERM"), NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_string("NOAUTH"), NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_string("WRONGPASS"), NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_string("MISCONF"), NGX_IDEMPOTENCY_REDIS_REFUSAL_MISCONF },
    { ngx_string("LOADING"), NGX_IDEMPOTENCY_REDIS_REFUSAL_LOADING },
    { ngx_string("CLUSTERDOWN"), NGX_IDEMPOTENCY_REDIS_REFUSAL_DOWN },
    { ngx_string("MASTERDOWN"), NGX_IDEMPOTENCY_REDIS_REFUSAL_DOWN },
    { ngx_string("ASK"), NGX_IDEMPOTENCY_REDIS_REFUSAL_TRYAGAIN },
    { ngx_string("TRYAGAIN"), NGX_IDEMPOTENCY_REDIS_REFUSAL_TRYAGAIN },
    { ngx_null_string, 0 }
};


/* errors that are called ERR: what is somewhere in their text */

static ngx_idempotency_redis_refusal_t  ngx_idempotency_redis_refusal_texts[] =
{
    { ngx_string("The user executing the script can't"),
      NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_string("ACL failure in script"),
      NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_string("invalid password"),
      NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_null_string, 0 }
};


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


/*
 * hiredis formats what commands of the store have in common, once.  The other
 * arguments are added without it: a request does that twice, and hiredis would
 * take 4000 instructions for a command and allocate for each argument.
 *
 * The prefix is a whole command with empty strings for the other arguments,
 * and these are cut off.
 */

ngx_int_t
ngx_idempotency_redis_encode_begin(ngx_pool_t *pool, ngx_str_t *args,
    ngx_uint_t given, ngx_uint_t n, ngx_str_t *bytes)
{
    ngx_str_t  all[NGX_IDEMPOTENCY_REDIS_PREFIXED], whole;

    static ngx_str_t  empty = ngx_string("$0" CRLF CRLF);

    if (given > n || n > NGX_IDEMPOTENCY_REDIS_PREFIXED) {
        return NGX_ERROR;
    }

    ngx_memzero(all, sizeof(all));
    ngx_memcpy(all, args, given * sizeof(ngx_str_t));

    if (ngx_idempotency_redis_encode(all, n, &whole) != NGX_OK) {
        return NGX_ERROR;
    }

    bytes->len = whole.len - (n - given) * empty.len;
    bytes->data = ngx_pnalloc(pool, bytes->len);

    if (bytes->data) {
        ngx_memcpy(bytes->data, whole.data, bytes->len);
    }

    ngx_idempotency_redis_encode_free(&whole);

    return bytes->data ? NGX_OK : NGX_ERROR;
}


size_t
ngx_idempotency_redis_encode_rest_len(ngx_str_t *args, ngx_uint_t n)
{
    size_t      len;
    ngx_uint_t  i;

    len = 0;

    for (i = 0; i < n; i++) {
        len += sizeof("$" CRLF CRLF) - 1 + NGX_SIZE_T_LEN + args[i].len;
    }

    return len;
}


/* each as "$", its length, and its bytes */

u_char *
ngx_idempotency_redis_encode_rest(u_char *p, ngx_str_t *args, ngx_uint_t n)
{
    size_t       len;
    u_char      *digit, digits[NGX_SIZE_T_LEN];
    ngx_uint_t   i;

    for (i = 0; i < n; i++) {

        digit = digits + NGX_SIZE_T_LEN;
        len = args[i].len;

        do {
            *--digit = (u_char) (len % 10 + '0');
            len /= 10;
        } while (len);

        *p++ = '$';
        p = ngx_cpymem(p, digit, digits + NGX_SIZE_T_LEN - digit);
        *p++ = CR;
        *p++ = LF;

        if (args[i].len) {
            p = ngx_cpymem(p, args[i].data, args[i].len);
        }

        *p++ = CR;
        *p++ = LF;
    }

    return p;
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
    parser->privdata = reader;

    ngx_idempotency_redis_hiredis_functions = *parser->fn;
    ngx_idempotency_redis_functions = *parser->fn;
    ngx_idempotency_redis_functions.createArray =
                                           ngx_idempotency_redis_reader_array;
    parser->fn = &ngx_idempotency_redis_functions;

    if (reader->parser) {
        redisReaderFree(reader->parser);
    }

    reader->parser = parser;
    reader->held = 0;

    return NGX_OK;
}


static void *
ngx_idempotency_redis_reader_array(const redisReadTask *task,
    ngx_idempotency_redis_elements_t n)
{
    ngx_idempotency_redis_reader_t  *reader;

    if ((size_t) n > NGX_IDEMPOTENCY_REDIS_ELEMENTS) {
        reader = task->privdata;
        reader->error = "an array that is too long";

        return NULL;
    }

    return ngx_idempotency_redis_hiredis_functions.createArray(task, n);
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
    if (reader->held > REDIS_READER_MAX_BUF
        && reader->parser->ridx == -1
        && reader->parser->pos == reader->parser->len)
    {
        /* without memory for another one this one goes on */

        (void) ngx_idempotency_redis_reader_parser(reader);
    }

    if (redisReaderFeed(reader->parser, (char *) data, len) != REDIS_OK) {
        return NGX_ERROR;
    }

    reader->size += len;
    reader->held = ngx_max(reader->held, reader->parser->len);

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_redis_reader_next(ngx_idempotency_redis_reader_t *reader,
    ngx_idempotency_redis_reply_t **reply)
{
    void    *object;
    size_t   left;

    object = NULL;

    if (redisReaderGetReply(reader->parser, &object) != REDIS_OK) {

        if (reader->error == NULL) {
            reader->error = reader->parser->errstr;
        }

        return NGX_ERROR;
    }

    if (object == NULL) {
        reader->error = ngx_idempotency_redis_reader_overrun(reader);

        return reader->error ? NGX_ERROR : NGX_AGAIN;
    }

    left = reader->parser->len - reader->parser->pos;

    if (reader->size - left > reader->max) {
        freeReplyObject(object);
        reader->error = "a reply that is too long";

        return NGX_ERROR;
    }

    reader->size = left;
    *reply = object;

    return NGX_OK;
}


/*
 * NULL, or why the rest of the reply is not waited for.  hiredis searches the
 * whole of an incomplete line again whenever there are more bytes.
 */

static const char *
ngx_idempotency_redis_reader_overrun(ngx_idempotency_redis_reader_t *reader)
{
    u_char  *p, *last;

    if (reader->size > reader->max) {
        return "a reply that is too long";
    }

    p = (u_char *) reader->parser->buf + reader->parser->pos;

    if (reader->parser->len - reader->parser->pos
        <= NGX_IDEMPOTENCY_REDIS_LINE)
    {
        return NULL;
    }

    /* so much may only follow the header of a string */

    last = p + NGX_IDEMPOTENCY_REDIS_HEADER;

    for ( /* void */ ; p < last; p++) {
        if (p[0] == CR && p[1] == LF) {
            return NULL;
        }
    }

    return "a line that is too long";
}


const char *
ngx_idempotency_redis_reader_error(ngx_idempotency_redis_reader_t *reader)
{
    return reader->error ? reader->error : "no error";
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


void
ngx_idempotency_redis_reply_text(ngx_idempotency_redis_reply_t *reply,
    ngx_uint_t i, ngx_str_t *s)
{
    ngx_idempotency_redis_reply_t  *element;

    element = ngx_idempotency_redis_reply_element(reply, i);

    if (element == NULL) {
        ngx_str_set(s, "");
        return;
    }

    ngx_idempotency_redis_reply_string(element, s);
}


void
ngx_idempotency_redis_reply_value(ngx_idempotency_redis_reply_t *reply,
    const char *name, ngx_str_t *s)
{
    size_t      len;
    ngx_uint_t  i;

    len = ngx_strlen(name);

    for (i = 0; i + 1 < ngx_idempotency_redis_reply_elements(reply); i += 2) {
        ngx_idempotency_redis_reply_text(reply, i, s);

        if (s->len == len && ngx_strncmp(s->data, name, len) == 0) {
            ngx_idempotency_redis_reply_text(reply, i + 1, s);
            return;
        }
    }

    ngx_str_set(s, "");
}


ngx_idempotency_redis_refusal_e
ngx_idempotency_redis_refusal(ngx_str_t *text)
{
    ngx_idempotency_redis_refusal_t  *r;

    for (r = ngx_idempotency_redis_refusal_words; r->text.len; r++) {
        if (ngx_idempotency_redis_has_word(text, &r->text)) {
            return r->refusal;
        }
    }

    for (r = ngx_idempotency_redis_refusal_texts; r->text.len; r++) {
        if (ngx_strlcasestrn(text->data, text->data + text->len,
                             r->text.data, r->text.len - 1))
        {
            return r->refusal;
        }
    }

    return NGX_IDEMPOTENCY_REDIS_REFUSAL_OTHER;
}


ngx_uint_t
ngx_idempotency_redis_error_is(ngx_idempotency_redis_reply_t *reply,
    const char *word)
{
    ngx_str_t  text, part;

    if (ngx_idempotency_redis_reply_type(reply) != NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        return 0;
    }

    ngx_idempotency_redis_reply_string(reply, &text);

    part.data = (u_char *) word;
    part.len = ngx_strlen(word);

    return ngx_idempotency_redis_has_word(&text, &part);
}


ngx_uint_t
ngx_idempotency_redis_error_is_no_master(ngx_idempotency_redis_reply_t *reply)
{
    return ngx_idempotency_redis_error_is(reply, "READONLY")
           || ngx_idempotency_redis_error_is(reply, "MASTERDOWN")
           || ngx_idempotency_redis_error_is(reply, "LOADING");
}


/*
 * As a whole word at the beginning, or, as Redis before 7.0 writes the error
 * of a command within a script, after a dash:
 * ERR Error running script (call to f_...): ... -WORD ...
 */

static ngx_uint_t
ngx_idempotency_redis_has_word(ngx_str_t *text, ngx_str_t *word)
{
    u_char  *p, *last;

    last = text->data + text->len - word->len;

    for (p = text->data; p <= last; p++) {

        if ((p == text->data || p[-1] == '-')
            && ngx_strncmp(p, word->data, word->len) == 0
            && (p == last || p[word->len] == ' '))
        {
            return 1;
        }
    }

    return 0;
}
