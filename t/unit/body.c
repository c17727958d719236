
/*
 * What two bodies have in common: JSON and forms as text in, canonical text
 * or a refusal out.  The cases of RFC 8785 and its published test data are
 * among them.  Linked with the parsers only; prints TAP.
 */


#include "ngx_idempotency_canonical.h"
#include "ngx_idempotency_number.h"


typedef struct {
    char  *text;
    char  *form;        /* NULL: refused */
} test_t;


typedef struct {
    char  *text;
    char  *include;     /* paths, names by ".", apart by "," */
    char  *exclude;
    char  *form;
} test_paths_t;


static void test_form_of(test_t *t, ngx_uint_t json);
static void test_paths(test_paths_t *t, ngx_uint_t json);
static void test_bounds(void);
static void test_find(void);
static ngx_uint_t mark(ngx_idempotency_body_tree_t *tree, char *paths,
    ngx_uint_t flag);
static char *nested(ngx_uint_t depth, char *begin, char *end);
static ngx_int_t collect(const u_char *data, size_t len);
static char *canonical(char *text, size_t len, char *include, char *exclude,
    ngx_uint_t json);
static void ok(ngx_uint_t passed, char *name, char *got);


static u_char      *out;
static size_t       out_len;
static ngx_uint_t   tests, failed;

volatile ngx_cycle_t  *ngx_cycle;
static ngx_cycle_t     cycle;


