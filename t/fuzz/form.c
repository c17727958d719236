
/*
 * A form: its pairs, written down again in another way and in the order of
 * their names, have the same canonical text.
 */


#include "fuzz.h"
#include "ngx_idempotency_canonical.h"


static ngx_int_t fuzz_canonical(ngx_pool_t *pool, ngx_str_t *text,
    ngx_str_t *form, ngx_str_t *again);
static u_char *fuzz_escape(u_char *p, const u_char *data, size_t len);
static ngx_int_t fuzz_collect(const u_char *data, size_t len);


static u_char  fuzz_text[65536];
static size_t  fuzz_len;


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    ngx_str_t  form, second, again, third;

    if (fuzz_canonical(pool, in, &form, &again) != NGX_OK) {
        return;
    }

    fuzz_want(fuzz_canonical(pool, &again, &second, &third) == NGX_OK);
    fuzz_want(form.len == second.len
              && ngx_memcmp(form.data, second.data, form.len) == 0);
    fuzz_want(again.len == third.len
              && ngx_memcmp(again.data, third.data, again.len) == 0);
}


/* "again" is the form that was parsed, every character as an escape */

static ngx_int_t
fuzz_canonical(ngx_pool_t *pool, ngx_str_t *text, ngx_str_t *form,
    ngx_str_t *again)
{
    u_char                            *p;
    uint32_t                           i;
    ngx_int_t                          rc;
    ngx_idempotency_body_tree_t        tree;
    ngx_idempotency_body_tree_node_t  *node;

    rc = ngx_idempotency_form_parse(&tree, text);

    fuzz_want(rc == NGX_OK || (rc == NGX_DECLINED && tree.error));
    fuzz_want(tree.offset <= text->len);

    fuzz_len = 0;

    p = ngx_pnalloc(pool, 5 * text->len + 1);
    fuzz_want(p != NULL);

    again->data = p;

    if (rc == NGX_OK) {
        fuzz_want(ngx_idempotency_canonical(&tree, 0, fuzz_collect)
                  == NGX_OK);

        for (i = tree.nodes[0].child; i; i = node->next) {
            node = &tree.nodes[i];

            *p++ = '&';
            p = fuzz_escape(p, node->name, node->name_len);
            *p++ = '=';
            p = fuzz_escape(p, node->data, node->len);
        }
    }

    again->len = p - again->data;

    ngx_idempotency_body_tree_free(&tree);

    form->data = fuzz_text;
    form->len = fuzz_len;

    *form = fuzz_copy(pool, form);

    return rc;
}


static u_char *
fuzz_escape(u_char *p, const u_char *data, size_t len)
{
    while (len--) {
        *p++ = '%';
        p = ngx_hex_dump(p, (u_char *) data++, 1);
    }

    return p;
}


static ngx_int_t
fuzz_collect(const u_char *data, size_t len)
{
    fuzz_want(len <= sizeof(fuzz_text) - fuzz_len);

    ngx_memcpy(fuzz_text + fuzz_len, data, len);
    fuzz_len += len;

    return NGX_OK;
}
