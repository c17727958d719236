
/*
 * Configuration and request context: the types that all HTTP rooms share.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include "ngx_http_idempotency_compat.h"
#include "ngx_idempotency_lease.h"
#include "ngx_idempotency_notice.h"
#include "ngx_idempotency_seal.h"
#include "ngx_idempotency_store.h"
#include "ngx_idempotency_wait.h"


#define NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF  0
#define NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW  1
#define NGX_HTTP_IDEMPOTENCY_FINGERPRINT_JSON 2
#define NGX_HTTP_IDEMPOTENCY_FINGERPRINT_FORM 3
#define NGX_HTTP_IDEMPOTENCY_FINGERPRINT_MULTIPART 4
/* what "raw" makes of a multipart body */
#define NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW_PARTS 5

#define NGX_HTTP_IDEMPOTENCY_DUPLICATE_REPLAY  0
#define NGX_HTTP_IDEMPOTENCY_DUPLICATE_REJECT  1

#define NGX_HTTP_IDEMPOTENCY_STORE_ERROR_REJECT  0
#define NGX_HTTP_IDEMPOTENCY_STORE_ERROR_PASS    1

#define NGX_HTTP_IDEMPOTENCY_UNKNOWN_HOLD   0
#define NGX_HTTP_IDEMPOTENCY_UNKNOWN_RETRY  1
#define NGX_HTTP_IDEMPOTENCY_UNKNOWN_PROBE  2

/* the index of a table, see profile.c */
#define NGX_HTTP_IDEMPOTENCY_PROFILE_IETF    0
#define NGX_HTTP_IDEMPOTENCY_PROFILE_STRIPE  1
#define NGX_HTTP_IDEMPOTENCY_PROFILE_ACP     2

/* statuses 0 to 599, a bit each */
#define NGX_HTTP_IDEMPOTENCY_STATUSES  600


typedef struct {
    u_char                             bits[NGX_HTTP_IDEMPOTENCY_STATUSES / 8];
} ngx_http_idempotency_statuses_t;


/* where a directive was given; locations that inherit it share this */

typedef struct {
    ngx_str_t                          file;
    ngx_uint_t                         line;
    ngx_str_t                          location;   /* empty: further out */
    ngx_uint_t                         used;       /* in some location */
    ngx_http_core_srv_conf_t          *warned;     /* the last one that was */
} ngx_http_idempotency_place_t;


typedef struct ngx_http_idempotency_loc_conf_s
    ngx_http_idempotency_loc_conf_t;


/* a location as the counts name it, and its configuration */

typedef struct {
    ngx_str_t                          server;
    ngx_str_t                          location;
    ngx_idempotency_store_t           *store;
    ngx_uint_t                         dry_run;
    ngx_http_core_srv_conf_t          *cscf;
    ngx_http_core_loc_conf_t          *clcf;
    ngx_http_idempotency_loc_conf_t   *conf;
} ngx_http_idempotency_location_t;


/* names that lead to a value in a body */

typedef struct {
    ngx_str_t                         *names;
    ngx_uint_t                         n;
} ngx_http_idempotency_path_t;


/* a variable of idempotency_json_set or idempotency_form_set */

typedef struct {
    ngx_str_t                          name;
    ngx_uint_t                         index;  /* among all of them */
    ngx_uint_t                         json;   /* or a form */
    ngx_http_idempotency_path_t        path;
} ngx_http_idempotency_field_t;


/* and what it is in a request */

typedef struct {
    ngx_str_t                          text;
    unsigned                           found:1;
    unsigned                           twice:1;
} ngx_http_idempotency_field_value_t;


typedef struct {
    ngx_array_t                        stores;  /* ngx_idempotency_store_t * */
    ngx_idempotency_notices_t         *notices;    /* NULL: nobody waits */

    ngx_array_t                        locations;  /* that are counted */
    ngx_array_t                        lookups;    /* of operators */
    ngx_array_t                        admins;     /* the same, all of them */
    ngx_array_t                        places;     /* of "idempotency" */
                                           /* ngx_http_idempotency_place_t * */
    ngx_idempotency_counts_t          *counts;     /* NULL: no stats */
    ngx_atomic_t                      *cells;      /* of this worker, or NULL:
                                                      a result of a location */

    ngx_array_t                        fields;
                                           /* ngx_http_idempotency_field_t * */
    ngx_uint_t                         by_close;   /* answers of this worker */

    ngx_array_t                        peers;      /* see upstream_gate.c */
    ngx_uint_t                         try_files;  /* of these modules: the */
    ngx_uint_t                         dav;        /* ctx_index, or unset */
    ngx_uint_t                         access;
    ngx_uint_t                         auth_basic;
    ngx_uint_t                         auth_request;
} ngx_http_idempotency_main_conf_t;