static test_t  json[] = {

    /* RFC 8785, 3.2.2: the sample; its first number keeps its digits here */
    { "{\n  \"numbers\": [333333333.33333329, 1E30, 4.50, 2e-3,\n"
      "  0.000000000000000000000000001],\n"
      "  \"string\": \"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\"
      "\\\"\\/\",\n  \"literals\": [null, true, false]\n}",
      "{\"literals\":[null,true,false],\"numbers\":[333333333.33333329,1e+30,"
      "4.5,0.002,1e-27],\"string\":\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\"
      "\\\"/\"}" },

    /* 3.2.3: the order of names is that of UTF-16 */
    { "{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage Return\","
      "\"\\ufb33\":\"Hebrew Letter Dalet With Dagesh\",\"1\":\"One\","
      "\"\\ud83d\\ude00\":\"Emoji: Grinning Face\",\"\\u0080\":\"Control\","
      "\"\\u00f6\":\"Latin Small Letter O With Diaeresis\"}",
      "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xc2\x80\":\"Control\","
      "\"\xc3\xb6\":\"Latin Small Letter O With Diaeresis\","
      "\"\xe2\x82\xac\":\"Euro Sign\","
      "\"\xf0\x9f\x98\x80\":\"Emoji: Grinning Face\","
      "\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}" },

    /* the cases of its test data: arrays, french, structures, unicode */
    { "[56,{\"d\":true,\"10\":null,\"1\":[]}]",
      "[56,{\"1\":[],\"10\":null,\"d\":true}]" },
    { "{\"peach\":1,\"p\xc3\xa9""ch\xc3\xa9\":2,\"p\xc3\xaa""che\":3,"
      "\"sin\":4}",
      "{\"peach\":1,\"p\xc3\xa9""ch\xc3\xa9\":2,\"p\xc3\xaa""che\":3,"
      "\"sin\":4}" },
    { "{\"1\": {\"f\": {\"f\": \"hi\",\"F\": 5} ,\"\\n\": 56.0},"
      "\"10\": { }, \"\": \"empty\", \"a\": { },"
      "\"111\": [ {\"e\": \"yes\",\"E\": \"no\" } ],\"A\": { }}",
      "{\"\":\"empty\",\"1\":{\"\\n\":56,\"f\":{\"F\":5,\"f\":\"hi\"}},"
      "\"10\":{},\"111\":[{\"E\":\"no\",\"e\":\"yes\"}],\"A\":{},\"a\":{}}" },
    { "{\"Unnormalized Unicode\":\"A\\u030a\"}",
      "{\"Unnormalized Unicode\":\"A\xcc\x8a\"}" },
    { "{ \"\\u20ac\": \"\\u20ac\",\"\\r\":1,\"\\u000a\":2,\"1\":3,"
      "\"</script>\":4,\"\\u0080\":5}",
      "{\"\\n\":2,\"\\r\":1,\"1\":3,\"</script>\":4,\"\xc2\x80\":5,"
      "\"\xe2\x82\xac\":\"\xe2\x82\xac\"}" },

    /* scalars, white space */
    { " \t\r\n1 \t\r\n", "1" },
    { "null", "null" }, { "true", "true" }, { "false", "false" },
    { "\"\"", "\"\"" }, { "[]", "[]" }, { "{}", "{}" },
    { "[ ]", "[]" }, { "{ }", "{}" }, { "[ 1 , 2 ]", "[1,2]" },
    { "{ \"a\" : 1 , \"b\" : 2 }", "{\"a\":1,\"b\":2}" },
    { "[2,1,2]", "[2,1,2]" },
    { "{\"a\":null}", "{\"a\":null}" },
    { "{\"b\":1,\"a\":{\"d\":1,\"c\":2}}",
      "{\"a\":{\"c\":2,\"d\":1},\"b\":1}" },
    { "{\"aa\":1,\"a\":2,\"\":3}", "{\"\":3,\"a\":2,\"aa\":1}" },
    { "{\"9\":1,\"8\":1,\"7\":1,\"6\":1,\"5\":1,\"4\":1,\"3\":1,\"2\":1,"
      "\"1\":1,\"0\":1,\"10\":1}",
      "{\"0\":1,\"1\":1,\"10\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,"
      "\"7\":1,\"8\":1,\"9\":1}" },

    /* numbers: the forms of ECMAScript */
    { "0", "0" }, { "-0", "0" }, { "0.0", "0" }, { "-0.00e5", "0" },
    { "0e999999999999999999999", "0" },
    { "1.0", "1" }, { "10", "10" }, { "1e1", "10" }, { "1E+1", "10" },
    { "100e-1", "10" }, { "-1.50", "-1.5" }, { "0.10", "0.1" },
    { "12345678901234567890", "12345678901234567890" },
    { "1e20", "100000000000000000000" }, { "1e21", "1e+21" },
    { "123456789012345678901", "123456789012345678901" },
    { "1234567890123456789012", "1.234567890123456789012e+21" },
    { "0.000001", "0.000001" }, { "1e-6", "0.000001" },
    { "0.0000001", "1e-7" }, { "0.00000015", "1.5e-7" },
    { "15e-8", "1.5e-7" }, { "5e-324", "5e-324" },
    { "1.7976931348623157e308", "1.7976931348623157e+308" },
    { "-1.7976931348623157e+308", "-1.7976931348623157e+308" },
    { "9007199254740991", "9007199254740991" },
    { "295147905179352830000", "295147905179352830000" },
    { "1424953923781206.25", "1424953923781206.25" },
    { "999999999999999900000", "999999999999999900000" },

    /* no digit is lost: these are two numbers, though one double */
    { "9007199254740992", "9007199254740992" },
    { "9007199254740993", "9007199254740993" },
    { "0.1000000000000000055511151231257827",
      "0.1000000000000000055511151231257827" },
    { "18446744073709551616", "18446744073709551616" },

    /* strings: each character has one form */
    { "\"\\u0061\"", "\"a\"" }, { "\"\\/\"", "\"/\"" },
    { "\"\\b\\f\\n\\r\\t\\u0008\\u000b\\u001F\"",
      "\"\\b\\f\\n\\r\\t\\b\\u000b\\u001f\"" },
    { "\"\\u0000\"", "\"\\u0000\"" }, { "\"\x7f\"", "\"\x7f\"" },
    { "\"\\u00e9\"", "\"\xc3\xa9\"" }, { "\"\\uFFFF\"", "\"\xef\xbf\xbf\"" },
    { "\"\\uD834\\uDD1E\"", "\"\xf0\x9d\x84\x9e\"" },
    { "\"\xf0\x9d\x84\x9e\"", "\"\xf0\x9d\x84\x9e\"" },
    { "\"\\udbff\\udfff\"", "\"\xf4\x8f\xbf\xbf\"" },
    { "\"a\\\"b\\\\c\"", "\"a\\\"b\\\\c\"" },

    /* not JSON */
    { "", NULL }, { " ", NULL }, { "[", NULL }, { "]", NULL }, { "{", NULL },
    { "}", NULL }, { "[1", NULL }, { "[1,", NULL }, { "[1,]", NULL },
    { "[,1]", NULL }, { "[1 2]", NULL }, { "[1}", NULL }, { "{]", NULL },
    { "{\"a\"}", NULL }, { "{\"a\":}", NULL }, { "{\"a\":1,}", NULL },
    { "{\"a\":1 \"b\":2}", NULL }, { "{,}", NULL }, { "{a:1}", NULL },
    { "{1:1}", NULL }, { "{\"a\":1}}", NULL }, { "1 2", NULL },
    { "1,", NULL }, { ",", NULL }, { ":", NULL }, { "{\"a\":1:2}", NULL },
    { "nul", NULL }, { "nulll", NULL }, { "True", NULL }, { "NaN", NULL },
    { "Infinity", NULL }, { "-Infinity", NULL }, { "'a'", NULL },
    { "// c\n1", NULL }, { "/* c */1", NULL }, { "\xef\xbb\xbf{}", NULL },
    { "\v1", NULL }, { "\xc2\xa0" "1", NULL },

    /* not numbers */
    { "01", NULL }, { "-01", NULL }, { "+1", NULL }, { "-", NULL },
    { "1.", NULL }, { ".1", NULL }, { "1.e1", NULL }, { "1e", NULL },
    { "1e+", NULL }, { "0x1", NULL }, { "--1", NULL }, { "1_0", NULL },
    { "1e400", NULL }, { "-1e400", NULL }, { "1e309", NULL },
    { "10e308", NULL }, { "1e-400", NULL }, { "1e-325", NULL },
    { "1e99999999999999999999", NULL }, { "1e-99999999999999999999", NULL },

    /* not strings */
    { "\"", NULL }, { "\"a", NULL }, { "\"\\\"", NULL }, { "\"\\x41\"", NULL },
    { "\"\\u12\"", NULL }, { "\"\\u12g4\"", NULL }, { "\"\\", NULL },
    { "\"\\U0041\"", NULL }, { "\"\n\"", NULL }, { "\"\t\"", NULL },
    { "\"\\ud800\"", NULL }, { "\"\\udc00\"", NULL },
    { "\"\\ud800x\"", NULL }, { "\"\\ud800\\u0041\"", NULL },
    { "\"\\ud800\\ud800\"", NULL }, { "\"\\ud800\\", NULL },
    { "\"\\udc00\\ud800\"", NULL }, { "{\"\\ud800\":1}", NULL },

    /* not UTF-8 */
    { "\"\x80\"", NULL }, { "\"\xc0\x80\"", NULL }, { "\"\xc1\xbf\"", NULL },
    { "\"\xc3\"", NULL }, { "\"\xe0\x80\x80\"", NULL },
    { "\"\xe0\x9f\xbf\"", NULL }, { "\"\xed\xa0\x80\"", NULL },
    { "\"\xed\xbf\xbf\"", NULL }, { "\"\xf0\x80\x80\x80\"", NULL },
    { "\"\xf0\x8f\xbf\xbf\"", NULL }, { "\"\xf4\x90\x80\x80\"", NULL },
    { "\"\xf5\x80\x80\x80\"", NULL }, { "\"\xff\"", NULL },
    { "\"\xe2\x82\"", NULL }, { "\"\xe2\x28\xa1\"", NULL },

    /* names that occur twice, however they are written and wherever */
    { "{\"a\":1,\"a\":1}", NULL }, { "{\"a\":1,\"b\":2,\"a\":3}", NULL },
    { "{\"a\":1,\"\\u0061\":2}", NULL }, { "{\"\":1,\"\":2}", NULL },
    { "[{\"x\":{\"b\":1,\"a\":1,\"b\":1}}]", NULL },
    { "{\"a\":{\"a\":{\"a\":1}}}", "{\"a\":{\"a\":{\"a\":1}}}" },

    { NULL, NULL }
};


