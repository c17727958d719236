
/*
 * How an answer of gRPC is judged.  Linked with policy.c only; prints TAP.
 */


#include "policy.h"


typedef struct {
    char                         *value;
    ngx_uint_t                    status;
} test_grpc_t;


typedef struct {
    char                         *value;
    ngx_http_idempotency_grpc_e   grpc;
} test_grpc_type_t;


static void test_grpc(void);


/* OK, CANCELLED, UNKNOWN, ... UNAUTHENTICATED */

static test_grpc_t  grpcs[] = {
    { "0", 200 }, { "1", 499 }, { "2", 500 }, { "3", 400 }, { "4", 504 },
    { "5", 404 }, { "6", 409 }, { "7", 403 }, { "8", 429 }, { "9", 400 },
    { "10", 409 }, { "11", 400 }, { "12", 501 }, { "13", 500 },
    { "14", 503 }, { "15", 500 }, { "16", 401 },

    { "17", 0 }, { "99", 0 }, { "000", 0 }, { "4294967296", 0 },
    { "", 0 }, { "-1", 0 }, { "1 ", 0 }, { "OK", 0 },

    { NULL, 0 }
};


static test_grpc_type_t  grpc_types[] = {
    { "application/grpc", NGX_HTTP_IDEMPOTENCY_GRPC },
    { "application/grpc+proto", NGX_HTTP_IDEMPOTENCY_GRPC },
    { "Application/GRPC; v=1", NGX_HTTP_IDEMPOTENCY_GRPC },
    { "application/grpc ;v=1", NGX_HTTP_IDEMPOTENCY_GRPC },
    { "application/grpc-web", NGX_HTTP_IDEMPOTENCY_GRPC_WEB },
    { "application/grpc-web-text+proto", NGX_HTTP_IDEMPOTENCY_GRPC_WEB },
    { "application/grpc-we", NGX_HTTP_IDEMPOTENCY_GRPC_NONE },
    { "application/grpcs", NGX_HTTP_IDEMPOTENCY_GRPC_NONE },
    { "application/grp", NGX_HTTP_IDEMPOTENCY_GRPC_NONE },
    { "text/plain", NGX_HTTP_IDEMPOTENCY_GRPC_NONE },
    { "", NGX_HTTP_IDEMPOTENCY_GRPC_NONE },

    { NULL, 0 }
};


int
main(void)
{
    test_grpc();

    printf("1..%u\n", (unsigned) number);

    return failed != 0;
}


static void
test_grpc(void)
{
    ngx_str_t          value;
    ngx_uint_t         status;
    test_grpc_t       *t;
    test_grpc_type_t  *type;

    for (t = grpcs; t->value; t++) {
        value.data = (u_char *) t->value;
        value.len = strlen(t->value);

        status = ngx_http_idempotency_policy_grpc_status(&value);

        ok(status == t->status, "grpc-status", t->value);
    }

    ok(ngx_http_idempotency_policy_grpc_status(NULL) == 0,
       "grpc-status", "none");

    for (type = grpc_types; type->value; type++) {
        value.data = (u_char *) type->value;
        value.len = strlen(type->value);

        ok(ngx_http_idempotency_policy_grpc(&value) == type->grpc,
           "content type", type->value);
    }
}
