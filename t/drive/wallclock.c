
/*
 * Before the system's gettimeofday(), time() and clock_gettime() of the wall
 * clock: adds the seconds in WALL_CLOCK_FILE.  For nginx see wallclock.py, for
 * Redis redis_clock.py.
 */


#define _GNU_SOURCE


#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>


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
clock_gettime(clockid_t id, struct timespec *ts)
{
    if (syscall(SYS_clock_gettime, id, ts) == -1) {
        return -1;
    }

    if (id == CLOCK_REALTIME && offset) {
        ts->tv_sec += *offset;
    }

    return 0;
}


int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
    struct timespec  ts;

    (void) tz;

    clock_gettime(CLOCK_REALTIME, &ts);

    tv->tv_sec = ts.tv_sec;
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
