
/*
 * The store in PostgreSQL: how a connection is made, in a thread.
 *
 * libpq resolves names, reads .pgpass and service files, parses certificates
 * and computes SCRAM inside PQconnectPoll(), and waits for the network in
 * PQconnectdb(): in the event loop it would block a worker for up to a tenth of
 * a second, or for as long as a name server takes.  Here it may.
 */


#include "ngx_idempotency_postgres_conn.h"
#include <poll.h>


/* how long a gateway waits for a lock that it does not expect, milliseconds */
#define NGX_IDEMPOTENCY_POSTGRES_LOCK   250

#define NGX_IDEMPOTENCY_POSTGRES_SECRET 1024


typedef struct {
    const char                 *state;       /* or its class */
    ngx_idempotency_error_e     error;
    ngx_idempotency_refusal_e   refusal;
    const char                 *fix;
} ngx_idempotency_postgres_fault_t;


static ngx_int_t ngx_idempotency_postgres_connect(
    ngx_idempotency_postgres_conn_t *conn);
static ngx_int_t ngx_idempotency_postgres_password(
    ngx_idempotency_postgres_conn_t *conn, char *buf);
static ngx_int_t ngx_idempotency_postgres_version(
    ngx_idempotency_postgres_conn_t *conn, ngx_msec_t deadline);
static ngx_int_t ngx_idempotency_postgres_settings(
    ngx_idempotency_postgres_conn_t *conn, ngx_msec_t deadline);
static ngx_int_t ngx_idempotency_postgres_prepare(
    ngx_idempotency_postgres_conn_t *conn, ngx_msec_t deadline);
static ngx_int_t ngx_idempotency_postgres_ask(
    ngx_idempotency_postgres_conn_t *conn, const char *text,
    ngx_msec_t deadline, PGresult **reply);
static ngx_int_t ngx_idempotency_postgres_wait(
    ngx_idempotency_postgres_conn_t *conn, ngx_msec_t deadline,
    PGresult **reply);
static void ngx_idempotency_postgres_fail(
    ngx_idempotency_postgres_conn_t *conn, ngx_idempotency_error_e error,
    ngx_idempotency_refusal_e refusal, const char *text, const char *fix);
static void ngx_idempotency_postgres_notice(void *data, const PGresult *res);
static ngx_msec_t ngx_idempotency_postgres_msec(void);


/* the first that fits; see the appendix "Error Codes" of its manual */

static ngx_idempotency_postgres_fault_t  ngx_idempotency_postgres_faults[] = {
    { "25006", NGX_IDEMPOTENCY_ERROR_REFUSED,
      NGX_IDEMPOTENCY_REFUSAL_READONLY,
      "the server is a standby or read-only: name all servers in the URL, "
      "libpq then takes the one that can be written" },
    { "3F000", NGX_IDEMPOTENCY_ERROR_REFUSED,
      NGX_IDEMPOTENCY_REFUSAL_MISCONFIGURED,
      "install the schema: psql -1 -f schema.sql DATABASE" },
    { "42883", NGX_IDEMPOTENCY_ERROR_REFUSED,
      NGX_IDEMPOTENCY_REFUSAL_MISCONFIGURED,
      "install the schema of this version: psql -1 -f schema.sql DATABASE" },
    { "42P01", NGX_IDEMPOTENCY_ERROR_REFUSED,
      NGX_IDEMPOTENCY_REFUSAL_MISCONFIGURED,
      "install the schema of this version: psql -1 -f schema.sql DATABASE" },
    { "42501", NGX_IDEMPOTENCY_ERROR_REFUSED,
      NGX_IDEMPOTENCY_REFUSAL_NOT_PERMITTED,
      "GRANT idempotency_gateway TO the role that nginx logs in as" },
    { "28", NGX_IDEMPOTENCY_ERROR_REFUSED,
      NGX_IDEMPOTENCY_REFUSAL_NOT_PERMITTED,
      "check user and password, and pg_hba.conf of the server" },
    { "53100", NGX_IDEMPOTENCY_ERROR_FULL, NGX_IDEMPOTENCY_REFUSAL_DISK,
      "the disk of the server is full" },
    { "53200", NGX_IDEMPOTENCY_ERROR_REFUSED,
      NGX_IDEMPOTENCY_REFUSAL_OUT_OF_MEMORY,
      "the server has no memory left" },
    { "53300", NGX_IDEMPOTENCY_ERROR_CONNECT,
      NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE,
      "raise max_connections of the server, or lower connections= of the "
      "store" },
    { "57014", NGX_IDEMPOTENCY_ERROR_TIMEOUT, NGX_IDEMPOTENCY_REFUSAL_TIMEOUT,
      NULL },
    { "57P", NGX_IDEMPOTENCY_ERROR_CONNECT,
      NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE, NULL },
    { "08", NGX_IDEMPOTENCY_ERROR_CONNECT, NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE,
      NULL },
    { "XX00", NGX_IDEMPOTENCY_ERROR_DAMAGED, NGX_IDEMPOTENCY_REFUSAL_DAMAGED,
      "see the log of the server" },
    { "58", NGX_IDEMPOTENCY_ERROR_REFUSED, NGX_IDEMPOTENCY_REFUSAL_DISK,
      "the server cannot read or write its files, see its log" },
    { NULL, NGX_IDEMPOTENCY_ERROR_REFUSED, NGX_IDEMPOTENCY_REFUSAL_OTHER, NULL }
};


