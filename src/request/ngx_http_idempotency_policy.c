
/*
 * The rules of the product: values in, decision out.
 */


#include "ngx_http_idempotency_policy.h"


#define NGX_HTTP_PROXY_AUTH_REQUIRED  407

/* seconds by which the clock of a client may be wrong */
#define NGX_HTTP_IDEMPOTENCY_POLICY_SKEW  300


static ngx_uint_t ngx_http_idempotency_policy_listed(
    const ngx_http_idempotency_statuses_t *statuses, ngx_uint_t status);
static ngx_uint_t ngx_http_idempotency_policy_equal(const u_char *one,
    const u_char *two);
static ngx_int_t ngx_http_idempotency_policy_date(const ngx_str_t *date,
    time_t *t);
static ngx_int_t ngx_http_idempotency_policy_name(const u_char *name,
    const char *names);


/* in the order of the codes of gRPC, as google.rpc.Code maps them */

static ngx_uint_t  ngx_http_idempotency_policy_grpc_statuses[] = {
    200,    /* OK */
    499,    /* CANCELLED */
    500,    /* UNKNOWN */
    400,    /* INVALID_ARGUMENT */
    504,    /* DEADLINE_EXCEEDED */
    404,    /* NOT_FOUND */
    409,    /* ALREADY_EXISTS */
    403,    /* PERMISSION_DENIED */
    429,    /* RESOURCE_EXHAUSTED */
    400,    /* FAILED_PRECONDITION */
    409,    /* ABORTED */
    400,    /* OUT_OF_RANGE */
    501,    /* UNIMPLEMENTED */
    500,    /* INTERNAL */
    503,    /* UNAVAILABLE */
    500,    /* DATA_LOSS */
    401     /* UNAUTHENTICATED */
};


ngx_http_idempotency_verdict_e
ngx_http_idempotency_policy_duplicate(const ngx_idempotency_record_t *record,
    const u_char *fingerprint, ngx_uint_t duplicate)
{
    if (ngx_idempotency_record_is_cancelled(record)) {
        return NGX_HTTP_IDEMPOTENCY_KEY_CANCELLED;
    }

    if (fingerprint
        && !ngx_http_idempotency_policy_equal(record->fingerprint,
                                              fingerprint))
    {
        return NGX_HTTP_IDEMPOTENCY_KEY_REUSED;
    }

    switch (record->state) {

    case NGX_IDEMPOTENCY_EXECUTING:
        return NGX_HTTP_IDEMPOTENCY_RUNNING;

    case NGX_IDEMPOTENCY_UNKNOWN:
        return NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN;

    case NGX_IDEMPOTENCY_TOMBSTONE:
        return NGX_HTTP_IDEMPOTENCY_KEY_EXPIRED;

    case NGX_IDEMPOTENCY_DONE:
        break;

    default:

        /* a store grants claims of keys in these states */

        return NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE;
    }

    if (duplicate == NGX_HTTP_IDEMPOTENCY_DUPLICATE_REJECT) {
        return NGX_HTTP_IDEMPOTENCY_DUPLICATE;
    }

    if (!record->kept) {
        return NGX_HTTP_IDEMPOTENCY_NOT_KEPT;
    }

    return NGX_HTTP_IDEMPOTENCY_REPLAY;
}