/* directives whose default is the profile's: unset unless they were given */

typedef struct {
    ngx_http_complex_value_t          *scope;
    ngx_http_complex_value_t          *with;           /* of a fingerprint */
    ngx_flag_t                         required;
    ngx_http_idempotency_statuses_t   *final;
    ngx_http_idempotency_statuses_t   *retryable;
} ngx_http_idempotency_given_t;


typedef struct ngx_http_idempotency_token_s  ngx_http_idempotency_token_t;
typedef struct ngx_http_idempotency_query_s  ngx_http_idempotency_query_t;


struct ngx_http_idempotency_loc_conf_s {
    ngx_idempotency_store_t           *store;          /* NULL: off */
    ngx_http_idempotency_place_t      *place;
    ngx_idempotency_store_t           *endpoint;       /* of a handler here */
    ngx_http_idempotency_place_t      *endpoint_place;
    ngx_http_handler_pt                act;            /* its store's answer */
    ngx_http_idempotency_token_t      *token;
    ngx_uint_t                         admin;          /* of a lookup */
    ngx_uint_t                         stats;          /* are the handler */
    ngx_uint_t                         warned;
    ngx_uint_t                         location;       /* its number */
    ngx_uint_t                         profile;
    ngx_http_idempotency_given_t       given;

    ngx_http_complex_value_t          *key;
    ngx_str_t                          key_header;     /* of "$http_NAME" */
    ngx_http_complex_value_t          *source;
    size_t                             source_text;    /* its constant part */
    ngx_http_complex_value_t          *scope;
    ngx_uint_t                         methods;
    ngx_flag_t                         required;
    ngx_flag_t                         issued;
    ngx_uint_t                         sequence;   /* flags of operations */
    ngx_http_complex_value_t          *epoch;
    ngx_int_t                          max_key;

    ngx_uint_t                         fingerprint;
    ngx_http_complex_value_t          *fingerprint_with;
    ngx_uint_t                         fingerprint_hash;  /* of with, lists */
    ngx_array_t                       *include;
    ngx_array_t                       *exclude;
                                           /* ngx_http_idempotency_path_t */
    ngx_array_t                       *secrets;
                                           /* ngx_idempotency_secret_t * */

    ngx_uint_t                         duplicate;
    ngx_msec_t                         wait;           /* 0: reject */
    ngx_uint_t                         unknown;
    ngx_str_t                          probe;          /* URI */
    ngx_http_idempotency_place_t      *probe_place;
    ngx_uint_t                         store_error;
    ngx_msec_t                         lease;
    time_t                             ttl;
    time_t                             tombstone;
    ngx_http_idempotency_statuses_t   *final;
    ngx_http_idempotency_statuses_t   *retryable;
    size_t                             max_response;
    ngx_array_t                       *hide_headers;   /* ngx_str_t */
    ngx_str_t                          describedby;
    ngx_uint_t                         log_level;
    ngx_flag_t                         dry_run;
    ngx_uint_t                         upstreams;      /* its handler makes */

#if (NGX_HTTP_IDEMPOTENCY_DEBUG)
    ngx_idempotency_store_t           *exercise;
    ngx_http_complex_value_t          *failpoint;
#endif
};


/* what became of a request, for $idempotency_result */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_OFF = 0,
    NGX_HTTP_IDEMPOTENCY_NEW,
    NGX_HTTP_IDEMPOTENCY_REPLAYED,
    NGX_HTTP_IDEMPOTENCY_REJECTED,
    NGX_HTTP_IDEMPOTENCY_IN_PROGRESS,
    NGX_HTTP_IDEMPOTENCY_WAITED,
    NGX_HTTP_IDEMPOTENCY_MISMATCH,
    NGX_HTTP_IDEMPOTENCY_MISSING,
    NGX_HTTP_IDEMPOTENCY_INVALID,
    NGX_HTTP_IDEMPOTENCY_UNKNOWN,
    NGX_HTTP_IDEMPOTENCY_OUT_OF_ORDER,
    NGX_HTTP_IDEMPOTENCY_NOT_ISSUED,
    NGX_HTTP_IDEMPOTENCY_EXPIRED,
    NGX_HTTP_IDEMPOTENCY_BYPASSED,
    NGX_HTTP_IDEMPOTENCY_STORE_ERROR,
    NGX_HTTP_IDEMPOTENCY_RESULTS           /* how many there are */
} ngx_http_idempotency_result_e;


