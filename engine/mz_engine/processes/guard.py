"""The process between `mz` and one external command, forked by a server that `mz` starts. It imports nothing of mz.

`serve` runs in the server, which forks a guard for each socket that it receives. Through that socket the guard receives
a `Request` and the command's standard streams. From then on a byte from `mz` asks the tree to end, and end of file
kills it. However `mz` dies, the kernel closes the socket, so nothing outlives `mz`. The guard answers with lines:
`ready`, then `exit CODE` (negative: signal) once the tree is gone; or `unstartable ERRNO`; or `broken TEXT` if the
level does not work. `denied NUMBER` before `exit` counts attempts of an offline command to reach further than its own
loopback, which needs one of the two namespace levels.

Only a guard reads its request, and the server's environment is empty, so no command can find in its guard what another
command was given."""

from __future__ import annotations

import contextlib
import functools
import marshal
import os
import resource
import select
from typing import NamedTuple

NAMESPACE = "namespace"
"""PID and mount namespace; the guard is process 1 there, so the kernel kills all processes with it. Needs root."""
USER_NAMESPACE = "user-namespace"
"""The same, inside a user namespace."""
SUBREAPER = "subreaper"
"""Orphans are reparented to the guard, which kills its descendants until none is left."""
MARKER = "marker"
"""Kill processes with the same MZ_KEY in their environment, and the command's process group."""
LEVELS = (NAMESPACE, USER_NAMESPACE, SUBREAPER, MARKER)

KEY_VARIABLE = "MZ_KEY"

SIGKILL, SIGPIPE, SIGTERM, SIGCHLD, SIGXFSZ = 9, 13, 15, 17, 25  # The same on every POSIX system.
STREAMS = 3  # Standard input, output and error.
SERVER_MARK = "-" * 4000
"""The server's MZ_KEY: room for the key that each guard writes there, by which other processes find it."""

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 32, 4096, 16384, 1 << 19
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 24, 36, 38
SYS_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220, "ppc64le": 120}
"""By machine, where its arguments begin with the flags. Source: clone(2), "C library/kernel differences"."""
FLAGS_BYTES = 4
NAMESPACES = {NAMESPACE: CLONE_NEWNS | CLONE_NEWPID, USER_NAMESPACE: CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUSER}
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
ENOSYS = 38
CAPABILITIES_MAX = 64
KEPT_CAPABILITY = 31
"""CAP_SETFCAP, without which root cannot make a user namespace, as sandboxes of agents do. It gives no access, and no
program gains a capability by it, since none can gain any."""
KERNEL_CONTROLS = (b"/proc/sys", b"/proc/sysrq-trigger", b"/proc/irq", b"/proc/bus")
"""What root may write there needs no capability."""

DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "shm")
STANDARD_STREAMS = (("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2"))

REAP_MS = 250
"""Maximum time that a dead orphan stays a zombie, and that a limit is exceeded."""
POLL_MS = 20
"""The same without a pidfd to poll for the command's end."""
GIVE_UP_SECONDS = 10
"""A process that survives SIGKILL for this long (blocked on a dead disk) is left to the kernel."""


class Request(NamedTuple):
    """A command to run. All texts but the level are bytes."""

    level: str
    user: int
    """Ids of user and group, which are the same in a user namespace."""
    group: int
    cwd: bytes
    program: bytes
    argv: list[bytes]
    env: dict[bytes, bytes]
    mounts: list[tuple[str, bytes, bytes]]
    """Kind, source and target of what the tree sees, as in `supervise.Mount`, if the level has a mount namespace."""
    hidden: list[bytes]
    """Files and folders that seem empty, likewise."""
    writable: list[bytes]
    """With a mount namespace everything is read-only but these paths and mounts that are writable; empty: nothing is
    changed."""
    offline: bool
    """In a network namespace with only the loopback."""
    scratch: bytes
    """An empty directory for what is changed in overlays; empty: it is kept in memory."""
    memory_bytes: int
    """Limits of the tree's memory and threads, except at the level marker; 0: none."""
    threads: int
    file_bytes: int
    """Limits of each process: size of a file, seconds of CPU; 0: none."""
    cpu_seconds: int

    def encode(self) -> bytes:
        """Return the request as it is sent: its size in 8 bytes, then the content."""
        data = marshal.dumps(tuple(self))
        return len(data).to_bytes(8, "big") + data