ngx_idempotency_op_e
ngx_http_idempotency_policy_outcome(const ngx_http_idempotency_facts_t *facts,
    const ngx_http_idempotency_statuses_t *final,
    const ngx_http_idempotency_statuses_t *retryable)
{
    switch (facts->override) {

    case NGX_HTTP_IDEMPOTENCY_OVERRIDE_FINAL:
        return NGX_IDEMPOTENCY_COMPLETE;

    case NGX_HTTP_IDEMPOTENCY_OVERRIDE_RELEASE:
        return NGX_IDEMPOTENCY_RELEASE;

    case NGX_HTTP_IDEMPOTENCY_OVERRIDE_UNKNOWN:
        return NGX_IDEMPOTENCY_MARK_UNKNOWN;

    default: /* NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE */
        break;
    }

    if (facts->upstream && !facts->answered) {

        /* the status is nginx's own: only the bytes sent decide */

        return facts->sent ? NGX_IDEMPOTENCY_MARK_UNKNOWN
                           : NGX_IDEMPOTENCY_RELEASE;
    }

    if (facts->wrapped && !facts->ran) {
        return NGX_IDEMPOTENCY_RELEASE;
    }

    if (facts->status == 0) {
        return NGX_IDEMPOTENCY_MARK_UNKNOWN;
    }

    if (ngx_http_idempotency_policy_listed(retryable, facts->status)) {

        /* this upstream did nothing; the one before the redirect may have */

        return facts->sent_before ? NGX_IDEMPOTENCY_MARK_UNKNOWN
                                  : NGX_IDEMPOTENCY_RELEASE;
    }

    if (facts->status == NGX_HTTP_SWITCHING_PROTOCOLS
        || ngx_http_idempotency_policy_listed(final, facts->status))
    {
        return NGX_IDEMPOTENCY_COMPLETE;
    }

    return facts->upstream ? NGX_IDEMPOTENCY_MARK_UNKNOWN
                           : NGX_IDEMPOTENCY_RELEASE;
}


ngx_http_idempotency_grpc_e
ngx_http_idempotency_policy_grpc(const ngx_str_t *type)
{
    size_t   len;
    u_char  *p;

    static ngx_str_t  grpc = ngx_string("application/grpc");
    static ngx_str_t  web = ngx_string("-web");

    if (type->len < grpc.len
        || ngx_strncasecmp(type->data, grpc.data, grpc.len) != 0)
    {
        return NGX_HTTP_IDEMPOTENCY_GRPC_NONE;
    }

    p = type->data + grpc.len;
    len = type->len - grpc.len;

    if (len == 0 || *p == '+' || *p == ';' || *p == ' ') {
        return NGX_HTTP_IDEMPOTENCY_GRPC;
    }

    if (len >= web.len && ngx_strncasecmp(p, web.data, web.len) == 0) {
        return NGX_HTTP_IDEMPOTENCY_GRPC_WEB;
    }

    return NGX_HTTP_IDEMPOTENCY_GRPC_NONE;
}


ngx_uint_t
ngx_http_idempotency_policy_grpc_status(const ngx_str_t *value)
{
    ngx_int_t  n;

    if (value == NULL || value->len > 2) {
        return 0;
    }

    n = ngx_atoi(value->data, value->len);

    if (n == NGX_ERROR
        || n >= (ngx_int_t) (sizeof(ngx_http_idempotency_policy_grpc_statuses)
                             / sizeof(ngx_uint_t)))
    {
        return 0;
    }

    return ngx_http_idempotency_policy_grpc_statuses[n];
}


ngx_http_idempotency_verdict_e
ngx_http_idempotency_policy_probe(ngx_uint_t status)
{
    if (status == NGX_HTTP_ACCEPTED
        || status == NGX_HTTP_IDEMPOTENCY_TOO_EARLY)
    {
        return NGX_HTTP_IDEMPOTENCY_RUNNING;
    }

    if (status >= NGX_HTTP_OK && status < NGX_HTTP_SPECIAL_RESPONSE) {
        return NGX_HTTP_IDEMPOTENCY_REPLAY;
    }

    if (status == NGX_HTTP_NOT_FOUND) {
        return NGX_HTTP_IDEMPOTENCY_EXECUTE;
    }

    return NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN;
}


ngx_uint_t
ngx_http_idempotency_policy_may_pass(ngx_idempotency_error_e error)
{
    return error == NGX_IDEMPOTENCY_ERROR_CONNECT
           || error == NGX_IDEMPOTENCY_ERROR_TIMEOUT
           || error == NGX_IDEMPOTENCY_ERROR_REFUSED;
}


