"""The inside of the sandbox: locks its own process down, then runs one program. Started by `sandbox.py`, never imported.

It stands alone (standard library only) because it runs under ``python -I``, where this package need not be importable.
"""

import contextlib
import ctypes
import json
import os
import platform
import resource
import signal
import struct
import sys

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

# --- Landlock (linux/landlock.h): which files may be touched ---
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
READ = 1 << 2 | 1 << 3  # read a file, list a folder; mapping a shared library needs no right to execute it
ALL_V1 = (1 << 13) - 1
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15  # since ABI 2, 3, 5
FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | TRUNCATE | IOCTL_DEV  # what makes sense for a path that is no folder

# --- seccomp (linux/seccomp.h, linux/filter.h): which system calls there are ---
RET_KILL_PROCESS, RET_ALLOW, RET_ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
EPERM, ENOSYS = 1, 38
LOAD, JEQ, JGE, JSET, RET = 0x20, 0x15, 0x35, 0x45, 0x06
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# name: number on x86_64, on aarch64 (None: not there)
DENIED = {
    # talking to the outside; a connected socketpair is allowed below, since asyncio wakes itself through one
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242),
    # other processes: making, becoming, signalling, reading
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "setsid": (112, 157),
    "setpgid": (109, 154), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272),
    # another view of the system
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "personality": (135, 92), "quotactl": (179, 60),
    # kernel surfaces that programs under test have no use for
    "bpf": (321, 280), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "memfd_create": (319, 279), "memfd_secret": (447, 447), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None), "capset": (126, 91),
    # limits: root may raise its own
    "setrlimit": (160, 164),
    # what outlives the process
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # changes to files by path, which Landlock does not watch; those by an open file stay
    "chmod": (90, None), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "lchown": (94, None),
    "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469),
}  # fmt: skip
CLONE, CLONE3, PRLIMIT64, PRCTL, SOCKETPAIR = (56, 220), (435, 435), (302, 261), (157, 167), (53, 199)
CLONE_THREAD, PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 0x10000, 1, 38, 22, 2


class SetupError(Exception):
    """A layer could not be put in place: nothing has been run."""


