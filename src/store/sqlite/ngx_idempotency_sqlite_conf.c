
/*
 * The durable store: its line in the configuration, and where its file may be.
 */


#include "ngx_idempotency_sqlite.h"

#if (NGX_IDEMPOTENCY_SQLITE)

#include "ngx_idempotency_cache.h"
#include "ngx_idempotency_sqlite_job.h"
#include "ngx_idempotency_zone.h"
#include <sys/vfs.h>


#define NGX_IDEMPOTENCY_SQLITE_TIMEOUT   500

/* bytes: a smaller database has no room for its own pages */
#define NGX_IDEMPOTENCY_SQLITE_MIN       (256 * 1024)

/* bytes: the body of an answer */
#define NGX_IDEMPOTENCY_SQLITE_LARGEST   (64 * 1024 * 1024)


typedef struct {
    ngx_uint_t                      magic;       /* f_type of statfs() */
    const char                     *name;
} ngx_idempotency_sqlite_fs_t;


static char *ngx_idempotency_sqlite_param(ngx_conf_t *cf,
    ngx_idempotency_sqlite_ctx_t *ctx, ngx_str_t *arg, ngx_str_t *pool,
    void *tag);
static char *ngx_idempotency_sqlite_time(ngx_conf_t *cf,
    ngx_idempotency_sqlite_ctx_t *ctx, ngx_str_t *value);
static ngx_int_t ngx_idempotency_sqlite_path(ngx_conf_t *cf,
    ngx_idempotency_sqlite_ctx_t *ctx, ngx_str_t *target);
static ngx_int_t ngx_idempotency_sqlite_name(ngx_conf_t *cf, ngx_str_t *name,
    ngx_str_t *path, const char *suffix);
static ngx_int_t ngx_idempotency_sqlite_dir(ngx_conf_t *cf,
    ngx_idempotency_sqlite_ctx_t *ctx);
static ngx_int_t ngx_idempotency_sqlite_add_path(ngx_conf_t *cf,
    ngx_idempotency_sqlite_ctx_t *ctx);
static ngx_int_t ngx_idempotency_sqlite_owner(ngx_conf_t *cf,
    ngx_idempotency_sqlite_ctx_t *ctx, ngx_file_info_t *fi);
static ngx_int_t ngx_idempotency_sqlite_local(ngx_conf_t *cf,
    ngx_idempotency_sqlite_ctx_t *ctx, u_char *dir);
static ngx_int_t ngx_idempotency_sqlite_zone(ngx_conf_t *cf,
    ngx_idempotency_sqlite_ctx_t *ctx, void *tag);


/* see linux/magic.h; their locks or their shared memory cannot be relied on */

static ngx_idempotency_sqlite_fs_t  ngx_idempotency_sqlite_networks[] = {
    { 0x6969, "NFS" },
    { 0x517b, "SMB" },
    { 0xff534d42, "CIFS" },
    { 0xfe534d42, "SMB2" },
    { 0x00c36400, "Ceph" },
    { 0x5346414f, "AFS" },
    { 0x6b414653, "AFS" },
    { 0x73757245, "Coda" },
    { 0x564c, "NCP" },
    { 0x0bd00bd0, "Lustre" },
    { 0x01161970, "GFS2" },
    { 0x7461636f, "OCFS2" },
    { 0x01021997, "9P" },
    { 0, NULL }
};