def serve(server_fd: int) -> int:
    """Fork a guard for each socket received, and reply with a byte: 0, or an error number. Ends when `mz` does."""
    import gc
    import signal
    import socket

    with contextlib.suppress(OSError, ImportError):
        kernel()  # Guards need not prepare it again.
    gc.disable()  # It would copy the pages that guards share with the server.
    signal.signal(signal.SIGCHLD, lambda *_: reap_guards())
    server = socket.socket(fileno=server_fd)
    while True:
        flags, sockets, _, _ = socket.recv_fds(server, FLAGS_BYTES, 1)
        if not sockets:
            return 0
        pid, failure, problem = -1, 0, ""
        try:
            pid, problem = fork_guard(int.from_bytes(flags, "big"))
        except OSError as error:
            failure = error.errno or 1
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server.close()
            os.setsid()
            return guard_command(sockets[0], problem)
        os.close(sockets[0])
        server.sendall(bytes([failure]))


def reap_guards() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def fork_guard(flags: int) -> tuple[int, str]:
    """Fork, into new namespaces if any are given. Return the process id (0 in the child) and why that is not in them.
    Raises OSError."""
    try:
        return kernel().clone(flags) if flags else os.fork(), ""
    except (OSError, ImportError) as error:
        problem = str(error)
    return os.fork(), problem


def guard_command(control: int, problem: str) -> int:
    """Receive the request and run the command in the guard's own process; return the process's exit code. With a
    problem the level does not work."""
    import socket

    with socket.socket(fileno=os.dup(control)) as connection:
        header, streams, _, _ = socket.recv_fds(connection, 8, STREAMS)
        size = int.from_bytes(header, "big")
        data = connection.recv(size, socket.MSG_WAITALL)
    if not data or len(data) < size:
        return 1  # `mz` is gone.
    os.set_inheritable(control, False)
    for number, stream in enumerate(streams, STREAMS - len(streams)):  # Without an input it is the server's /dev/null.
        os.dup2(stream, number)
        os.close(stream)
    request = Request(*marshal.loads(data))
    key = request.env.get(KEY_VARIABLE.encode(), b"")
    with contextlib.suppress(OSError, ImportError):
        # The system shows the key in this process's environment, so that the key finds the guard too.
        kernel().write_variable(KEY_VARIABLE.encode(), key, len(SERVER_MARK))
    try:
        os.chdir(request.cwd)
        if not problem:
            enter_level(request)
    except (OSError, ImportError) as error:
        problem = str(error)
    if problem:
        write_status(control, f"broken {problem}")
        return 1
    return supervise(Tree(request.level, os.fsdecode(key)), control, request)


def write_status(status: int, line: str) -> None:
    with contextlib.suppress(OSError):  # `mz` may be gone.
        os.write(status, line.encode("utf-8", "replace") + b"\n")


def supervise(tree: Tree, control: int, request: Request) -> int:
    write_status(control, "ready")
    if select.select([control], [], [], 0)[0]:
        return 1  # `mz` is gone.
    limit_processes(request)
    try:
        tree.command = os.posix_spawn(
            request.program, request.argv, request.env, setpgroup=0, setsigmask=(), setsigdef=(SIGPIPE, SIGXFSZ)
        )
    except OSError as error:
        write_status(control, f"unstartable {error.errno}")
        return 0
    if excess := wait_for_end(tree, control, request):
        write_status(control, f"exceeded {excess}")
    tree.kill()
    if request.offline:
        write_status(control, f"denied {count_denied()}")
    write_status(control, f"exit {tree.code if tree.code is not None else -SIGKILL}")
    return 0


