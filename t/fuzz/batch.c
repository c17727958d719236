
/*
 * A line of a batch that settles records: any bytes.
 */


#include "fuzz.h"
#include "ngx_http_idempotency_batch.h"


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    char                               *error;
    ngx_int_t                           rc;
    ngx_str_t                           text;
    ngx_http_idempotency_batch_line_t   line;

    text = fuzz_copy(pool, in);
    error = NULL;

    rc = ngx_http_idempotency_batch_parse(pool, &text, &line, &error);

    fuzz_want(rc == NGX_OK || rc == NGX_DECLINED);

    if (rc == NGX_DECLINED) {
        fuzz_want(error != NULL);
        return;
    }

    fuzz_want(line.resolve.fence > 0);
    fuzz_want(line.resolve.status == 0
              || (line.resolve.executed
                  && line.resolve.status >= 200 && line.resolve.status < 600));
    fuzz_want(line.resolve.body.len <= in->len);
    fuzz_want(line.resolve.label.len <= in->len);
}