void
ngx_idempotency_postgres_dial(void *data, ngx_log_t *log)
{
    ngx_msec_t                        deadline;
    ngx_idempotency_postgres_conn_t  *conn;

    conn = data;

    conn->pg = NULL;
    conn->error = NGX_IDEMPOTENCY_ERROR_NONE;
    conn->refusal = NGX_IDEMPOTENCY_REFUSAL_NONE;
    conn->text[0] = '\0';

    if (ngx_idempotency_postgres_connect(conn) == NGX_OK) {

        deadline = ngx_idempotency_postgres_msec()
                   + conn->server->connect_timeout;

        if (ngx_idempotency_postgres_version(conn, deadline) == NGX_OK
            && ngx_idempotency_postgres_settings(conn, deadline) == NGX_OK
            && ngx_idempotency_postgres_prepare(conn, deadline) == NGX_OK)
        {
            /*
             * Before the first query of the event loop: PQsendQuery() and
             * PQflush() of a blocking connection wait in poll().
             */

            if (PQsetnonblocking(conn->pg, 1) == 0
                && PQenterPipelineMode(conn->pg) == 1)
            {
                return;
            }

            ngx_idempotency_postgres_fail(conn, NGX_IDEMPOTENCY_ERROR_CONNECT,
                                    NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE,
                                    PQerrorMessage(conn->pg), NULL);
        }
    }

    if (conn->pg) {
        PQfinish(conn->pg);
        conn->pg = NULL;
    }
}


/*
 * What stands before "dbname" is a default that the URL may change, and what
 * stands behind it cannot be changed there.  GSS is looked for in files and
 * asks a KDC unless it is turned off.
 */