def count_denied() -> int:
    """Count the attempts in this network namespace to reach beyond the loopback, by the kernel's counters of packets
    without a route and of UDP packets (name queries) to closed ports."""
    attempts = 0
    with open("/proc/net/snmp") as file:
        rows = [line.split() for line in file]
    for names, values in zip(rows[::2], rows[1::2], strict=True):
        row = dict(zip(names, values, strict=True))
        attempts += int(row.get("OutNoRoutes", 0)) + (int(row.get("NoPorts", 0)) if names[0] == "Udp:" else 0)
    if os.path.exists("/proc/net/snmp6"):
        with open("/proc/net/snmp6") as file:
            row = dict(line.split() for line in file)
        attempts += int(row.get("Ip6OutNoRoutes", 0)) + int(row.get("Udp6NoPorts", 0))
    return attempts


def memory_of(pid: int, page_bytes: int) -> int:
    """Return the memory of a process in bytes, with its share of what others use too, or all of that if it hides its
    share; 0 once it has ended. Source: proc(5)."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(b"Pss:")) * 1024
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * page_bytes
    return 0


def limit_processes(request: Request) -> None:
    """Limit this process and those that it starts. No core file is written."""
    for kind, value in ((resource.RLIMIT_FSIZE, request.file_bytes), (resource.RLIMIT_CPU, request.cpu_seconds)):
        hard = resource.getrlimit(kind)[1]
        if value and (hard == resource.RLIM_INFINITY or value < hard):
            resource.setrlimit(kind, (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def wait_for_end(tree: Tree, control: int, request: Request) -> str:
    """Wait until the command or the connection ends; return the limit that the tree exceeds, if that ends it."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll_ms = POLL_MS
    with contextlib.suppress(AttributeError, OSError):
        poll.register(os.pidfd_open(tree.command), select.POLLIN)
        poll_ms = REAP_MS
    while tree.code is None:
        ready = poll.poll(poll_ms)
        if any(fd == control for fd, _ in ready):
            with contextlib.suppress(ConnectionError):
                if os.read(control, 64):
                    tree.terminate()
                    continue
            return ""
        tree.reap()
        if excess := tree.excess(request):
            return excess
    return ""


class Tree:
    """The command and its descendants."""

    def __init__(self, level: str, key: str) -> None:
        self.level, self.key = level, key
        self.command = 0
        self.code: int | None = None
        """Exit code of the command; negative: signal; None while it runs."""

    def reap(self) -> bool:
        """Collect dead children; return False if no child is left."""
        while True:
            try:
                pid, state = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.command:
                self.code = os.waitstatus_to_exitcode(state)

    def excess(self, request: Request) -> str:
        """Return the limit of the tree that it exceeds, for people; empty: none."""
        if self.level == MARKER or self.code is not None:
            return ""
        pids = all_pids() if self.level in NAMESPACES else descendants(os.getpid())
        pages = threads = 0
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{pid}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                pages, threads = pages + int(fields[21]), threads + int(fields[17])
        limit, page_bytes = request.memory_bytes, os.sysconf("SC_PAGE_SIZE")
        if 0 < limit < pages * page_bytes and limit < sum(memory_of(pid, page_bytes) for pid in pids):
            return f"{request.memory_bytes // 1_000_000} MB of memory (`sandbox.memory_mb`)"
        if request.threads and threads > request.threads:
            return f"{request.threads} processes and threads (`sandbox.processes`)"
        return ""

    def terminate(self) -> None:
        if self.level == MARKER:
            send_signal(-self.command, SIGTERM)
        self._signal(SIGTERM)

    def kill(self) -> None:
        """Kill the tree and wait until it is gone."""
        if self.level == MARKER:
            # Only once: the group's number may be reused after its leader is gone.
            send_signal(-self.command, SIGKILL)
        for _ in range(GIVE_UP_SECONDS * 100):
            signalled = self._signal(SIGKILL)
            if not self.reap() and not signalled:
                return
            select.poll().poll(10)

    def _signal(self, number: int) -> bool:
        """Return True if any process was signalled."""
        if self.level in NAMESPACES:
            return send_signal(-1, number)
        pids = descendants(os.getpid()) if self.level == SUBREAPER else pids_with_key(self.key)
        sent = [send_signal(pid, number) for pid in pids]
        return any(sent)


