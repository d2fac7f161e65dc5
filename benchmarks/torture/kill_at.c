/* Preloaded into octavo by the torture campaign: counts the changes below a folder, and kills the process, or fails, at
   the n-th; shifts the clock. Nothing happens until torture_arm or torture_clock is called, or TORTURE_ARM is set.

   cc -O2 -shared -fPIC -o kill_at.so kill_at.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { COUNT, BEFORE, AFTER, TORN, FAIL_ONCE, FAIL_ON };
typedef struct { atomic_long changes, done; } Shared; /* one for all processes of a trial */

static Shared *shared;
static char root[PATH_MAX];
static size_t root_length;
static long at;
static int mode, failure, log_fd = -1;
static __thread int inside;

/* ------------------------------------------------------------------ which change is it */

static int below(const char *path) {
    return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int absolute(int folder, const char *path, char *out) {
    char base[PATH_MAX], link[64];
    if (!path) return 0;
    if (path[0] == '/') return snprintf(out, PATH_MAX, "%s", path) < PATH_MAX;
    if (folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = readlink(link, base, sizeof base - 1);
        if (n < 0) return 0;
        base[n] = 0;
    }
    return snprintf(out, PATH_MAX, "%s/%s", base, path) < PATH_MAX;
}

static int of_handle(int handle, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    if (n < 0) return 0;
    out[n] = 0;
    return out[0] == '/';
}

static void note(const char *name, const char *path, long number) {
    char line[PATH_MAX + 64];
    if (log_fd < 0) return;
    int n = snprintf(line, sizeof line, "%ld %s %s\n", number, name, path + root_length + (path[root_length] == '/'));
    syscall(SYS_write, log_fd, line, n);
}

static void die(void) {
    if (shared) atomic_store(&shared->done, 1);
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* 0: go on; 1: this is the one, and it is to be torn or killed after; -1: it fails with `failure`. */
static int change(const char *name, const char *path, int grows) {
    if (!shared || inside || !below(path)) return 0;
    inside = 1;
    long number = atomic_fetch_add(&shared->changes, 1) + 1;
    note(name, path, number);
    inside = 0;
    if (mode == COUNT || number < at) return 0;
    if (mode == FAIL_ON || mode == FAIL_ONCE) {
        if (!grows || (mode == FAIL_ONCE && number > at)) return 0;
        atomic_store(&shared->done, 1);
        errno = failure;
        return -1;
    }
    if (number != at) return 0;
    if (mode == BEFORE) die();
    return 1;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = dlsym(RTLD_NEXT, #name)
#define CHANGE(name, path, grows, fails) \
    int hit = change(name, path, grows); \
    if (hit < 0) return fails
#define END(result) do { __typeof__(result) value = (result); if (hit) die(); return value; } while (0)

/* ------------------------------------------------------------------ opening and writing */

static int is_change(int flags) { return (flags & (O_CREAT | O_TRUNC)) && !((flags & O_TMPFILE) == O_TMPFILE); }

static int opened(int folder, const char *path, int flags, mode_t bits) {
    char full[PATH_MAX];
    int hit = 0;
    if (shared && is_change(flags) && absolute(folder, path, full)) {
        struct stat st;
        int exists = !fstatat(folder, path, &st, 0);
        if (!exists || (flags & O_TRUNC && st.st_size)) hit = change(exists ? "truncate" : "create", full, !exists);
        if (hit < 0) return -1;
    }
    int handle = syscall(SYS_openat, folder, path, flags, bits);
    if (hit) die();
    return handle;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t bits = va_arg(rest, mode_t); va_end(rest); \
        return opened(AT_FDCWD, path, flags, bits); \
    }
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t bits = va_arg(rest, mode_t); va_end(rest); \
        return opened(folder, path, flags, bits); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
int creat(const char *path, mode_t bits) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, bits); }

static int wrote(int handle, const char *name) {
    char path[PATH_MAX];
    return shared && !inside && handle > 2 && of_handle(handle, path) ? change(name, path, 1) : 0;
}

ssize_t write(int handle, const void *bytes, size_t count) {
    int hit = count ? wrote(handle, "write") : 0;
    if (hit < 0) return -1;
    if (hit && mode == TORN) { syscall(SYS_write, handle, bytes, count / 2); die(); }
    END((ssize_t)syscall(SYS_write, handle, bytes, count));
}

#define PWRITE(name, offset_type) \
    ssize_t name(int handle, const void *bytes, size_t count, offset_type offset) { \
        int hit = count ? wrote(handle, "write") : 0; \
        if (hit < 0) return -1; \
        if (hit && mode == TORN) { syscall(SYS_pwrite64, handle, bytes, count / 2, offset); die(); } \
        END((ssize_t)syscall(SYS_pwrite64, handle, bytes, count, offset)); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int handle, const struct iovec *parts, int count) {
    int hit = wrote(handle, "write");
    if (hit < 0) return -1;
    END((ssize_t)syscall(SYS_writev, handle, parts, count));
}

#define SENDFILE(name, offset_type) \
    ssize_t name(int to, int from, offset_type *offset, size_t count) { \
        REAL(ssize_t, name, int, int, offset_type *, size_t); \
        int hit = wrote(to, "sendfile"); \
        if (hit < 0) return -1; \
        END(real(to, from, offset, hit && mode == TORN ? count / 2 : count)); \
    }
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t count, unsigned flags) {
    int hit = wrote(to, "copy_file_range");
    if (hit < 0) return -1;
    END((ssize_t)syscall(SYS_copy_file_range, from, from_at, to, to_at, count, flags));
}

#define TRUNCATE(name, type, call) \
    int name(int handle, type size) { \
        int hit = wrote(handle, "ftruncate"); \
        if (hit < 0) return -1; \
        END((int)syscall(call, handle, size)); \
    }
TRUNCATE(ftruncate, off_t, SYS_ftruncate)
TRUNCATE(ftruncate64, off64_t, SYS_ftruncate)

#define SYNC(name, call) \
    int name(int handle) { \
        if (shared && (mode == FAIL_ON || mode == FAIL_ONCE) && wrote(handle, "sync") < 0) return -1; \
        return (int)syscall(call, handle); \
    }
SYNC(fsync, SYS_fsync)
SYNC(fdatasync, SYS_fdatasync)

#define FOPEN(name) \
    FILE *name(const char *path, const char *how) { \
        REAL(FILE *, name, const char *, const char *); \
        char full[PATH_MAX]; \
        int hit = 0; \
        if (shared && strpbrk(how, "wa") && absolute(AT_FDCWD, path, full)) hit = change("create", full, 1); \
        if (hit < 0) return NULL; \
        END(real(path, how)); \
    }
FOPEN(fopen)
FOPEN(fopen64)

/* ------------------------------------------------------------------ names */

#define NAMED(call_name, folder, path, grows, ...) do { \
        char full[PATH_MAX]; \
        int hit = shared && absolute(folder, path, full) ? change(call_name, full, grows) : 0; \
        if (hit < 0) return -1; \
        END((int)syscall(__VA_ARGS__)); \
    } while (0)