static ngx_int_t
ngx_idempotency_postgres_connect(ngx_idempotency_postgres_conn_t *conn)
{
    const char  *keywords[8], *values[8];
    ngx_uint_t   n;
    char         seconds[NGX_TIME_T_LEN + 1];
    char         password[NGX_IDEMPOTENCY_POSTGRES_SECRET];

    (void) ngx_sprintf((u_char *) seconds, "%M%Z",
                       ngx_max(2, (conn->server->connect_timeout + 999)
                                  / 1000));

    n = 0;

    keywords[n] = "connect_timeout";
    values[n++] = seconds;

    keywords[n] = "target_session_attrs";
    values[n++] = "read-write";

    keywords[n] = "gssencmode";
    values[n++] = "disable";

    keywords[n] = "fallback_application_name";
    values[n++] = "nginx idempotency";

    keywords[n] = "dbname";
    values[n++] = conn->server->url;

    if (conn->server->password_file) {
        if (ngx_idempotency_postgres_password(conn, password) != NGX_OK) {
            return NGX_ERROR;
        }

        keywords[n] = "password";
        values[n++] = password;
    }

    keywords[n] = NULL;
    values[n] = NULL;

    conn->pg = PQconnectdbParams(keywords, values, 1);

    ngx_memzero(password, sizeof(password));

    if (conn->pg == NULL) {
        ngx_idempotency_postgres_fail(conn, NGX_IDEMPOTENCY_ERROR_MEMORY,
                                      NGX_IDEMPOTENCY_REFUSAL_NONE,
                                      "out of memory", NULL);
        return NGX_ERROR;
    }

    /* the default writes to standard error */

    (void) PQsetNoticeReceiver(conn->pg, ngx_idempotency_postgres_notice,
                               NULL);

    if (PQstatus(conn->pg) != CONNECTION_OK) {
        ngx_idempotency_postgres_fail(conn, NGX_IDEMPOTENCY_ERROR_CONNECT,
                                      NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE,
                                      PQerrorMessage(conn->pg), NULL);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* is read for each connection: it may change while nginx runs */

static ngx_int_t
ngx_idempotency_postgres_password(ngx_idempotency_postgres_conn_t *conn,
    char *buf)
{
    int      fd;
    ssize_t  n;

    fd = open(conn->server->password_file, O_RDONLY|O_CLOEXEC);
    n = -1;

    if (fd != -1) {
        n = read(fd, buf, NGX_IDEMPOTENCY_POSTGRES_SECRET - 1);
        (void) close(fd);
    }

    while (n > 0 && (buf[n - 1] == LF || buf[n - 1] == CR)) {
        n--;
    }

    if (n <= 0) {
        ngx_idempotency_postgres_fail(conn, NGX_IDEMPOTENCY_ERROR_REFUSED,
                                NGX_IDEMPOTENCY_REFUSAL_NOT_PERMITTED,
                                "the password cannot be read from the file of "
                                "password_file=",
                                "it must be readable for the user of the "
                                "workers");
        return NGX_ERROR;
    }

    buf[n] = '\0';

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_postgres_version(ngx_idempotency_postgres_conn_t *conn,
    ngx_msec_t deadline)
{
    int        version;
    PGresult  *reply;
    u_char     text[256];

    (void) ngx_snprintf(text, sizeof(text), "SELECT %s.version()%Z",
                        conn->server->schema);

    if (ngx_idempotency_postgres_ask(conn, (char *) text, deadline, &reply)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    version = (PQntuples(reply) == 1 && PQnfields(reply) == 1)
              ? atoi(PQgetvalue(reply, 0, 0)) : 0;

    PQclear(reply);

    if (version == NGX_IDEMPOTENCY_POSTGRES_VERSION) {
        return NGX_OK;
    }

    (void) ngx_snprintf(text, sizeof(text),
                        "its schema has version %d, this module needs "
                        "version %d%Z",
                        version, NGX_IDEMPOTENCY_POSTGRES_VERSION);

    ngx_idempotency_postgres_fail(conn, NGX_IDEMPOTENCY_ERROR_REFUSED,
                            NGX_IDEMPOTENCY_REFUSAL_MISCONFIGURED,
                            (char *) text,
                            "install the schema.sql that came with this "
                            "module, see \"Upgrade\" in "
                            "docs/operate/postgres.md");

    return NGX_ERROR;
}


/*
 * The gateway gives up later than the server.  What a database or a role has
 * set may confirm a commit before it is on disk, and a crash would lose keys:
 * "off" is not accepted, stricter values are.
 */

static ngx_int_t
ngx_idempotency_postgres_settings(ngx_idempotency_postgres_conn_t *conn,
    ngx_msec_t deadline)
{
    PGresult  *reply;
    u_char     text[512];

    (void) ngx_snprintf(text, sizeof(text),
                        "SET statement_timeout = %M; SET lock_timeout = %d; "
                        "SET idle_in_transaction_session_timeout = 10000; "
                        "SET default_transaction_isolation = "
                        "'read committed'; "
                        "SET jit = off; SET client_min_messages = error; "
                        "SELECT set_config('synchronous_commit', 'on', false) "
                        "WHERE current_setting('synchronous_commit') = 'off'"
                        "%Z",
                        conn->server->timeout, NGX_IDEMPOTENCY_POSTGRES_LOCK);

    if (ngx_idempotency_postgres_ask(conn, (char *) text, deadline, &reply)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    PQclear(reply);

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_postgres_prepare(ngx_idempotency_postgres_conn_t *conn,
    ngx_msec_t deadline)
{
    PGresult    *reply;
    ngx_uint_t   n;

    for (n = 0; n < NGX_IDEMPOTENCY_POSTGRES_STATEMENTS; n++) {

        if (ngx_idempotency_postgres_statement_prepare(conn->pg, n,
                                                       conn->server->schema)
            != 1)
        {
            ngx_idempotency_postgres_fail(conn, NGX_IDEMPOTENCY_ERROR_CONNECT,
                                    NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE,
                                    PQerrorMessage(conn->pg), NULL);
            return NGX_ERROR;
        }

        if (ngx_idempotency_postgres_wait(conn, deadline, &reply) != NGX_OK) {
            return NGX_ERROR;
        }

        PQclear(reply);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_postgres_ask(ngx_idempotency_postgres_conn_t *conn,
    const char *text, ngx_msec_t deadline, PGresult **reply)
{
    if (PQsendQuery(conn->pg, text) != 1) {
        ngx_idempotency_postgres_fail(conn, NGX_IDEMPOTENCY_ERROR_CONNECT,
                                      NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE,
                                      PQerrorMessage(conn->pg), NULL);
        return NGX_ERROR;
    }

    return ngx_idempotency_postgres_wait(conn, deadline, reply);
}


/* the last result of a query; PQgetResult() alone would wait for ever */

static ngx_int_t
ngx_idempotency_postgres_wait(ngx_idempotency_postgres_conn_t *conn,
    ngx_msec_t deadline, PGresult **reply)
{
    const char                 *fix;
    PGresult                   *res;
    ngx_msec_int_t              left;
    struct pollfd               pfd;
    ngx_idempotency_error_e     error;
    ngx_idempotency_refusal_e   refusal;

    *reply = NULL;

    for ( ;; ) {

        while (PQisBusy(conn->pg)) {
            left = (ngx_msec_int_t) (deadline
                                     - ngx_idempotency_postgres_msec());

            pfd.fd = PQsocket(conn->pg);
            pfd.events = POLLIN;

            if (left <= 0 || (poll(&pfd, 1, (int) left) == -1
                              && errno != EINTR))
            {
                ngx_idempotency_postgres_fail(conn,
                                        NGX_IDEMPOTENCY_ERROR_TIMEOUT,
                                        NGX_IDEMPOTENCY_REFUSAL_TIMEOUT,
                                        "no answer to the first queries within "
                                        "connect_timeout=", NULL);
                goto failed;
            }

            if (PQconsumeInput(conn->pg) != 1) {
                ngx_idempotency_postgres_fail(conn,
                                        NGX_IDEMPOTENCY_ERROR_CONNECT,
                                        NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE,
                                        PQerrorMessage(conn->pg), NULL);
                goto failed;
            }
        }

        res = PQgetResult(conn->pg);

        if (res == NULL) {
            return *reply ? NGX_OK : NGX_ERROR;
        }

        if (*reply) {
            PQclear(*reply);
        }

        *reply = res;

        if (PQresultStatus(res) == PGRES_COMMAND_OK
            || PQresultStatus(res) == PGRES_TUPLES_OK)
        {
            continue;
        }

        error = ngx_idempotency_postgres_error(
                    PQresultErrorField(res, PG_DIAG_SQLSTATE), &refusal, &fix);
        ngx_idempotency_postgres_fail(conn, error, refusal,
                                      PQresultErrorMessage(res), fix);
        goto failed;
    }

failed:

    if (*reply) {
        PQclear(*reply);
        *reply = NULL;
    }

    return NGX_ERROR;
}


/* messages of libpq end with a new line and may have several */

static void
ngx_idempotency_postgres_fail(ngx_idempotency_postgres_conn_t *conn,
    ngx_idempotency_error_e error, ngx_idempotency_refusal_e refusal,
    const char *text, const char *fix)
{
    u_char  *p, *last;

    conn->error = error;
    conn->refusal = refusal;

    last = conn->text + sizeof(conn->text) - 1;

    for (p = conn->text; *text && p < last; text++) {
        *p++ = (*text == '\n' || *text == '\t') ? ' ' : *text;
    }

    while (p > conn->text && p[-1] == ' ') {
        p--;
    }

    if (fix) {
        p = ngx_snprintf(p, last - p, "; %s", fix);
    }

    *p = '\0';
}


static void
ngx_idempotency_postgres_notice(void *data, const PGresult *res)
{
}


/* ngx_current_msec belongs to the event loop */

static ngx_msec_t
ngx_idempotency_postgres_msec(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (ngx_msec_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


ngx_idempotency_error_e
ngx_idempotency_postgres_error(const char *state,
    ngx_idempotency_refusal_e *refusal, const char **fix)
{
    ngx_idempotency_postgres_fault_t  *fault;

    fault = ngx_idempotency_postgres_faults;

    if (state == NULL) {
        state = "08";
    }

    while (fault->state
           && ngx_strncmp(state, fault->state, ngx_strlen(fault->state)) != 0)
    {
        fault++;
    }

    *refusal = fault->refusal;
    *fix = fault->fix;

    return fault->error;
}
