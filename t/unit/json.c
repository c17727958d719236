
/*
 * JSON whose shortcuts must not show: every byte at every place of a string,
 * the same name at any two places of an object, numbers in many forms, names
 * in any order, members with white space at any place.
 * Linked with the parsers only; prints TAP.
 */


#include "ngx_idempotency_canonical.h"
#include "ngx_idempotency_number.h"


static ngx_uint_t test_bytes(void);
static ngx_uint_t test_twice(void);
static ngx_uint_t test_numbers(void);
static ngx_uint_t test_order(void);
static ngx_uint_t test_members(void);
static ngx_uint_t is(char *text, size_t len, char *form);
static ngx_int_t collect(const u_char *data, size_t len);


static char    out[512];
static size_t  out_len;

volatile ngx_cycle_t  *ngx_cycle;


int
main(void)
{
    ngx_uint_t  bytes, twice, numbers, order, members;

    bytes = test_bytes();
    twice = test_twice();
    numbers = test_numbers();
    order = test_order();
    members = test_members();

    printf("1..5\n"
           "%sok 1 - bytes of strings\n"
           "%sok 2 - names that occur twice\n"
           "%sok 3 - numbers\n"
           "%sok 4 - order of names\n"
           "%sok 5 - members as they stand\n",
           bytes ? "" : "not ", twice ? "" : "not ", numbers ? "" : "not ",
           order ? "" : "not ", members ? "" : "not ");

    return bytes && twice && numbers && order && members ? 0 : 1;
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

    for (n = 1; n < 30; n++) {
        for (i = 0; i < n; i++) {
            for (k = i; k < n; k++) {

                p = text;

                for (m = 0; m < n; m++) {
                    p += sprintf(p, "%c\"%02d\":0", m ? ',' : '{',
                                 (int) ((m == k ? i : m) * 7 % 37));
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
        { "1,2", NULL }, { "1 ,", NULL },
        { "1234567890123456789.5", "1234567890123456789.5" },
        { "1234567890123456789012.5", "1.2345678901234567890125e+21" }
    };

    good = 1;

    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        good &= is(numbers[i][0], strlen(numbers[i][0]), numbers[i][1]);
    }

    return good;
}


/* few and many, each of them in its place by each of these steps */

static ngx_uint_t
test_order(void)
{
    char        text[512], form[512], *p, *f;
    ngx_uint_t  n, i, step, good;

    static char  first[] =
        "{\"\xee\x80\x80\":1,\"\xf0\x90\x80\x80\":2,"
        "\"\xed\x9f\xbf\":3,\"z\":4,\"\":5,\" \":6,\"zz\":7}";

    good = is(first, sizeof(first) - 1,
              "{\"\":5,\" \":6,\"z\":4,\"zz\":7,\"\xed\x9f\xbf\":3,"
              "\"\xf0\x90\x80\x80\":2,\"\xee\x80\x80\":1}");

    for (n = 1; n < 42; n++) {
        for (step = 1; step < 41; step++) {

            p = text;
            f = form;

            for (i = 0; i < 41; i++) {
                if (i * step % 41 < n) {
                    p += sprintf(p, "%c\"%02d\":0", p > text ? ',' : '{',
                                 (int) (i * step % 41));
                }

                if (i < n) {
                    f += sprintf(f, "%c\"%02d\":0", i ? ',' : '{', (int) i);
                }
            }

            *p++ = '}';
            *f++ = '}';
            *f = '\0';

            good &= is(text, p - text, form);
        }
    }

    return good;
}


static ngx_uint_t
test_members(void)
{
    char        text[128], form[128];
    ngx_uint_t  n, v, space, len, good;

    static char  *names[][2] = {
        { "a", "a" }, { "\\u0061", "a" }, { "", "" }, { "\\n", "\\n" },
        { "\\u000a", "\\n" }, { "\xc3\xb6", "\xc3\xb6" }
    };

    static char  *values[][2] = {
        { "1", "1" }, { "15.5", "15.5" }, { "15.50", "15.5" }, { "-0", "0" },
        { "-1", "-1" }, { "0", "0" }, { "0.0", "0" }, { "1e2", "100" },
        { "100000000000000000000", "100000000000000000000" },
        { "1000000000000000000000", "1e+21" },
        { "true", "true" }, { "false", "false" }, { "null", "null" },
        { "\"x\"", "\"x\"" }, { "\"\"", "\"\"" },
        { "\"\\u0078\"", "\"x\"" }, { "\"\\/\"", "\"/\"" },
        { "[ 1.0 ]", "[1]" }, { "{ }", "{}" }, { "{\"z\":1.0}", "{\"z\":1}" }
    };

    good = 1;

    for (n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        for (v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            for (space = 0; space < 32; space++) {

                len = sprintf(text, "{\"z\":0,%s\"%s\"%s:%s%s%s,\"y\":%s0}",
                              space & 1 ? " " : "", names[n][0],
                              space & 2 ? "\t" : "", space & 4 ? "\n " : "",
                              values[v][0], space & 8 ? "\r\n" : "",
                              space & 16 ? " " : "");

                sprintf(form, names[n][0][0] == '\xc3'
                              ? "{\"y\":0,\"z\":0,\"%s\":%s}"
                              : "{\"%s\":%s,\"y\":0,\"z\":0}",
                        names[n][1], values[v][1]);

                good &= is(text, len, form);
            }
        }
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
    ngx_idempotency_body_tree_t  tree;

    /* where a byte too much would be seen */

    copy = malloc(len);
    memcpy(copy, text, len);

    s.data = copy;
    s.len = len;
    out_len = 0;

    rc = ngx_idempotency_json_parse(&tree, &s);

    if (rc == NGX_OK) {
        rc = ngx_idempotency_canonical(&tree, 0, collect);
    }

    good = (rc == NGX_OK) == (form != NULL)
           && (form == NULL || *form == '\0'
               || (out_len == strlen(form)
                   && memcmp(out, form, out_len) == 0));

    if (!good) {
        printf("# not what it should be: %.*s\n", (int) len, text);
    }

    ngx_idempotency_body_tree_free(&tree);
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
