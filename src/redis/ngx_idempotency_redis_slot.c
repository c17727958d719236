
/*
 * Which of a cluster's slots a key is in.  No I/O, no allocation; table test
 * in t/unit/slot.c.
 */


#include "ngx_idempotency_redis_slot.h"


/* of half a byte; the polynomial is 0x1021 */

static uint16_t  ngx_idempotency_redis_crc16_table[] = {
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
    0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef
};


ngx_uint_t
ngx_idempotency_redis_slot(ngx_str_t *key)
{
    u_char  *open, *close, *last;

    last = key->data + key->len;

    for (open = key->data; open < last && *open != '{'; open++) { /* void */ }

    for (close = open + 1; close < last && *close != '}'; close++) {
        /* void */
    }

    /* "{}" is no tag */

    if (close < last && close > open + 1) {
        return ngx_idempotency_redis_crc16(open + 1, close - open - 1)
               % NGX_IDEMPOTENCY_REDIS_SLOTS;
    }

    return ngx_idempotency_redis_crc16(key->data, key->len)
           % NGX_IDEMPOTENCY_REDIS_SLOTS;
}


ngx_uint_t
ngx_idempotency_redis_crc16(u_char *data, size_t len)
{
    uint16_t   crc;
    uint16_t  *table;

    crc = 0;
    table = ngx_idempotency_redis_crc16_table;

    while (len--) {
        crc = (uint16_t) (crc << 4) ^ table[(crc >> 12) ^ (*data >> 4)];
        crc = (uint16_t) (crc << 4) ^ table[(crc >> 12) ^ (*data & 0x0f)];
        data++;
    }

    return crc;
}
