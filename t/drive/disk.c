
/*
 * The disk under nginx: for LD_PRELOAD, see disk.py.
 *
 * Looks at files below the folder DISK_DIR, and at the folder itself.  What
 * SQLite maps into memory, PATH-shm, is left alone: it is made anew from the
 * others.
 *
 * DISK_LOG names a file to which every change and every sync is appended, in
 * the order in which they happened: a record_t, then its data.  A change is
 * recorded when it has been made, a sync when it begins and when it has ended;
 * so what was recorded before its beginning is on the disk at its end.
 *
 * DISK_CONTROL names a file of six numbers of 64 bits, which a test changes
 * while nginx runs:
 *
 *     delay     microseconds that each sync takes longer
 *     stall     changes and syncs wait while it is set
 *     full      a change that makes a file longer fails with ENOSPC
 *     broken    a sync fails with EIO
 *     stalled   how many have waited
 *     failed    how many have failed
 */


#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>


#define FILES  65536


typedef struct {
    volatile int64_t  delay;
    volatile int64_t  stall;
    volatile int64_t  full;
    volatile int64_t  broken;
    volatile int64_t  stalled;
    volatile int64_t  failed;
} control_t;


typedef struct {
    int64_t           time;      /* CLOCK_MONOTONIC, nanoseconds */
    int64_t           file;      /* its inode; of the folder: 0 */
    int64_t           offset;
    int32_t           kind;      /* Open Write Truncate Unlink Begin End */
    int32_t           thread;
    int64_t           length;    /* of the data that follow */
} record_t;


static control_t     *control;
static const char    *dir;
static size_t         dir_len;
static int            log_fd = -1;
static int64_t        files[FILES];    /* by descriptor: inode, -1: the folder */

static int (*real_open)(const char *path, int flags, ...);
static int (*real_close)(int fd);
static ssize_t (*real_write)(int fd, const void *buf, size_t n);
static ssize_t (*real_pwrite)(int fd, const void *buf, size_t n, off_t offset);
static int (*real_ftruncate)(int fd, off_t length);
static int (*real_unlink)(const char *path);
static int (*real_fsync)(int fd);
static int (*real_fdatasync)(int fd);


static void
disk_real(void)
{
    *(void **) &real_open = dlsym(RTLD_NEXT, "open");
    *(void **) &real_close = dlsym(RTLD_NEXT, "close");
    *(void **) &real_write = dlsym(RTLD_NEXT, "write");
    *(void **) &real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    *(void **) &real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    *(void **) &real_unlink = dlsym(RTLD_NEXT, "unlink");
    *(void **) &real_fsync = dlsym(RTLD_NEXT, "fsync");
    *(void **) &real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
}


__attribute__((constructor))
static void
disk_init(void)
{
    int          fd;
    void        *p;
    const char  *name;

    disk_real();

    name = getenv("DISK_CONTROL");
    fd = name ? real_open(name, O_RDWR|O_CLOEXEC) : -1;

    if (fd != -1) {
        p = mmap(NULL, sizeof(control_t), PROT_READ|PROT_WRITE, MAP_SHARED,
                 fd, 0);
        real_close(fd);

        if (p != MAP_FAILED) {
            control = p;
        }
    }

    name = getenv("DISK_LOG");

    if (name) {
        fd = real_open(name, O_WRONLY|O_APPEND|O_CREAT|O_CLOEXEC, 0600);

        /* out of the way: nginx closes nothing up there */

        log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 900);
        real_close(fd);
    }

    /* nginx writes its title over the environment */

    name = getenv("DISK_DIR");
    dir = name ? strdup(name) : NULL;
    dir_len = dir ? strlen(dir) : 0;
}


static int64_t
disk_file(int fd)
{
    return (fd >= 0 && fd < FILES) ? files[fd] : 0;
}


static const char *
disk_name(const char *path)
{
    size_t  n;

    if (dir == NULL || strncmp(path, dir, dir_len) != 0) {
        return NULL;
    }

    n = strlen(path);

    if (path[dir_len] == '\0') {
        return path + dir_len;
    }

    if (path[dir_len] != '/'
        || (n > 4 && strcmp(path + n - 4, "-shm") == 0))
    {
        return NULL;
    }

    return path + dir_len + 1;
}


