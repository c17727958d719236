
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
#include "ngx_idempotency_seal.h"
#include "ngx_idempotency_store.h"
#include "ngx_idempotency_wait.h"


/* the first line of CHANGES and debian/changelog name it, too */
#define NGX_HTTP_IDEMPOTENCY_VERSION  "0.1.0"

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
#define NGX_HTTP_IDEMPOTENCY_UNKNOWN_TRANSACTION  3

#define NGX_HTTP_IDEMPOTENCY_SUSPECT_OFF     0
#define NGX_HTTP_IDEMPOTENCY_SUSPECT_REPORT  1
#define NGX_HTTP_IDEMPOTENCY_SUSPECT_REJECT  2

/* the index of a table, see merge.c */
#define NGX_HTTP_IDEMPOTENCY_PROFILE_IETF    0
#define NGX_HTTP_IDEMPOTENCY_PROFILE_STRIPE  1
#define NGX_HTTP_IDEMPOTENCY_PROFILE_ACP     2
#define NGX_HTTP_IDEMPOTENCY_PROFILE_UCP     3
#define NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS   4
#define NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC 5

/* a status that nginx has no name for */
#define NGX_HTTP_IDEMPOTENCY_TOO_EARLY  425

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
    ngx_http_core_srv_conf_t          *warned;     /* the last one warned of */
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


/* a location with "idempotency_policy"; "uri" is empty if it has none */

typedef struct {
    ngx_http_core_srv_conf_t          *cscf;
    ngx_http_core_loc_conf_t          *clcf;
    ngx_str_t                          uri;
} ngx_http_idempotency_page_t;


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


/* its value in a request */

typedef struct {
    ngx_str_t                          text;
    unsigned                           found:1;
    unsigned                           twice:1;
} ngx_http_idempotency_field_value_t;


typedef struct {
    ngx_array_t                        stores;  /* ngx_idempotency_store_t * */
    ngx_idempotency_notices_t         *notices;    /* NULL: no waiting */

    ngx_array_t                        locations;  /* that are counted */
    ngx_array_t                        lookups;    /* of operators */
    ngx_array_t                        admins;     /* the same, all of them */
    ngx_array_t                        pages;      /* for clients */
    ngx_uint_t                         cancel;     /* some lookup has it */
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
    ngx_http_complex_value_t          *key;
    ngx_uint_t                         methods;
    ngx_uint_t                         fingerprint;    /* whether it was */
    time_t                             ttl;
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
    ngx_http_handler_pt                on_reply;       /* of that store */
    ngx_http_idempotency_token_t      *token;
    ngx_uint_t                         admin;          /* of a lookup */
    ngx_uint_t                         cancel;
    ngx_uint_t                         stats;          /* its handler */
    ngx_uint_t                         policy;         /* the same */
    ngx_uint_t                         warned;
    ngx_uint_t                         location;       /* its number */
    ngx_uint_t                         profile;
    ngx_http_idempotency_given_t       given;

    ngx_http_complex_value_t          *key;
    ngx_str_t                          key_header;     /* of "$http_NAME" */
    ngx_str_t                          key_place;      /* for people, in JSON,
                                                          or empty */
    ngx_http_complex_value_t          *source;
    size_t                             source_text;    /* its constant part */
    ngx_http_complex_value_t          *scope;
    ngx_flag_t                         scope_is_default;
    ngx_uint_t                         methods;
    ngx_flag_t                         required;
    ngx_flag_t                         issued;
    ngx_uint_t                         sequence;   /* flags of operations */
    ngx_http_complex_value_t          *epoch;
    ngx_int_t                          max_key;
    ngx_flag_t                         strict_key;

    ngx_uint_t                         fingerprint;
    ngx_http_complex_value_t          *fingerprint_with;
    ngx_flag_t                         with_is_query;  /* the default */
    ngx_uint_t                         fingerprint_hash;  /* of with, lists */
    ngx_array_t                       *include;
    ngx_array_t                       *exclude;
                                           /* ngx_http_idempotency_path_t */
    ngx_array_t                       *secrets;
                                           /* ngx_idempotency_secret_t * */

    ngx_uint_t                         duplicate;
    ngx_msec_t                         wait;           /* 0: reject */
    ngx_uint_t                         in_progress;    /* status: 409, ... */
    ngx_uint_t                         unknown;
    ngx_str_t                          probe;          /* URI */
    ngx_http_idempotency_place_t      *probe_place;
    ngx_uint_t                         store_error;
    ngx_uint_t                         suspect;
    time_t                             suspect_window;
    ngx_array_t                       *suspect_allow;  /* or NULL */
                                           /* ngx_http_complex_value_t */
    ngx_msec_t                         lease;
    time_t                             ttl;
    time_t                             tombstone;
    ngx_http_idempotency_statuses_t   *final;
    ngx_http_idempotency_statuses_t   *retryable;
    size_t                             max_response;
    ngx_array_t                       *hide_headers;   /* ngx_str_t */
    ngx_str_t                          replayed_header;  /* empty: off */
    ngx_str_t                          expires_header;
    ngx_str_t                          describedby;
    ngx_http_complex_value_t          *label;          /* or NULL */
    ngx_uint_t                         log_level;
    ngx_flag_t                         dry_run;
    ngx_uint_t                         upstreams;      /* made by its handler */

#if (NGX_HTTP_IDEMPOTENCY_DEBUG)
    ngx_idempotency_store_t           *exercise;
    ngx_http_complex_value_t          *failpoint;
#endif
};


