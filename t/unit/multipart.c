
/*
 * Multipart bodies: what the reader tells of each, in whole and in pieces, or
 * that it refuses them.  Linked with the reader only; prints TAP.
 */


#include "ngx_idempotency_multipart.h"


#define TYPE  "multipart/form-data; boundary=B"

/* a part with this name, up to its content */
#define NAMED(name)                                                           \
    "Content-Disposition: form-data; name=\"" name "\"\r\n\r\n"


/*
 * "bytes" is what is told without the parts: each preamble, part and epilogue
 * in brackets.  "parts" is what is told with them: name, file name, extended
 * file name, type and encoding, a "-" for what is not there, and the content.
 * NULL: refused.
 */

typedef struct {
    char  *type;
    char  *body;
    char  *bytes;
    char  *parts;
} test_t;


static void test_body(test_t *t);
static void test_long(void);
static char *told(test_t *t, ngx_uint_t parts, size_t piece);
static ngx_int_t handler(ngx_idempotency_multipart_t *mp,
    ngx_idempotency_multipart_event_e event, const u_char *data,
    size_t len);
static void put(const u_char *data, size_t len);
static void put_field(ngx_str_t *field);
static ngx_uint_t same(const char *one, const char *two);
static void ok(ngx_uint_t passed, const char *name, const char *got);
static void put_text(const char *p);


static ngx_idempotency_multipart_t  mp;

static char        out[65536];
static size_t      out_len;
static ngx_uint_t  tests, failed;


