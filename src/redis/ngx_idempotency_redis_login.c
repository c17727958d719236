
/*
 * The login: commands on a new connection before any other.  They tell the
 * server which user this is, and show whether it is one that may be used.
 */


#include "ngx_idempotency_redis_login.h"
#include "ngx_idempotency_redis_pipe.h"


/* a server that closes the connection so often at INFO is not asked again */
#define NGX_IDEMPOTENCY_REDIS_INFO_CLOSED  3

/* bytes of a text of the server in the log */
#define NGX_IDEMPOTENCY_REDIS_TEXT_MAX   120


static void ngx_idempotency_redis_login_data(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_login_say(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_step_e step,
    ngx_str_t *args, ngx_uint_t n);
static ngx_int_t ngx_idempotency_redis_login_facts(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_step_e step,
    ngx_idempotency_redis_reply_t *reply);
static ngx_uint_t ngx_idempotency_redis_login_error(
    ngx_idempotency_redis_step_e step, ngx_idempotency_redis_reply_t *reply,
    ngx_uint_t strict);
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


/* errors that have a name; any other error is the last one */

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


/*
 * All of it in one write.  PING shows whether the server can answer: AUTH and
 * SELECT are allowed while it loads.
 */

ngx_int_t
ngx_idempotency_redis_login_start(ngx_idempotency_redis_conn_t *conn)
{
    ngx_str_t   args[3];
    ngx_uint_t  n;

    conn->answered = 0;
    conn->nsteps = 0;
    conn->unsaid = 0;
    conn->login.sent = ngx_current_msec;

    ngx_memzero(&conn->login.info, sizeof(ngx_idempotency_redis_info_t));

    n = ngx_idempotency_redis_credentials_login(conn, args);

    if (n) {
        ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_AUTH,
                                        args, n);
    }

    if (conn->peer->kind == NGX_IDEMPOTENCY_REDIS_KIND_DATA) {
        ngx_idempotency_redis_login_data(conn);

    } else {
        ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_PING,
                                        args, 1);
    }

    if (conn->peer->kind == NGX_IDEMPOTENCY_REDIS_KIND_SENTINEL_EVENTS) {
        ngx_str_set(&args[1], "+switch-master");

        ngx_idempotency_redis_login_say(conn,
                                        NGX_IDEMPOTENCY_REDIS_STEP_SUBSCRIBE,
                                        args, 2);
    }

    return conn->unsaid ? NGX_ERROR : NGX_OK;
}


/* the counter is the last: its reply is judged with all the others */

static void
ngx_idempotency_redis_login_data(ngx_idempotency_redis_conn_t *conn)
{
    u_char                            db[NGX_INT_T_LEN];
    ngx_str_t                         args[3];
    ngx_idempotency_redis_counter_t  *counter;

    if (conn->redis->database) {
        args[1].data = db;
        args[1].len = ngx_sprintf(db, "%ui", conn->redis->database) - db;

        ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_SELECT,
                                        args, 2);
    }

    if (conn->peer->role) {
        ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_ROLE,
                                        args, 1);
    }

    ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_PING,
                                    args, 1);

    counter = conn->peer->counter;
    conn->login.counter = counter;

    if (counter == NULL) {
        return;
    }

    if (conn->peer->info_closed < NGX_IDEMPOTENCY_REDIS_INFO_CLOSED) {
        ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_INFO,
                                        args, 1);
    }

    ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_TIME,
                                    args, 1);

    ngx_idempotency_redis_loss_know(conn->redis, counter, &conn->login.before);

    args[1] = counter->name;
    ngx_str_set(&args[2], NGX_IDEMPOTENCY_REDIS_COUNTER_TTL);

    ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_INCR,
                                    args, 2);
    ngx_idempotency_redis_login_say(conn, NGX_IDEMPOTENCY_REDIS_STEP_PEXPIRE,
                                    args, 3);
}


/* sets args[0]; conn->unsaid: memory is short */

static void
ngx_idempotency_redis_login_say(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_step_e step, ngx_str_t *args, ngx_uint_t n)
{
    ngx_str_t  bytes;

    args[0] = ngx_idempotency_redis_login_steps[step];
    conn->steps[conn->nsteps++] = step;

    if (ngx_idempotency_redis_encode(args, n, &bytes) != NGX_OK) {
        conn->unsaid = 1;
        return;
    }

    if (ngx_idempotency_redis_bytes_append(&conn->hello, bytes.data, bytes.len)
        != NGX_OK)
    {
        conn->unsaid = 1;
    }

    ngx_idempotency_redis_encode_free(&bytes);
}