ngx_http_idempotency_verdict_e
ngx_http_idempotency_policy_failed(ngx_idempotency_error_e error,
    ngx_uint_t seen)
{
    return (seen || error == NGX_IDEMPOTENCY_ERROR_DAMAGED)
           ? NGX_HTTP_IDEMPOTENCY_RECORD_UNREADABLE
           : NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE;
}


ngx_uint_t
ngx_http_idempotency_policy_is_refusal(ngx_uint_t status)
{
    return status < NGX_HTTP_INTERNAL_SERVER_ERROR
           && status != NGX_HTTP_TOO_MANY_REQUESTS;
}


ngx_uint_t
ngx_http_idempotency_policy_access_rank(ngx_uint_t status, ngx_uint_t checked)
{
    if (status == NGX_HTTP_UNAUTHORIZED
        || status == NGX_HTTP_FORBIDDEN
        || status == NGX_HTTP_PROXY_AUTH_REQUIRED)
    {
        return checked ? 3 : 2;
    }

    /* an auth_request that failed, or a limit */

    if (!ngx_http_idempotency_policy_is_refusal(status)) {
        return checked ? 2 : 3;
    }

    return 1;
}


ngx_uint_t
ngx_http_idempotency_policy_gate(const ngx_http_idempotency_facts_t *facts,
    ngx_http_idempotency_arrival_e arrival, ngx_uint_t hides)
{
    switch (arrival) {

    case NGX_HTTP_IDEMPOTENCY_ARRIVAL_FIRST:
    case NGX_HTTP_IDEMPOTENCY_ARRIVAL_ELSEWHERE:
        return !facts->settled && facts->sent == 0;

    case NGX_HTTP_IDEMPOTENCY_ARRIVAL_REDIRECTED:
        return !facts->settled && facts->sent == facts->sent_before;

    case NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE:

        /* the page must not show a success if the outcome is unknown */

        return facts->sent == 0 || facts->answered || !hides;
    }

    return 0;
}


ngx_http_idempotency_override_e
ngx_http_idempotency_policy_override(const ngx_str_t *value, time_t *ttl)
{
    u_char                          *p, *last;
    size_t                           len;
    ngx_int_t                        n;
    ngx_http_idempotency_override_e  override;

    p = value->data;
    last = value->data + value->len;

    while (p < last && *p != ';' && *p != ' ') {
        p++;
    }

    len = p - value->data;

    if (len == 5 && ngx_strncasecmp(value->data, (u_char *) "final", 5) == 0) {
        override = NGX_HTTP_IDEMPOTENCY_OVERRIDE_FINAL;

    } else if (len == 7
               && ngx_strncasecmp(value->data, (u_char *) "release", 7) == 0)
    {
        override = NGX_HTTP_IDEMPOTENCY_OVERRIDE_RELEASE;

    } else if (len == 7
               && ngx_strncasecmp(value->data, (u_char *) "unknown", 7) == 0)
    {
        override = NGX_HTTP_IDEMPOTENCY_OVERRIDE_UNKNOWN;

    } else {
        return NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE;
    }

    while (p < last && *p == ' ') { p++; }

    if (p == last) {
        return override;
    }

    if (*p++ != ';') {
        return NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE;
    }

    while (p < last && *p == ' ') { p++; }

    if (last - p < 5 || ngx_strncasecmp(p, (u_char *) "ttl=", 4) != 0) {
        return NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE;
    }

    n = ngx_atoi(p + 4, last - p - 4);

    if (n <= 0) {
        return NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE;
    }

    /* stores count with 31 bits */

    *ttl = ngx_min(n, NGX_MAX_INT32_VALUE);

    return override;
}


static ngx_uint_t
ngx_http_idempotency_policy_listed(
    const ngx_http_idempotency_statuses_t *statuses, ngx_uint_t status)
{
    return status < NGX_HTTP_IDEMPOTENCY_STATUSES
           && (statuses->bits[status / 8] & (1 << status % 8)) != 0;
}