/*
 * The request's way, moved by the phase handlers only:
 *
 *     NEW               on its way to the location that decides, see location.c
 *     NEW -> BODY       the body reader has the request
 *     BODY -> READY     the body is complete
 *     READY -> CLAIM    the store is asked
 *     CLAIM -> OWNED    the claim is ours, content may run
 *     CLAIM -> REPLAY   the stored answer is the content
 *     CLAIM -> PROBE    unknown: the upstream is asked what happened
 *     PROBE -> CLAIM    the upstream has answered
 *     CLAIM -> WAIT     the first is running: its end is awaited
 *     WAIT -> CLAIM     the record may have changed
 *     any -> REFUSED    answered by this module, for good
 *     any -> PASSED     no key, or a dry run: not protected here
 *     PASSED -> NEW     a redirect has led to another protected location
 */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_WAY_NEW = 0,
    NGX_HTTP_IDEMPOTENCY_WAY_BODY,
    NGX_HTTP_IDEMPOTENCY_WAY_READY,
    NGX_HTTP_IDEMPOTENCY_WAY_CLAIM,
    NGX_HTTP_IDEMPOTENCY_WAY_PROBE,
    NGX_HTTP_IDEMPOTENCY_WAY_WAIT,
    NGX_HTTP_IDEMPOTENCY_WAY_OWNED,
    NGX_HTTP_IDEMPOTENCY_WAY_REPLAY,
    NGX_HTTP_IDEMPOTENCY_WAY_REFUSED,
    NGX_HTTP_IDEMPOTENCY_WAY_PASSED
} ngx_http_idempotency_way_e;


/*
 * How a claimed request came to the location where it is, set on each arrival
 * by ngx_http_idempotency_upstream_arrive():
 *
 *     FIRST          it was claimed here, or nothing has run since
 *     REDIRECTED     by an X-Accel-Redirect, to the location that it names
 *     ERROR_PAGE     by error_page, which asks by GET: not the operation.  It
 *                    stays so to the end of the request
 *     ELSEWHERE      by anything else, after a content handler has run
 */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_CAME_FIRST = 0,
    NGX_HTTP_IDEMPOTENCY_CAME_REDIRECTED,
    NGX_HTTP_IDEMPOTENCY_CAME_ERROR_PAGE,
    NGX_HTTP_IDEMPOTENCY_CAME_ELSEWHERE
} ngx_http_idempotency_came_e;


/*
 * The probe of an unknown, see probe.c.  Its verdict counts if "said" is set
 * when it is done: the answer is that of the upstream of the first content
 * handler, which no error page and no redirect has chosen or replaced.
 */

typedef struct {
    ngx_http_request_t                *request;    /* the subrequest */
    ngx_http_handler_pt                content_handler;
    ngx_uint_t                         handlers;   /* that have run */
    unsigned                           error:1;    /* before the first */
    unsigned                           said:1;
    unsigned                           done:1;
} ngx_http_idempotency_probe_t;


/*
 * The answer's way, moved by the capture filters only:
 *
 *     NONE -> COLLECT     the header is held, body bytes are copied
 *     NONE -> STORE       nothing to collect: the store is told at once
 *     COLLECT -> STORE    the last byte came, or too many
 *     STORE -> OPEN       the store has answered: everything flows
 */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_ANSWER_NONE = 0,
    NGX_HTTP_IDEMPOTENCY_ANSWER_COLLECT,
    NGX_HTTP_IDEMPOTENCY_ANSWER_STORE,
    NGX_HTTP_IDEMPOTENCY_ANSWER_OPEN
} ngx_http_idempotency_answer_e;


/* the header line that has the key, as it was parsed for this location */

typedef struct {
    ngx_http_idempotency_loc_conf_t   *conf;   /* NULL: it was not */
    ngx_table_elt_t                   *line;
    ngx_str_t                          value;
    ngx_list_part_t                   *last;   /* of all lines, and ... */
    ngx_uint_t                         n;      /* ... how many are in it */
} ngx_http_idempotency_key_header_t;


/* the upstream's part of a claimed request, see upstream.c */

typedef struct {
    ngx_http_idempotency_came_e        came;
    ngx_uint_t                         method;     /* that was claimed */
    ngx_http_handler_pt                handler;    /* wrapped, or NULL */

    /* functions of the upstream that are wrapped, see upstream_gate.c */

    ngx_event_get_peer_pt              get_peer;
    ngx_output_chain_filter_pt         output_filter;
    void                              *filter_ctx;
    void                             (*finalize_request)(ngx_http_request_t *r,
                                                         ngx_int_t rc);
    ngx_resolver_handler_pt            resolved;   /* its server's name is */
    ngx_http_event_handler_pt          cached;     /* waits for a cache */
    ngx_uint_t                        *gone;   /* set when the context is */

    /* the operation's upstream and its tries, while ERROR_PAGE has others */

    ngx_http_upstream_t               *upstream;
    ngx_uint_t                         tries;

    off_t                              handed_on;  /* bytes that were sent
                                                      before REDIRECTED */

    /* those of locations before the first one that protects */

    void                              *earlier;
    ngx_uint_t                         earlier_tries;

    unsigned                           ran:1;      /* a content handler */
    unsigned                           asked:1;    /* the gate, just now */
    unsigned                           none:1;     /* no memory for one */
    unsigned                           refused:1;  /* by the gate */
    unsigned                           followed:1; /* an X-Accel-Redirect */
    unsigned                           arrived:1;  /* where that leads */
    unsigned                           error_page:1;  /* r's at that time */
    unsigned                           recursive:1;   /* locations since */
} ngx_http_idempotency_upstream_t;