def send_signal(pid: int, number: int) -> bool:
    """Return False if there is no such process."""
    try:
        os.kill(pid, number)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def descendants(root: int) -> list[int]:
    """Return the living descendants of `root`, from /proc."""
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != b"Z":
            children.setdefault(int(parent), []).append(pid)
    pids, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        pids += below
        todo += below
    return pids


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def pids_with_key(key: str) -> list[int]:
    """Return the processes started with this MZ_KEY in their environment, except the caller and its parent."""
    if not key:
        return []
    pids = pids_from_proc(key) if os.path.exists("/proc/self/environ") else pids_from_ps(key)
    return [pid for pid in pids if pid not in (os.getpid(), os.getppid())]


def pids_from_proc(key: str) -> list[int]:
    entry, pids = b"\0" + f"{KEY_VARIABLE}={key}".encode() + b"\0", []
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if entry in b"\0" + file.read():
                    pids.append(pid)
        except OSError:
            continue
    return pids


def pids_from_ps(key: str) -> list[int]:
    """For systems without /proc: `ps` shows the environment after the command line, separated by blanks."""
    with os.popen("ps axeww -o pid=,command=") as lines:
        rows = [line.split() for line in lines]
    return [int(row[0]) for row in rows if f"{KEY_VARIABLE}={key}" in row]


def enter_level(request: Request) -> None:
    """Make this process, which is in the namespaces of its level, the head of a tree that can be killed completely.
    Raises OSError, ImportError."""
    if request.level == SUBREAPER:
        kernel().prctl(PR_SET_CHILD_SUBREAPER, 1)
    if request.level not in NAMESPACES:
        return
    if request.level == USER_NAMESPACE:
        user, group = (f"{number} {number} 1" for number in (request.user, request.group))
        for name, text in (("setgroups", "deny"), ("uid_map", user), ("gid_map", group)):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    if request.offline:
        kernel().enable_loopback()
    kernel().mount(None, b"/", None, MS_REC | MS_SLAVE)
    mounted = mount_all(request.mounts, request.scratch, bool(request.writable))
    if request.writable:
        make_read_only(request.writable, mounted)
    if request.hidden:
        hide(request.hidden)
    os.chdir(request.cwd)  # Its old handle would bypass the mounts.
    kernel().mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    drop_privileges()


def drop_privileges() -> None:
    """Leave what is started from now on, root too, without capabilities but one, and without a way to gain any."""
    for path in filter(os.path.exists, KERNEL_CONTROLS):
        kernel().mount(path, path, None, MS_BIND)
        remount_read_only(path)
    kernel().prctl(PR_SET_NO_NEW_PRIVS, 1)
    with contextlib.suppress(OSError):  # The first one that does not exist.
        for capability in range(CAPABILITIES_MAX):
            if capability != KEPT_CAPABILITY:
                kernel().prctl(PR_CAPBSET_DROP, capability)


