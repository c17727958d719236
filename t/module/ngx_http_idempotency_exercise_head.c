
/*
 * For tests only: the codec of answer heads.
 */


#include "ngx_http_idempotency_exercise.h"


static ngx_int_t ngx_http_idempotency_exercise_sample(ngx_http_request_t *r,
    ngx_str_t *head);
static ngx_int_t ngx_http_idempotency_exercise_add_line(ngx_pool_t *pool,
    ngx_array_t *lines, ngx_str_t *line);
static ngx_int_t ngx_http_idempotency_exercise_show_head(
    ngx_http_request_t *r, ngx_str_t *head);
static u_char *ngx_http_idempotency_exercise_show_lines(u_char *p, char *name,
    ngx_array_t *lines);
static uint32_t ngx_http_idempotency_exercise_random(uint32_t *seed);


ngx_int_t
ngx_http_idempotency_exercise_head(ngx_http_request_t *r,
    ngx_idempotency_store_t *store)
{
    ngx_str_t  head;

    if (ngx_http_idempotency_exercise_sample(r, &head) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_idempotency_exercise_show_head(r, &head);
}


/* status=, line=, type=, charset=, length=, modified=, h1=NAME:VALUE ... */

static ngx_int_t
ngx_http_idempotency_exercise_sample(ngx_http_request_t *r, ngx_str_t *head)
{
    u_char                     name[] = "h1";
    ngx_str_t                  line;
    ngx_idempotency_answer_t   answer;

    ngx_memzero(&answer, sizeof(ngx_idempotency_answer_t));

    answer.status = ngx_http_idempotency_exercise_number(r, "status", 201);
    answer.status_line = ngx_http_idempotency_exercise_text(r, "line");
    answer.content_type = ngx_http_idempotency_exercise_text(r, "type");
    answer.charset = ngx_http_idempotency_exercise_text(r, "charset");
    answer.content_length = ngx_http_idempotency_exercise_number(r, "length",
                                                                 -1);
    answer.last_modified = ngx_http_idempotency_exercise_number(r, "modified",
                                                                -1);

    if (ngx_array_init(&answer.headers, r->pool, 4,
                       sizeof(ngx_idempotency_field_t))
        != NGX_OK
        || ngx_array_init(&answer.trailers, r->pool, 4,
                          sizeof(ngx_idempotency_field_t))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (name[1] = '1'; name[1] <= '9'; name[1]++) {

        name[0] = 'h';
        line = ngx_http_idempotency_exercise_text(r, (char *) name);

        if (ngx_http_idempotency_exercise_add_line(r->pool, &answer.headers,
                                                   &line)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        name[0] = 't';
        line = ngx_http_idempotency_exercise_text(r, (char *) name);

        if (ngx_http_idempotency_exercise_add_line(r->pool, &answer.trailers,
                                                   &line)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return ngx_idempotency_record_encode_head(r->pool, &answer, head);
}


static ngx_int_t
ngx_http_idempotency_exercise_add_line(ngx_pool_t *pool, ngx_array_t *lines,
    ngx_str_t *line)
{
    u_char                   *p, *last;
    ngx_idempotency_field_t  *field;

    last = line->data + line->len;

    p = ngx_strlchr(line->data, last, ':');
    if (p == NULL) {
        return NGX_OK;
    }

    field = ngx_array_push(lines);
    if (field == NULL) {
        return NGX_ERROR;
    }

    field->name.data = line->data;
    field->name.len = p - line->data;
    field->value.data = p + 1;
    field->value.len = last - p - 1;

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_exercise_decode(ngx_http_request_t *r,
    ngx_idempotency_store_t *store)
{
    ngx_int_t   rc;
    ngx_str_t   hex, head;
    ngx_uint_t  i;

    hex = ngx_http_idempotency_exercise_text(r, "hex");

    /* exactly as long as needed: reading beyond is seen by the sanitizer */

    head.len = hex.len / 2;
    head.data = ngx_alloc(head.len, r->connection->log);
    if (head.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    for (i = 0; i < head.len; i++) {
        head.data[i] = (u_char) ngx_hextoi(&hex.data[2 * i], 2);
    }

    rc = ngx_http_idempotency_exercise_show_head(r, &head);

    ngx_free(head.data);

    return rc;
}


static ngx_int_t
ngx_http_idempotency_exercise_show_head(ngx_http_request_t *r,
    ngx_str_t *head)
{
    u_char                    *p;
    ngx_buf_t                 *b;
    ngx_int_t                  rc;
    ngx_idempotency_answer_t   answer;

    b = ngx_create_temp_buf(r->pool, 8192 + 4 * head->len);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_idempotency_record_decode_head(r->pool, head, &answer);

    if (rc != NGX_OK) {
        b->last = ngx_sprintf(b->last, "declined\n");
        return ngx_http_idempotency_exercise_send(r, b);
    }

    p = ngx_sprintf(b->last, "bytes: %uz\n"
                             "status: %ui\n"
                             "line: \"%V\"\n"
                             "type: \"%V\"\n"
                             "charset: \"%V\"\n"
                             "length: %O\n"
                             "modified: %T\n",
                    head->len, answer.status, &answer.status_line,
                    &answer.content_type, &answer.charset,
                    answer.content_length, answer.last_modified);

    p = ngx_http_idempotency_exercise_show_lines(p, "header",
                                                 &answer.headers);
    b->last = ngx_http_idempotency_exercise_show_lines(p, "trailer",
                                                       &answer.trailers);

    return ngx_http_idempotency_exercise_send(r, b);
}


static u_char *
ngx_http_idempotency_exercise_show_lines(u_char *p, char *name,
    ngx_array_t *lines)
{
    ngx_uint_t                i;
    ngx_idempotency_field_t  *field;

    field = lines->elts;

    for (i = 0; i < lines->nelts; i++) {
        p = ngx_sprintf(p, "%s: \"%V\" \"%V\"\n", name, &field[i].name,
                        &field[i].value);
    }

    return p;
}


ngx_int_t
ngx_http_idempotency_exercise_fuzz(ngx_http_request_t *r,
    ngx_idempotency_store_t *store)
{
    size_t                     len;
    u_char                    *p;
    int64_t                    n;
    uint32_t                   seed;
    ngx_int_t                  rc;
    ngx_str_t                  head, copy, again;
    ngx_buf_t                 *b;
    ngx_uint_t                 i, read, refused;
    ngx_pool_t                *pool;
    ngx_idempotency_answer_t   answer;

    b = ngx_create_temp_buf(r->pool, 256);

    if (b == NULL
        || ngx_http_idempotency_exercise_sample(r, &head) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    read = 0;
    refused = 0;
    seed = ngx_http_idempotency_exercise_number(r, "seed", 1);

    for (n = ngx_http_idempotency_exercise_number(r, "n", 1000); n; n--) {

        /* a truncated copy with some bytes changed */

        len = head.len;

        if (ngx_http_idempotency_exercise_random(&seed) % 4 == 0) {
            len = ngx_http_idempotency_exercise_random(&seed) % (len + 1);
        }

        p = ngx_alloc(len + 1, r->connection->log);
        pool = ngx_create_pool(4096, r->connection->log);

        if (p == NULL || pool == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        /* the end of the memory is the end of the head */

        copy.data = p + 1;
        copy.len = len;
        ngx_memcpy(copy.data, head.data, len);

        i = len ? ngx_http_idempotency_exercise_random(&seed) % 4 : 0;

        while (i--) {
            copy.data[ngx_http_idempotency_exercise_random(&seed) % len] =
                (u_char) (ngx_http_idempotency_exercise_random(&seed) >> 8);
        }

        rc = ngx_idempotency_record_decode_head(pool, &copy, &answer);

        if (rc == NGX_OK) {
            read++;

            /* a head that can be decoded has one encoding */

            if (ngx_idempotency_record_encode_head(pool, &answer, &again)
                != NGX_OK
                || again.len != copy.len
                || ngx_memcmp(again.data, copy.data, copy.len) != 0)
            {
                ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0,
                              "idempotency head differs when written again");
            }

        } else {
            refused++;
        }

        ngx_destroy_pool(pool);
        ngx_free(p);
    }

    b->last = ngx_sprintf(b->last, "read: %ui\n" "refused: %ui\n", read,
                          refused);

    return ngx_http_idempotency_exercise_send(r, b);
}


static uint32_t
ngx_http_idempotency_exercise_random(uint32_t *seed)
{
    *seed = *seed * 1103515245 + 12345;

    return *seed >> 8;
}
