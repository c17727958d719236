
/*
 * The values of directives: parsers that nginx does not have.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_CONF_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_CONF_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* how ngx_http_idempotency_conf_slot() reads a value: its cmd->post */

typedef struct {
    char                            *(*set)(ngx_conf_t *cf,
                                         ngx_command_t *cmd, void *conf);
    void                              *post;   /* of set() */
    char                              *fix;    /* behind "it must be" */
} ngx_http_idempotency_conf_slot_t;


extern ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_max_key;
extern ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_duplicate;
extern ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_lease;
extern ngx_http_idempotency_conf_slot_t
    ngx_http_idempotency_conf_store_error;
extern ngx_http_idempotency_conf_slot_t
                                       ngx_http_idempotency_conf_max_response;
extern ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_profile;
extern ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_sequence;
extern ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_log_level;

/* all methods that can be protected, and an empty name */
extern ngx_conf_bitmask_t  ngx_http_idempotency_conf_method_names[];


/*
 * Handlers for the command table.  Each returns NGX_CONF_OK, or a sentence
 * for nginx to print behind the directive's name, or NGX_CONF_ERROR after
 * having logged one.
 */
char *ngx_http_idempotency_conf_store(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_conf_switch(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_conf_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_conf_source(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_conf_methods(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_conf_field(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_conf_fingerprint(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
char *ngx_http_idempotency_conf_secret(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_conf_in_progress(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
char *ngx_http_idempotency_conf_unknown(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_conf_suspect(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_conf_ttl(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_conf_statuses(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_conf_hide_header(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
char *ngx_http_idempotency_conf_header(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
char *ngx_http_idempotency_conf_describedby(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
char *ngx_http_idempotency_conf_slot(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * When all stores are defined: those with "from=" begin to ask both stores.
 * NGX_ERROR after having logged why not.
 */
ngx_int_t ngx_http_idempotency_conf_from_init(ngx_conf_t *cf);

/*
 * Sets conf->key_place, if the key is one variable of which clients can know:
 * a header, an argument, a cookie or a field of the body.  Called when all of
 * http{} was read.
 */
ngx_int_t ngx_http_idempotency_conf_key_place(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);

/* the default value of a directive that takes variables */
ngx_http_complex_value_t *ngx_http_idempotency_conf_value(ngx_conf_t *cf,
    char *text);

/* the default of a list of statuses, which is not checked */
ngx_http_idempotency_statuses_t *ngx_http_idempotency_conf_status_list(
    ngx_conf_t *cf, ngx_str_t *list, ngx_uint_t n);


#endif /* _NGX_HTTP_IDEMPOTENCY_CONF_H_INCLUDED_ */
