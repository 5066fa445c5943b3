/* A disk that fails where it is told to, beneath everybody who writes the log: loaded before the C library, it stands
   between a hub and the system's writes and syncs. It looks at files of the log, and of the index. See faulty_disk.py. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NEVER = -1 };

static atomic_long writes, syncs;
static long die_at_write = NEVER, die_at_sync = NEVER, tear_at = NEVER, full_from = NEVER, full_until = NEVER;
static int die_after;
static double tear_keep;
static char fail_sign[PATH_MAX], hold_sign[PATH_MAX], hold_index_sign[PATH_MAX];

/* ---- orders, given before the hub begins */

void faulty_disk_die_at_write(long call, int after) { die_at_write = call; die_after = after; }
void faulty_disk_die_at_sync(long call, int after) { die_at_sync = call; die_after = after; }
void faulty_disk_tear(long call, double keep) { tear_at = call; tear_keep = keep; }
void faulty_disk_be_full(long call, long calls) { full_from = call; full_until = call + calls; }
void faulty_disk_fail_syncs(const char *sign) { strncpy(fail_sign, sign, sizeof fail_sign - 1); }
void faulty_disk_hold_syncs(const char *sign) { strncpy(hold_sign, sign, sizeof hold_sign - 1); }
void faulty_disk_hold_index(const char *sign) { strncpy(hold_index_sign, sign, sizeof hold_index_sign - 1); }

/* ---- the disk */

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* The path of an open file, or nothing. */
static void path_of(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size < 0 ? 0 : size] = 0;
}

static int is_of_the_log(int fd)
{
    char path[PATH_MAX];
    path_of(fd, path);
    size_t size = strlen(path);
    return size > 4 && !strcmp(path + size - 4, ".log") && (strstr(path, "/log/") || strstr(path, "/kept/"));
}

typedef ssize_t (*Write)(int, const struct iovec *, int, off_t);

static ssize_t faulty_write(Write real, int fd, const struct iovec *parts, int count, off_t offset)
{
    if (!is_of_the_log(fd))
        return real(fd, parts, count, offset);
    long call = ++writes;
    if (call >= full_from && call < full_until) {
        errno = ENOSPC;
        return -1;
    }
    if (call == tear_at) {
        size_t whole = 0;
        for (int i = 0; i < count; i++)
            whole += parts[i].iov_len;
        size_t left = whole * tear_keep;
        if (!left)
            left = 1;
        for (int i = 0; i < count && left; i++) {
            size_t size = parts[i].iov_len < left ? parts[i].iov_len : left;
            if (pwrite(fd, parts[i].iov_base, size, offset) < 0)
                break;
            offset += size;
            left -= size;
        }
        die();
    }
    if (call == die_at_write && !die_after)
        die();
    ssize_t written = real(fd, parts, count, offset);
    if (call == die_at_write)
        die();
    return written;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    static Write real;
    if (!real)
        real = (Write)dlsym(RTLD_NEXT, "pwritev");
    return faulty_write(real, fd, parts, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    static Write real;
    if (!real)
        real = (Write)dlsym(RTLD_NEXT, "pwritev64");
    return faulty_write(real, fd, parts, count, offset);
}

/* Wait while the sign is there, and say `held` in it. */
static void hold(const char *path)
{
    int sign = open(path, O_WRONLY | O_CLOEXEC);
    if (sign < 0)
        return;
    if (pwrite(sign, "held", 4, 0) < 0)
        abort();
    close(sign);
    while (!access(path, F_OK))
        nanosleep(&(struct timespec){0, 10000000}, NULL);
}

static void hold_where_frozen(int fd)
{
    char path[PATH_MAX];
    if (!hold_index_sign[0])
        return;
    path_of(fd, path);
    if (strstr(path, "/index/"))
        hold(hold_index_sign);
}

ssize_t write(int fd, const void *data, size_t size)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    hold_where_frozen(fd);
    return real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    hold_where_frozen(fd);
    return real(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    hold_where_frozen(fd);
    return real(fd, data, size, offset);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (!is_of_the_log(fd))
        return real(fd);
    long call = ++syncs;
    if (hold_sign[0])
        hold(hold_sign);
    if (fail_sign[0] && !access(fail_sign, F_OK)) {
        errno = EIO;
        return -1;
    }
    if (call == die_at_sync && !die_after)
        die();
    int result = real(fd);
    if (call == die_at_sync)
        die();
    return result;
}