static test_t  bodies[] = {

    /* parts */
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--B--\r\n",
      "[][" NAMED("a") "1][]", "a|-|-|-|-|1;" },
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--B\r\n" NAMED("b") "2\r\n--B--\r\n",
      "[][" NAMED("a") "1][" NAMED("b") "2][]",
      "a|-|-|-|-|1;b|-|-|-|-|2;" },
    { TYPE, "--B\r\n" NAMED("a") "\r\n--B--", "[][" NAMED("a") "]",
      "a|-|-|-|-|;" },
    { TYPE, "--B\r\n" NAMED("a") "\r\n\r\n--B--", "[][" NAMED("a") "\r\n]",
      "a|-|-|-|-|\r\n;" },
    { TYPE, "--B\r\n" NAMED("a") "\r\r\n--B--", "[][" NAMED("a") "\r]",
      "a|-|-|-|-|\r;" },
    { TYPE, "--B\r\n" NAMED("a") "\n\r\n--B--", "[][" NAMED("a") "\n]",
      "a|-|-|-|-|\n;" },

    /* no content, not even an empty one */
    { TYPE, "--B\r\nContent-Disposition: form-data; name=a\r\n\r\n--B--",
      "[][Content-Disposition: form-data; name=a\r\n]", "a|-|-|-|-|;" },

    /* no part */
    { TYPE, "--B--", "[]", "" },
    { TYPE, "--B--\r\n", "[][]", "" },

    /* preamble and epilogue */
    { TYPE, "\r\n--B--", "<[]", "" },
    { TYPE, "x\r\n--B--", "<[x]", "" },
    { TYPE, "-\r\n--B--\r\ny\r\n--B\r\n", "<[-][y\r\n--B\r\n]", "" },
    { TYPE, "x\r\n\r\n--B\r\n" NAMED("a") "1\r\n--B--\r\n\r\n",
      "<[x\r\n][" NAMED("a") "1][\r\n]", "a|-|-|-|-|1;" },

    /* what looks like a delimiter and is none */
    { TYPE, "--B\r\n" NAMED("a") "--B\r\n-B\r\n--b\r\n--\r\n --B\r\n--B--",
      "[][Content-Disposition: form-data; name=\"a\"\r\n]"
      "[-B\r\n--b\r\n--\r\n --B]", NULL },
    { TYPE, "--B\r\n" NAMED("a") "x--B\r\n-B\r\n--b\r\n--\r\n --B\r\n--B--",
      "[][" NAMED("a") "x--B\r\n-B\r\n--b\r\n--\r\n --B]",
      "a|-|-|-|-|x--B\r\n-B\r\n--b\r\n--\r\n --B;" },
    { "multipart/form-data; boundary=----B",
      "------B\r\n" NAMED("a") "\r\n----\r\n-----\r\n------C\r\n------B--",
      "[][" NAMED("a") "\r\n----\r\n-----\r\n------C]",
      "a|-|-|-|-|\r\n----\r\n-----\r\n------C;" },
    { TYPE, "--B\r\n" NAMED("a") "\r\r\r\n\r\n\r\n--B--",
      "[][" NAMED("a") "\r\r\r\n\r\n]", "a|-|-|-|-|\r\r\r\n\r\n;" },

    /* what another reader may take for one */
    { TYPE, "--B\r\n" NAMED("a") "1\n--B\r\n--B--", NULL, NULL },
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--Bx\r\n--B--", NULL, NULL },
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--B \r\n--B--", NULL, NULL },
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--B\n" NAMED("b") "\r\n--B--", NULL,
      NULL },
    { TYPE, "--B\r\n--B--", NULL, NULL },
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--B-\r\n--B--", NULL, NULL },
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--B--x", NULL, NULL },
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--B--\r", NULL, NULL },
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--B--\rx", NULL, NULL },
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--B--\n", NULL, NULL },
    { TYPE, "x\n--B\r\n" NAMED("a") "1\r\n--B--", NULL, NULL },

    /* broken off */
    { TYPE, "", NULL, NULL }, { TYPE, "-", NULL, NULL },
    { TYPE, "--B", NULL, NULL }, { TYPE, "--B\r", NULL, NULL },
    { TYPE, "--B\r\n", NULL, NULL }, { TYPE, "--B-", NULL, NULL },
    { TYPE, "--B\r\n" NAMED("a") "1", NULL, NULL },
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--", NULL, NULL },
    { TYPE, "--B\r\n" NAMED("a") "1\r\n--B\r\n", NULL, NULL },
    { TYPE, "x", NULL, NULL }, { TYPE, "a=1&b=2", NULL, NULL },
    { TYPE, "--C\r\n" NAMED("a") "1\r\n--C--\r\n", NULL, NULL },

    /* the header of a part */
    { TYPE, "--B\r\ncontent-disposition:FORM-DATA ;  NAME = a\r\n\r\n"
      "\r\n--B--", "[][content-disposition:FORM-DATA ;  NAME = a\r\n\r\n]",
      NULL },
    { TYPE, "--B\r\ncontent-TYPE:text/plain \t\r\ncontent-disposition:"
      "FORM-DATA ;\tNAME=a;\r\nX-Other: y\r\n\r\n1\r\n--B--",
      "[][content-TYPE:text/plain \t\r\ncontent-disposition:"
      "FORM-DATA ;\tNAME=a;\r\nX-Other: y\r\n\r\n1]",
      "a|-|-|text/plain|-|1;" },
    { TYPE, "--B\r\nContent-Disposition: form-data; name=\"a\\\"b\\\\\"; "
      "filename=\"C:\\x.txt\"; filename*=UTF-8''x%20y; size=4\r\n"
      "Content-Type:\r\nContent-Transfer-Encoding: base64\r\n\r\neA==\r\n"
      "--B--",
      "[][Content-Disposition: form-data; name=\"a\\\"b\\\\\"; "
      "filename=\"C:\\x.txt\"; filename*=UTF-8''x%20y; size=4\r\n"
      "Content-Type:\r\nContent-Transfer-Encoding: base64\r\n\r\neA==]",
      "a\\\"b\\\\|C:\\x.txt|UTF-8''x%20y||base64|eA==;" },
    { TYPE, "--B\r\nContent-Disposition: form-data; name=\"\"; "
      "filename=\"\"\r\n\r\n\r\n--B--",
      "[][Content-Disposition: form-data; name=\"\"; filename=\"\"\r\n\r\n]",
      "||-|-|-|;" },

    { TYPE, "--B\r\n\r\n1\r\n--B--", "[][\r\n1]", NULL },
    { TYPE, "--B\r\n\r\n--B--", "[][]", NULL },
    { TYPE, "--B\r\n1\r\n--B--", "[][1]", NULL },
    { TYPE, "--B\r\nContent-Disposition: form-data; name=a\r\n--B--",
      "[][Content-Disposition: form-data; name=a]", NULL },
    { TYPE, "--B\r\nContent-Type: a/b\r\n\r\n1\r\n--B--",
      "[][Content-Type: a/b\r\n\r\n1]", NULL },
    { TYPE, "--B\r\nContent-Disposition: form-data\r\n\r\n1\r\n--B--",
      "[][Content-Disposition: form-data\r\n\r\n1]", NULL },
    { TYPE, "--B\r\nContent-Disposition: attachment; name=a\r\n\r\n1\r\n--B--",
      "[][Content-Disposition: attachment; name=a\r\n\r\n1]", NULL },
    { TYPE, "--B\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n"
      "1\r\n--B--",
      "[][Content-Disposition: form-data; name=a; name=b\r\n\r\n1]", NULL },
    { TYPE, "--B\r\n" "Content-Disposition: form-data; name=a\r\n" NAMED("a")
      "1\r\n--B--",
      "[][" "Content-Disposition: form-data; name=a\r\n" NAMED("a") "1]",
      NULL },
    { TYPE, "--B\r\nContent-Type: a\r\nContent-Type: b\r\n" NAMED("a")
      "1\r\n--B--",
      "[][Content-Type: a\r\nContent-Type: b\r\n" NAMED("a") "1]", NULL },
    { TYPE, "--B\r\nContent-Disposition: form-data; name=\"a\r\n\r\n1\r\n--B--",
      "[][Content-Disposition: form-data; name=\"a\r\n\r\n1]", NULL },
    { TYPE, "--B\r\nContent-Disposition: form-data; name=\"a\"x\r\n\r\n"
      "1\r\n--B--",
      "[][Content-Disposition: form-data; name=\"a\"x\r\n\r\n1]", NULL },
    { TYPE, "--B\r\nContent-Disposition: form-data; name=\r\n\r\n1\r\n--B--",
      "[][Content-Disposition: form-data; name=\r\n\r\n1]", NULL },
    { TYPE, "--B\r\nContent-Disposition: form-data;\r\n name=a\r\n\r\n"
      "1\r\n--B--",
      "[][Content-Disposition: form-data;\r\n name=a\r\n\r\n1]", NULL },
    { TYPE, "--B\r\nX-Other\r\n" NAMED("a") "1\r\n--B--",
      "[][X-Other\r\n" NAMED("a") "1]", NULL },
    { TYPE, "--B\r\nX-Other : 1\r\n" NAMED("a") "1\r\n--B--",
      "[][X-Other : 1\r\n" NAMED("a") "1]", NULL },
    { TYPE, "--B\r\nX: 1\n" NAMED("a") "1\r\n--B--",
      "[][X: 1\n" NAMED("a") "1]", NULL },
    { TYPE, "--B\r\nX: 1\r2\r\n" NAMED("a") "1\r\n--B--",
      "[][X: 1\r2\r\n" NAMED("a") "1]", NULL },
    { TYPE, "--B\r\nContent-Disposition: form-data; name=a\n\n1\r\n--B--",
      "[][Content-Disposition: form-data; name=a\n\n1]", NULL },

    /* the boundary */
    { "Multipart/Mixed;BOUNDARY=\"B\"", "--B--", "[]", "" },
    { "multipart/form-data ; charset=\"a;b\" ; boundary=B ; ", "--B--", "[]",
      "" },
    { "multipart/form-data; boundary=\"a b'()+_,-./:=?\"",
      "--a b'()+_,-./:=?--", "[]", "" },
    { "multipart/form-data; boundary==_B=", "--=_B=--", "[]", "" },
    { "multipart/form-data; boundary=-", "-----", "[]", "" },
    { "multipart/form-data", "--B--", NULL, NULL },
    { "multipart/form-data; boundary", "--B--", NULL, NULL },
    { "multipart/form-data; boundary=", "----", NULL, NULL },
    { "multipart/form-data; boundary=\"\"", "----", NULL, NULL },
    { "multipart/form-data; boundary=\"B", "--B--", NULL, NULL },
    { "multipart/form-data; boundary=\"B \"", "--B --", NULL, NULL },
    { "multipart/form-data; boundary=\"B\\\\\"", "--B\\--", NULL, NULL },
    { "multipart/form-data; boundary=\"B\\\"\"", "--B\"--", NULL, NULL },
    { "multipart/form-data; boundary=B; boundary=B", "--B--", NULL, NULL },
    { "multipart/form-data boundary=B", "--B--", NULL, NULL },
    { "application/json; boundary=B", "--B--", NULL, NULL },
    { "multipart", "--B--", NULL, NULL },
    { "", "--B--", NULL, NULL }
};


