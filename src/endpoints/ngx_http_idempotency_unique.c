
/*
 * Names that nobody has had before.
 */


#include "ngx_http_idempotency_unique.h"
#include "ngx_idempotency_zone.h"
#include <openssl/rand.h>


/* 2024-01-01T00:00:00Z, milliseconds: 41 bits last until 2093 */
#define NGX_HTTP_IDEMPOTENCY_UNIQUE_EPOCH  1704067200000ULL

#define NGX_HTTP_IDEMPOTENCY_UNIQUE_COUNT  12      /* bits */
#define NGX_HTTP_IDEMPOTENCY_UNIQUE_NODE   10


static u_char *ngx_http_idempotency_unique_uuid(
    ngx_http_idempotency_unique_e format, u_char *dst);
static u_char *ngx_http_idempotency_unique_snowflake(ngx_shm_zone_t *zone,
    ngx_uint_t node, u_char *dst);
static uint64_t ngx_http_idempotency_unique_msec(void);


/* whose zone it is: a store may have the same name */

static ngx_uint_t  ngx_http_idempotency_unique_tag;


ngx_shm_zone_t *
ngx_http_idempotency_unique_zone(ngx_conf_t *cf)
{
    static ngx_str_t  name = ngx_string("idempotency_token");

    return ngx_idempotency_zone_add(cf, &name, sizeof(ngx_atomic_t),
                                    &ngx_http_idempotency_unique_tag);
}


u_char *
ngx_http_idempotency_unique(ngx_http_idempotency_unique_e format,
    ngx_shm_zone_t *zone, ngx_uint_t node, u_char *dst)
{
    if (format == NGX_HTTP_IDEMPOTENCY_UNIQUE_SNOWFLAKE) {
        return ngx_http_idempotency_unique_snowflake(zone, node, dst);
    }

    return ngx_http_idempotency_unique_uuid(format, dst);
}


/* RFC 9562, versions 4 and 7 */

static u_char *
ngx_http_idempotency_unique_uuid(ngx_http_idempotency_unique_e format,
    u_char *dst)
{
    u_char      uuid[16];
    uint64_t    msec;
    ngx_uint_t  i, version;

    if (RAND_bytes(uuid, sizeof(uuid)) != 1) {
        return NULL;
    }

    version = 4;

    if (format == NGX_HTTP_IDEMPOTENCY_UNIQUE_UUID7) {
        version = 7;
        msec = ngx_http_idempotency_unique_msec();

        for (i = 0; i < 6; i++) {
            uuid[i] = (u_char) (msec >> (40 - 8 * i));
        }
    }

    uuid[6] = (u_char) ((uuid[6] & 0x0f) | (version << 4));
    uuid[8] = (u_char) ((uuid[8] & 0x3f) | 0x80);

    for (i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *dst++ = '-';
        }

        dst = ngx_hex_dump(dst, &uuid[i], 1);
    }

    return dst;
}


/*
 * The time and the count within it are one number, which only grows: when
 * the count is full it runs into the next millisecond, and when the clock goes
 * back it goes on from where it was.
 */

static u_char *
ngx_http_idempotency_unique_snowflake(ngx_shm_zone_t *zone, ngx_uint_t node,
    u_char *dst)
{
    uint64_t            msec, number;
    ngx_atomic_t       *last;
    ngx_atomic_uint_t   old, next;

    last = zone->data;

    do {
        msec = ngx_http_idempotency_unique_msec();

        msec = (msec > NGX_HTTP_IDEMPOTENCY_UNIQUE_EPOCH)
               ? msec - NGX_HTTP_IDEMPOTENCY_UNIQUE_EPOCH : 0;

        old = *last;
        next = (ngx_atomic_uint_t) msec << NGX_HTTP_IDEMPOTENCY_UNIQUE_COUNT;

        if (next <= old) {
            next = old + 1;
        }

    } while (!ngx_atomic_cmp_set(last, old, next));

    number = next >> NGX_HTTP_IDEMPOTENCY_UNIQUE_COUNT;
    number = (number << NGX_HTTP_IDEMPOTENCY_UNIQUE_NODE) | node;
    number = (number << NGX_HTTP_IDEMPOTENCY_UNIQUE_COUNT)
             | (next & ((1 << NGX_HTTP_IDEMPOTENCY_UNIQUE_COUNT) - 1));

    return ngx_sprintf(dst, "%uL", number);
}


static uint64_t
ngx_http_idempotency_unique_msec(void)
{
    struct timeval  tv;

    ngx_gettimeofday(&tv);

    return (uint64_t) tv.tv_sec * 1000 + tv.tv_usec / 1000;
}
