
/*
 * A disk that is recorded, below a file system: one file, "disk", by FUSE.
 *
 *     fusedisk IMAGE LOG DELAY MOUNTPOINT
 *
 * The file has the bytes of IMAGE, which is not changed.  What is written and
 * when it is flushed goes to LOG, in the form of disk.c, and begins with the
 * whole image; each flush takes DELAY microseconds longer.  It ends when it is
 * unmounted.
 */


#define FUSE_USE_VERSION  31
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>


#define INODE  2


typedef struct {
    int64_t  time;
    int64_t  file;
    int64_t  offset;
    int32_t  kind;
    int32_t  thread;
    int64_t  length;
} record_t;


static char    *image;
static size_t   image_size;
static int      log_fd;
static long     delay;


static void
fusedisk_record(int kind, int64_t file, int64_t offset, const void *data,
    size_t length)
{
    record_t         record;
    struct iovec     iov[2];
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    record.time = (int64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
    record.file = file;
    record.offset = offset;
    record.kind = kind;
    record.thread = 0;
    record.length = length;

    iov[0].iov_base = &record;
    iov[0].iov_len = sizeof(record_t);
    iov[1].iov_base = (void *) data;
    iov[1].iov_len = length;

    if (writev(log_fd, iov, 2) != (ssize_t) (sizeof(record_t) + length)) {
        abort();
    }
}


static int
fusedisk_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    (void) fi;

    memset(st, 0, sizeof(struct stat));

    if (strcmp(path, "/") == 0) {
        st->st_mode = S_IFDIR|0700;
        st->st_nlink = 2;
        return 0;
    }

    if (strcmp(path, "/disk") == 0) {
        st->st_mode = S_IFREG|0600;
        st->st_nlink = 1;
        st->st_size = image_size;
        return 0;
    }

    return -ENOENT;
}


static int
fusedisk_read(const char *path, char *buf, size_t n, off_t offset,
    struct fuse_file_info *fi)
{
    (void) path;
    (void) fi;

    if (offset < 0 || (size_t) offset >= image_size) {
        return 0;
    }

    if (n > image_size - offset) {
        n = image_size - offset;
    }

    memcpy(buf, image + offset, n);

    return n;
}


static int
fusedisk_write(const char *path, const char *buf, size_t n, off_t offset,
    struct fuse_file_info *fi)
{
    (void) path;
    (void) fi;

    if (offset < 0 || offset + n > image_size) {
        return -ENOSPC;
    }

    memcpy(image + offset, buf, n);
    fusedisk_record('W', INODE, offset, buf, n);

    return n;
}


static int
fusedisk_fsync(const char *path, int data, struct fuse_file_info *fi)
{
    (void) path;
    (void) data;
    (void) fi;

    fusedisk_record('B', INODE, 0, NULL, 0);
    usleep(delay);
    fusedisk_record('E', INODE, 0, NULL, 0);

    return 0;
}


static const struct fuse_operations  fusedisk_operations = {
    .getattr = fusedisk_getattr,
    .read = fusedisk_read,
    .write = fusedisk_write,
    .fsync = fusedisk_fsync
};


int
main(int argc, char **argv)
{
    int          fd;
    char        *args[] = { argv[0], "-f", "-s", argv[argc - 1], NULL };
    struct stat  st;

    if (argc != 5) {
        return 2;
    }

    fd = open(argv[1], O_RDONLY);
    log_fd = open(argv[2], O_WRONLY|O_APPEND|O_CREAT, 0600);
    delay = atol(argv[3]);

    if (fd == -1 || log_fd == -1 || fstat(fd, &st) == -1) {
        perror("open");
        return 1;
    }

    image_size = st.st_size;
    image = malloc(image_size);

    if (image == NULL || read(fd, image, image_size) != st.st_size) {
        perror("read");
        return 1;
    }

    fusedisk_record('O', INODE, 0, "disk", 4);
    fusedisk_record('B', 0, 0, NULL, 0);
    fusedisk_record('E', 0, 0, NULL, 0);
    fusedisk_record('W', INODE, 0, image, image_size);
    fusedisk_fsync(NULL, 0, NULL);

    return fuse_main(4, args, &fusedisk_operations, NULL);
}
