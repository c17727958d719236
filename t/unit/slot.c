
/*
 * The slots of a cluster: CRC16 and hash tags, against what the Redis Cluster
 * specification and the catalogues of CRCs publish.
 */


#include "ngx_idempotency_redis_slot.h"
#include <stdio.h>


typedef struct {
    const char  *key;
    ngx_uint_t   crc;       /* of all of it */
    ngx_uint_t   slot;
} ngx_idempotency_unit_slot_t;


static ngx_idempotency_unit_slot_t  slots[] = {

    /* the check value of CRC-16/XMODEM, as the specification has it */

    { "123456789", 0x31c3, 12739 },

    { "", 0x0000, 0 },
    { "A", 0x58e5, 0x58e5 % 16384 },

    /* as redis-cli says: CLUSTER KEYSLOT */

    { "foo", 0xaf96, 12182 },
    { "bar", 0x93c5, 5061 },
    { "hello", 0xc362, 866 },

    /* tags */

    { "{user1000}.following", 0, 3443 },
    { "{user1000}.followers", 0, 3443 },
    { "user1000", 0, 3443 },
    { "foo{}{bar}", 0, 8363 },
    { "foo{{bar}}zap", 0, 4015 },
    { "{bar", 0, 4015 },
    { "foo{bar}{zap}", 0, 5061 },
    { "{foo", 0, 13308 },
    { "foo}", 0, 15679 },
    { "{}", 0, 15257 },
    { "a{foo}", 0, 12182 },

    { NULL, 0, 0 }
};


int
main(void)
{
    ngx_str_t                     key;
    ngx_uint_t                    n, crc, slot, failed;
    ngx_idempotency_unit_slot_t  *s;

    n = 0;
    failed = 0;

    for (s = slots; s->key; s++) {
        key.data = (u_char *) s->key;
        key.len = ngx_strlen(s->key);

        crc = ngx_idempotency_redis_crc16(key.data, key.len);
        slot = ngx_idempotency_redis_slot(&key);

        n++;

        if ((s->crc && crc != s->crc) || slot != s->slot) {
            printf("# crc %04x, slot %d, and not %04x, %d\nnot ",
                   (int) crc, (int) slot, (int) s->crc, (int) s->slot);
            failed++;
        }

        printf("ok %d - slot of \"%s\"\n", (int) n, s->key);
    }

    printf("1..%d\n", (int) n);

    return failed ? 1 : 0;
}
