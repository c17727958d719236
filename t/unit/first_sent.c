
/*
 * The date of a repeatable request: which ones are dates, and which of these
 * are within the time that a record lasts.  Linked with policy.c only; prints
 * TAP.
 */


#include "policy.h"


/* Tue, 20 Oct 2026 12:00:00 GMT */
#define NOW  1792497600

#define OK       NGX_HTTP_IDEMPOTENCY_EXECUTE
#define INVALID  NGX_HTTP_IDEMPOTENCY_FIRST_SENT_INVALID
#define EXPIRED  NGX_HTTP_IDEMPOTENCY_FIRST_SENT_EXPIRED


typedef struct {
    char                            *date;
    time_t                           now;
    time_t                           ttl;
    ngx_http_idempotency_verdict_e   verdict;
} test_date_t;


static test_date_t  dates[] = {

    /* the time: 24 hours less five minutes before, five minutes after */

    { "Tue, 20 Oct 2026 12:00:00 GMT", NOW, 86400, OK },
    { "Mon, 19 Oct 2026 12:05:00 GMT", NOW, 86400, OK },
    { "Mon, 19 Oct 2026 12:04:59 GMT", NOW, 86400, EXPIRED },
    { "Tue, 20 Oct 2026 12:05:00 GMT", NOW, 86400, OK },
    { "Tue, 20 Oct 2026 12:05:01 GMT", NOW, 86400, EXPIRED },

    /* with a short ttl a quarter of it */

    { "Tue, 20 Oct 2026 11:59:15 GMT", NOW, 60, OK },
    { "Tue, 20 Oct 2026 11:59:14 GMT", NOW, 60, EXPIRED },
    { "Tue, 20 Oct 2026 12:00:15 GMT", NOW, 60, OK },
    { "Tue, 20 Oct 2026 12:00:16 GMT", NOW, 60, EXPIRED },
    { "Tue, 20 Oct 2026 12:00:00 GMT", NOW, 1, OK },
    { "Tue, 20 Oct 2026 11:59:59 GMT", NOW, 1, OK },
    { "Tue, 20 Oct 2026 11:59:58 GMT", NOW, 1, EXPIRED },
    { "Tue, 20 Oct 2026 12:00:01 GMT", NOW, 1, EXPIRED },

    /* the ends of all times */

    { "Thu, 01 Jan 1970 00:00:00 GMT", 0, 86400, OK },
    { "Thu, 01 Jan 1970 00:00:00 GMT", NOW, NGX_MAX_INT32_VALUE, OK },
    { "Fri, 31 Dec 9999 23:59:59 GMT", NOW, NGX_MAX_INT32_VALUE, EXPIRED },
    { "Wed, 31 Dec 1969 23:59:59 GMT", 0, 86400, INVALID },
    { "Sat, 01 Jan 0000 00:00:00 GMT", NOW, 86400, INVALID },

    /* days: 1 in the end means that it is that second */

    { "Tue, 29 Feb 2000 00:00:00 GMT", 951782400, 1, OK },
    { "Wed, 01 Mar 2000 00:00:00 GMT", 951868800, 1, OK },
    { "Sun, 31 Dec 2023 23:59:59 GMT", 1704067199, 1, OK },
    { "Mon, 01 Jan 2024 00:00:00 GMT", 1704067200, 1, OK },
    { "Thu, 29 Feb 2024 12:00:00 GMT", 1709208000, 1, OK },
    { "Mon, 01 Mar 2100 00:00:00 GMT", 4107542400, 1, OK },
    { "Mon, 29 Feb 2100 00:00:00 GMT", NOW, 86400, INVALID },
    { "Sun, 29 Feb 2026 00:00:00 GMT", NOW, 86400, INVALID },
    { "Sun, 30 Feb 2024 00:00:00 GMT", NOW, 86400, INVALID },
    { "Sat, 31 Apr 2026 00:00:00 GMT", NOW, 86400, INVALID },
    { "Sat, 00 Apr 2026 00:00:00 GMT", NOW, 86400, INVALID },
    { "Tue, 20 Oct 2026 24:00:00 GMT", NOW, 86400, INVALID },
    { "Tue, 20 Oct 2026 12:60:00 GMT", NOW, 86400, INVALID },
    { "Tue, 20 Oct 2026 12:00:61 GMT", NOW, 86400, INVALID },
    { "Tue, 20 Oct 2026 11:59:60 GMT", NOW, 1, OK },

    /* another day of the week is still a date */

    { "Fri, 20 Oct 2026 12:00:00 GMT", NOW, 86400, OK },

    /* no other form */

    { "Tuesday, 20-Oct-26 12:00:00 GMT", NOW, 86400, INVALID },
    { "Tue Oct 20 12:00:00 2026", NOW, 86400, INVALID },
    { "Tue, 20 Oct 2026 12:00:00 UTC", NOW, 86400, INVALID },
    { "Tue, 20 Oct 2026 12:00:00 gmt", NOW, 86400, INVALID },
    { "tue, 20 Oct 2026 12:00:00 GMT", NOW, 86400, INVALID },
    { "Tue, 20 oct 2026 12:00:00 GMT", NOW, 86400, INVALID },
    { "unM, 20 Oct 2026 12:00:00 GMT", NOW, 86400, INVALID },
    { "Tue, 20 anF 2026 12:00:00 GMT", NOW, 86400, INVALID },
    { "Tue,  2 Oct 2026 12:00:00 GMT", NOW, 86400, INVALID },
    { "Tue, 20 Oct 2026 12:00:00 GMT ", NOW, 86400, INVALID },
    { " Tue, 20 Oct 2026 12:00:00 GMT", NOW, 86400, INVALID },
    { "Tue, 20 Oct 2026 12:00:00 GM", NOW, 86400, INVALID },
    { "Tue, 20 Oct 2026 12.00.00 GMT", NOW, 86400, INVALID },
    { "Tue, +2 Oct 2026 12:00:00 GMT", NOW, 86400, INVALID },
    { "2026-10-20T12:00:00Z", NOW, 86400, INVALID },
    { "", NOW, 86400, INVALID },

    { NULL, 0, 0, 0 }
};


int
main(void)
{
    ngx_str_t     date;
    test_date_t  *t;

    for (t = dates; t->date; t++) {
        date.data = (u_char *) t->date;
        date.len = ngx_strlen(t->date);

        ok(ngx_http_idempotency_policy_first_sent(&date, t->now, t->ttl)
           == t->verdict,
           "first sent", t->date);
    }

    printf("1..%u\n", (unsigned) number);

    return failed != 0;
}