ngx_int_t
ngx_idempotency_redis_login_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_step_e  step;
    ngx_int_t                     rc;
    ngx_str_t                     text;

    step = conn->steps[conn->answered++];

    if (ngx_idempotency_redis_login_error(step, reply, conn->peer->strict)) {
        conn->replica = ngx_idempotency_redis_error_is_no_master(reply);
        ngx_idempotency_redis_reply_string(reply, &text);

        if (conn->peer->kind == NGX_IDEMPOTENCY_REDIS_KIND_DATA) {
            conn->redis->refusal = ngx_idempotency_redis_refusal(&text);
        }

        ngx_idempotency_redis_login_refused(conn, step, &text);

        return NGX_ERROR;
    }

    rc = ngx_idempotency_redis_login_facts(conn, step, reply);

    if (rc != NGX_OK) {
        return rc;
    }

    if (conn->answered < conn->nsteps) {
        return NGX_AGAIN;
    }

    if (conn->peer->kind == NGX_IDEMPOTENCY_REDIS_KIND_DATA) {
        conn->redis->refusal = NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE;
    }

    return NGX_OK;
}


/* NGX_OK, NGX_DECLINED: the login has to begin anew; or NGX_ERROR */

static ngx_int_t
ngx_idempotency_redis_login_facts(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_step_e step, ngx_idempotency_redis_reply_t *reply)
{
    ngx_int_t  rc;

    switch (step) {

    case NGX_IDEMPOTENCY_REDIS_STEP_ROLE:
        return ngx_idempotency_redis_login_role(conn, reply);

    case NGX_IDEMPOTENCY_REDIS_STEP_INFO:
        conn->peer->info_closed = 0;
        ngx_idempotency_redis_info_read(reply, &conn->login.info);
        return NGX_OK;

    case NGX_IDEMPOTENCY_REDIS_STEP_TIME:
        ngx_idempotency_redis_info_time(reply, &conn->login.info);
        return NGX_OK;

    case NGX_IDEMPOTENCY_REDIS_STEP_INCR:
        rc = ngx_idempotency_redis_loss_login(conn->redis, &conn->login,
                                              &conn->peer->hint,
                                              reply);

        return rc == NGX_AGAIN ? NGX_DECLINED : rc;

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
         * A node that has just come back would take claims before its loss
         * is detected.  Other errors, of a server that is full or does not
         * allow INCR, are no obstacle.
         */

        return ngx_idempotency_redis_reply_is_error(reply, "CLUSTERDOWN")
               || ngx_idempotency_redis_error_is_no_master(reply);

    case NGX_IDEMPOTENCY_REDIS_STEP_PING:

        /* NOPERM for PING still proves that the server answers */

        return !ngx_idempotency_redis_reply_is_error(reply, "NOPERM");

    case NGX_IDEMPOTENCY_REDIS_STEP_ROLE:

        /* without it, the first write shows the role */

        return strict;

    case NGX_IDEMPOTENCY_REDIS_STEP_INFO:
    case NGX_IDEMPOTENCY_REDIS_STEP_TIME:
    case NGX_IDEMPOTENCY_REDIS_STEP_PEXPIRE:

        /* the loss detector does without */

        return 0;

    default:
        return 1;
    }
}


/* some proxies close the connection at a command that they do not know */

void
ngx_idempotency_redis_login_closed(ngx_idempotency_redis_conn_t *conn)
{
    if (conn->state == NGX_IDEMPOTENCY_REDIS_LOGIN
        && conn->answered < conn->nsteps
        && conn->steps[conn->answered] == NGX_IDEMPOTENCY_REDIS_STEP_INFO)
    {
        conn->peer->info_closed++;
    }
}


/*
 * Only a master is written to.  One that sentinels have named has to say that
 * it is one; elsewhere a proxy may answer in its place.
 */

static ngx_int_t
ngx_idempotency_redis_login_role(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t  role;

    ngx_idempotency_redis_reply_text(reply, 0, &role);

    if (role.len == 6 && ngx_strncmp(role.data, "master", 6) == 0) {
        return NGX_OK;
    }

    if (!conn->peer->strict
        && (role.len != 5 || ngx_strncmp(role.data, "slave", 5) != 0))
    {
        return NGX_OK;
    }

    conn->replica = 1;
    conn->redis->refusal = NGX_IDEMPOTENCY_REDIS_REFUSAL_READONLY;

    ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_REPORT_ROLE, 0,
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
                                 NGX_IDEMPOTENCY_REDIS_REPORT_REFUSED << i, 0,
                                 "refused %V: \"%*s\"%s",
                                 &ngx_idempotency_redis_login_steps[step],
                                 last - buf, buf,
                                 i == 0 ? " (it wants a password: give one in "
                                          "the URL or by \"password_file=\")"
                                        : "");
}