int
main(void)
{
    ngx_uint_t  i;

    for (i = 0; i < sizeof(bodies) / sizeof(test_t); i++) {
        test_body(&bodies[i]);
    }

    test_long();

    printf("1..%lu\n", (unsigned long) tests);

    return failed ? 1 : 0;
}


static void
test_body(test_t *t)
{
    char        *got, *want;
    size_t       piece;
    ngx_uint_t   parts;

    for (parts = 0; parts < 2; parts++) {
        want = parts ? t->parts : t->bytes;

        for (piece = 12; piece; piece--) {
            got = told(t, parts, piece == 12 ? 65536 : piece);

            if (!same(got, want)) {
                break;
            }
        }

        ok(piece == 0, t->body, got);
    }
}


static void
test_long(void)
{
    char    body[16384], type[256];
    test_t  t;

    t.type = TYPE;
    t.body = body;

    memset(type, 0, sizeof(type));
    memset(body, 0, sizeof(body));

    sprintf(body, "--B\r\n%sX: ", "Content-Disposition: form-data; name=a\r\n");
    memset(body + strlen(body), 'x', NGX_IDEMPOTENCY_MULTIPART_HEADER
                                     - strlen(body) + 5 - 4);
    strcat(body, "\r\n\r\n1\r\n--B--");

    ok(same(told(&t, 1, 1000), "a|-|-|-|-|1;"), "a header of 4096 bytes", out);

    memset(body, 0, sizeof(body));
    sprintf(body, "--B\r\n%sX: ", "Content-Disposition: form-data; name=a\r\n");
    memset(body + strlen(body), 'x', NGX_IDEMPOTENCY_MULTIPART_HEADER
                                     - strlen(body) + 5 - 3);
    strcat(body, "\r\n\r\n1\r\n--B--");

    ok(told(&t, 1, 1000) == NULL, "and of one more", NULL);

    strcpy(type, "multipart/form-data; boundary=");
    memset(type + strlen(type), 'b', 70);
    t.type = type;
    sprintf(body, "--%s--", type + strlen(type) - 70);

    ok(same(told(&t, 1, 1), ""), "a boundary of 70 bytes", out);

    strcat(type, "b");
    sprintf(body, "--%s--", type + strlen(type) - 71);

    ok(told(&t, 1, 1) == NULL, "and of one more", NULL);
}


