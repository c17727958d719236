
/*
 * Memory that runs out at a chosen moment: for LD_PRELOAD, see failmalloc.py.
 *
 * FAIL_MALLOC_FILE names a file of five numbers of 64 bits, which a test
 * changes while the process runs:
 *
 *     pid       of the process that is meant; 0: nobody
 *     at        the allocation that fails, counted from 1; 0: none
 *     every     and after it each n-th one; 0: no other
 *     seen      allocations so far; the test sets it to 0
 *     failed    how many of them failed
 *
 * Without the file, or for another process, nothing is counted or changed.
 */


#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>


typedef struct {
    volatile int64_t  pid;
    volatile int64_t  at;
    volatile int64_t  every;
    volatile int64_t  seen;
    volatile int64_t  failed;
} failmalloc_control_t;


static failmalloc_control_t  *control;

static void *(*real_malloc)(size_t size);
static void *(*real_calloc)(size_t n, size_t size);
static void *(*real_realloc)(void *p, size_t size);
static int (*real_posix_memalign)(void **p, size_t alignment, size_t size);
static void *(*real_memalign)(size_t alignment, size_t size);
static void *(*real_aligned_alloc)(size_t alignment, size_t size);


#define REAL(name)                                                            \
    if (real_##name == NULL) {                                                \
        *(void **) &real_##name = dlsym(RTLD_NEXT, #name);                    \
    }


__attribute__((constructor))
static void
failmalloc_init(void)
{
    int          fd;
    void        *p;
    const char  *name;

    name = getenv("FAIL_MALLOC_FILE");
    if (name == NULL) {
        return;
    }

    fd = open(name, O_RDWR);
    if (fd == -1) {
        return;
    }

    p = mmap(NULL, sizeof(failmalloc_control_t), PROT_READ | PROT_WRITE,
             MAP_SHARED, fd, 0);
    close(fd);

    if (p != MAP_FAILED) {
        control = p;
    }
}


static int
failmalloc_now(void)
{
    int64_t  n;

    if (control == NULL || control->at == 0 || control->pid != getpid()) {
        return 0;
    }

    n = ++control->seen;

    if (n != control->at
        && (control->every == 0 || n < control->at
            || (n - control->at) % control->every != 0))
    {
        return 0;
    }

    control->failed++;
    errno = ENOMEM;

    return 1;
}


void *
malloc(size_t size)
{
    REAL(malloc);
    return failmalloc_now() ? NULL : real_malloc(size);
}


void *
calloc(size_t n, size_t size)
{
    REAL(calloc);
    return failmalloc_now() ? NULL : real_calloc(n, size);
}


void *
realloc(void *p, size_t size)
{
    REAL(realloc);
    return failmalloc_now() ? NULL : real_realloc(p, size);
}


int
posix_memalign(void **p, size_t alignment, size_t size)
{
    REAL(posix_memalign);
    return failmalloc_now() ? ENOMEM
                            : real_posix_memalign(p, alignment, size);
}


void *
memalign(size_t alignment, size_t size)
{
    REAL(memalign);
    return failmalloc_now() ? NULL : real_memalign(alignment, size);
}


void *
aligned_alloc(size_t alignment, size_t size)
{
    REAL(aligned_alloc);
    return failmalloc_now() ? NULL : real_aligned_alloc(alignment, size);
}