char *
ngx_idempotency_sqlite_create(ngx_conf_t *cf, ngx_idempotency_store_t *store,
    ngx_str_t *args, ngx_uint_t n, void *tag)
{
    char                          *rv;
    ngx_str_t                      pool;
    ngx_uint_t                     i;
    ngx_idempotency_sqlite_ctx_t  *ctx;

    if (!ngx_idempotency_sqlite_threadsafe()) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"idempotency_store\" \"%V\": this libsqlite3 was "
                           "built without threads and cannot be used, install "
                           "one that was built with SQLITE_THREADSAFE=1",
                           &store->name);
        return NGX_CONF_ERROR;
    }

    ctx = ngx_pcalloc(cf->pool, sizeof(ngx_idempotency_sqlite_ctx_t));
    if (ctx == NULL) {
        return NGX_CONF_ERROR;
    }

    ctx->store = store;
    ctx->sync = NGX_CONF_UNSET_UINT;
    ngx_str_null(&pool);

    for (i = 1; i < n; i++) {
        rv = ngx_idempotency_sqlite_param(cf, ctx, &args[i], &pool, tag);

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    ngx_conf_init_uint_value(ctx->sync, 1);

    if (ctx->timeout == 0) {
        ctx->timeout = NGX_IDEMPOTENCY_SQLITE_TIMEOUT;
    }

    if (ngx_idempotency_sqlite_path(cf, ctx, &args[0]) != NGX_OK
        || ngx_idempotency_sqlite_dir(cf, ctx) != NGX_OK
        || ngx_idempotency_sqlite_zone(cf, ctx, tag) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    /* nginx refuses a pool that no "thread_pool" defines, by name and line */

    ctx->threads = ngx_thread_pool_add(cf, pool.len ? &pool : NULL);
    if (ctx->threads == NULL) {
        return NGX_CONF_ERROR;
    }

    store->largest = NGX_IDEMPOTENCY_SQLITE_LARGEST;
    store->data = ctx;

    ngx_idempotency_sqlite_init(ctx);

    return NGX_CONF_OK;
}


static char *
ngx_idempotency_sqlite_param(ngx_conf_t *cf, ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_str_t *arg, ngx_str_t *pool, void *tag)
{
    u_char     *p;
    ssize_t     cache;
    ngx_str_t   value;

    p = ngx_strlchr(arg->data, arg->data + arg->len, '=');

    if (p == NULL) {
        goto invalid;
    }

    value.data = ++p;
    value.len = arg->data + arg->len - p;

    if (ngx_strncmp(arg->data, "sync=", 5) == 0
        && ctx->sync == NGX_CONF_UNSET_UINT)
    {
        if (ngx_strcmp(p, "full") == 0) {
            ctx->sync = 1;
            return NGX_CONF_OK;
        }

        if (ngx_strcmp(p, "normal") == 0) {
            ctx->sync = 0;
            return NGX_CONF_OK;
        }

        goto invalid;
    }

    if (ngx_strncmp(arg->data, "size=", 5) == 0 && ctx->size == 0) {
        ctx->size = ngx_parse_offset(&value);

        if (ctx->size < NGX_IDEMPOTENCY_SQLITE_MIN) {
            goto invalid;
        }

        return NGX_CONF_OK;
    }

    if (ngx_strncmp(arg->data, "timeout=", 8) == 0 && ctx->timeout == 0) {
        return ngx_idempotency_sqlite_time(cf, ctx, &value);
    }

    if (ngx_strncmp(arg->data, "threads=", 8) == 0
        && pool->len == 0 && value.len)
    {
        *pool = value;
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(arg->data, "cache=", 6) == 0 && ctx->cache == NULL) {
        cache = ngx_parse_size(&value);

        if (cache < NGX_IDEMPOTENCY_CACHE_MIN) {
            goto invalid;
        }

        ctx->cache = ngx_idempotency_cache_create(cf, &ctx->store->name, cache,
                                                  tag);
        return ctx->cache ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid or duplicate parameter \"%V\" of "
                       "\"idempotency_store\" \"%V\", with a target "
                       "\"sqlite:PATH\" it takes sync=full or sync=normal, "
                       "size= of at least 256k, cache= of at least 64k, "
                       "timeout=, as in \"500ms\", and threads=, the name of "
                       "a \"thread_pool\"", arg, &ctx->store->name);

    return NGX_CONF_ERROR;
}


static char *
ngx_idempotency_sqlite_time(ngx_conf_t *cf, ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_str_t *value)
{
    ngx_int_t  msec;

    msec = ngx_parse_time(value, 0);

    if (msec == NGX_ERROR || msec == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid time \"timeout=%V\" of "
                           "\"idempotency_store\" \"%V\", write it as in "
                           "\"timeout=500ms\"", value, &ctx->store->name);
        return NGX_CONF_ERROR;
    }

    ctx->timeout = msec;

    return NGX_CONF_OK;
}


/* a relative path is one below nginx's prefix, as in other directives */

