
/*
 * What is said on a new connection before any command: who we are, and what
 * the server must be.
 */


#include "ngx_idempotency_redis_link.h"


/* no single reply is longer */
#define NGX_IDEMPOTENCY_REDIS_REPLY_MAX  (64 * 1024 * 1024 + 65536)

/* of a text of the server, in the log */
#define NGX_IDEMPOTENCY_REDIS_TEXT_MAX   120


static ngx_int_t ngx_idempotency_redis_login_hello(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_login_say(
    ngx_idempotency_redis_conn_t *conn, ngx_str_t *args, ngx_uint_t n);
static ngx_uint_t ngx_idempotency_redis_login_error(u_char *step,
    ngx_idempotency_redis_reply_t *reply, ngx_uint_t strict);
static ngx_int_t ngx_idempotency_redis_login_role(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_login_refused(
    ngx_idempotency_redis_conn_t *conn, u_char *step, ngx_str_t *text);


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
    u_char                            db[NGX_INT_T_LEN];
    ngx_str_t                         args[3];
    ngx_uint_t                        n, server, sentinel;
    ngx_idempotency_redis_account_t  *account;

    conn->nsteps = 0;

    server = (conn->node->kind == NGX_IDEMPOTENCY_REDIS_SERVER);
    sentinel = (!server && conn->node->kind != NGX_IDEMPOTENCY_REDIS_EAR);
    account = sentinel ? &conn->redis->sentinel : &conn->redis->account;

    if (account->password.len || account->user.len) {
        n = 0;

        ngx_str_set(&args[n], "AUTH");
        n++;

        if (account->user.len) {
            args[n++] = account->user;
        }

        args[n++] = account->password;

        if (ngx_idempotency_redis_login_say(conn, args, n) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (server && conn->redis->database) {
        ngx_str_set(&args[0], "SELECT");
        args[1].data = db;
        args[1].len = ngx_sprintf(db, "%ui", conn->redis->database) - db;

        if (ngx_idempotency_redis_login_say(conn, args, 2) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (server && conn->redis->topology->role) {
        ngx_str_set(&args[0], "ROLE");

        if (ngx_idempotency_redis_login_say(conn, args, 1) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_str_set(&args[0], "PING");

    if (ngx_idempotency_redis_login_say(conn, args, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    conn->counter = conn->node->counter;

    if (conn->counter) {
        ngx_idempotency_redis_memory_know(conn->redis, conn->counter,
                                          &conn->before);

        ngx_str_set(&args[0], "INCR");
        args[1] = conn->counter->name;

        return ngx_idempotency_redis_login_say(conn, args, 2);
    }

    if (conn->node->kind == NGX_IDEMPOTENCY_REDIS_HEARD) {
        ngx_str_set(&args[0], "SUBSCRIBE");
        ngx_str_set(&args[1], "+switch-master");

        return ngx_idempotency_redis_login_say(conn, args, 2);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_redis_login_say(ngx_idempotency_redis_conn_t *conn,
    ngx_str_t *args, ngx_uint_t n)
{
    ngx_int_t  rc;
    ngx_str_t  bytes;

    conn->steps[conn->nsteps++] = args[0].data;

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
    u_char     *step;
    ngx_str_t   text;

    step = conn->steps[conn->answered++];

    if (step[0] == 'I') {

        /* if it has forgotten, that is known now */

        ngx_idempotency_redis_memory_told(conn->redis, conn->counter, reply,
                                          &conn->before,
                                          conn->redis->replicas == 0);
    }

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

    if (step[0] == 'R'
        && ngx_idempotency_redis_login_role(conn, reply) != NGX_OK)
    {
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


static ngx_uint_t
ngx_idempotency_redis_login_error(u_char *step,
    ngx_idempotency_redis_reply_t *reply, ngx_uint_t strict)
{
    if (ngx_idempotency_redis_reply_type(reply) != NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        return 0;
    }

    switch (step[0]) {

    case 'I':

        /*
         * a node that has just come back would take claims before it says
         * that it has forgotten; others may be full, or not allow it
         */

        return ngx_idempotency_redis_reply_is_error(reply, "CLUSTERDOWN")
               || ngx_idempotency_redis_says_no_master(reply);

    case 'P':

        /* a user who may not ask whether it answers has the answer */

        return !ngx_idempotency_redis_reply_is_error(reply, "NOPERM");

    case 'R':

        /* without a role, the first write tells */

        return strict;

    default:
        return 1;
    }
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

    ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_SAID_ROLE, 0,
                                 "is not the master");

    return NGX_ERROR;
}


static void
ngx_idempotency_redis_login_refused(ngx_idempotency_redis_conn_t *conn,
    u_char *step, ngx_str_t *text)
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

    len = (step[0] == 'A') ? name->len : text->len;
    last = buf + ngx_min(len, sizeof(buf));

    for (p = buf; p < last; p++) {
        *p = text->data[p - buf];

        if (*p < 0x20 || *p > 0x7e) {
            *p = '?';
        }
    }

    ngx_idempotency_redis_report(conn,
                                 NGX_IDEMPOTENCY_REDIS_SAID_REFUSED << i, 0,
                                 "refused %s: \"%*s\"", step, last - buf, buf);
}
