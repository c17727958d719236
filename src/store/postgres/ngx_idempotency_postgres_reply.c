
/*
 * The store in PostgreSQL: what the functions return.  Its bytes are foreign
 * data.
 */


#include "ngx_idempotency_postgres_job.h"


/* bytes before the first element of an array, and before each element */
#define NGX_IDEMPOTENCY_POSTGRES_ARRAY    20
#define NGX_IDEMPOTENCY_POSTGRES_LENGTH   4


/* a composite value, or a part of one */

typedef struct {
    u_char                         *pos;
    u_char                         *last;
} ngx_idempotency_postgres_value_t;


static ngx_int_t ngx_idempotency_postgres_value(PGresult *res, int row,
    int column, ngx_idempotency_postgres_value_t *value);
static ngx_int_t ngx_idempotency_postgres_field(
    ngx_idempotency_postgres_value_t *value, ngx_str_t *field);
static ngx_int_t ngx_idempotency_postgres_number(
    ngx_idempotency_postgres_value_t *value, int64_t *number);
static ngx_int_t ngx_idempotency_postgres_record(ngx_idempotency_op_t *op,
    ngx_idempotency_postgres_value_t *value, ngx_idempotency_record_t *record);
static ngx_int_t ngx_idempotency_postgres_answer(ngx_idempotency_op_t *op,
    ngx_idempotency_record_t *record, ngx_str_t *type, ngx_uint_t committed);
static ngx_int_t ngx_idempotency_postgres_list(ngx_idempotency_op_t *op,
    ngx_idempotency_postgres_job_t *job);
static ngx_int_t ngx_idempotency_postgres_renewed(ngx_idempotency_op_t *op,
    ngx_idempotency_postgres_job_t *job);
static void ngx_idempotency_postgres_clear(void *data);