static ngx_int_t
ngx_idempotency_sqlite_path(ngx_conf_t *cf, ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_str_t *target)
{
    u_char  *p, *slash;

    ctx->path.data = target->data + (sizeof("sqlite:") - 1);
    ctx->path.len = target->len - (sizeof("sqlite:") - 1);

    if (ctx->path.len == 0
        || ctx->path.data[ctx->path.len - 1] == '/')
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid target \"%V\" of \"idempotency_store\" "
                           "\"%V\", it must name a file, as in "
                           "\"sqlite:/var/lib/nginx-idempotency/keys.db\"",
                           target, &ctx->store->name);
        return NGX_ERROR;
    }

    if (ngx_conf_full_name(cf->cycle, &ctx->path, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    slash = NULL;

    for (p = ctx->path.data; p < ctx->path.data + ctx->path.len; p++) {
        if (*p == '/') {
            slash = p;
        }
    }

    if (slash == NULL) {
        return NGX_ERROR;
    }

    ctx->dir.len = ngx_max(slash - ctx->path.data, 1);
    ctx->dir.data = ngx_pnalloc(cf->pool, ctx->dir.len + 1);
    if (ctx->dir.data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_cpystrn(ctx->dir.data, ctx->path.data, ctx->dir.len + 1);

    if (ngx_idempotency_sqlite_name(cf, &ctx->lock, &ctx->path, "-lock")
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_idempotency_sqlite_name(cf, &ctx->wal, &ctx->path, "-wal")
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_idempotency_sqlite_name(cf, &ctx->reserve, &ctx->path,
                                       "-reserve");
}


static ngx_int_t
ngx_idempotency_sqlite_name(ngx_conf_t *cf, ngx_str_t *name, ngx_str_t *path,
    const char *suffix)
{
    u_char  *p;

    name->data = ngx_pnalloc(cf->pool, path->len + ngx_strlen(suffix) + 1);
    if (name->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(name->data, "%V%s%Z", path, suffix);
    name->len = p - name->data - 1;

    return NGX_OK;
}


/*
 * A directory that is not there is made by nginx, with the workers' user as
 * its owner.  One that is there is left as it is: ngx_create_paths() would
 * give /var/lib to the workers without asking.
 */

static ngx_int_t
ngx_idempotency_sqlite_dir(ngx_conf_t *cf, ngx_idempotency_sqlite_ctx_t *ctx)
{
    u_char           *p, *parent;
    ngx_file_info_t   fi;

    if (ngx_file_info(ctx->dir.data, &fi) != NGX_FILE_ERROR) {

        if (ngx_idempotency_sqlite_owner(cf, ctx, &fi) != NGX_OK) {
            return NGX_ERROR;
        }

        return ngx_idempotency_sqlite_local(cf, ctx, ctx->dir.data);
    }

    if (ngx_idempotency_sqlite_add_path(cf, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    parent = ngx_pnalloc(cf->pool, ctx->dir.len + 1);
    if (parent == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_cpystrn(parent, ctx->dir.data, ctx->dir.len + 1);

    for (p = parent + ctx->dir.len - 1; p > parent && *p != '/'; p--) {
        /* void */
    }

    p[p == parent] = '\0';

    return ngx_idempotency_sqlite_local(cf, ctx, parent);
}


static ngx_int_t
ngx_idempotency_sqlite_add_path(ngx_conf_t *cf,
    ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_path_t  *path;

    path = ngx_pcalloc(cf->pool, sizeof(ngx_path_t));
    if (path == NULL) {
        return NGX_ERROR;
    }

    path->name = ctx->dir;
    path->conf_file = cf->conf_file->file.name.data;
    path->line = cf->conf_file->line;

    return ngx_add_path(cf, &path);
}


static ngx_int_t
ngx_idempotency_sqlite_owner(ngx_conf_t *cf, ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_file_info_t *fi)
{
    uid_t             user;
    struct passwd    *pwd;
    ngx_core_conf_t  *ccf;

    if (!ngx_is_dir(fi)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"idempotency_store\" \"%V\" is not a "
                           "directory", &ctx->dir, &ctx->store->name);
        return NGX_ERROR;
    }

    if (fi->st_mode & (S_IWGRP|S_IWOTH)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the directory \"%V\" of \"idempotency_store\" "
                           "\"%V\" can be written by others, who could "
                           "replace the database: use a directory of its own, "
                           "or \"chmod go-w %V\"",
                           &ctx->dir, &ctx->store->name, &ctx->dir);
        return NGX_ERROR;
    }

    user = geteuid();

    if (user == 0) {
        ccf = (ngx_core_conf_t *) ngx_get_conf(cf->cycle->conf_ctx,
                                               ngx_core_module);

        /* as ngx_core_module_init_conf() will set it */

        if (ccf->user != (uid_t) NGX_CONF_UNSET_UINT) {
            user = ccf->user;

        } else {
            pwd = getpwnam(NGX_USER);
            user = pwd ? pwd->pw_uid : 0;
        }
    }

    if (user != 0 && fi->st_uid != user) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the directory \"%V\" of \"idempotency_store\" "
                           "\"%V\" belongs to user %d, not to user %d of the "
                           "workers, who could not write it: \"chown %d %V\", "
                           "or name a directory that does not exist yet",
                           &ctx->dir, &ctx->store->name, (int) fi->st_uid,
                           (int) user, (int) user, &ctx->dir);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_sqlite_local(ngx_conf_t *cf, ngx_idempotency_sqlite_ctx_t *ctx,
    u_char *dir)
{
    struct statfs                 fs;
    ngx_idempotency_sqlite_fs_t  *network;

    if (statfs((char *) dir, &fs) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "statfs(\"%s\") failed: the directory of "
                           "\"idempotency_store\" \"%V\" is made by nginx, "
                           "the one above it must exist",
                           dir, &ctx->store->name);
        return NGX_ERROR;
    }

    for (network = ngx_idempotency_sqlite_networks; network->name; network++) {

        if (network->magic != (uint32_t) fs.f_type) {
            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s\" of \"idempotency_store\" \"%V\" is on a "
                           "network file system (%s), where SQLite may lose "
                           "data: use a local disk, or a Redis store for "
                           "several machines",
                           dir, &ctx->store->name, network->name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* its name is that of the file: a second store on it finds the first one */

static ngx_int_t
ngx_idempotency_sqlite_zone(ngx_conf_t *cf, ngx_idempotency_sqlite_ctx_t *ctx,
    void *tag)
{
    char             *real;
    u_char           *p;
    ngx_str_t         name;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_shm_zone_t   *zone;

    real = realpath((char *) ctx->dir.data, NULL);

    name.data = ngx_pnalloc(cf->pool, sizeof("idempotency_sqlite_")
                            + (real ? ngx_strlen(real) : 0) + ctx->path.len);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    if (real) {
        p = ngx_sprintf(name.data, "idempotency_sqlite_%s%s", real,
                        ctx->path.data + (ctx->dir.len > 1 ? ctx->dir.len : 0));
        free(real);

    } else {
        p = ngx_sprintf(name.data, "idempotency_sqlite_%V", &ctx->path);
    }

    name.len = p - name.data;

    part = &cf->cycle->shared_memory.part;
    zone = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }

            part = part->next;
            zone = part->elts;
            i = 0;
        }

        if (zone[i].shm.name.len == name.len
            && ngx_strncmp(zone[i].shm.name.data, name.data, name.len) == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"idempotency_store\" \"%V\": another store "
                               "uses the file \"%V\", give each store a file "
                               "of its own", &ctx->store->name, &ctx->path);
            return NGX_ERROR;
        }
    }

    ctx->zone = ngx_idempotency_zone_add(cf, &name,
                                     sizeof(ngx_idempotency_sqlite_shared_t),
                                     tag);

    return ctx->zone ? NGX_OK : NGX_ERROR;
}


#else /* !(NGX_IDEMPOTENCY_SQLITE) */


char *
ngx_idempotency_sqlite_create(ngx_conf_t *cf, ngx_idempotency_store_t *store,
    ngx_str_t *args, ngx_uint_t n, void *tag)
{
#if (NGX_THREADS)

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"idempotency_store\" \"%V\": the module was built "
                       "without libsqlite3; install libsqlite3-dev and build "
                       "again", &store->name);

#else

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"idempotency_store\" \"%V\": this nginx was built "
                       "without threads, which a target \"sqlite:PATH\" "
                       "needs; build nginx with --with-threads",
                       &store->name);

#endif

    return NGX_CONF_ERROR;
}


#endif
