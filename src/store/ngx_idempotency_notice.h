
/*
 * Tells the workers of this nginx that a record was settled.
 */


#ifndef _NGX_IDEMPOTENCY_NOTICE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_NOTICE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_channel.h>
#include "ngx_idempotency_record.h"


typedef struct {
    ngx_fd_t                        fds[2];
} ngx_idempotency_notice_pipe_t;


typedef struct {
    ngx_shm_zone_t                 *zone;
    ngx_idempotency_notice_pipe_t  *pipes;     /* one for each worker */
    ngx_uint_t                      n;
} ngx_idempotency_notices_t;


/*
 * Asks for the shared memory in which notices are posted; "tag" is the
 * module.  NULL when that fails.
 */
ngx_idempotency_notices_t *ngx_idempotency_notice_create(ngx_conf_t *cf,
    void *tag);

/* before workers are forked */
ngx_int_t ngx_idempotency_notice_open(ngx_cycle_t *cycle,
    ngx_idempotency_notices_t *notices);

/* in a worker; without it nothing is posted, and nothing costs */
ngx_int_t ngx_idempotency_notice_start(ngx_cycle_t *cycle,
    ngx_idempotency_notices_t *notices);

/* whether somebody waits in this worker */
void ngx_idempotency_notice_listen(ngx_uint_t on);

/* this worker has settled a record: wakes whoever waits for it */
void ngx_idempotency_notice_post(u_char *digest);


#endif /* _NGX_IDEMPOTENCY_NOTICE_H_INCLUDED_ */
