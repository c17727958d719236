
/*
 * What is said on a new connection before any command: who we are, and what
 * the server must be.
 */


#include "ngx_idempotency_redis_link.h"


/* no single reply is longer */
#define NGX_IDEMPOTENCY_REDIS_REPLY_MAX  (64 * 1024 * 1024 + 65536)

/* a server that closes the connection so often at INFO is not asked again */
#define NGX_IDEMPOTENCY_REDIS_INFO_CLOSED  3

/* of a text of the server, in the log */
#define NGX_IDEMPOTENCY_REDIS_TEXT_MAX   120


static ngx_int_t ngx_idempotency_redis_login_hello(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_login_auth(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_login_server(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_login_say(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_step_e step,
    ngx_str_t *args, ngx_uint_t n);
static ngx_int_t ngx_idempotency_redis_login_facts(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_step_e step,
    ngx_idempotency_redis_reply_t *reply);
static ngx_uint_t ngx_idempotency_redis_login_error(
    ngx_idempotency_redis_step_e step, ngx_idempotency_redis_reply_t *reply,
    ngx_uint_t strict);
static void ngx_idempotency_redis_login_again(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_login_role(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_login_refused(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_step_e step,
    ngx_str_t *text);


/* in the order of ngx_idempotency_redis_step_e */

static ngx_str_t  ngx_idempotency_redis_login_steps[] = {
    ngx_string("AUTH"),
    ngx_string("SELECT"),
    ngx_string("ROLE"),
    ngx_string("PING"),
    ngx_string("INFO"),
    ngx_string("TIME"),
    ngx_string("INCR"),
    ngx_string("PEXPIRE"),
    ngx_string("SUBSCRIBE")
};


/* what Redis names; any other error is the last one */

static ngx_str_t  ngx_idempotency_redis_login_errors[] = {
    ngx_string("NOAUTH"),
    ngx_string("WRONGPASS"),
    ngx_string("NOPERM"),
    ngx_string("LOADING"),
    ngx_string("MASTERDOWN"),
    ngx_string("READONLY"),
    ngx_string("BUSY"),
    ngx_string("MISCONF"),
    ngx_string("OOM"),
    ngx_string("DENIED"),
    ngx_string("ERR"),
    ngx_null_string
};


void
ngx_idempotency_redis_login(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_LOGIN);
    conn->log.action = "logging in to";
    conn->answered = 0;

    conn->reader = ngx_idempotency_redis_reader_create(
                                             NGX_IDEMPOTENCY_REDIS_REPLY_MAX);

    if (conn->reader == NULL
        || ngx_idempotency_redis_login_hello(conn) != NGX_OK)
    {
        ngx_idempotency_redis_dial_failed(conn);
        return;
    }

    ngx_idempotency_redis_pipe_open(conn);
}


/*
 * All of it in one write.  PING shows whether the server can answer: AUTH and
 * SELECT are allowed while it loads.
 */

static ngx_int_t
ngx_idempotency_redis_login_hello(ngx_idempotency_redis_conn_t *conn)
{
    ngx_str_t  args[2];

    conn->nsteps = 0;
    conn->hello_at = ngx_current_msec;

    ngx_memzero(&conn->info, sizeof(ngx_idempotency_redis_info_t));

    if (ngx_idempotency_redis_login_auth(conn) != NGX_OK) {
        return NGX_ERROR;
    }

    if (conn->node->kind == NGX_IDEMPOTENCY_REDIS_SERVER) {
        return ngx_idempotency_redis_login_server(conn);
    }

    if (ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_PING,
                                        args, 1)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (conn->node->kind == NGX_IDEMPOTENCY_REDIS_HEARD) {
        ngx_str_set(&args[1], "+switch-master");

        return ngx_idempotency_redis_login_say(conn,
                                     NGX_IDEMPOTENCY_REDIS_STEP_SUBSCRIBE,
                                     args, 2);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_redis_login_auth(ngx_idempotency_redis_conn_t *conn)
{
    ngx_str_t                         args[3];
    ngx_uint_t                        n;
    ngx_idempotency_redis_account_t  *account;

    account = ngx_idempotency_redis_secret_login(conn);

    if (account->password.len == 0 && account->user.len == 0) {
        return NGX_OK;
    }

    n = ngx_idempotency_redis_secret_args(account, args);

    return ngx_idempotency_redis_login_say(conn,
                                           NGX_IDEMPOTENCY_REDIS_STEP_AUTH,
                                           args, n);
}


/* the counter comes after all that its reply is judged with */

static ngx_int_t
ngx_idempotency_redis_login_server(ngx_idempotency_redis_conn_t *conn)
{
    u_char     db[NGX_INT_T_LEN];
    ngx_str_t  args[3];

    if (conn->redis->database) {
        args[1].data = db;
        args[1].len = ngx_sprintf(db, "%ui", conn->redis->database) - db;

        if (ngx_idempotency_redis_login_say(conn,
                                            NGX_IDEMPOTENCY_REDIS_STEP_SELECT,
                                            args, 2)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (conn->redis->topology->role
        && ngx_idempotency_redis_login_say(conn,
                                           NGX_IDEMPOTENCY_REDIS_STEP_ROLE,
                                           args, 1)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_PING,
                                        args, 1)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    conn->counter = conn->node->counter;

    if (conn->counter == NULL) {
        return NGX_OK;
    }

    if (conn->node->info_closed < NGX_IDEMPOTENCY_REDIS_INFO_CLOSED
        && ngx_idempotency_redis_login_say(conn,
                                           NGX_IDEMPOTENCY_REDIS_STEP_INFO,
                                           args, 1)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_TIME,
                                        args, 1)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_idempotency_redis_loss_know(conn->redis, conn->counter,
                                    &conn->before);

    args[1] = conn->counter->name;

    if (ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_INCR,
                                        args, 2)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_set(&args[2], NGX_IDEMPOTENCY_REDIS_STAY);

    return ngx_idempotency_redis_login_say(conn,
                                           NGX_IDEMPOTENCY_REDIS_STEP_PEXPIRE,
                                           args, 3);
}


/* args[0] is set here */

static ngx_int_t
ngx_idempotency_redis_login_say(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_step_e step, ngx_str_t *args, ngx_uint_t n)
{
    ngx_int_t  rc;
    ngx_str_t  bytes;

    args[0] = ngx_idempotency_redis_login_steps[step];
    conn->steps[conn->nsteps++] = step;

    if (ngx_idempotency_redis_encode(args, n, &bytes) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_idempotency_redis_bytes_append(&conn->hello, bytes.data,
                                           bytes.len);

    ngx_idempotency_redis_encode_free(&bytes);

    return rc;
}


void
ngx_idempotency_redis_login_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                     text;
    ngx_idempotency_redis_step_e  step;

    step = conn->steps[conn->answered++];

    if (ngx_idempotency_redis_login_error(step, reply,
                                          conn->redis->topology->strict))
    {
        conn->replica = ngx_idempotency_redis_says_no_master(reply);
        ngx_idempotency_redis_reply_string(reply, &text);

        if (conn->node->kind == NGX_IDEMPOTENCY_REDIS_SERVER) {
            conn->redis->refusal = ngx_idempotency_redis_refusal(&text);
        }

        ngx_idempotency_redis_login_refused(conn, step, &text);
        ngx_idempotency_redis_dial_failed(conn);
        return;
    }

    switch (ngx_idempotency_redis_login_facts(conn, step, reply)) {

    case NGX_OK:
        break;

    case NGX_AGAIN:
        ngx_idempotency_redis_login_again(conn);
        return;

    default: /* NGX_ERROR */
        ngx_idempotency_redis_dial_failed(conn);
        return;
    }

    if (conn->answered == conn->nsteps) {

        if (conn->node->kind == NGX_IDEMPOTENCY_REDIS_SERVER) {
            conn->redis->refusal = NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE;
        }

        ngx_idempotency_redis_conn_ready(conn);
    }
}


/*
 * NGX_AGAIN: the login has to begin anew; NGX_ERROR: this is no server that
 * can be used.
 */

static ngx_int_t
ngx_idempotency_redis_login_facts(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_step_e step, ngx_idempotency_redis_reply_t *reply)
{
    switch (step) {

    case NGX_IDEMPOTENCY_REDIS_STEP_ROLE:
        return ngx_idempotency_redis_login_role(conn, reply);

    case NGX_IDEMPOTENCY_REDIS_STEP_INFO:
        conn->node->info_closed = 0;
        ngx_idempotency_redis_info_read(reply, &conn->info);
        return NGX_OK;

    case NGX_IDEMPOTENCY_REDIS_STEP_TIME:
        ngx_idempotency_redis_info_time(reply, &conn->info);
        return NGX_OK;

    case NGX_IDEMPOTENCY_REDIS_STEP_INCR:
        return ngx_idempotency_redis_loss_login(conn, reply);

    default:
        return NGX_OK;
    }
}


static ngx_uint_t
ngx_idempotency_redis_login_error(ngx_idempotency_redis_step_e step,
    ngx_idempotency_redis_reply_t *reply, ngx_uint_t strict)
{
    if (ngx_idempotency_redis_reply_type(reply) != NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        return 0;
    }

    switch (step) {

    case NGX_IDEMPOTENCY_REDIS_STEP_INCR:

        /*
         * a node that has just come back would take claims before it says
         * that it has forgotten; others may be full, or not allow it
         */

        return ngx_idempotency_redis_reply_is_error(reply, "CLUSTERDOWN")
               || ngx_idempotency_redis_says_no_master(reply);

    case NGX_IDEMPOTENCY_REDIS_STEP_PING:

        /* NOPERM for PING still proves that the server answers */

        return !ngx_idempotency_redis_reply_is_error(reply, "NOPERM");

    case NGX_IDEMPOTENCY_REDIS_STEP_ROLE:

        /* without a role, the first write tells */

        return strict;

    case NGX_IDEMPOTENCY_REDIS_STEP_INFO:
    case NGX_IDEMPOTENCY_REDIS_STEP_TIME:
    case NGX_IDEMPOTENCY_REDIS_STEP_PEXPIRE:

        /* the loss detector goes on with what it may know */

        return 0;

    default:
        return 1;
    }
}


/*
 * A loss was seen, here or by another worker.  What waits for this connection
 * was asked in the belief that nothing was lost: it is given back, and asked
 * again in the light of it.
 */

static void
ngx_idempotency_redis_login_again(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_conn_close(conn);
    ngx_idempotency_redis_conn_drop(conn, NGX_IDEMPOTENCY_REDIS_CONNECT);
    ngx_idempotency_redis_dial(conn);
}


/* some proxies answer a command that they do not know so */

void
ngx_idempotency_redis_login_closed(ngx_idempotency_redis_conn_t *conn)
{
    if (conn->state == NGX_IDEMPOTENCY_REDIS_LOGIN
        && conn->answered < conn->nsteps
        && conn->steps[conn->answered] == NGX_IDEMPOTENCY_REDIS_STEP_INFO)
    {
        conn->node->info_closed++;
    }

    ngx_idempotency_redis_dial_failed(conn);
}


/*
 * Whoever named it: only a master is written to.  In a set that sentinels
 * watch it has to say so, elsewhere a proxy may answer for it.
 */

static ngx_int_t
ngx_idempotency_redis_login_role(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                       role;
    ngx_idempotency_redis_reply_t  *element;

    ngx_str_null(&role);

    element = ngx_idempotency_redis_reply_element(reply, 0);

    if (element) {
        ngx_idempotency_redis_reply_string(element, &role);
    }

    if (role.len == sizeof("master") - 1
        && ngx_strncmp(role.data, "master", role.len) == 0)
    {
        return NGX_OK;
    }

    if (!conn->redis->topology->strict
        && (role.len != sizeof("slave") - 1
            || ngx_strncmp(role.data, "slave", role.len) != 0))
    {
        return NGX_OK;
    }

    conn->replica = 1;
    conn->redis->refusal = NGX_IDEMPOTENCY_REDIS_REFUSAL_READONLY;

    ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_SAID_ROLE, 0,
                                 "is not the master");

    return NGX_ERROR;
}


static void
ngx_idempotency_redis_login_refused(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_step_e step, ngx_str_t *text)
{
    size_t      len;
    u_char     *p, *last, buf[NGX_IDEMPOTENCY_REDIS_TEXT_MAX];
    ngx_str_t  *name;
    ngx_uint_t  i;

    for (i = 0; /* void */ ; i++) {
        name = &ngx_idempotency_redis_login_errors[i];

        if (name->len == 0) {
            break;
        }

        if (text->len >= name->len
            && ngx_strncmp(text->data, name->data, name->len) == 0
            && (text->len == name->len || text->data[name->len] == ' '))
        {
            break;
        }
    }

    /* the text about AUTH may quote its arguments */

    len = (step == NGX_IDEMPOTENCY_REDIS_STEP_AUTH) ? name->len : text->len;
    last = buf + ngx_min(len, sizeof(buf));

    for (p = buf; p < last; p++) {
        *p = text->data[p - buf];

        if (*p < 0x20 || *p > 0x7e) {
            *p = '?';
        }
    }

    ngx_idempotency_redis_report(conn,
                                 NGX_IDEMPOTENCY_REDIS_SAID_REFUSED << i, 0,
                                 "refused %V: \"%*s\"",
                                 &ngx_idempotency_redis_login_steps[step],
                                 last - buf, buf);
}