static char *
told(test_t *t, ngx_uint_t parts, size_t piece)
{
    u_char     *copy;
    size_t      len, n, i;
    ngx_int_t   rc;
    ngx_str_t   type;

    type.data = (u_char *) t->type;
    type.len = strlen(t->type);

    out_len = 0;
    mp.handler = handler;

    rc = ngx_idempotency_multipart_start(&mp, &type, parts);

    if (rc == NGX_OK && !parts) {
        put((u_char *) "[", 1);
    }

    len = strlen(t->body);

    /* each piece has memory of its own: what is read beyond it is noticed */

    for (i = 0; rc == NGX_OK && i < len; i += n) {
        n = ngx_min(piece, len - i);
        copy = malloc(n);
        memcpy(copy, t->body + i, n);
        rc = ngx_idempotency_multipart_read(&mp, copy, n);
        free(copy);
    }

    if (rc == NGX_OK) {
        rc = ngx_idempotency_multipart_end(&mp);
    }

    if (rc != NGX_OK) {
        return (rc == NGX_DECLINED && mp.error && mp.offset <= len)
               ? NULL : "no error, or elsewhere";
    }

    if (!parts) {

        /* the last bracket is that of an epilogue, or there is none */

        if (mp.epilogue) {
            put((u_char *) "]", 1);

        } else {
            out_len--;
        }

        if (mp.preamble) {
            memmove(out + 1, out, out_len++);
            out[0] = '<';
        }
    }

    out[out_len] = '\0';

    return out;
}


static ngx_int_t
handler(ngx_idempotency_multipart_t *mp,
    ngx_idempotency_multipart_event_e event, const u_char *data,
    size_t len)
{
    switch (event) {

    case NGX_IDEMPOTENCY_MULTIPART_PART:
        put_field(&mp->part.name);
        put_field(&mp->part.filename);
        put_field(&mp->part.filename_ext);
        put_field(&mp->part.type);
        put_field(&mp->part.encoding);
        break;

    case NGX_IDEMPOTENCY_MULTIPART_BYTES:
        put(data, len);
        break;

    default: /* NGX_IDEMPOTENCY_MULTIPART_END */
        if (mp->parts) {
            put((u_char *) ";", 1);

        } else {
            put((u_char *) "][", 2);
        }
    }

    return NGX_OK;
}


static void
put(const u_char *data, size_t len)
{
    memcpy(out + out_len, data, len);
    out_len += len;
}


static void
put_field(ngx_str_t *field)
{
    if (field->data) {
        put(field->data, field->len);

    } else {
        put((u_char *) "-", 1);
    }

    put((u_char *) "|", 1);
}


static ngx_uint_t
same(const char *one, const char *two)
{
    return (one == NULL || two == NULL) ? one == two : strcmp(one, two) == 0;
}


static void
ok(ngx_uint_t passed, const char *name, const char *got)
{
    tests++;

    if (!passed) {
        failed++;
    }

    printf("%sok %lu - ", passed ? "" : "not ", (unsigned long) tests);
    put_text(name);

    if (!passed) {
        printf("# got: ");
        put_text(got ? got : "(refused)");
        printf("# error: %s\n", mp.error ? mp.error : "none");
    }
}


static void
put_text(const char *p)
{
    for ( /* void */ ; *p; p++) {
        if (*p < 0x20 || *p == 0x7f || *p == '#') {
            printf("\\x%02x", (u_char) *p);

        } else {
            putchar(*p);
        }
    }

    printf("\n");
}
