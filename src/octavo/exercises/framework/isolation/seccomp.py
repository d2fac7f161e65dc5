"""A seccomp filter: the system calls that a student's program may make, as a BPF program in bytes.

What an answer needs is allowed (reading and writing files, memory, threads, time). What it must not do is refused with
EPERM: starting programs, signals, sockets, namespaces, mounts, io_uring, tracing and reading other processes, shared
memory outside its limits. Everything else, with all system calls that a later kernel may add, does not exist (ENOSYS).
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator

ALLOWED = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, open 2 -, openat 257 56,
close 3 57, close_range 436 436, lseek 8 62, fstat 5 80, stat 4 -, lstat 6 -, newfstatat 262 79, statx 332 291,
access 21 -, faccessat 269 48, faccessat2 439 439, readlink 89 -, readlinkat 267 78, getdents 78 -,
getdents64 217 61, getcwd 79 17, chdir 80 49, fchdir 81 50, mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -,
unlinkat 263 35, rename 82 -, renameat 264 38, renameat2 316 276, ftruncate 77 46, truncate 76 45, fsync 74 82,
fdatasync 75 83, fallocate 285 47, fadvise64 221 223, utimensat 280 88, umask 95 166, chmod 90 -,
fchmod 91 52, fchmodat 268 53, dup 32 23, dup2 33 -, dup3 292 24, pipe 22 -, pipe2 293 59, poll 7 -,
ppoll 271 73, select 23 -, pselect6 270 72, epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -,
epoll_pwait 281 22, eventfd2 290 19, statfs 137 43, fstatfs 138 44, munmap 11 215, mprotect 10 226, mremap 25 216,
madvise 28 233, brk 12 214, msync 26 227, membarrier 324 283, futex 202 98, set_robust_list 273 99,
rseq 334 293, set_tid_address 218 96, gettid 186 178, exit 60 93, exit_group 231 94, sched_yield 24 124,
sched_getaffinity 204 123, sched_setaffinity 203 122, getcpu 309 168, arch_prctl 158 -, tgkill 234 131,
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigtimedwait 128 137,
sigaltstack 131 132, pause 34 -, alarm 37 -, setitimer 38 103, getitimer 36 102, clock_gettime 228 113,
clock_getres 229 114, clock_nanosleep 230 115, nanosleep 35 101, gettimeofday 96 169, time 201 -, times 100 153,
uname 63 160, sysinfo 99 179, getrusage 98 165, getpid 39 172, getppid 110 173, getuid 102 174, geteuid 107 175,
getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150, getgroups 115 158, getpgrp 111 -,
getpgid 121 155, getsid 124 156, prlimit64 302 261, getrlimit 97 163, setrlimit 160 164, getrandom 318 278,
wait4 61 260, restart_syscall 219 128
"""  # name, number on x86-64, number on arm64
REFUSED = """
fork 57 -, vfork 58 -, execve 59 221, execveat 322 281, kill 62 129, tkill 200 130, rt_sigqueueinfo 129 138,
rt_tgsigqueueinfo 297 240, pidfd_open 434 434, pidfd_send_signal 424 424, pidfd_getfd 438 438, ptrace 101 117,
process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440, kcmp 312 272, socket 41 198,
socketpair 53 199, connect 42 203, bind 49 200, listen 50 201, accept 43 202, accept4 288 242, sendto 44 206,
sendmsg 46 211, sendmmsg 307 269, recvfrom 45 207, recvmsg 47 212, recvmmsg 299 243, io_uring_setup 425 425,
io_uring_enter 426 426, io_uring_register 427 427, io_setup 206 0, io_submit 209 2, userfaultfd 323 282,
bpf 321 280, perf_event_open 298 241, keyctl 250 219, add_key 248 217, request_key 249 218, mount 165 40,
umount2 166 39, pivot_root 155 41, chroot 161 51, move_mount 429 429, open_tree 428 428, fsopen 430 430,
fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442, unshare 272 97, setns 308 268,
mknod 133 -, mknodat 259 33, link 86 -, linkat 265 37, symlink 88 -, symlinkat 266 36, setxattr 188 5,
lsetxattr 189 6, fsetxattr 190 7, name_to_handle_at 303 264, open_by_handle_at 304 265, memfd_create 319 279,
memfd_secret 447 447, shmget 29 194, shmat 30 196, semget 64 190, msgget 68 186, mq_open 240 180,
kexec_load 246 104, kexec_file_load 320 294, init_module 175 105, finit_module 313 273, delete_module 176 106,
reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60, syslog 103 116, settimeofday 164 170,
clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266, sethostname 170 161, setdomainname 171 162,
personality 135 92, iopl 172 -, ioperm 173 -, modify_ldt 154 -, setuid 105 146, setgid 106 144, setreuid 113 145,
setregid 114 143, setresuid 117 147, setresgid 119 149, setgroups 116 159, setfsuid 122 151, setfsgid 123 152,
capset 126 91, setpriority 141 140, sched_setscheduler 144 119, sched_setattr 314 274, ioprio_set 251 30,
setsid 112 157, setpgid 109 154, vhangup 153 58, lookup_dcookie 212 18, fanotify_init 300 262, inotify_init1 294 26,
landlock_create_ruleset 444 444, splice 275 76, tee 276 77, vmsplice 278 75, sendfile 40 71,
copy_file_range 326 285, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54, seccomp 317 277,
migrate_pages 256 238, move_pages 279 239, mbind 237 235, set_mempolicy 238 237, nfsservctl 180 42,
timer_create 222 107, timerfd_create 283 85, signalfd4 289 74, flock 73 32
"""
CHECKED = "clone 56 220, clone3 435 435, ioctl 16 29, prctl 157 167, mmap 9 222, fcntl 72 25"  # by their arguments
STARTING = ("execve", "prctl", "capset", "setgroups", "setresgid", "setresuid")  # until the student's file is loaded
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of the tables, AUDIT_ARCH
X32_BIT = 0x40000000  # marks system calls of x86-64's 32-bit interface, which would pass the numbers by