static test_t  form[] = {
    { "", "{}" }, { "&&", "{}" }, { "a=1", "{\"a\":\"1\"}" },
    { "b=2&a=1", "{\"a\":\"1\",\"b\":\"2\"}" },
    { "a=1&a=2", "{\"a\":\"1\",\"a\":\"2\"}" },
    { "a=2&a=1", "{\"a\":\"2\",\"a\":\"1\"}" },
    { "a=2&b=0&a=1&b=1&a=3",
      "{\"a\":\"2\",\"a\":\"1\",\"a\":\"3\",\"b\":\"0\",\"b\":\"1\"}" },
    { "a", "{\"a\":\"\"}" }, { "a=", "{\"a\":\"\"}" },
    { "=1", "{\"\":\"1\"}" }, { "=", "{\"\":\"\"}" },
    { "a=b=c", "{\"a\":\"b=c\"}" }, { "a=1&", "{\"a\":\"1\"}" },
    { "a+b=c+d", "{\"a b\":\"c d\"}" }, { "a%20b=c%20d", "{\"a b\":\"c d\"}" },
    { "a=%2B", "{\"a\":\"+\"}" }, { "%61=%31", "{\"a\":\"1\"}" },
    { "a=%c3%A9", "{\"a\":\"\xc3\xa9\"}" }, { "a=%00", "{\"a\":\"\\u0000\"}" },
    { "a=%26b%3D1", "{\"a\":\"&b=1\"}" }, { "a=\"\\", "{\"a\":\"\\\"\\\\\"}" },
    { "a=1;b=2", "{\"a\":\"1;b=2\"}" }, { "a[b]=1", "{\"a[b]\":\"1\"}" },
    { "a=%", NULL }, { "a=%1", NULL }, { "a=%zz", NULL }, { "%g0=1", NULL },
    { "a=%1&b=2", NULL }, { "a=%%20", NULL }, { "a%=1", NULL },
    { NULL, NULL }
};