static void
disk_record(int kind, int64_t file, int64_t offset, const void *data,
    size_t length)
{
    int              saved;
    record_t         record;
    struct iovec     iov[2];
    struct timespec  ts;

    if (log_fd == -1) {
        return;
    }

    saved = errno;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    record.time = (int64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
    record.file = file == -1 ? 0 : file;
    record.offset = offset;
    record.kind = kind;
    record.thread = gettid();
    record.length = length;

    iov[0].iov_base = &record;
    iov[0].iov_len = sizeof(record_t);
    iov[1].iov_base = (void *) data;
    iov[1].iov_len = length;

    if (writev(log_fd, iov, 2) != (ssize_t) (sizeof(record_t) + length)) {
        abort();
    }

    errno = saved;
}


static void
disk_stall(void)
{
    if (control == NULL || !control->stall) {
        return;
    }

    __sync_add_and_fetch(&control->stalled, 1);

    while (control->stall) {
        usleep(1000);
    }
}


static int
disk_full(int fd, off_t end)
{
    struct stat  st;

    if (control == NULL || !control->full
        || fstat(fd, &st) == -1 || end <= st.st_size)
    {
        return 0;
    }

    __sync_add_and_fetch(&control->failed, 1);
    errno = ENOSPC;

    return 1;
}


int
open(const char *path, int flags, ...)
{
    int          fd, mode;
    va_list      args;
    const char  *name;
    struct stat  st;

    mode = 0;

    if (flags & (O_CREAT|O_TMPFILE)) {
        va_start(args, flags);
        mode = va_arg(args, int);
        va_end(args);
    }

    fd = real_open(path, flags, mode);
    name = disk_name(path);

    if (fd < 0 || fd >= FILES) {
        return fd;
    }

    files[fd] = 0;

    if (name == NULL || fstat(fd, &st) == -1) {
        return fd;
    }

    files[fd] = name[0] ? (int64_t) st.st_ino : -1;

    if (name[0]) {
        disk_record('O', files[fd], flags & O_TRUNC, name, strlen(name));
    }

    return fd;
}


int open64(const char *path, int flags, ...)
    __attribute__((alias("open")));


int
close(int fd)
{
    if (fd >= 0 && fd < FILES) {
        files[fd] = 0;
    }

    return real_close(fd);
}


ssize_t
pwrite(int fd, const void *buf, size_t n, off_t offset)
{
    ssize_t  written;
    int64_t  file;

    file = disk_file(fd);

    if (file == 0) {
        return real_pwrite(fd, buf, n, offset);
    }

    disk_stall();

    if (disk_full(fd, offset + n)) {
        return -1;
    }

    written = real_pwrite(fd, buf, n, offset);

    if (written > 0) {
        disk_record('W', file, offset, buf, written);
    }

    return written;
}


ssize_t pwrite64(int fd, const void *buf, size_t n, off_t offset)
    __attribute__((alias("pwrite")));


ssize_t
write(int fd, const void *buf, size_t n)
{
    off_t    offset;
    ssize_t  written;
    int64_t  file;

    file = disk_file(fd);

    if (file == 0) {
        return real_write(fd, buf, n);
    }

    disk_stall();

    offset = lseek(fd, 0, SEEK_CUR);

    if (disk_full(fd, offset + n)) {
        return -1;
    }

    written = real_write(fd, buf, n);

    if (written > 0) {
        disk_record('W', file, offset, buf, written);
    }

    return written;
}


int
ftruncate(int fd, off_t length)
{
    int      rc;
    int64_t  file;

    file = disk_file(fd);

    if (file == 0) {
        return real_ftruncate(fd, length);
    }

    disk_stall();

    rc = real_ftruncate(fd, length);

    if (rc == 0) {
        disk_record('T', file, length, NULL, 0);
    }

    return rc;
}


int ftruncate64(int fd, off_t length) __attribute__((alias("ftruncate")));


int
unlink(const char *path)
{
    int          rc;
    const char  *name;

    rc = real_unlink(path);
    name = disk_name(path);

    if (rc == 0 && name && name[0]) {
        disk_record('U', 0, 0, name, strlen(name));
    }

    return rc;
}


static int
disk_sync(int fd, int (*sync)(int fd))
{
    int      rc;
    int64_t  file;

    file = disk_file(fd);

    if (file == 0) {
        return sync(fd);
    }

    disk_record('B', file, 0, NULL, 0);
    disk_stall();

    if (control && control->broken) {
        __sync_add_and_fetch(&control->failed, 1);
        errno = EIO;
        return -1;
    }

    if (control && control->delay) {
        usleep(control->delay);
    }

    rc = sync(fd);

    if (rc == 0) {
        disk_record('E', file, 0, NULL, 0);
    }

    return rc;
}


int
fsync(int fd)
{
    return disk_sync(fd, real_fsync);
}


int
fdatasync(int fd)
{
    return disk_sync(fd, real_fdatasync);
}
