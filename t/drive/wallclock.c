
/*
 * Before the system's gettimeofday() and time(): adds the seconds in
 * WALL_CLOCK_FILE.  For nginx see wallclock.py, for Redis redis_clock.py.
 */


#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>


static volatile long  *offset;


__attribute__((constructor)) static void
wallclock_init(void)
{
    int    fd;
    char  *name;

    name = getenv("WALL_CLOCK_FILE");
    fd = name ? open(name, O_RDONLY) : -1;

    if (fd != -1) {
        offset = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
    }
}


int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
    struct timespec  ts;

    (void) tz;

    clock_gettime(CLOCK_REALTIME, &ts);

    tv->tv_sec = ts.tv_sec + (offset ? *offset : 0);
    tv->tv_usec = ts.tv_nsec / 1000;

    return 0;
}


time_t
time(time_t *t)
{
    struct timeval  tv;

    gettimeofday(&tv, NULL);

    if (t) {
        *t = tv.tv_sec;
    }

    return tv.tv_sec;
}