/* the result of a request, for $idempotency_result */

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
 * The state of a request.  ngx_http_idempotency_set_state() in context.h is
 * the only assignment.  On the right is the file that makes the move:
 *
 *     NEW               entering locations, none has claimed it    phases
 *     NEW -> BODY       nginx reads the request body               claim
 *     BODY -> READY     the body is complete                       claim
 *     READY -> CLAIM    the store is asked                         claim
 *     CLAIM -> RUNS     the claim was granted, or the store cannot
 *                       be reached and the request passes          claim
 *     CLAIM -> REPLAY   the stored answer becomes the content      claim
 *     CLAIM -> PROBE    the outcome is unknown, a subrequest asks
 *                       the upstream                               claim
 *     PROBE -> CLAIM    the upstream has answered                  claim
 *     CLAIM -> WAIT     another request with this key is running   claim
 *     WAIT -> CLAIM     its record may have changed                claim
 *     READY -> DRY_RUN  a dry run has claimed; the request passes  dry_run
 *     any -> PASSED     no key, or a dry run that would refuse     claim,
 *     any -> REFUSED    answered by this module                    problem
 *     PASSED, DRY_RUN -> NEW    a redirect has led to another
 *                       protected location                         phases
 *
 * RUNS, REPLAY and REFUSED are final, but that REPLAY becomes REFUSED if the
 * answer could not be sent.  Endpoints keep their requests in REFUSED: phase
 * handlers and filters leave them alone.
 */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_STATE_NEW = 0,
    NGX_HTTP_IDEMPOTENCY_STATE_BODY,
    NGX_HTTP_IDEMPOTENCY_STATE_READY,
    NGX_HTTP_IDEMPOTENCY_STATE_CLAIM,
    NGX_HTTP_IDEMPOTENCY_STATE_PROBE,
    NGX_HTTP_IDEMPOTENCY_STATE_WAIT,
    NGX_HTTP_IDEMPOTENCY_STATE_RUNS,
    NGX_HTTP_IDEMPOTENCY_STATE_REPLAY,
    NGX_HTTP_IDEMPOTENCY_STATE_REFUSED,
    NGX_HTTP_IDEMPOTENCY_STATE_PASSED,
    NGX_HTTP_IDEMPOTENCY_STATE_DRY_RUN
} ngx_http_idempotency_state_e;


/*
 * Checks of access, see phases.c.  "location" is set from the preaccess phase
 * until precontent: a request that enters another location meanwhile was
 * refused, and error_page has sent it there.
 */

typedef struct {
    ngx_http_core_loc_conf_t          *location;
    ngx_uint_t                         refused;    /* its status, or 0 */
    unsigned                           phase:1;    /* access has begun */
    unsigned                           error_page:1;  /* asked by GET */
} ngx_http_idempotency_access_t;


/* the header line that has the key, as it was parsed for this location */

typedef struct {
    ngx_http_idempotency_loc_conf_t   *conf;   /* NULL: not parsed */
    ngx_table_elt_t                   *line;
    ngx_str_t                          value;
    ngx_list_part_t                   *last;   /* of all header lines */
    ngx_uint_t                         n;      /* lines in the last part */
} ngx_http_idempotency_key_header_t;


/* what names the record, see identify.c; made from this: ctx->id */

typedef struct {
    ngx_http_idempotency_key_header_t  header;
    ngx_str_t                          key;
    ngx_str_t                          source;
    ngx_str_t                          scope;
    ngx_str_t                          epoch;
    ngx_str_t                          label;      /* for people */
    ngx_uint_t                         flags;      /* of all operations */
    u_char                             content     /* digest of the body */
                                           [NGX_IDEMPOTENCY_DIGEST_LEN];
} ngx_http_idempotency_identity_t;