typedef struct {
    ngx_http_request_t                *request;
    ngx_http_idempotency_loc_conf_t   *conf;   /* of the protected location */
    ngx_idempotency_store_t           *in_flight;  /* counted there */

    ngx_http_core_loc_conf_t          *checking;   /* access, there */
    ngx_uint_t                         barred;     /* by that: the status */

    ngx_http_idempotency_way_e         way;
    ngx_http_idempotency_result_e      result;
    ngx_uint_t                         refused;    /* verdict or status, or 0 */

    ngx_http_idempotency_key_header_t  key_header;
    ngx_str_t                          key;
    ngx_str_t                          source;
    ngx_str_t                          scope;
    ngx_uint_t                         flags;      /* of all operations */
    uint64_t                           number;     /* of a sequence */
    uint64_t                           epoch;
    ngx_str_t                          epoch_text;
    u_char                             digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    u_char                             owner[NGX_IDEMPOTENCY_OWNER_LEN];
    u_char                             content[NGX_IDEMPOTENCY_DIGEST_LEN];
    u_char                             fingerprint  /* of the content */
                                           [NGX_IDEMPOTENCY_FINGERPRINT_LEN];

    ngx_http_idempotency_field_value_t  *fields;   /* see field.c */

    ngx_idempotency_op_t              *op;     /* the last one submitted */
    ngx_idempotency_answer_t          *stored; /* what op brought, decoded */
    ngx_msec_t                         store_time;

    uint64_t                           fence;
    ngx_uint_t                         attempt;
    time_t                             created;

    ngx_idempotency_held_t             held;

    ngx_http_idempotency_upstream_t    upstream;
    ngx_uint_t                         tokens; /* to be tried yet */

    ngx_http_idempotency_probe_t       probe;
    ngx_http_idempotency_query_t      *query;  /* of a lookup */

    ngx_idempotency_waiter_t           waiter; /* see wait.c */
    ngx_event_t                        wait_timer;

    /* the answer, see capture.c */

    ngx_http_idempotency_answer_e      answer;
    ngx_http_event_handler_pt          sender;     /* while we come first */
    ngx_chain_t                       *body;
    ngx_chain_t                      **last_body;
    ngx_buf_t                         *tail;   /* being filled */
    size_t                             body_len;
    time_t                             ttl;    /* the upstream's word, or 0 */

    unsigned                           checked:1;  /* "checking" has begun */
    unsigned                           page:1;     /* for who is barred */
    unsigned                           body_read:1;
    unsigned                           body_invalid:1;
    unsigned                           json_read:1;    /* fields of ... */
    unsigned                           form_read:1;
    unsigned                           advised:1;  /* by a problem's header */
    unsigned                           passed:1;   /* without a claim */
    unsigned                           seen:1;     /* a record of the key */
    unsigned                           probed:1;   /* once is enough */
    unsigned                           waited:1;
    unsigned                           wait_over:1;
    unsigned                           unsure:1;   /* a waiter's claims */
    unsigned                           settled:1;  /* the store was told */
    unsigned                           cut:1;      /* the answer broke off */
    unsigned                           dropped:1;  /* another one was sent */
    unsigned                           complete:1; /* last byte collected */
    unsigned                           keep:1;     /* head and body */
    unsigned                           grpc:1;     /* judged by its end */
    unsigned                           dry:1;      /* ctx->op is a dry claim */
} ngx_http_idempotency_ctx_t;


extern ngx_module_t  ngx_http_idempotency_module;


/*
 * The store of that name, to be defined by the end of the configuration.
 * NULL when memory is short.
 */
ngx_idempotency_store_t *ngx_http_idempotency_store_get(ngx_conf_t *cf,
    ngx_str_t *name);

/* Where the directive stands that is being read.  NULL when memory is short. */
ngx_http_idempotency_place_t *ngx_http_idempotency_conf_place(ngx_conf_t *cf);


#endif /* _NGX_HTTP_IDEMPOTENCY_H_INCLUDED_ */
