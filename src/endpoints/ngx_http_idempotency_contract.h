
/*
 * The contract of the protected locations of a server, for its clients.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_CONTRACT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_CONTRACT_H_INCLUDED_


#include "ngx_http_idempotency.h"
#include "ngx_http_idempotency_problem_text.h"
#include "ngx_http_idempotency_text.h"


/* nginx's own errors have one of three */
#define NGX_HTTP_IDEMPOTENCY_CONTRACT_STATUSES  6


/* how the path of a request is compared with that of a location */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_MATCH_PREFIX = 0,
    NGX_HTTP_IDEMPOTENCY_MATCH_EXACT,
    NGX_HTTP_IDEMPOTENCY_MATCH_REGEX
} ngx_http_idempotency_match_e;


typedef struct {
    ngx_http_idempotency_match_e       match;
    ngx_str_t                          path;
    ngx_uint_t                         redundant;  /* while collecting */
} ngx_http_idempotency_contract_path_t;


/* an error answer, and with which statuses it is sent */

typedef struct {
    ngx_http_idempotency_problem_t     problem;
    ngx_uint_t                         statuses
                                       [NGX_HTTP_IDEMPOTENCY_CONTRACT_STATUSES];
    ngx_uint_t                         n;
    unsigned                           problem_json:1;
    unsigned                           json:1;     /* of another profile */
} ngx_http_idempotency_contract_answer_t;


/*
 * What locations have in common whose "facts", as they are in JSON, are the
 * same.  A contract without paths is of locations that clients cannot name.
 */

typedef struct {
    ngx_http_idempotency_loc_conf_t   *conf;
    ngx_str_t                          facts;
    ngx_array_t                        paths;
                                     /* ngx_http_idempotency_contract_path_t */
    ngx_array_t                        answers;
                                   /* ngx_http_idempotency_contract_answer_t */
} ngx_http_idempotency_contract_t;


/* all of a server; the answers are those of all contracts, each once */

typedef struct {
    ngx_http_request_t                *request;
    ngx_array_t                        contracts;
    ngx_array_t                        answers;
} ngx_http_idempotency_contracts_t;


/*
 * Where clients put the key: "in" is header, query, cookie, json, form; message
 * for the field of a JSON-RPC message or else the header Idempotency-Key; or
 * other, without a name.
 */

typedef struct {
    ngx_str_t                          in;
    ngx_str_t                          name;       /* escaped for JSON */
} ngx_http_idempotency_contract_key_t;


/* Handler of "idempotency_policy". */
char *ngx_http_idempotency_contract(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * When all of http{} was read: sets the URI of each page.  NGX_OK or
 * NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_contract_init(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *imcf);

/* Which answer of contracts->answers is the first that has the code of "i"? */
ngx_uint_t ngx_http_idempotency_contract_first(
    ngx_http_idempotency_contracts_t *contracts, ngx_uint_t i);

/* Has the answer before "i" the same code and status, and other words? */
ngx_uint_t ngx_http_idempotency_contract_repeats(
    ngx_http_idempotency_contract_t *contract, ngx_uint_t i);

/*
 * In contract_words.c: words for what is configured, without the words of the
 * configuration.
 */
void ngx_http_idempotency_contract_key(ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_contract_key_t *key);
const char *ngx_http_idempotency_contract_format(
    ngx_http_idempotency_loc_conf_t *conf);
const char *ngx_http_idempotency_contract_unique(
    ngx_http_idempotency_loc_conf_t *conf);
const char *ngx_http_idempotency_contract_body(
    ngx_http_idempotency_loc_conf_t *conf);
const char *ngx_http_idempotency_contract_request(
    ngx_http_idempotency_loc_conf_t *conf);

/*
 * The next method of a location, or range of statuses: NULL or NGX_DONE when
 * there are no more; "i" is 0 at first.
 */
ngx_str_t *ngx_http_idempotency_contract_method(
    ngx_http_idempotency_loc_conf_t *conf, ngx_uint_t *i);
ngx_int_t ngx_http_idempotency_contract_range(
    ngx_http_idempotency_statuses_t *statuses,
    ngx_http_idempotency_statuses_t *without, ngx_uint_t *i, ngx_uint_t *from,
    ngx_uint_t *to);

/*
 * In contract_json.c: the facts of one location, and both documents; "data" is
 * ngx_http_idempotency_contracts_t.
 */
void ngx_http_idempotency_contract_facts(
    ngx_http_idempotency_contract_t *contract,
    ngx_http_idempotency_text_t *text);
void ngx_http_idempotency_contract_json(void *data,
    ngx_http_idempotency_text_t *text);
void ngx_http_idempotency_contract_openapi(void *data,
    ngx_http_idempotency_text_t *text);

/* In contract_page.c: the page for people. */
void ngx_http_idempotency_contract_page(void *data,
    ngx_http_idempotency_text_t *text);


#endif /* _NGX_HTTP_IDEMPOTENCY_CONTRACT_H_INCLUDED_ */
