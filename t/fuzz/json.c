
/*
 * JSON: the canonical text of what is accepted is the canonical text of
 * itself; jansson accepts and refuses the same; and with paths the rest is
 * JSON, too.  The first line of the input has paths to include, the second to
 * exclude, names by "." and apart by ",".
 */


#include "fuzz.h"
#include "ngx_idempotency_canonical.h"
#include <jansson.h>


#define FUZZ_NAMES  4


static ngx_int_t fuzz_canonical(ngx_pool_t *pool, ngx_str_t *text,
    ngx_str_t *include, ngx_str_t *exclude, ngx_str_t *form);
static ngx_uint_t fuzz_mark(ngx_idempotency_body_tree_t *tree, ngx_str_t *paths,
    ngx_uint_t mark);
static ngx_int_t fuzz_collect(const u_char *data, size_t len);
static void fuzz_jansson(ngx_str_t *text, char *error);
static ngx_str_t fuzz_line(ngx_str_t *in);


static u_char  fuzz_text[65536];
static size_t  fuzz_len;
static char   *fuzz_error;


void
fuzz_init(void)
{
    json_object_seed(1);
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    ngx_str_t  include, exclude, form, again, text;

    include = fuzz_line(in);
    exclude = fuzz_line(in);
    text = fuzz_copy(pool, in);

    if (fuzz_canonical(pool, &text, NULL, NULL, &form) != NGX_OK) {
        fuzz_want(fuzz_error != NULL);
        fuzz_jansson(&text, fuzz_error);
        return;
    }

    fuzz_jansson(&text, NULL);

    fuzz_want(fuzz_canonical(pool, &form, NULL, NULL, &again) == NGX_OK);
    fuzz_want(form.len == again.len
              && ngx_memcmp(form.data, again.data, form.len) == 0);

    fuzz_want(fuzz_canonical(pool, &text, &include, &exclude, &form)
              == NGX_OK);
    fuzz_want(form.len <= again.len);

    if (form.len) {
        fuzz_want(fuzz_canonical(pool, &form, NULL, NULL, &again) == NGX_OK);
        fuzz_want(form.len == again.len
                  && ngx_memcmp(form.data, again.data, form.len) == 0);
    }
}


static ngx_int_t
fuzz_canonical(ngx_pool_t *pool, ngx_str_t *text, ngx_str_t *include,
    ngx_str_t *exclude, ngx_str_t *form)
{
    ngx_int_t                    rc;
    ngx_uint_t                   some;
    ngx_idempotency_body_tree_t  tree;

    rc = ngx_idempotency_json_parse(&tree, text);

    fuzz_want(rc == NGX_OK || rc == NGX_DECLINED);
    fuzz_want(tree.offset <= text->len);

    fuzz_error = tree.error;
    fuzz_len = 0;

    if (rc == NGX_OK) {
        some = 0;

        if (include) {
            some = fuzz_mark(&tree, include,
                             NGX_IDEMPOTENCY_BODY_TREE_INCLUDED);
            fuzz_mark(&tree, exclude, NGX_IDEMPOTENCY_BODY_TREE_EXCLUDED);
        }

        fuzz_want(ngx_idempotency_canonical(&tree, some, fuzz_collect)
                  == NGX_OK);
    }

    ngx_idempotency_body_tree_free(&tree);

    form->data = fuzz_text;
    form->len = fuzz_len;

    *form = fuzz_copy(pool, form);

    return rc;
}


static ngx_uint_t
fuzz_mark(ngx_idempotency_body_tree_t *tree, ngx_str_t *paths, ngx_uint_t mark)
{
    size_t      i;
    ngx_str_t   names[FUZZ_NAMES];
    ngx_uint_t  n;

    if (paths->len == 0) {
        return 0;
    }

    n = 0;
    names[0].data = paths->data;

    for (i = 0; i <= paths->len; i++) {

        if (i < paths->len && paths->data[i] != '.' && paths->data[i] != ',') {
            continue;
        }

        names[n].len = paths->data + i - names[n].data;
        n++;

        if (i == paths->len || paths->data[i] == ',' || n == FUZZ_NAMES) {
            ngx_idempotency_body_tree_mark(tree, names, n, mark);
            (void) ngx_idempotency_body_tree_find(tree, names, n);
            n = 0;
        }

        names[n].data = paths->data + i + 1;
    }

    return 1;
}


static ngx_int_t
fuzz_collect(const u_char *data, size_t len)
{
    fuzz_want(len <= sizeof(fuzz_text) - fuzz_len);

    ngx_memcpy(fuzz_text + fuzz_len, data, len);
    fuzz_len += len;

    return NGX_OK;
}


/*
 * Other bounds are no other grammar, and it has none for a zero in a name.  A
 * zero behind a number it does not see: that is its own.
 */

static void
fuzz_jansson(ngx_str_t *text, char *error)
{
    json_t        *value;
    json_error_t   why;

    if (ngx_strlchr(text->data, text->data + text->len, '\0')) {
        fuzz_want(error != NULL);
        return;
    }

    value = json_loadb((char *) text->data, text->len,
                       JSON_REJECT_DUPLICATES|JSON_DECODE_ANY|JSON_ALLOW_NUL
                       |JSON_DECODE_INT_AS_REAL, &why);

    if (value) {
        json_decref(value);

        fuzz_want(error == NULL
                  || ngx_strcmp(error, "nested too deeply") == 0
                  || ngx_strcmp(error, "a number out of range") == 0);
        return;
    }

    fuzz_want(error
              || json_error_code(&why) == json_error_null_byte_in_key
              || json_error_code(&why) == json_error_numeric_overflow);
}


static ngx_str_t
fuzz_line(ngx_str_t *in)
{
    u_char     *p;
    ngx_str_t   line;

    line.data = in->data;
    line.len = 0;

    p = ngx_strlchr(in->data, in->data + in->len, LF);

    if (p) {
        line.len = p - in->data;
        in->data += line.len + 1;
        in->len -= line.len + 1;
    }

    return line;
}
