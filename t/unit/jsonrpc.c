
/*
 * Where the id of a message of JSON-RPC is, as a table.  Linked with jsonrpc.c
 * only; prints TAP.
 */


#include "ngx_idempotency_jsonrpc.h"


#define METHOD  NGX_IDEMPOTENCY_JSONRPC_METHOD
#define RESULT  NGX_IDEMPOTENCY_JSONRPC_RESULT


typedef struct {
    char        *text;
    ngx_int_t    rc;
    char        *id;
    ngx_uint_t   has;
} test_message_t;


static test_message_t  messages[] = {

    { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}", NGX_OK, "1", METHOD },
    { "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", NGX_OK, "1", RESULT },
    { "{\"error\":{\"code\":1},\"id\":null}", NGX_OK, "null", RESULT },
    { "{\"method\":\"a\"}", NGX_OK, "", METHOD },
    { "{}", NGX_OK, "", 0 },
    { " {\t} \r\n", NGX_OK, "", 0 },

    /* as it was written */

    { "{\"id\":\"a\"}", NGX_OK, "\"a\"", 0 },
    { "{ \"id\" : \"a\\\"b\\\\\" }", NGX_OK, "\"a\\\"b\\\\\"", 0 },
    { "{\"id\":\"\\u0031\"}", NGX_OK, "\"\\u0031\"", 0 },
    { "{\"id\":1.0}", NGX_OK, "1.0", 0 },
    { "{\"id\":-1e+2 ,\"a\":0}", NGX_OK, "-1e+2", 0 },
    { "{\"id\":\n1\n}", NGX_OK, "1", 0 },
    { "{\"id\":{\"id\":[1,\"]}\"]}}", NGX_OK, "{\"id\":[1,\"]}\"]}", 0 },
    { "{\"id\":[]}", NGX_OK, "[]", 0 },

    /* only that of the message */

    { "{\"result\":{\"id\":2},\"id\":1}", NGX_OK, "1", RESULT },
    { "{\"result\":[{\"id\":2}]}", NGX_OK, "", RESULT },
    { "{\"result\":\"\\\"id\\\":2\",\"id\":1}", NGX_OK, "1", RESULT },
    { "{\"a\":\"id\",\"b\":\"}\",\"id\":1}", NGX_OK, "1", 0 },
    { "{\"ID\":2,\"id \":3,\"i\":4,\"idd\":5,\"id\":1}", NGX_OK, "1", 0 },

    /* ambiguous, or not an object */

    { "{\"id\":1,\"id\":2}", NGX_DECLINED, NULL, 0 },
    { "{\"i\\u0064\":1}", NGX_DECLINED, NULL, 0 },
    { "{\"a\\n\":1,\"id\":2}", NGX_DECLINED, NULL, 0 },
    { "[{\"id\":1}]", NGX_DECLINED, NULL, 0 },
    { "[]", NGX_DECLINED, NULL, 0 },
    { "\"id\"", NGX_DECLINED, NULL, 0 },
    { "1", NGX_DECLINED, NULL, 0 },
    { "", NGX_DECLINED, NULL, 0 },
    { " ", NGX_DECLINED, NULL, 0 },

    /* cut off at any byte */

    { "{", NGX_DECLINED, NULL, 0 },
    { "{\"", NGX_DECLINED, NULL, 0 },
    { "{\"id", NGX_DECLINED, NULL, 0 },
    { "{\"id\"", NGX_DECLINED, NULL, 0 },
    { "{\"id\":", NGX_DECLINED, NULL, 0 },
    { "{\"id\":1", NGX_DECLINED, NULL, 0 },
    { "{\"id\":\"a\\", NGX_DECLINED, NULL, 0 },
    { "{\"id\":1,", NGX_DECLINED, NULL, 0 },
    { "{\"id\":[1", NGX_DECLINED, NULL, 0 },
    { "{\"id\":[\"", NGX_DECLINED, NULL, 0 },

    /* no JSON */

    { "{\"id\":}", NGX_DECLINED, NULL, 0 },
    { "{\"id\":,}", NGX_DECLINED, NULL, 0 },
    { "{\"id\" 1}", NGX_DECLINED, NULL, 0 },
    { "{id:1}", NGX_DECLINED, NULL, 0 },
    { "{\"id\":1}}", NGX_DECLINED, NULL, 0 },
    { "{\"id\":1}{}", NGX_DECLINED, NULL, 0 },
    { "{\"id\":1 2}", NGX_DECLINED, NULL, 0 },
    { "{\"id\":1\"a\"}", NGX_DECLINED, NULL, 0 },

    { NULL, 0, NULL, 0 }
};


int
main(void)
{
    unsigned         n, failed;
    u_char          *copy;
    ngx_int_t        rc;
    ngx_str_t        text, id;
    ngx_uint_t       has, passed;
    test_message_t  *t;

    n = 0;
    failed = 0;

    for (t = messages; t->text; t++) {

        /* memory that ends where the text does */

        text.len = ngx_strlen(t->text);
        copy = malloc(text.len + (text.len == 0));
        if (copy == NULL) {
            return 1;
        }

        ngx_memcpy(copy, t->text, text.len);
        text.data = copy;

        rc = ngx_idempotency_jsonrpc_id(&text, &id, &has);

        passed = (rc == t->rc)
                 && (rc != NGX_OK
                     || (has == t->has
                         && id.len == ngx_strlen(t->id)
                         && (id.len == 0
                             || ngx_memcmp(id.data, t->id, id.len) == 0)));

        n++;
        failed += !passed;

        /* the first line of it */

        printf("%s %u - id: %.*s\n", passed ? "ok" : "not ok", n,
               (int) strcspn(t->text, "\r\n"), t->text);

        free(copy);
    }

    printf("1..%u\n", n);

    return failed != 0;
}
