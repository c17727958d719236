
/*
 * What the tests of policy.c have in common: TAP, and stand-ins for the
 * functions of nginx that policy.c calls.
 */


#include "ngx_http_idempotency_policy.h"


static ngx_uint_t  number, failed;


static void
ok(ngx_uint_t passed, char *rule, char *name)
{
    number++;
    failed += !passed;

    printf("%s %u - %s: %s\n", passed ? "ok" : "not ok", (unsigned) number,
           rule, name);
}


ngx_int_t
ngx_atoi(u_char *line, size_t n)
{
    ngx_int_t  value;

    if (n == 0) {
        return NGX_ERROR;
    }

    for (value = 0; n--; line++) {
        if (*line < '0' || *line > '9'
            || value > (NGX_MAX_INT_T_VALUE - 9) / 10)
        {
            return NGX_ERROR;
        }

        value = value * 10 + (*line - '0');
    }

    return value;
}


ngx_int_t
ngx_strncasecmp(u_char *s1, u_char *s2, size_t n)
{
    return strncasecmp((char *) s1, (char *) s2, n);
}
