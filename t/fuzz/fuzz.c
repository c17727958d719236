
/*
 * What all fuzz targets share: see fuzz.h.
 */


#include "fuzz.h"


int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static ngx_log_t        fuzz_log;
static ngx_open_file_t  fuzz_file;
static ngx_cycle_t      fuzz_cycle;

ngx_conf_t  fuzz_conf;


int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void) argc;
    (void) argv;

    ngx_pagesize = getpagesize();
    ngx_pagesize_shift = 12;
    ngx_cacheline_size = 64;
    ngx_pid = getpid();

    ngx_time_init();

    /* what is logged is formatted, and goes nowhere */

    fuzz_file.fd = open("/dev/null", O_WRONLY);
    fuzz_log.file = &fuzz_file;
    fuzz_log.log_level = NGX_LOG_INFO;
    ngx_use_stderr = 0;

    fuzz_cycle.log = &fuzz_log;
    fuzz_cycle.pool = ngx_create_pool(16384, &fuzz_log);

    ngx_cycle = &fuzz_cycle;

    if (fuzz_cycle.pool == NULL
        || ngx_event_timer_init(&fuzz_log) != NGX_OK)
    {
        abort();
    }

    ngx_queue_init(&ngx_posted_events);

    fuzz_conf.cycle = &fuzz_cycle;
    fuzz_conf.log = &fuzz_log;

    fuzz_init();

    return 0;
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    u_char      *bytes;
    ngx_str_t    in;
    ngx_pool_t  *pool;

    pool = ngx_create_pool(NGX_MIN_POOL_SIZE, &fuzz_log);
    bytes = malloc(size ? size : 1);

    if (pool == NULL || bytes == NULL) {
        abort();
    }

    ngx_memcpy(bytes, data, size);

    in.data = bytes;
    in.len = size;

    fuzz_conf.pool = pool;
    fuzz_conf.temp_pool = pool;

    fuzz_one(pool, &in);

    ngx_destroy_pool(pool);
    free(bytes);

    return 0;
}


ngx_str_t
fuzz_copy(ngx_pool_t *pool, ngx_str_t *in)
{
    ngx_str_t  copy;

    copy.len = in->len;
    copy.data = ngx_pnalloc(pool, in->len ? in->len : 1);

    if (copy.data == NULL) {
        abort();
    }

    ngx_memcpy(copy.data, in->data, in->len);

    return copy;
}


ngx_str_t
fuzz_word(ngx_pool_t *pool, ngx_str_t *in)
{
    ngx_str_t  copy;

    copy.len = in->len;
    copy.data = ngx_pnalloc(pool, in->len + 1);

    if (copy.data == NULL) {
        abort();
    }

    ngx_memcpy(copy.data, in->data, in->len);
    copy.data[in->len] = '\0';

    return copy;
}