ngx_int_t
ngx_idempotency_postgres_reply_result(ngx_idempotency_postgres_job_t *job)
{
    int64_t                           number;
    ngx_str_t                         whole;
    ngx_idempotency_postgres_value_t  value;

    if (job->statement == NGX_IDEMPOTENCY_LIST
        || job->statement == NGX_IDEMPOTENCY_RENEW
        || job->statement == NGX_IDEMPOTENCY_POSTGRES_SETTLED)
    {
        return NGX_IDEMPOTENCY_OK;
    }

    if (ngx_idempotency_postgres_value(job->reply, 0, 0, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    if (job->statement == NGX_IDEMPOTENCY_POSTGRES_EXPIRE) {
        whole.data = value.pos;
        whole.len = value.last - value.pos;

        return whole.len == 4
               ? (ngx_int_t) (int32_t) ((uint32_t) whole.data[0] << 24
                                        | whole.data[1] << 16
                                        | whole.data[2] << 8 | whole.data[3])
               : NGX_ERROR;
    }

    if (value.last - value.pos < 4) {
        return NGX_ERROR;
    }

    value.pos += 4;

    if (ngx_idempotency_postgres_number(&value, &number) != NGX_OK) {
        return NGX_ERROR;
    }

    return (ngx_int_t) number;
}


ngx_int_t
ngx_idempotency_postgres_reply_read(ngx_idempotency_op_t *op,
    ngx_idempotency_postgres_job_t *job)
{
    int64_t                           result, expected;
    ngx_int_t                         rc;
    ngx_uint_t                        i;
    ngx_pool_cleanup_t               *cln;
    ngx_idempotency_postgres_value_t  value;

    if (op->type == NGX_IDEMPOTENCY_LIST) {
        return ngx_idempotency_postgres_list(op, job);
    }

    if (op->type == NGX_IDEMPOTENCY_RENEW) {
        return ngx_idempotency_postgres_renewed(op, job);
    }

    if (ngx_idempotency_postgres_value(job->reply, 0, 0, &value) != NGX_OK) {
        return NGX_DECLINED;
    }

    ngx_memzero(&op->record, sizeof(ngx_idempotency_record_t));

    op->expected = 0;
    op->expects = 0;

    rc = ngx_idempotency_postgres_record(op, &value, &op->record);
    if (rc != NGX_OK) {
        return rc;
    }

    /* result and the number that is expected are of the operation */

    if (ngx_idempotency_postgres_value(job->reply, 0, 0, &value) != NGX_OK) {
        return NGX_DECLINED;
    }

    value.pos += 4;

    if (ngx_idempotency_postgres_number(&value, &result) != NGX_OK
        || result < NGX_IDEMPOTENCY_OK
        || result > NGX_IDEMPOTENCY_OUT_OF_ORDER)
    {
        return NGX_DECLINED;
    }

    op->result = (ngx_idempotency_result_e) result;

    if (op->result == NGX_IDEMPOTENCY_OUT_OF_ORDER) {
        expected = 0;

        for (i = 0; i < 10; i++) {
            rc = ngx_idempotency_postgres_number(&value, &expected);

            if (rc == NGX_ERROR) {
                return NGX_DECLINED;
            }
        }

        if (rc == NGX_OK) {
            op->expects = 1;
            op->expected = (uint64_t) expected + ((uint64_t) 1 << 63);
        }
    }

    if (op->record.head.data == NULL && op->record.body.data == NULL) {
        return NGX_OK;
    }

    cln = ngx_pool_cleanup_add(op->pool, 0);
    if (cln == NULL) {
        ngx_str_null(&op->record.head);
        ngx_str_null(&op->record.body);
        return NGX_ERROR;
    }

    cln->handler = ngx_idempotency_postgres_clear;
    cln->data = job->reply;

    job->reply = NULL;

    return NGX_OK;
}


static void
ngx_idempotency_postgres_clear(void *data)
{
    PQclear(data);
}


static ngx_int_t
ngx_idempotency_postgres_value(PGresult *res, int row, int column,
    ngx_idempotency_postgres_value_t *value)
{
    if (row >= PQntuples(res)
        || column >= PQnfields(res)
        || PQgetisnull(res, row, column))
    {
        return NGX_DECLINED;
    }

    value->pos = (u_char *) PQgetvalue(res, row, column);
    value->last = value->pos + PQgetlength(res, row, column);

    return NGX_OK;
}


/* type, length or -1, bytes; NGX_DECLINED: null */

static ngx_int_t
ngx_idempotency_postgres_field(ngx_idempotency_postgres_value_t *value,
    ngx_str_t *field)
{
    u_char   *p;
    int32_t   len;

    p = value->pos;

    if (value->last - p < 8) {
        return NGX_ERROR;
    }

    len = (int32_t) ((uint32_t) p[4] << 24 | p[5] << 16 | p[6] << 8 | p[7]);
    p += 8;

    ngx_str_null(field);
    value->pos = p;

    if (len == -1) {
        return NGX_DECLINED;
    }

    if (len < 0 || value->last - p < len) {
        return NGX_ERROR;
    }

    field->data = p;
    field->len = len;
    value->pos += len;

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_postgres_number(ngx_idempotency_postgres_value_t *value,
    int64_t *number)
{
    size_t     i;
    uint64_t   n;
    ngx_int_t  rc;
    ngx_str_t  field;

    *number = 0;

    rc = ngx_idempotency_postgres_field(value, &field);
    if (rc != NGX_OK) {
        return rc;
    }

    if (field.len != 2 && field.len != 4 && field.len != 8) {
        return NGX_ERROR;
    }

    n = (field.data[0] & 0x80) ? (uint64_t) -1 : 0;

    for (i = 0; i < field.len; i++) {
        n = n << 8 | field.data[i];
    }

    *number = (int64_t) n;

    return NGX_OK;
}


/* in the order of the type "outcome" */

static ngx_int_t
ngx_idempotency_postgres_record(ngx_idempotency_op_t *op,
    ngx_idempotency_postgres_value_t *value, ngx_idempotency_record_t *record)
{
    int64_t     n[11];
    ngx_int_t   rc;
    ngx_str_t   field[5];
    ngx_uint_t  i, exists;

    enum { RESULT = 0, NOW, STATE, FLAGS, STATUS, ATTEMPTS, FENCE, CREATED,
           LEASE, DUE, EXPECTED };

    if (value->last - value->pos < 4) {
        return NGX_DECLINED;
    }

    value->pos += 4;
    exists = 0;

    for (i = 0; i < 11; i++) {
        rc = ngx_idempotency_postgres_number(value, &n[i]);

        if (rc == NGX_ERROR) {
            return NGX_DECLINED;
        }

        if (i == STATE) {
            exists = (rc == NGX_OK);
        }
    }

    for (i = 0; i < 5; i++) {
        if (ngx_idempotency_postgres_field(value, &field[i]) == NGX_ERROR) {
            return NGX_DECLINED;
        }
    }

    if (!exists) {

        /* the digest of a suspect is shown although its record is not there */

        if (field[0].len == NGX_IDEMPOTENCY_FINGERPRINT_LEN) {
            ngx_memcpy(record->fingerprint, field[0].data,
                       NGX_IDEMPOTENCY_FINGERPRINT_LEN);
        }

        return NGX_OK;
    }

    if (n[STATE] < NGX_IDEMPOTENCY_NONE
        || n[STATE] > NGX_IDEMPOTENCY_TOMBSTONE
        || field[0].len != NGX_IDEMPOTENCY_FINGERPRINT_LEN)
    {
        return NGX_DECLINED;
    }

    record->state = (ngx_idempotency_state_e) n[STATE];
    record->fence = (uint64_t) n[FENCE];
    record->created = (time_t) n[CREATED];
    record->attempts = (ngx_uint_t) n[ATTEMPTS];

    ngx_memcpy(record->fingerprint, field[0].data,
               NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    if (field[1].len && field[1].len <= NGX_IDEMPOTENCY_NOTE_LEN
        && record->state != NGX_IDEMPOTENCY_NONE)
    {
        record->note.data = ngx_pstrdup(op->pool, &field[1]);
        if (record->note.data == NULL) {
            return NGX_ERROR;
        }

        record->note.len = field[1].len;
    }

    if (n[DUE] > n[NOW] && record->state != NGX_IDEMPOTENCY_NONE) {
        record->ttl_msec = (uint64_t) (n[DUE] - n[NOW]);
        record->ttl_left = (time_t) ((record->ttl_msec + 999) / 1000);
    }

    if (record->state == NGX_IDEMPOTENCY_EXECUTING
        || record->state == NGX_IDEMPOTENCY_UNKNOWN)
    {
        if (n[LEASE] > n[NOW]) {
            record->lease_left = (ngx_msec_t) (n[LEASE] - n[NOW]);

        } else if (record->state == NGX_IDEMPOTENCY_UNKNOWN) {
            record->unknown_for = (uint64_t) (n[NOW] - n[LEASE]);
        }

        return NGX_OK;
    }

    if (record->state < NGX_IDEMPOTENCY_DONE) {
        return NGX_OK;
    }

    record->status = (ngx_uint_t) n[STATUS];
    record->committed = ((n[FLAGS] & 4) != 0);

    if (n[LEASE] < n[NOW]) {
        record->done_for = (ngx_msec_t) (n[NOW] - n[LEASE]);
    }

    if (record->state == NGX_IDEMPOTENCY_TOMBSTONE || !(n[FLAGS] & 1)) {
        return NGX_OK;
    }

    record->kept = 1;
    record->head = field[2];
    record->body = field[4];

    return ngx_idempotency_postgres_answer(op, record, &field[3],
                                           (n[FLAGS] & 4) != 0);
}


/*
 * What a service has stored itself has no header but its type.  A reply
 * without the answer shows neither head nor body.
 */

static ngx_int_t
ngx_idempotency_postgres_answer(ngx_idempotency_op_t *op,
    ngx_idempotency_record_t *record, ngx_str_t *type, ngx_uint_t committed)
{
    ngx_idempotency_answer_t  answer;

    if (record->head.data || record->body.data == NULL) {
        return NGX_OK;
    }

    if (!committed) {
        return NGX_DECLINED;
    }

    ngx_memzero(&answer, sizeof(ngx_idempotency_answer_t));

    answer.status = record->status;
    answer.content_length = (off_t) record->body.len;
    answer.last_modified = -1;
    answer.content_type = *type;

    if (ngx_array_init(&answer.headers, op->pool, 1,
                       sizeof(ngx_idempotency_field_t))
        != NGX_OK
        || ngx_array_init(&answer.trailers, op->pool, 1,
                          sizeof(ngx_idempotency_field_t))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_idempotency_record_encode_head(op->pool, &answer,
                                              &record->head);
}


/* rows: digest, sequence, seen, record; the last one has no record */

static ngx_int_t
ngx_idempotency_postgres_list(ngx_idempotency_op_t *op,
    ngx_idempotency_postgres_job_t *job)
{
    int                                row, rows;
    ngx_int_t                          rc;
    ngx_idempotency_list_t            *list;
    ngx_idempotency_entry_t           *entry;
    ngx_idempotency_record_t           record;
    ngx_idempotency_postgres_value_t   value, digest;

    list = op->list;
    rows = PQntuples(job->reply);

    op->result = NGX_IDEMPOTENCY_OK;

    for (row = 0; row < rows; row++) {
        rc = ngx_idempotency_postgres_value(job->reply, row, 0, &digest);

        if (rc == NGX_OK
            && digest.last - digest.pos != NGX_IDEMPOTENCY_DIGEST_LEN)
        {
            return NGX_DECLINED;
        }

        if (row == rows - 1) {
            list->cursor.len = 0;

            if (rc == NGX_OK) {
                (void) ngx_hex_dump(list->text, digest.pos,
                                    NGX_IDEMPOTENCY_DIGEST_LEN);
                list->cursor.len = 2 * NGX_IDEMPOTENCY_DIGEST_LEN;
            }

            if (ngx_idempotency_postgres_value(job->reply, row, 2, &value)
                != NGX_OK
                || value.last - value.pos != 4)
            {
                return NGX_DECLINED;
            }

            list->seen += (ngx_uint_t) value.pos[2] << 8 | value.pos[3];

            return NGX_OK;
        }

        if (rc != NGX_OK
            || ngx_idempotency_postgres_value(job->reply, row, 3, &value)
               != NGX_OK)
        {
            return NGX_DECLINED;
        }

        ngx_memzero(&record, sizeof(ngx_idempotency_record_t));

        rc = ngx_idempotency_postgres_record(op, &value, &record);
        if (rc != NGX_OK) {
            return rc;
        }

        if (!ngx_idempotency_list_wants(list, record.state, digest.pos)) {
            continue;
        }

        entry = ngx_array_push(&list->entries);
        if (entry == NULL) {
            return NGX_ERROR;
        }

        ngx_memzero(entry, sizeof(ngx_idempotency_entry_t));
        ngx_memcpy(entry->digest, digest.pos, NGX_IDEMPOTENCY_DIGEST_LEN);

        entry->record = record;

        if (ngx_idempotency_postgres_value(job->reply, row, 1, &value)
            == NGX_OK
            && value.last - value.pos == 1)
        {
            entry->sequence = (value.pos[0] != 0);
        }
    }

    return NGX_DECLINED;
}


/* an array of int2 */

static ngx_int_t
ngx_idempotency_postgres_renewed(ngx_idempotency_op_t *op,
    ngx_idempotency_postgres_job_t *job)
{
    u_char                            *p;
    ngx_uint_t                         i, n;
    ngx_idempotency_lease_t           *lease;
    ngx_idempotency_postgres_value_t   value;

    lease = op->leases->elts;
    n = op->leases->nelts;

    if (ngx_idempotency_postgres_value(job->reply, 0, 0, &value) != NGX_OK
        || (size_t) (value.last - value.pos)
           != NGX_IDEMPOTENCY_POSTGRES_ARRAY
              + n * (NGX_IDEMPOTENCY_POSTGRES_LENGTH + 2))
    {
        return NGX_DECLINED;
    }

    p = value.pos + NGX_IDEMPOTENCY_POSTGRES_ARRAY;

    for (i = 0; i < n; i++) {
        p += NGX_IDEMPOTENCY_POSTGRES_LENGTH;
        lease[i].result = (p[0] == 0 && p[1] == NGX_IDEMPOTENCY_OK)
                          ? NGX_IDEMPOTENCY_OK : NGX_IDEMPOTENCY_REFUSED;
        p += 2;
    }

    op->result = NGX_IDEMPOTENCY_OK;

    return NGX_OK;
}


u_char *
ngx_idempotency_postgres_reply_digest(ngx_idempotency_postgres_job_t *job,
    ngx_uint_t i)
{
    u_char                            *p;
    ngx_idempotency_postgres_value_t   value;

    if (ngx_idempotency_postgres_value(job->reply, 0, 0, &value) != NGX_OK) {
        return NULL;
    }

    p = value.pos + NGX_IDEMPOTENCY_POSTGRES_ARRAY
        + i * (NGX_IDEMPOTENCY_POSTGRES_LENGTH + NGX_IDEMPOTENCY_DIGEST_LEN)
        + NGX_IDEMPOTENCY_POSTGRES_LENGTH;

    return (value.last - p >= NGX_IDEMPOTENCY_DIGEST_LEN) ? p : NULL;
}