def _call(what, result):
    if result < 0:
        raise SetupError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def restrict_files(abi, readable, writable):
    """Landlock: `readable` folders may be read, `writable` ones used; nothing else on any file system."""
    handled = ALL_V1 | (REFER if abi >= 2 else 0) | (TRUNCATE if abi >= 3 else 0) | (IOCTL_DEV if abi >= 5 else 0)
    attributes = struct.pack("=Q", handled)
    if abi >= 4:
        attributes += struct.pack("=Q", 0b11)  # TCP: bind, connect
    if abi >= 6:
        attributes += struct.pack("=Q", 0b11)  # abstract sockets, signals to outside
    ruleset = _call("landlock_create_ruleset", _libc.syscall(CREATE_RULESET, attributes, len(attributes), 0))
    for path, rights in [(p, READ) for p in readable] + [(p, handled & ~1) for p in writable]:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # /lib64 and the like are not everywhere
        if not os.path.isdir(path):
            rights &= FILE_RIGHTS
        rule = struct.pack("=Qi", rights & handled, fd)
        _call("landlock_add_rule", _libc.syscall(ADD_RULE, ruleset, 1, rule, 0))
        os.close(fd)
    _call("landlock_restrict_self", _libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def seccomp_program(machine, landlock_abi):
    """The filter as bytes of ``struct sock_filter``."""
    arch, column = ARCHITECTURES[machine]
    argument = lambda i, high=0: 16 + 8 * i + 4 * high  # offset in struct seccomp_data, little endian

    def block(number, *body):
        return [(JEQ, 0, len(body), number), *body]

    errno = (RET, 0, 0, RET_ERRNO | EPERM)
    allow = (RET, 0, 0, RET_ALLOW)
    code = [(LOAD, 0, 0, 4), (JEQ, 1, 0, arch), (RET, 0, 0, RET_KILL_PROCESS), (LOAD, 0, 0, 0)]
    if machine == "x86_64":
        code += [(JGE, 0, 1, 0x40000000), errno]  # the x32 numbers are a second door to the same calls
    code += block(CLONE[column], (LOAD, 0, 0, argument(0)), (JSET, 1, 0, CLONE_THREAD), errno, allow)
    # "not there" makes the C library fall back to clone, whose flags a filter can read
    code += block(CLONE3[column], (RET, 0, 0, RET_ERRNO | ENOSYS))
    # limits may be read (no new value given), not set
    code += block(
        PRLIMIT64[column],
        (LOAD, 0, 0, argument(2)), (JEQ, 1, 0, 0), errno,
        (LOAD, 0, 0, argument(2, 1)), (JEQ, 1, 0, 0), errno, allow,
    )  # fmt: skip
    code += block(PRCTL[column], (LOAD, 0, 0, argument(0)), (JEQ, 0, 1, PR_SET_PDEATHSIG), errno, allow)
    # AF_UNIX stream pairs only: a datagram pair could be connected anew
    code += block(
        SOCKETPAIR[column],
        (LOAD, 0, 0, argument(0)), (JEQ, 1, 0, 1), errno,
        (LOAD, 0, 0, argument(1)), (0x54, 0, 0, 0xF), (JEQ, 1, 0, 1), errno, allow,
    )  # fmt: skip
    numbers = [pair[column] for pair in DENIED.values()]
    if landlock_abi < 3:
        numbers.append((76, 45)[column])  # truncate, which older Landlock does not watch
    for number in numbers:
        if number is not None:
            code += block(number, errno)
    code.append(allow)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def restrict_calls(machine, landlock_abi):
    program = seccomp_program(machine, landlock_abi)
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    _call("seccomp", _libc.prctl(PR_SET_SECCOMP, FILTER, fprog, 0, 0))


def drop_capabilities():
    """Root without capabilities is an owner of files like another."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    _call("capset", _libc.capset(header, ctypes.create_string_buffer(24)))


def limit(cpu, memory, file_size):
    """Resource limits of this process; lowering is allowed to everybody."""
    for what, soft, hard in (
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_FSIZE, file_size, file_size),
        (resource.RLIMIT_NOFILE, 64, 64),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        ceiling = resource.getrlimit(what)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(what, (soft, hard))


def _lock_down(settings, parent):
    _call("prctl", _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if parent and os.getppid() != parent:  # the parent died before the line above: nobody would stop the program
        os._exit(1)
    limit(settings["cpu"], settings["memory"], settings["file_size"])
    _call("prctl", _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if settings["landlock"]:
        restrict_files(settings["landlock"], settings["readable"], [os.getcwd()])
    drop_capabilities()
    if settings["seccomp"]:
        restrict_calls(platform.machine(), settings["landlock"])


def main():
    # What comes in through the pipe is read before any limit or program; the pipe out carries the proof of the end.
    with os.fdopen(int(sys.argv[1]), "r", encoding="utf-8") as handle:
        settings = json.loads(handle.read())
    proof, token, code = int(sys.argv[2]), settings.pop("token"), settings.pop("code")

    def say(status, detail=""):
        os.write(proof, json.dumps({"token": token, "status": status, "detail": detail}).encode() + b"\n")

    try:
        _lock_down(settings, settings["parent"])
    except Exception as error:
        say("setup", f"{type(error).__name__}: {error}")
        os._exit(1)
    say("locked")
    import types

    module = types.ModuleType("__main__")
    status = "ok"
    try:
        program = compile(code, "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # ValueError: NUL bytes
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        status = "syntax"
    else:
        sys.argv = ["<program>"]
        sys.modules["__main__"] = module
        try:
            exec(program, module.__dict__)
        except SystemExit:
            status = "exited"
        except BaseException as error:
            status = "assertion" if isinstance(error, AssertionError) else "exception"
            import traceback

            traceback.print_exception(error.with_traceback(error.__traceback__.tb_next))  # without this file's frame
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed or replaced by the program, which may do as it likes with them
            stream.flush()
    with contextlib.suppress(OSError):  # closed the pipe, too: no proof
        say(status)
    os._exit(0)  # threads that still run, and what the program left to be run at exit, end here


if __name__ == "__main__":
    main()