static test_paths_t  json_paths[] = {
    { "{\"b\":1,\"a\":2}", NULL, "b", "{\"a\":2}" },
    { "{\"b\":1,\"a\":2}", "b", NULL, "{\"b\":1}" },
    { "{\"b\":1,\"a\":2}", "a,b", NULL, "{\"a\":2,\"b\":1}" },
    { "{\"b\":1,\"a\":2}", "c", NULL, "{}" },
    { "{\"b\":null}", "b", NULL, "{\"b\":null}" },
    { "{\"m\":{\"t\":1,\"u\":2},\"t\":3}", NULL, "m.t",
      "{\"m\":{\"u\":2},\"t\":3}" },
    { "{\"m\":{\"t\":1,\"u\":2},\"t\":3}", "m.t", NULL, "{\"m\":{\"t\":1}}" },
    { "{\"m\":{\"t\":1,\"u\":2},\"t\":3}", "m", "m.u", "{\"m\":{\"t\":1}}" },
    { "{\"m\":{\"t\":1,\"u\":2},\"t\":3}", "m.u,m", NULL,
      "{\"m\":{\"t\":1,\"u\":2}}" },
    { "{\"m\":5,\"t\":3}", "m.t,t", NULL, "{\"t\":3}" },
    { "{\"m\":5,\"t\":3}", NULL, "m.t", "{\"m\":5,\"t\":3}" },
    { "{\"i\":[{\"n\":1,\"s\":2},{\"n\":3},[{\"n\":4,\"s\":5}],6]}", NULL,
      "i.n", "{\"i\":[{\"s\":2},{},[{\"s\":5}],6]}" },
    { "{\"i\":[{\"n\":1,\"s\":2},{\"n\":3},[{\"n\":4,\"s\":5}],6]}", "i.s",
      NULL, "{\"i\":[{\"s\":2},{},[{\"s\":5}]]}" },
    { "[{\"n\":1,\"s\":2}]", NULL, "n", "[{\"s\":2}]" },
    { "[{\"n\":1,\"s\":2}]", "n", NULL, "[{\"n\":1}]" },
    { "5", "n", NULL, "" },
    { "5", NULL, "n", "5" },
    { "{\"\\u0061\":1,\"b\":2}", NULL, "a", "{\"b\":2}" },
    { NULL, NULL, NULL, NULL }
};


static test_paths_t  form_paths[] = {
    { "sign=1&a=2&sign=3", NULL, "sign", "{\"a\":\"2\"}" },
    { "sign=1&a=2&sign=3", "sign", NULL, "{\"sign\":\"1\",\"sign\":\"3\"}" },
    { "%73ign=1&a=2", NULL, "sign", "{\"a\":\"2\"}" },
    { "a=2", "a.b", NULL, "{}" },
    { NULL, NULL, NULL, NULL }
};


int
main(void)
{
    test_t        *t;
    test_paths_t  *paths;

    ngx_cycle = &cycle;

    for (t = json; t->text; t++) {
        test_form_of(t, 1);
    }

    for (t = form; t->text; t++) {
        test_form_of(t, 0);
    }

    for (paths = json_paths; paths->text; paths++) {
        test_paths(paths, 1);
    }

    for (paths = form_paths; paths->text; paths++) {
        test_paths(paths, 0);
    }

    test_bounds();
    test_find();

    printf("1..%lu\n", (unsigned long) tests);

    return failed ? 1 : 0;
}


