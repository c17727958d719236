
/*
 * JSON whose shortcuts must not show: every byte at every place of a string,
 * the same name at any two places of an object, numbers in many forms.
 * Linked with the parsers only; prints TAP.
 */


#include "ngx_http_idempotency_canonical.h"
#include "ngx_http_idempotency_number.h"


static ngx_uint_t test_bytes(void);
static ngx_uint_t test_twice(void);
static ngx_uint_t test_numbers(void);
static ngx_uint_t is(char *text, size_t len, char *form);
static ngx_int_t collect(const u_char *data, size_t len);


static char    out[512];
static size_t  out_len;

volatile ngx_cycle_t  *ngx_cycle;


int
main(void)
{
    ngx_uint_t  bytes, twice, numbers;

    bytes = test_bytes();
    twice = test_twice();
    numbers = test_numbers();

    printf("1..3\n"
           "%sok 1 - bytes of strings\n"
           "%sok 2 - names that occur twice\n"
           "%sok 3 - numbers\n",
           bytes ? "" : "not ", twice ? "" : "not ", numbers ? "" : "not ");

    return bytes && twice && numbers ? 0 : 1;
}


static ngx_uint_t
test_bytes(void)
{
    char        text[32];
    size_t      len, at;
    ngx_uint_t  b, good;

    good = 1;

    for (len = 1; len < 20; len++) {
        for (at = 0; at < len; at++) {
            for (b = 1; b < 256; b++) {

                memset(text, 'x', len + 2);
                text[0] = '"';
                text[at + 1] = (char) b;
                text[len + 1] = '"';
                text[len + 2] = '\0';

                good &= is(text, len + 2,
                           b < 0x20 || b >= 0x80 || b == '"' || b == '\\'
                           ? NULL : text);
            }
        }
    }

    return good;
}


static ngx_uint_t
test_twice(void)
{
    char        text[512], *p;
    ngx_uint_t  n, i, k, m, good;

    good = 1;

    for (n = 1; n < 18; n++) {
        for (i = 0; i < n; i++) {
            for (k = i; k < n; k++) {

                p = text;

                for (m = 0; m < n; m++) {
                    p += sprintf(p, "%c\"%c\":0", m ? ',' : '{',
                                 (int) ('a' + (m == k ? i : m) * 7 % 19));
                }

                *p++ = '}';

                good &= is(text, p - text, i == k ? "" : NULL);
            }
        }
    }

    return good;
}


static ngx_uint_t
test_numbers(void)
{
    ngx_uint_t  i, good;

    static char  *numbers[][2] = {
        { "15.5", "15.5" }, { "15.50", "15.5" }, { "15.0", "15" },
        { "15.05", "15.05" }, { "15.05e1", "150.5" }, { "0.5", "0.5" },
        { "0.0000005", "5e-7" }, { "-15.5", "-15.5" }, { "1.", NULL },
        { "1.5.5", NULL }, { "01.5", NULL }, { "1.5e400", NULL },
        { "1234567890123456789.5", "1234567890123456789.5" },
        { "1234567890123456789012.5", "1.2345678901234567890125e+21" }
    };

    good = 1;

    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        good &= is(numbers[i][0], strlen(numbers[i][0]), numbers[i][1]);
    }

    return good;
}


/* NULL: it is refused; "": whatever it is */

static ngx_uint_t
is(char *text, size_t len, char *form)
{
    u_char                      *copy;
    ngx_int_t                    rc;
    ngx_str_t                    s;
    ngx_uint_t                   good;
    ngx_http_idempotency_doc_t   doc;

    /* where a byte too much would be seen */

    copy = malloc(len);
    memcpy(copy, text, len);

    s.data = copy;
    s.len = len;
    out_len = 0;

    rc = ngx_http_idempotency_json_parse(&doc, &s);

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_canonical(&doc, 0, collect);
    }

    good = (rc == NGX_OK) == (form != NULL)
           && (form == NULL || *form == '\0'
               || (out_len == strlen(form)
                   && memcmp(out, form, out_len) == 0));

    if (!good) {
        printf("# not what it should be: %.*s\n", (int) len, text);
    }

    ngx_http_idempotency_doc_free(&doc);
    free(copy);

    return good;
}


static ngx_int_t
collect(const u_char *data, size_t len)
{
    memcpy(out + out_len, data, len);
    out_len += len;

    return NGX_OK;
}


void *
ngx_alloc(size_t size, ngx_log_t *log)
{
    return malloc(size);
}