def mount_all(mounts: list[tuple[str, bytes, bytes]], scratch: bytes, has_devices: bool) -> dict[bytes, bool]:
    """Make each mount in turn, of what its source was before the first one. A source that is gone is left out; any
    other failure is an error, since a command would see what it must not. Return the targets, with True for those that
    are read-only."""
    sources, read_only = dict[bytes, int](), dict[bytes, bool]()
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files[1], open_files[1]))  # Each source is open for a moment.
    for kind, source, _ in mounts:
        if kind != "empty":
            with contextlib.suppress(FileNotFoundError):
                sources[source] = os.open(source, os.O_PATH | os.O_CLOEXEC)
    if scratch:
        sources[scratch] = os.open(scratch, os.O_RDONLY | os.O_CLOEXEC)
    if has_devices:
        mount_devices()
    for kind, source, target in mounts:
        if kind == "empty" and os.path.isdir(target):
            kernel().mount(b"tmpfs", target, b"tmpfs", MS_NOSUID | MS_NODEV)
            read_only[target] = True
        elif kind != "empty" and source in sources:
            opened = b"/proc/self/fd/%d" % sources[source]
            make_mount_point(target, os.path.isdir(opened))
            if kind == "overlay" and mount_overlay(opened, target, sources.get(scratch)):
                read_only[target] = False
                continue
            kernel().mount(opened, target, None, MS_BIND | MS_REC)
            read_only[target] = kind != "write"
    for target in (target for target, is_read_only in read_only.items() if is_read_only):
        remount_read_only(target)
    for opened_source in sources.values():
        os.close(opened_source)
    resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
    return read_only


def mount_overlay(source: bytes, target: bytes, scratch: int | None) -> bool:
    """Mount a directory's content so that changes are kept apart, in a new directory of `scratch` or else in memory;
    return False if this system cannot."""
    if scratch is not None:
        folder = str(len(os.listdir(scratch)))
        os.mkdir(folder, dir_fd=scratch)
        kept = os.open(folder, os.O_PATH | os.O_CLOEXEC, dir_fd=scratch)
        if mount_layers(source, target, kept):
            return True
    # A directory for changes cannot itself be on an overlay, as all of a container may be.
    kernel().mount(b"tmpfs", target, b"tmpfs", MS_NOSUID | MS_NODEV)
    return mount_layers(source, target, os.open(target, os.O_PATH | os.O_CLOEXEC))


def mount_layers(source: bytes, target: bytes, kept: int) -> bool:
    """Mount an overlay whose changes go to the directory `kept`, which is closed; return True if that worked."""
    for name in ("upper", "work"):
        os.mkdir(name, dir_fd=kept)
    layers = b"lowerdir=%s,upperdir=/proc/self/fd/%d/upper,workdir=/proc/self/fd/%d/work" % (source, kept, kept)
    try:
        for options in (layers, layers + b",userxattr"):
            with contextlib.suppress(OSError):
                kernel().mount(b"overlay", target, b"overlay", MS_NOSUID | MS_NODEV, options)
                return True
    finally:
        os.close(kept)
    return False


def mount_devices() -> None:
    """Cover /dev by the devices that any program may need, and new terminals: root can write to disks without a
    capability, and a user to the terminals where the user works."""
    kept = {}
    for name in DEVICES:
        with contextlib.suppress(OSError):
            kept[name] = os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC)
    kernel().mount(b"tmpfs", b"/dev", b"tmpfs", MS_NOSUID)
    for name, opened in kept.items():
        target, source = f"/dev/{name}".encode(), b"/proc/self/fd/%d" % opened
        make_mount_point(target, os.path.isdir(source))
        kernel().mount(source, target, None, MS_BIND | MS_REC)
        os.close(opened)
    os.mkdir("/dev/pts")
    kernel().mount(b"devpts", b"/dev/pts", b"devpts", MS_NOSUID, b"newinstance,ptmxmode=0666,mode=0620")
    for name, target_path in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), *STANDARD_STREAMS):
        os.symlink(target_path, f"/dev/{name}")