static void
test_form_of(test_t *t, ngx_uint_t json)
{
    char  *got;

    got = canonical(t->text, strlen(t->text), NULL, NULL, json);

    ok((got == NULL) == (t->form == NULL)
       && (got == NULL || strcmp(got, t->form) == 0),
       t->text, got);

    if (got == NULL || !json) {
        return;
    }

    /* a canonical text is the canonical form of itself */

    got = strdup(got);
    t->form = canonical(got, strlen(got), NULL, NULL, json);

    ok(t->form != NULL && strcmp(got, t->form) == 0, got, t->form);

    free(got);
}


static void
test_paths(test_paths_t *t, ngx_uint_t json)
{
    char  *got;

    got = canonical(t->text, strlen(t->text), t->include, t->exclude, json);

    ok(got && strcmp(got, t->form) == 0, t->text, got);
}


static void
test_bounds(void)
{
    char        *text, *p;
    size_t       n, len;
    ngx_uint_t   i;

    for (i = 0; i < 2; i++) {
        text = nested(NGX_IDEMPOTENCY_BODY_TREE_DEPTH, i ? "{\"a\":" : "[",
                      i ? "}" : "]");
        ok(canonical(text, strlen(text), NULL, NULL, 1) != NULL,
           "as deep as may be", NULL);
        free(text);

        text = nested(NGX_IDEMPOTENCY_BODY_TREE_DEPTH + 1, i ? "{\"a\":" : "[",
                      i ? "}" : "]");
        ok(canonical(text, strlen(text), NULL, NULL, 1) == NULL,
           "one level more", NULL);
        free(text);
    }

    len = 10 * 1000 * 1000;
    text = malloc(len);

    memset(text, '[', len);
    ok(canonical(text, len, NULL, NULL, 1) == NULL, "ten million levels",
       NULL);

    memset(text, '9', len);
    ok(canonical(text, len, NULL, NULL, 1) == NULL, "a number of 10 MB",
       NULL);

    memset(text, 'x', len);
    text[0] = '"';
    text[len - 1] = '"';
    ok(canonical(text, len, NULL, NULL, 1) != NULL && out_len == len,
       "a string of 10 MB", NULL);

    text[1] = '\\';
    text[2] = 'n';
    ok(canonical(text, len, NULL, NULL, 1) != NULL && out_len == len,
       "and with an escape", NULL);

    /* "[1,1,1,...]" with so many values, and one more with the array */

    for (n = NGX_IDEMPOTENCY_BODY_TREE_VALUES - 1; ; n++) {
        text[0] = '[';

        for (p = text + 1; p < text + 2 * n; /* void */ ) {
            *p++ = '1';
            *p++ = ',';
        }

        p[-1] = ']';

        if (n == NGX_IDEMPOTENCY_BODY_TREE_VALUES) {
            break;
        }

        ok(canonical(text, p - text, NULL, NULL, 1) != NULL,
           "as many values as may be", NULL);
    }

    ok(canonical(text, p - text, NULL, NULL, 1) == NULL, "one value more",
       NULL);

    /* names from the last to the first */

    p = text;
    *p++ = '{';

    for (n = 0; n < 500000; n++) {
        p += sprintf(p, "\"%06lu\":1,", (unsigned long) (499999 - n));
    }

    p[-1] = '}';

    ok(canonical(text, p - text, NULL, NULL, 1) != NULL
       && memcmp(out, "{\"000000\":1,\"000001\":1,", 23) == 0
       && out_len == (size_t) (p - text),
       "half a million names in the wrong order", NULL);

    memcpy(text + 1, "\"000777\"", 8);
    ok(canonical(text, p - text, NULL, NULL, 1) == NULL,
       "two of them are the same", NULL);

    free(text);

    text = malloc(NGX_IDEMPOTENCY_NUMBER_LEN + 2);
    memset(text, '1', NGX_IDEMPOTENCY_NUMBER_LEN + 1);
    text[1] = '.';
    text[NGX_IDEMPOTENCY_NUMBER_LEN + 1] = '\0';
    ok(canonical(text, NGX_IDEMPOTENCY_NUMBER_LEN + 1, NULL, NULL, 1)
       == NULL, "a number that is too long", NULL);
    ok(canonical(text, NGX_IDEMPOTENCY_NUMBER_LEN, NULL, NULL, 1)
       != NULL && out_len == NGX_IDEMPOTENCY_NUMBER_LEN,
       "the longest number", NULL);
    free(text);
}