/* the body of the request, and its fields that are variables, see field.c */

typedef struct {
    ngx_http_idempotency_field_value_t  *fields;
    ngx_str_t                          error;      /* what is wrong, in JSON */
    unsigned                           read:1;
    unsigned                           invalid:1;
    unsigned                           json_parsed:1;
    unsigned                           form_parsed:1;
    unsigned                           dav_put:1;  /* WebDAV moves its file */
} ngx_http_idempotency_request_body_t;


/* the message in the body, with the profile jsonrpc, see jsonrpc.c */

typedef struct {
    ngx_str_t                          id;     /* as it was sent, or empty */
    ngx_str_t                          key;    /* or empty */
    unsigned                           call:1; /* of a tool of MCP */
    unsigned                           key_invalid:1;
} ngx_http_idempotency_jsonrpc_t;


/*
 * How a claimed request has arrived in the location where it is, set by
 * ngx_http_idempotency_upstream_arrive() on each arrival:
 *
 *     FIRST          it was claimed here, or no content handler has run yet
 *     REDIRECTED     by an X-Accel-Redirect, to the location that it names
 *     ERROR_PAGE     by error_page, which asks by GET: not the operation.  It
 *                    stays so to the end of the request
 *     ELSEWHERE      by anything else, after a content handler has run
 */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_ARRIVAL_FIRST = 0,
    NGX_HTTP_IDEMPOTENCY_ARRIVAL_REDIRECTED,
    NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE,
    NGX_HTTP_IDEMPOTENCY_ARRIVAL_ELSEWHERE
} ngx_http_idempotency_arrival_e;


/* the upstream's part of a claimed request, see upstream_gate.c */

typedef struct {
    ngx_http_idempotency_arrival_e     arrival;
    ngx_uint_t                         method;     /* that was claimed */
    ngx_http_handler_pt                handler;    /* wrapped, or NULL */

    /* functions of the upstream that are wrapped */

    ngx_event_get_peer_pt              get_peer;
    ngx_output_chain_filter_pt         output_filter;
    void                              *filter_ctx;
    void                             (*finalize_request)(ngx_http_request_t *r,
                                                         ngx_int_t rc);
    ngx_resolver_handler_pt            resolve_handler;
    ngx_http_event_handler_pt          cache_handler;
    ngx_uint_t                        *freed;  /* set with the context */

    /* the operation's upstream and its tries, while ERROR_PAGE has others */

    ngx_http_upstream_t               *upstream;
    ngx_uint_t                         tries;

    off_t                              sent_before;    /* REDIRECTED, bytes */

    /* those of locations before the first one that protects */

    void                              *earlier;
    ngx_uint_t                         earlier_tries;

    /* of the request when it entered the location where it is */

    void                              *entry;
    ngx_uint_t                         entry_status;   /* err_status */

    unsigned                           ran:1;      /* a content handler */
    unsigned                           open:1;     /* the gate, just now */
    unsigned                           no_memory:1;   /* for an upstream */
    unsigned                           refused:1;  /* by the gate */
    unsigned                           refused_here:1;  /* in this location */

    /* an X-Accel-Redirect: followed, and where it leads was entered */

    unsigned                           followed:1;
    unsigned                           arrived:1;
    unsigned                           error_page:1;  /* r's at that time */
    unsigned                           recursive:1;   /* locations since */
} ngx_http_idempotency_upstream_t;


/*
 * The probe of an unknown outcome, see probe.c.  Its answer counts if
 * "from_upstream" is set when it is done: it is that of the upstream of the
 * first content handler, and no error page or redirect has replaced it.
 */

typedef struct {
    ngx_http_request_t                *request;    /* the subrequest */
    ngx_http_handler_pt                content_handler;
    ngx_uint_t                         handlers;   /* that have run */
    unsigned                           tried:1;
    unsigned                           error:1;    /* before the first */
    unsigned                           from_upstream:1;
    unsigned                           done:1;
} ngx_http_idempotency_probe_t;


/*
 * The look for a request that was the same under another key, see suspect.c.
 * "op" is set from the claim until both have replied, "refused" while the
 * claim is given back.
 */

typedef struct {
    ngx_idempotency_op_t              *op;
    ngx_uint_t                         refused;    /* verdict, or 0 */
    u_char                             digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    unsigned                           asked_again:1;
    unsigned                           passes:1;   /* it is not refused */
    unsigned                           looked:1;   /* the store has replied */
    unsigned                           suspected:1;
    unsigned                           last:1;     /* this is the last one */
} ngx_http_idempotency_suspect_t;


