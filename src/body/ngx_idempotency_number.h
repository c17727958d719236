
/*
 * Numbers of JSON: one form for each.
 */


#ifndef _NGX_IDEMPOTENCY_NUMBER_H_INCLUDED_
#define _NGX_IDEMPOTENCY_NUMBER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* the longest number */
#define NGX_IDEMPOTENCY_NUMBER_LEN  1000

/* room for the form of one of "len" bytes */
#define ngx_idempotency_number_room(len)  ((len) + 32)


/*
 * Both take a number as the grammar of JSON has it.
 *
 * range: is it within the range of a double, and not too long?  NGX_OK or
 * NGX_DECLINED.
 *
 * write: the form that ECMAScript gives to a number, with all the digits that
 * were sent: unlike there it is not rounded to a double first.  The number
 * must be in range.  Returns the end.
 */
ngx_int_t ngx_idempotency_number_range(const u_char *number, size_t len);
u_char *ngx_idempotency_number_write(u_char *dst, const u_char *number,
    size_t len);


#endif /* _NGX_IDEMPOTENCY_NUMBER_H_INCLUDED_ */