static void
test_find(void)
{
    ngx_str_t                          names[2];
    ngx_idempotency_body_tree_t        tree;
    ngx_idempotency_body_tree_node_t  *node;

    static ngx_str_t  text =
        ngx_string("{\"a\":{\"b\":[1],\"c\":\"\\u0041\"},\"d\":7}");

    (void) ngx_idempotency_json_parse(&tree, &text);

    ngx_str_set(&names[0], "a");
    ngx_str_set(&names[1], "c");

    node = ngx_idempotency_body_tree_find(&tree, names, 2);
    ok(node && node->len == 1 && node->data[0] == 'A', "a.c", NULL);

    node = ngx_idempotency_body_tree_find(&tree, names, 1);
    ok(node && node->type == NGX_IDEMPOTENCY_BODY_TREE_OBJECT, "a", NULL);

    node = ngx_idempotency_body_tree_find(&tree, names + 1, 1);
    ok(node == NULL, "c", NULL);

    ngx_str_set(&names[0], "d");

    node = ngx_idempotency_body_tree_find(&tree, names, 2);
    ok(node == NULL, "d.c", NULL);

    ngx_idempotency_body_tree_free(&tree);
}


static char *
canonical(char *text, size_t len, char *include, char *exclude,
    ngx_uint_t json)
{
    u_char                      *copy;
    ngx_int_t                    rc;
    ngx_str_t                    s;
    ngx_idempotency_body_tree_t  tree;

    /* where a byte too much would be seen */

    copy = malloc(len ? len : 1);
    memcpy(copy, text, len);

    s.data = copy;
    s.len = len;

    rc = json ? ngx_idempotency_json_parse(&tree, &s)
              : ngx_idempotency_form_parse(&tree, &s);

    free(out);

    out_len = 0;
    out = malloc(2 * len + 64);

    if (rc == NGX_OK) {
        mark(&tree, exclude, NGX_IDEMPOTENCY_BODY_TREE_EXCLUDED);

        rc = ngx_idempotency_canonical(&tree,
                       mark(&tree, include, NGX_IDEMPOTENCY_BODY_TREE_INCLUDED),
                       collect);
        out[out_len] = '\0';

    } else if (tree.error == NULL) {
        ok(0, text, "refused without a reason");
    }

    ngx_idempotency_body_tree_free(&tree);
    free(copy);

    return rc == NGX_OK ? (char *) out : NULL;
}


static ngx_uint_t
mark(ngx_idempotency_body_tree_t *tree, char *paths, ngx_uint_t flag)
{
    char       *p;
    ngx_str_t   names[8];
    ngx_uint_t  n;

    if (paths == NULL) {
        return 0;
    }

    n = 0;
    names[0].data = (u_char *) paths;

    for (p = paths; /* void */ ; p++) {

        if (*p != '\0' && *p != ',' && *p != '.') {
            continue;
        }

        names[n].len = (u_char *) p - names[n].data;
        n++;

        if (*p != '.') {
            ngx_idempotency_body_tree_mark(tree, names, n, flag);
            n = 0;
        }

        if (*p == '\0') {
            return 1;
        }

        names[n].data = (u_char *) p + 1;
    }
}


static char *
nested(ngx_uint_t depth, char *begin, char *end)
{
    char        *text, *p;
    ngx_uint_t   i;

    text = malloc(depth * (strlen(begin) + strlen(end)) + 2);
    p = text;

    for (i = 0; i < depth; i++) {
        p += sprintf(p, "%s", begin);
    }

    *p++ = '1';

    for (i = 0; i < depth; i++) {
        p += sprintf(p, "%s", end);
    }

    return text;
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


static void
ok(ngx_uint_t passed, char *name, char *got)
{
    char  *p;

    tests++;

    if (!passed) {
        failed++;
    }

    printf("%sok %lu - ", passed ? "" : "not ", (unsigned long) tests);

    for (p = name; *p; p++) {
        if (*p < 0x20 || *p == 0x7f || *p == '#') {
            printf("\\x%02x", (u_char) *p);

        } else {
            putchar(*p);
        }
    }

    printf("\n");

    if (!passed) {
        printf("# got: %s\n", got ? got : "(refused)");
    }
}
