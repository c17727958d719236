
/*
 * Numbers of JSON: one form for each.
 */


#include "ngx_idempotency_number.h"


/* the place of the point in 1.8e308, and in 4.9e-324 */
#define NGX_IDEMPOTENCY_NUMBER_MAX       309
#define NGX_IDEMPOTENCY_NUMBER_MIN       (-323)

/* an exponent beyond it is out of range, whatever the digits are */
#define NGX_IDEMPOTENCY_NUMBER_EXPONENT  (NGX_MAX_INT32_VALUE / 4)


/*
 * 0.D * 10^point, where D are the "n" digits from "first" on, not counting
 * the "." that may be among them; neither the first nor the last of them is a
 * zero.  Zero itself has none.
 */

typedef struct {
    const u_char  *first;
    size_t         n;
    ngx_int_t      point;
} ngx_idempotency_number_t;


static u_char *ngx_idempotency_number_e(u_char *dst, ngx_int_t exponent);
static void ngx_idempotency_number_read(const u_char *p, size_t len,
    ngx_idempotency_number_t *number);
static ngx_int_t ngx_idempotency_number_exponent(const u_char *p,
    const u_char *last);
static u_char *ngx_idempotency_number_digits(u_char *dst,
    const u_char **p, size_t n);


ngx_int_t
ngx_idempotency_number_range(const u_char *p, size_t len)
{
    ngx_idempotency_number_t  number;

    if (len > NGX_IDEMPOTENCY_NUMBER_LEN) {
        return NGX_DECLINED;
    }

    ngx_idempotency_number_read(p, len, &number);

    if (number.n
        && (number.point > NGX_IDEMPOTENCY_NUMBER_MAX
            || number.point < NGX_IDEMPOTENCY_NUMBER_MIN))
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* as Number::toString of ECMAScript has it, with n for its k, point for n */

u_char *
ngx_idempotency_number_write(u_char *dst, const u_char *p, size_t len)
{
    ngx_int_t                 n;
    const u_char             *digit;
    ngx_idempotency_number_t  number;

    ngx_idempotency_number_read(p, len, &number);

    if (number.n == 0) {
        *dst++ = '0';
        return dst;
    }

    if (*p == '-') {
        *dst++ = '-';
    }

    digit = number.first;
    n = number.n;

    if (number.point > 21 || number.point <= -6) {

        /* 1e+30, 1.5e-7 */

        dst = ngx_idempotency_number_digits(dst, &digit, 1);

        if (n > 1) {
            *dst++ = '.';
            dst = ngx_idempotency_number_digits(dst, &digit, n - 1);
        }

        return ngx_idempotency_number_e(dst, number.point - 1);
    }

    if (number.point <= 0) {

        /* 0.0015 */

        dst = ngx_cpymem(dst, "0.00000", 2 - number.point);

        return ngx_idempotency_number_digits(dst, &digit, n);
    }

    if (n <= number.point) {

        /* 1500 */

        dst = ngx_idempotency_number_digits(dst, &digit, n);

        for ( /* void */ ; n < number.point; n++) {
            *dst++ = '0';
        }

        return dst;
    }

    /* 15.5 */

    dst = ngx_idempotency_number_digits(dst, &digit, number.point);
    *dst++ = '.';

    return ngx_idempotency_number_digits(dst, &digit, n - number.point);
}


/* three digits at most */

static u_char *
ngx_idempotency_number_e(u_char *dst, ngx_int_t exponent)
{
    *dst++ = 'e';
    *dst++ = (exponent < 0) ? '-' : '+';

    exponent = ngx_abs(exponent);

    if (exponent >= 100) {
        *dst++ = (u_char) ('0' + exponent / 100);
    }

    if (exponent >= 10) {
        *dst++ = (u_char) ('0' + exponent / 10 % 10);
    }

    *dst++ = (u_char) ('0' + exponent % 10);

    return dst;
}


static void
ngx_idempotency_number_read(const u_char *p, size_t len,
    ngx_idempotency_number_t *number)
{
    size_t         places, end;
    ngx_uint_t     fraction;
    const u_char  *last;

    last = p + len;

    number->first = NULL;
    number->n = 0;
    number->point = 0;

    places = 0;
    end = 0;
    fraction = 0;

    if (*p == '-') {
        p++;
    }

    for ( /* void */ ; p < last && *p != 'e' && *p != 'E'; p++) {

        if (*p == '.') {
            fraction = 1;
            continue;
        }

        if (number->first == NULL) {

            if (*p == '0') {
                /* a zero before the first digit */
                number->point -= fraction;
                continue;
            }

            number->first = p;
        }

        places++;

        if (*p != '0') {
            end = places;
        }

        if (!fraction) {
            number->point++;
        }
    }

    number->n = end;

    if (p < last) {
        number->point += ngx_idempotency_number_exponent(p + 1, last);
    }
}


static ngx_int_t
ngx_idempotency_number_exponent(const u_char *p, const u_char *last)
{
    ngx_int_t   exponent;
    ngx_uint_t  negative;

    negative = (*p == '-');
    exponent = 0;

    if (*p == '-' || *p == '+') {
        p++;
    }

    for ( /* void */ ; p < last; p++) {
        exponent = exponent * 10 + (*p - '0');

        if (exponent > NGX_IDEMPOTENCY_NUMBER_EXPONENT) {
            exponent = NGX_IDEMPOTENCY_NUMBER_EXPONENT;
            break;
        }
    }

    return negative ? -exponent : exponent;
}


static u_char *
ngx_idempotency_number_digits(u_char *dst, const u_char **p, size_t n)
{
    while (n) {

        if (**p != '.') {
            *dst++ = **p;
            n--;
        }

        (*p)++;
    }

    return dst;
}
