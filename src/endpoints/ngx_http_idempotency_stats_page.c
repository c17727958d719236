
/*
 * The page for people.  It is made of page/ and asks for the counts itself.
 */


#include "ngx_http_idempotency_stats.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_idempotency_random.h"

/* "config" writes it: ngx_http_idempotency_page[] */
#include "ngx_http_idempotency_page.h"


#define NGX_HTTP_IDEMPOTENCY_PAGE_NONCE  16
#define NGX_HTTP_IDEMPOTENCY_PAGE_HERE   "@NONCE@"


static ngx_int_t ngx_http_idempotency_stats_page_policy(ngx_http_request_t *r,
    u_char *nonce);


void
ngx_http_idempotency_stats_page(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    u_char      *p;
    const char  *from, *here;
    u_char       random[NGX_HTTP_IDEMPOTENCY_PAGE_NONCE];
    u_char       nonce[2 * NGX_HTTP_IDEMPOTENCY_PAGE_NONCE + 1];

    if (ngx_idempotency_random(random, sizeof(random)) != NGX_OK) {
        text->failed = 1;
        return;
    }

    p = ngx_hex_dump(nonce, random, sizeof(random));
    *p = '\0';

    if (ngx_http_idempotency_stats_page_policy(stats->request, nonce)
        != NGX_OK)
    {
        text->failed = 1;
        return;
    }

    from = ngx_http_idempotency_page;

    for ( ;; ) {
        here = ngx_strstr(from, NGX_HTTP_IDEMPOTENCY_PAGE_HERE);
        if (here == NULL) {
            break;
        }

        ngx_http_idempotency_text_bytes(text, from, here - from);
        ngx_http_idempotency_text_add(text, "%s", nonce);

        from = here + sizeof(NGX_HTTP_IDEMPOTENCY_PAGE_HERE) - 1;
    }

    ngx_http_idempotency_text_bytes(text, from, ngx_strlen(from));
}


/* only what is in the page runs there, and it talks to nobody else */

static ngx_int_t
ngx_http_idempotency_stats_page_policy(ngx_http_request_t *r, u_char *nonce)
{
    ngx_str_t         value;
    ngx_uint_t        i;

    static ngx_str_t  name = ngx_string("Content-Security-Policy");
    static char       policy[] =
        "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'";

    static ngx_str_t  others[][2] = {
        { ngx_string("X-Content-Type-Options"), ngx_string("nosniff") },
        { ngx_string("Referrer-Policy"), ngx_string("no-referrer") }
    };

    value.data = ngx_pnalloc(r->pool, sizeof(policy) + 2 * ngx_strlen(nonce));
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = ngx_sprintf(value.data, policy, nonce, nonce) - value.data;

    if (ngx_http_idempotency_header_add(&r->headers_out.headers, &name,
                                        &value)
        == NULL)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (ngx_http_idempotency_header_add(&r->headers_out.headers,
                                            &others[i][0], &others[i][1])
            == NULL)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