int mkdir(const char *path, mode_t bits) { NAMED("mkdir", AT_FDCWD, path, 1, SYS_mkdirat, AT_FDCWD, path, bits); }
int mkdirat(int at_, const char *path, mode_t bits) { NAMED("mkdir", at_, path, 1, SYS_mkdirat, at_, path, bits); }
int rmdir(const char *path) { NAMED("rmdir", AT_FDCWD, path, 0, SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR); }
int unlink(const char *path) { NAMED("unlink", AT_FDCWD, path, 0, SYS_unlinkat, AT_FDCWD, path, 0); }
int unlinkat(int at_, const char *path, int flags) {
    NAMED(flags ? "rmdir" : "unlink", at_, path, 0, SYS_unlinkat, at_, path, flags);
}
int remove(const char *path) { int code = unlink(path); return code && errno == EISDIR ? rmdir(path) : code; }
int rename(const char *from, const char *to) {
    NAMED("rename", AT_FDCWD, to, 0, SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int from_at, const char *from, int to_at, const char *to) {
    NAMED("rename", to_at, to, 0, SYS_renameat2, from_at, from, to_at, to, 0);
}
int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    NAMED(flags & 2 ? "exchange" : "rename", to_at, to, 0, SYS_renameat2, from_at, from, to_at, to, flags);
}
int link(const char *from, const char *to) {
    NAMED("link", AT_FDCWD, to, 1, SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    NAMED("link", to_at, to, 1, SYS_linkat, from_at, from, to_at, to, flags);
}
int symlink(const char *to, const char *path) {
    NAMED("symlink", AT_FDCWD, path, 1, SYS_symlinkat, to, AT_FDCWD, path);
}
int symlinkat(const char *to, int at_, const char *path) { NAMED("symlink", at_, path, 1, SYS_symlinkat, to, at_, path); }

/* ------------------------------------------------------------------ the clock */

static atomic_long clock_calls;
static long clock_first, clock_second; /* calls after which it shifts; 0: never */
static long long clock_shift, clock_shift_again; /* seconds */
static int clock_monotonic;

static long long shift(clockid_t which) {
    int real = which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE;
    int steady = which == CLOCK_MONOTONIC || which == CLOCK_MONOTONIC_RAW || which == CLOCK_MONOTONIC_COARSE
                 || which == CLOCK_BOOTTIME;
    if (!clock_first || !(clock_monotonic ? steady : real)) return 0;
    long call = atomic_fetch_add(&clock_calls, 1) + 1;
    if (clock_second && call >= clock_second) return clock_shift_again;
    return call >= clock_first ? clock_shift : 0;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    int code = syscall(SYS_clock_gettime, which, now);
    if (!code) now->tv_sec += shift(which);
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

/* ------------------------------------------------------------------ from outside */

void torture_clock(long first, long long seconds, long second, long long seconds_again, int monotonic) {
    atomic_store(&clock_calls, 0);
    clock_first = first, clock_shift = seconds, clock_second = second, clock_shift_again = seconds_again;
    clock_monotonic = monotonic;
}

long torture_clock_calls(void) { return atomic_load(&clock_calls); }

/* `counter` is a file of 16 bytes that all processes of a trial share; `log`, where it is not empty, gets each change. */
int torture_arm(const char *folder, const char *counter, const char *log, long number, int how, int error) {
    inside = 1;
    shared = NULL;
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
    at = number, mode = how, failure = error;
    if (log && *log) log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    int handle = syscall(SYS_openat, AT_FDCWD, counter, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (handle < 0) { inside = 0; return -1; }
    syscall(SYS_ftruncate, handle, (long)sizeof(Shared));
    void *memory = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    syscall(SYS_close, handle);
    inside = 0;
    if (memory == MAP_FAILED) return -1;
    shared = memory;
    return 0;
}

/* Programs that a trial starts are armed by TORTURE_ARM: number, how, error, folder, counter, log with tabs between. */
__attribute__((constructor)) static void arm_from_environment(void) {
    const char *words = getenv("TORTURE_ARM");
    char folder[PATH_MAX], counter[PATH_MAX], log[PATH_MAX] = "";
    long number;
    int how, error;
    if (words && sscanf(words, "%ld\t%d\t%d\t%[^\t]\t%[^\t]\t%[^\t]", &number, &how, &error, folder, counter, log) >= 5)
        torture_arm(folder, counter, log, number, how, error);
}