/*
 * A record made without a fingerprint has nothing but zeros and equals all.
 * The time does not depend on the bytes.
 */

static ngx_uint_t
ngx_http_idempotency_policy_equal(const u_char *one, const u_char *two)
{
    u_char      differ, any;
    ngx_uint_t  i;

    differ = 0;
    any = 0;

    for (i = 0; i < NGX_IDEMPOTENCY_FINGERPRINT_SUM; i++) {
        differ |= one[i] ^ two[i];
        any |= one[i];
    }

    return differ == 0 || any == 0;
}


/*
 * A retry is accepted until first_sent + ttl - skew.  The first try came not
 * before first_sent - skew, so that its record lasts until then at least.
 */

ngx_http_idempotency_verdict_e
ngx_http_idempotency_policy_first_sent(const ngx_str_t *date, time_t now,
    time_t ttl)
{
    time_t  sent, skew;

    if (ngx_http_idempotency_policy_date(date, &sent) != NGX_OK) {
        return NGX_HTTP_IDEMPOTENCY_FIRST_SENT_INVALID;
    }

    skew = ngx_min(NGX_HTTP_IDEMPOTENCY_POLICY_SKEW, ttl / 4);

    return (sent > now + skew || sent < now - (ttl - skew))
           ? NGX_HTTP_IDEMPOTENCY_FIRST_SENT_EXPIRED
           : NGX_HTTP_IDEMPOTENCY_EXECUTE;
}


/*
 * "Sun, 06 Nov 1994 08:49:37 GMT" (IMF-fixdate of RFC 9110), from 1970 on; the
 * name of the day must be one, and is not compared with the date.  Not
 * ngx_parse_http_time(), which takes the obsolete forms, too.
 */

static ngx_int_t
ngx_http_idempotency_policy_date(const ngx_str_t *date, time_t *t)
{
    u_char     *p;
    ngx_int_t   i, y, m, d, hour, min, sec, days;

    /* "a" is a letter of a name */

    static char  form[] = "aaa, 00 aaa 0000 00:00:00 GMT";
    static char  names[] = "SunMonTueWedThuFriSat";
    static char  months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

    static ngx_int_t  lengths[] = { 31, 28, 31, 30, 31, 30,
                                    31, 31, 30, 31, 30, 31 };

    if (date->len != sizeof(form) - 1) {
        return NGX_ERROR;
    }

    p = date->data;

    for (i = 0; form[i]; i++) {

        if (form[i] == '0' ? (p[i] < '0' || p[i] > '9')
                           : (form[i] != 'a' && p[i] != (u_char) form[i]))
        {
            return NGX_ERROR;
        }
    }

    m = ngx_http_idempotency_policy_name(p + 8, months);

    if (m == NGX_ERROR
        || ngx_http_idempotency_policy_name(p, names) == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    d = ngx_atoi(p + 5, 2);
    y = ngx_atoi(p + 12, 4);
    hour = ngx_atoi(p + 17, 2);
    min = ngx_atoi(p + 20, 2);
    sec = ngx_atoi(p + 23, 2);

    days = lengths[m]
           + (m == 1 && y % 4 == 0 && (y % 100 != 0 || y % 400 == 0));

    if (y < 1970 || d < 1 || d > days || hour > 23 || min > 59 || sec > 60) {
        return NGX_ERROR;
    }

    /* years begin with March here, as in ngx_gmtime() */

    if (m < 2) {
        y--;
    }

    m = (m + 10) % 12;

    days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + d - 1
           - 719468;

    *t = (time_t) days * 86400 + hour * 3600 + min * 60 + sec;

    return NGX_OK;
}


/* the place of a name among names of three letters */

static ngx_int_t
ngx_http_idempotency_policy_name(const u_char *name, const char *names)
{
    ngx_int_t  i;

    for (i = 0; names[3 * i]; i++) {
        if (ngx_memcmp(name, names + 3 * i, 3) == 0) {
            return i;
        }
    }

    return NGX_ERROR;
}