/* waiting for the first request with the key, see wait.c */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_WAIT_NONE = 0,
    NGX_HTTP_IDEMPOTENCY_WAIT_WAITING,
    NGX_HTTP_IDEMPOTENCY_WAIT_OVER     /* timed out, or ended otherwise */
} ngx_http_idempotency_wait_e;


typedef struct {
    ngx_http_idempotency_wait_e        state;
    ngx_idempotency_waiter_t           waiter;
    ngx_event_t                        timer;
    unsigned                           in_doubt:1; /* a claim of the waiter
                                                      that got no reply */
} ngx_http_idempotency_wait_t;


/*
 * The answer, moved by the filters in capture.c only:
 *
 *     NONE -> COLLECT     the header is held, the body is copied
 *     NONE -> STORE       nothing to collect: the outcome is stored
 *     COLLECT -> STORE    the last byte was collected, or too many
 *     STORE -> OPEN       the store has replied: everything is sent
 */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_CAPTURE_NONE = 0,
    NGX_HTTP_IDEMPOTENCY_CAPTURE_COLLECT,
    NGX_HTTP_IDEMPOTENCY_CAPTURE_STORE,
    NGX_HTTP_IDEMPOTENCY_CAPTURE_OPEN
} ngx_http_idempotency_capture_e;


/*
 * What the client gets: the answer; 502 for a truncated one; a problem instead
 * of the page that nginx makes for its own error; and when the answer or that
 * page was replaced, nothing more of it.
 */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_SEND_ANSWER = 0,
    NGX_HTTP_IDEMPOTENCY_SEND_ERROR,
    NGX_HTTP_IDEMPOTENCY_SEND_PROBLEM,
    NGX_HTTP_IDEMPOTENCY_SEND_REPLACED
} ngx_http_idempotency_send_e;


typedef struct {
    ngx_http_idempotency_capture_e     state;
    ngx_http_idempotency_send_e        send;
    ngx_http_event_handler_pt          write_handler;  /* wrapped, or NULL */
    ngx_chain_t                       *body;
    ngx_chain_t                      **last;
    ngx_buf_t                         *buf;    /* being filled */
    size_t                             size;   /* of the body */
    time_t                             ttl;    /* the upstream's, or 0 */
    ngx_uint_t                         reason; /* of an unknown outcome */
    ngx_uint_t                         reason_status;
    unsigned                           complete:1; /* last byte collected */
    unsigned                           keep:1;     /* head and body */
    unsigned                           grpc:1;     /* its end decides */
} ngx_http_idempotency_capture_t;


typedef struct ngx_http_idempotency_ctx_s  ngx_http_idempotency_ctx_t;

typedef void (*ngx_http_idempotency_end_pt)(ngx_http_idempotency_ctx_t *ctx);


struct ngx_http_idempotency_ctx_s {
    ngx_http_request_t                *request;
    ngx_http_idempotency_loc_conf_t   *conf;   /* of the protected location */
    ngx_http_idempotency_end_pt        end;    /* when the request ends */
    ngx_idempotency_store_t           *in_flight;  /* counted there */

    ngx_http_idempotency_state_e       state;
    ngx_http_idempotency_result_e      result;
    ngx_uint_t                         refused;    /* verdict or status, or 0 */

    ngx_http_idempotency_access_t      access;
    ngx_http_idempotency_identity_t    identity;
    ngx_http_idempotency_request_body_t  request_body;
    ngx_http_idempotency_jsonrpc_t    *jsonrpc;    /* or NULL: not read */

    /* operations: each one is about this record, and this attempt */

    ngx_idempotency_identity_t         id;
    ngx_idempotency_op_t              *op;     /* the last one submitted */
    ngx_msec_t                         store_time;
    ngx_idempotency_answer_t          *stored; /* of op's record, decoded */

    uint64_t                           fence;
    ngx_uint_t                         attempt;
    time_t                             created;
    ngx_idempotency_held_t             held;

    ngx_http_idempotency_suspect_t    *suspect;    /* NULL: not looked for */
    ngx_http_idempotency_wait_t        wait;
    ngx_http_idempotency_probe_t       probe;
    ngx_http_idempotency_upstream_t    upstream;
    ngx_http_idempotency_capture_t     capture;

    /* of endpoints */

    ngx_http_idempotency_query_t      *query;
    ngx_uint_t                         tokens;     /* tries left */

    unsigned                           seen:1;     /* a record of the key */
    unsigned                           unprotected:1;  /* without a claim */
    unsigned                           settled:1;  /* outcome submitted */
    unsigned                           problem_headers:1;  /* were added */
};


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
