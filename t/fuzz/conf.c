
/*
 * Directives: each line of the input is one, its words between blanks.
 */


#include "fuzz.h"
#include "ngx_http_idempotency.h"


#define FUZZ_WORDS  8


static void fuzz_directive(ngx_http_conf_ctx_t *ctx, ngx_str_t *line);
static ngx_uint_t fuzz_count_is_right(ngx_command_t *cmd, ngx_uint_t n);


static ngx_conf_file_t  fuzz_file;


void
fuzz_init(void)
{
    fuzz_file.file.fd = NGX_INVALID_FILE;
    ngx_str_set(&fuzz_file.file.name, "fuzz");

    ngx_http_core_module.ctx_index = 0;
    ngx_http_idempotency_module.ctx_index = 1;
    ngx_http_max_module = 2;

    fuzz_conf.conf_file = &fuzz_file;
    fuzz_conf.module_type = NGX_HTTP_MODULE;
    fuzz_conf.cmd_type = NGX_HTTP_LOC_CONF;
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    void                 *main_conf[2], *loc_conf[2];
    u_char               *p, *last;
    ngx_str_t             line;
    ngx_uint_t            i;
    ngx_cycle_t           old;
    ngx_http_module_t    *core, *own;
    ngx_http_conf_ctx_t   ctx;

    core = ngx_http_core_module.ctx;
    own = ngx_http_idempotency_module.ctx;

    ctx.main_conf = main_conf;
    ctx.srv_conf = NULL;
    ctx.loc_conf = loc_conf;

    fuzz_conf.ctx = &ctx;

    /* as at the first start */

    ngx_memzero(&old, sizeof(ngx_cycle_t));
    fuzz_conf.cycle->old_cycle = &old;

    fuzz_want(ngx_list_init(&fuzz_conf.cycle->shared_memory, pool, 1,
                            sizeof(ngx_shm_zone_t)) == NGX_OK);

    main_conf[0] = core->create_main_conf(&fuzz_conf);
    main_conf[1] = own->create_main_conf(&fuzz_conf);
    loc_conf[0] = core->create_loc_conf(&fuzz_conf);
    loc_conf[1] = own->create_loc_conf(&fuzz_conf);

    fuzz_want(core->preconfiguration(&fuzz_conf) == NGX_OK);

    p = in->data;
    last = in->data + in->len;

    for (i = 0; p < last && i < 10; i++) {

        line.data = p;
        p = ngx_strlchr(p, last, LF);
        p = p ? p : last;
        line.len = p - line.data;
        p = (p < last) ? p + 1 : last;

        fuzz_directive(&ctx, &line);
    }
}


static void
fuzz_directive(ngx_http_conf_ctx_t *ctx, ngx_str_t *line)
{
    void           *conf;
    u_char         *p, *last;
    ngx_str_t       part, *word, words[FUZZ_WORDS];
    ngx_uint_t      i, n;
    ngx_array_t     args;
    ngx_command_t  *cmd;

    p = line->data;
    last = p + line->len;

    for (n = 0; p < last && n < FUZZ_WORDS; n++) {
        part.data = p;

        while (p < last && *p != ' ') { p++; }

        part.len = p - part.data;
        words[n] = fuzz_word(fuzz_conf.pool, &part);
        p += (p < last);
    }

    if (n == 0) {
        return;
    }

    for (cmd = ngx_http_idempotency_module.commands; cmd->name.len; cmd++) {
        if (cmd->name.len == words[0].len
            && ngx_strcmp(cmd->name.data, words[0].data) == 0)
        {
            break;
        }
    }

    if (cmd->name.len == 0 || !fuzz_count_is_right(cmd, n)) {
        return;
    }

    /* a name would be resolved, a file read: see url.c */

    for (i = 0; i < n; i++) {
        if (ngx_strncmp(words[i].data, "redis", 5) == 0) {
            return;
        }
    }

    fuzz_want(ngx_array_init(&args, fuzz_conf.pool, n, sizeof(ngx_str_t))
              == NGX_OK);

    for (i = 0; i < n; i++) {
        word = ngx_array_push(&args);
        *word = words[i];
    }

    fuzz_conf.args = &args;

    conf = (cmd->conf == NGX_HTTP_MAIN_CONF_OFFSET) ? ctx->main_conf[1]
                                                    : ctx->loc_conf[1];

    (void) cmd->set(&fuzz_conf, cmd, conf);
}


/* as ngx_conf_handler() */

static ngx_uint_t
fuzz_count_is_right(ngx_command_t *cmd, ngx_uint_t n)
{
    if (cmd->type & NGX_CONF_FLAG) {
        return n == 2;
    }

    if (cmd->type & NGX_CONF_1MORE) {
        return n >= 2;
    }

    if (cmd->type & NGX_CONF_2MORE) {
        return n >= 3;
    }

    return (cmd->type & (NGX_CONF_NOARGS << (n - 1))) != 0;
}
