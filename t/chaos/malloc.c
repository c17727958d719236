
/*
 * LD_PRELOAD: fails one allocation of nginx's workers, the n-th from the
 * moment at which n is written to the file that CHAOS_MALLOC names.
 *
 * The file holds two int64: how many are left until the one that fails, 0 for
 * never, and how many have failed.  It is mapped before nginx forks, so that
 * all of its processes share it.
 */


#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>


static volatile int64_t  *chaos;


__attribute__((constructor)) static void
chaos_map(void)
{
    int    fd;
    char  *name;
    void  *p;

    name = getenv("CHAOS_MALLOC");
    if (name == NULL) {
        return;
    }

    fd = open(name, O_RDWR|O_CLOEXEC);
    if (fd == -1) {
        return;
    }

    p = mmap(NULL, 2 * sizeof(int64_t), PROT_READ|PROT_WRITE, MAP_SHARED,
             fd, 0);
    close(fd);

    if (p != MAP_FAILED) {
        chaos = p;
    }
}


static int
chaos_fails(void)
{
    int64_t  left;

    if (chaos == NULL || chaos[0] <= 0) {
        return 0;
    }

    left = __sync_sub_and_fetch(&chaos[0], 1);

    if (left != 0) {
        return 0;
    }

    __sync_add_and_fetch(&chaos[1], 1);

    return 1;
}


/* glibc's own names need no dlsym(), which allocates */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);


void *
malloc(size_t size)
{
    if (chaos_fails()) {
        errno = ENOMEM;
        return NULL;
    }

    return __libc_malloc(size);
}


void *
calloc(size_t n, size_t size)
{
    if (chaos_fails()) {
        errno = ENOMEM;
        return NULL;
    }

    return __libc_calloc(n, size);
}


void *
realloc(void *p, size_t size)
{
    if (chaos_fails()) {
        errno = ENOMEM;
        return NULL;
    }

    return __libc_realloc(p, size);
}


int
posix_memalign(void **p, size_t alignment, size_t size)
{
    if (chaos_fails()) {
        return ENOMEM;
    }

    *p = __libc_memalign(alignment, size);

    return *p ? 0 : ENOMEM;
}