def make_read_only(writable: list[bytes], mounted: dict[bytes, bool]) -> None:
    """Make everything read-only but the writable paths and mounts; outer ones first, since a flag is set for all mounts
    below too. Before Linux 5.12 there is no call for that, and nothing is changed."""
    paths = {path: False for path in writable if os.path.isdir(path)}
    for path in paths.keys() - mounted.keys():
        kernel().mount(path, path, None, MS_BIND | MS_REC)
    try:
        kernel().set_read_only(b"/", True)
    except OSError as error:
        if error.errno != ENOSYS:
            raise
        return
    for path, is_read_only in sorted({**paths, **mounted}.items(), key=lambda item: item[0].count(b"/")):
        kernel().set_read_only(path, is_read_only)


def hide(paths: list[bytes]) -> None:
    """Cover folders by an empty one that nobody can change, and files by /dev/null."""
    kernel().mount(b"tmpfs", b"/proc", b"tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY)  # Until the real one is mounted.
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            kernel().mount(b"/proc" if os.path.isdir(path) else b"/dev/null", path, None, MS_BIND)


def make_mount_point(path: bytes, is_directory: bool) -> None:
    if is_directory:
        os.makedirs(path, exist_ok=True)
    elif not os.path.lexists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))


def remount_read_only(path: bytes) -> None:
    """Make a mount read-only; in a user namespace a remount must keep the other flags."""
    locked = os.statvfs(path).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
    kernel().mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | locked)


class Kernel:
    """System calls that Python 3.11 lacks. Each raises OSError; the constructor ImportError, OSError."""

    def __init__(self) -> None:
        import ctypes
        import fcntl
        import socket
        import struct

        self._errno, self._move, self._long = ctypes.get_errno, ctypes.memmove, ctypes.c_ulong
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.getenv.restype = ctypes.c_void_p
        self._ioctl, self._pack, self._socket = fcntl.ioctl, struct.pack, socket.socket

    def write_variable(self, name: bytes, value: bytes, size: int) -> None:
        """Overwrite an environment variable, whose value has `size` bytes, in place, unless the new value is longer."""
        address = self._libc.getenv(name)
        if address and len(value) <= size:
            self._move(address, value.ljust(size, b"\0"), size)

    def enable_loopback(self) -> None:
        """Enable the loopback, since tests start servers of their own."""
        with self._socket() as any_socket:
            self._ioctl(any_socket, SIOCSIFFLAGS, self._pack("16sh14x", b"lo", IFF_UP))

    def clone(self, flags: int) -> int:
        """Fork this process, which has one thread, into new namespaces; return 0 in the child."""
        number = SYS_CLONE.get(os.uname().machine, -1)  # There is no such call: ENOSYS.
        pid = int(self._libc.syscall(*map(self._long, (number, flags | SIGCHLD, 0, 0, 0, 0))))
        self._check(min(pid, 0), "clone")
        return pid

    def prctl(self, option: int, value: int) -> None:
        zero = self._long(0)
        self._check(self._libc.prctl(option, self._long(value), zero, zero, zero), "prctl")

    def mount(
        self, source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None
    ) -> None:
        result = self._libc.mount(source, target, kind, self._long(flags), data)
        self._check(result, f"mount {os.fsdecode(target)}")

    def set_read_only(self, path: bytes, is_read_only: bool) -> None:
        """Set or clear the flag of the mount at the path and of all below it. Source: mount_setattr(2)."""
        change = MOUNT_ATTR_RDONLY if is_read_only else 0
        attributes = self._pack("QQQQ", change, MOUNT_ATTR_RDONLY - change, 0, 0)
        arguments = (AT_FDCWD, path, AT_RECURSIVE, attributes, self._long(len(attributes)))
        self._check(self._libc.syscall(self._long(SYS_MOUNT_SETATTR), *arguments), f"mount_setattr {os.fsdecode(path)}")

    def _check(self, result: int, call: str) -> None:
        if result != 0:
            number = self._errno()
            raise OSError(number, f"{call}: {os.strerror(number)}")


kernel = functools.cache(Kernel)
