
/*
 * A disk that fails at a chosen moment: for LD_PRELOAD, see faultydisk.py.
 *
 * FAULTY_DISK_FILE names a file of numbers of 64 bits, which a test changes
 * while the process runs: what the next calls meet, and how many there were.
 * Calls are writes, syncs, and those syncs that SQLite itself makes; files are
 * those of a database "*.db", told apart as its WAL, the database itself, and
 * its reserve.
 */


#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>


enum { WRITE = 1, SYNC = 2, OWN_SYNC = 4 };
enum { WAL = 1, DATABASE = 2, RESERVE = 4 };
enum { NOTHING = 0, ERROR, STOP, KILL, HOLD, SLOW };


typedef struct {
    volatile int64_t  act;
    volatile int64_t  calls;       /* WRITE, SYNC, OWN_SYNC, or several */
    volatile int64_t  files;       /* WAL, DATABASE, RESERVE, or several */
    volatile int64_t  value;       /* errno, or milliseconds */
    volatile int64_t  times;       /* how often, 0: always */
    volatile int64_t  hits;        /* calls that have met it */
    volatile int64_t  pid;         /* of the process that has, the last */
    volatile int64_t  seen[32];    /* by call and file */
} control_t;


static control_t  *control;


#define REAL(name)                                                            \
    static __typeof__(name) *real;                                            \
                                                                              \
    if (real == NULL) {                                                       \
        *(void **) &real = dlsym(RTLD_NEXT, #name);                           \
    }


__attribute__((constructor))
static void
faultydisk_init(void)
{
    int          fd;
    void        *p;
    const char  *name;

    name = getenv("FAULTY_DISK_FILE");
    fd = name ? open(name, O_RDWR) : -1;

    if (fd == -1) {
        return;
    }

    p = mmap(NULL, sizeof(control_t), PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);

    if (p != MAP_FAILED) {
        control = p;
    }

    close(fd);
}


static int
faultydisk_file(int fd)
{
    char     path[64], name[1024];
    ssize_t  n;
    size_t   i;

    static const struct {
        const char  *suffix;
        int          file;
    } suffixes[] = {
        { ".db-wal", WAL },
        { ".db", DATABASE },
        { ".db-reserve", RESERVE }
    };

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);

    n = readlink(path, name, sizeof(name) - 1);

    for (i = 0; n > 0 && i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        size_t  len = strlen(suffixes[i].suffix);

        if ((size_t) n > len
            && memcmp(name + n - len, suffixes[i].suffix, len) == 0)
        {
            return suffixes[i].file;
        }
    }

    return 0;
}


/* 0, or the error that the call fails with */

static int
faultydisk_meets(int call, int fd)
{
    int              file;
    int64_t          act, hits;
    struct timespec  ms = { 0, 1000000 };

    if (control == NULL) {
        return 0;
    }

    file = faultydisk_file(fd);

    if (file == 0) {
        return 0;
    }

    __sync_fetch_and_add(&control->seen[call * 5 + file], 1);

    act = control->act;

    if (act == NOTHING
        || !(control->calls & call) || !(control->files & file))
    {
        return 0;
    }

    hits = __sync_add_and_fetch(&control->hits, 1);

    if (control->times && hits > control->times) {
        return 0;
    }

    control->pid = getpid();

    switch (act) {

    case ERROR:
        return (int) control->value;

    case STOP:
        raise(SIGSTOP);       /* this thread at once, not any of them */
        return 0;

    case KILL:
        kill(getpid(), SIGKILL);
        return 0;

    case HOLD:
        while (control->act == HOLD) {
            nanosleep(&ms, NULL);
        }

        return 0;

    default: /* SLOW */
        ms.tv_sec = control->value / 1000;
        ms.tv_nsec = control->value % 1000 * 1000000;
        nanosleep(&ms, NULL);
        return 0;
    }
}


/* syncs of a commit are the module's, those of a checkpoint are SQLite's own */

static int
faultydisk_sync(void *caller)
{
    Dl_info  info;

    return dladdr(caller, &info) && strstr(info.dli_fname, "libsqlite3")
           ? OWN_SYNC : SYNC;
}


#define MEETS(call, fd)                                                       \
    {                                                                         \
        int  err = faultydisk_meets(call, fd);                                \
                                                                              \
        if (err) {                                                            \
            errno = err;                                                      \
            return -1;                                                        \
        }                                                                     \
    }


ssize_t
pwrite(int fd, const void *data, size_t n, off_t offset)
{
    REAL(pwrite)
    MEETS(WRITE, fd)

    return real(fd, data, n, offset);
}


ssize_t
pwrite64(int fd, const void *data, size_t n, off64_t offset)
{
    REAL(pwrite64)
    MEETS(WRITE, fd)

    return real(fd, data, n, offset);
}


int
posix_fallocate(int fd, off_t offset, off_t len)
{
    int  err;

    REAL(posix_fallocate)

    err = faultydisk_meets(WRITE, fd);

    return err ? err : real(fd, offset, len);
}


int
fdatasync(int fd)
{
    REAL(fdatasync)
    MEETS(faultydisk_sync(__builtin_return_address(0)), fd)

    return real(fd);
}


int
fsync(int fd)
{
    REAL(fsync)
    MEETS(faultydisk_sync(__builtin_return_address(0)), fd)

    return real(fd);
}