LOAD, JUMP_EQUAL, JUMP_AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06  # BPF instructions, on 32-bit words
NUMBER_OFFSET, ARCH_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16  # in struct seccomp_data
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

CLONE_THREAD, CLONE_NEW_NAMESPACES = 0x00010000, 0x7E020080
MAP_SHARED_ANONYMOUS = 0x21  # memory that no limit of the process counts
IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
FCNTLS = (0, 1, 2, 3, 4, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC; no locks or leases
PRCTLS = (15, 16, 0x53564D41)  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA


def is_supported() -> bool:
    """Whether there is a filter for this machine's processor."""
    return platform.system() == "Linux" and platform.machine() in ARCHITECTURES


def build_filter(starting: bool = False, machine: str = "") -> bytes:
    """The filter as an array of struct sock_filter; `starting` also allows what the runner needs to start."""
    column, arch = ARCHITECTURES[machine or platform.machine()]
    program = [_op(LOAD, ARCH_OFFSET), _op(JUMP_EQUAL, arch, 1, 0), _op(RETURN, KILL), _op(LOAD, NUMBER_OFFSET)]
    if column == 0:
        program += [_op(JUMP_AT_LEAST, X32_BIT, 0, 1), _op(RETURN, KILL)]
    checks = {"clone": _check_clone(), "mmap": _check_mmap(), "ioctl": _check_values(1, IOCTLS, errno.ENOTTY),
              "prctl": _check_values(0, PRCTLS, errno.EPERM), "fcntl": _check_values(1, FCNTLS, errno.EPERM),
              "clone3": [_refuse(errno.ENOSYS)]}  # fmt: skip
    allowed, refused = _numbers(ALLOWED, column), _numbers(REFUSED, column)
    if starting:
        both = {**refused, **_numbers(CHECKED, column)}
        allowed |= {name: both[name] for name in STARTING}
    for name, number in _numbers(CHECKED, column).items():
        if name not in allowed:
            program += [_op(JUMP_EQUAL, number, 0, len(checks[name])), *checks[name]]
    for number in allowed.values():
        program += [_op(JUMP_EQUAL, number, 0, 1), _op(RETURN, ALLOW)]
    for name, number in refused.items():
        if name not in allowed:
            program += [_op(JUMP_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    return b"".join([*program, _refuse(errno.ENOSYS)])


def system_call_numbers(machine: str = "") -> dict[str, int]:
    """The number of every system call that the filter names."""
    column, _ = ARCHITECTURES[machine or platform.machine()]
    return {name: number for table in (ALLOWED, REFUSED, CHECKED) for name, number in _numbers(table, column).items()}


def _numbers(table: str, column: int) -> dict[str, int]:
    rows = (row.split() for row in table.split(","))
    return {name: int(numbers[column]) for name, *numbers in rows if numbers[column] != "-"}


def _check_clone() -> list[bytes]:
    """Threads only: no new process, and no new namespace."""
    return [
        _op(LOAD, ARGUMENTS_OFFSET), _op(AND, CLONE_THREAD | CLONE_NEW_NAMESPACES),
        _op(JUMP_EQUAL, CLONE_THREAD, 0, 1), _op(RETURN, ALLOW), _refuse(errno.EPERM),
    ]  # fmt: skip


def _check_mmap() -> list[bytes]:
    return [
        _op(LOAD, ARGUMENTS_OFFSET + 8 * 3), _op(AND, MAP_SHARED_ANONYMOUS),
        _op(JUMP_EQUAL, MAP_SHARED_ANONYMOUS, 1, 0), _op(RETURN, ALLOW), _refuse(errno.EPERM),
    ]  # fmt: skip


def _check_values(argument: int, values: tuple[int, ...], error: int) -> list[bytes]:
    equal: Iterator[list[bytes]] = ([_op(JUMP_EQUAL, value, 0, 1), _op(RETURN, ALLOW)] for value in values)
    return [_op(LOAD, ARGUMENTS_OFFSET + 8 * argument), *(op for pair in equal for op in pair), _refuse(error)]


def _refuse(error: int) -> bytes:
    return _op(RETURN, ERRNO | error)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
