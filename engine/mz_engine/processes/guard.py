"""The supervisor process between `mz` and one external command.

`supervise.START` starts it. It imports little, since each start costs CPU time, and nothing of mz. Arguments:

    LEVEL LIFELINE STATUS FOREIGN [[+]FENCE ...] -- PROGRAM ARGV0 [ARG ...]

LIFELINE is the read end of a pipe that `mz` holds: a byte asks the tree to end, end of file kills it. However `mz`
dies, the kernel closes the pipe, so nothing outlives `mz`. STATUS is the write end of a pipe for status lines: `ready`,
then `exit CODE` (negative: signal) once the tree is gone; or `unstartable ERRNO`; or `broken TEXT` if the level does
not work. FOREIGN is a variable that Python may have set and the command must not see (empty: none). The command uses
the guard's standard streams. Each FENCE is a path that is read-only to the tree if the level has a mount namespace; a
path after `+` stays writable inside a read-only directory. `-network` among them asks for a network namespace with only
the loopback; `denied NUMBER` before `exit` then counts attempts to reach further. It needs one of the two namespace
levels."""

from __future__ import annotations

import os
import select

NAMESPACE = "namespace"
"""PID and mount namespace; the guard is its process 1, so the kernel kills all processes with it. Needs root."""
USER_NAMESPACE = "user-namespace"
"""The same, inside a user namespace."""
SUBREAPER = "subreaper"
"""Orphans are reparented to the guard, which kills its descendants until none is left."""
MARKER = "marker"
"""Kill processes with the same MZ_KEY in their environment, and the command's process group."""
LEVELS = (NAMESPACE, USER_NAMESPACE, SUBREAPER, MARKER)

KEY_VARIABLE = "MZ_KEY"

# Importing `signal` costs as much as everything else; these numbers are the same on every POSIX system.
SIGKILL, SIGPIPE, SIGTERM = 9, 13, 15
SIGXFSZ = 25

OFFLINE = "-network"

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 32, 4096, 16384, 1 << 19
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

REAP_MS = 500
"""Maximum time that a dead orphan stays a zombie."""
POLL_MS = 20
"""The same without a pidfd to poll for the command's end."""
GIVE_UP_SECONDS = 10
"""A process that survives SIGKILL for this long (blocked on a dead disk) is left to the kernel."""


def main(arguments: list[str]) -> int:
    """Run the command; return 0 unless the level does not work. Never raises."""
    level, lifeline, status = arguments[0], int(arguments[1]), int(arguments[2])
    cut = arguments.index("--")
    os.set_inheritable(lifeline, False)
    os.set_inheritable(status, False)
    os.environ.pop(arguments[3], None)
    try:
        first = enter_level(level, arguments[4:cut])
    except (OSError, ImportError) as error:
        write_status(status, f"broken {error}")
        return 1
    if first:
        return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])  # The head, outside its namespace.
    offline = OFFLINE in arguments[4:cut]
    return supervise(Tree(level), lifeline, status, arguments[cut + 1], arguments[cut + 2 :], offline)


def write_status(status: int, line: str) -> None:
    try:
        os.write(status, line.encode("utf-8", "replace") + b"\n")
    except OSError:
        pass  # `mz` is gone.


def supervise(tree: Tree, lifeline: int, status: int, program: str, argv: list[str], offline: bool) -> int:
    write_status(status, "ready")
    try:
        tree.command = os.posix_spawn(
            program, argv, os.environ, setpgroup=0, setsigmask=(), setsigdef=(SIGPIPE, SIGXFSZ)
        )
    except OSError as error:
        write_status(status, f"unstartable {error.errno}")
        return 0
    wait_for_end(tree, lifeline)
    tree.kill()
    if offline:
        write_status(status, f"denied {count_denied()}")
    write_status(status, f"exit {tree.code if tree.code is not None else -SIGKILL}")
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


def wait_for_end(tree: Tree, lifeline: int) -> None:
    """Wait until the command or the lifeline ends."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll_ms = POLL_MS
    if hasattr(os, "pidfd_open"):
        try:
            poll.register(os.pidfd_open(tree.command), select.POLLIN)
            poll_ms = REAP_MS
        except OSError:
            poll_ms = POLL_MS
    while tree.code is None:
        ready = poll.poll(poll_ms)
        if any(fd == lifeline for fd, _ in ready):
            if not os.read(lifeline, 64):
                return
            tree.terminate()
        tree.reap()


class Tree:
    """The command and its descendants."""

    def __init__(self, level: str) -> None:
        self.level = level
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
        if self.level in (NAMESPACE, USER_NAMESPACE):
            return send_signal(-1, number)
        pids = descendants(os.getpid()) if self.level == SUBREAPER else pids_with_key(os.environ.get(KEY_VARIABLE, ""))
        sent = [send_signal(pid, number) for pid in pids]
        return any(sent)


def send_signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
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


def enter_level(level: str, fences: list[str]) -> int:
    """Make this process (or a fork of it, inside a namespace) the head of a tree that can be killed completely.

    Return 0 in the head, the head's process id in the process outside. Raises OSError, ImportError.
    """
    if level == MARKER:
        return 0
    kernel = Kernel()
    if level == SUBREAPER:
        kernel.prctl(PR_SET_CHILD_SUBREAPER, 1)
        return 0
    uid, gid = os.geteuid(), os.getegid()
    offline = OFFLINE in fences
    more = (CLONE_NEWUSER if level == USER_NAMESPACE else 0) | (CLONE_NEWNET if offline else 0)
    kernel.unshare(CLONE_NEWNS | CLONE_NEWPID | more)
    if level == USER_NAMESPACE:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{uid} {uid} 1")
        write("/proc/self/gid_map", f"{gid} {gid} 1")
    if offline:
        enable_loopback()
    kernel.mount(None, "/", None, MS_REC | MS_SLAVE)
    mount_fences(kernel, [fence for fence in fences if fence != OFFLINE])
    head = os.fork()
    if head == 0:
        kernel.prctl(PR_SET_PDEATHSIG, SIGKILL)
        kernel.mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    return head


def enable_loopback() -> None:
    """Enable the loopback, since tests start servers of their own."""
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def mount_fences(kernel: Kernel, fences: list[str]) -> None:
    """Mount the paths read-only. Writable exceptions are bind-mounted first, so that they are unaffected. The working
    directory is entered again, since the old handle would bypass the mounts."""
    for path in fences:
        if path.startswith("+"):
            kernel.keep_writable(path[1:])
    for path in fences:
        if not path.startswith("+") and f"+{path}" not in fences:
            kernel.make_read_only(path)
    os.chdir(os.getcwd())


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


class Kernel:
    """System calls that Python 3.11 lacks. Each raises OSError; the constructor ImportError, OSError."""

    def __init__(self) -> None:
        import ctypes

        self._errno = ctypes.get_errno
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._long = ctypes.c_ulong

    def unshare(self, flags: int) -> None:
        self._check(self._libc.unshare(flags), "unshare")

    def prctl(self, option: int, value: int) -> None:
        zero = self._long(0)
        self._check(self._libc.prctl(option, self._long(value), zero, zero, zero), "prctl")

    def mount(self, source: str | None, target: str, kind: str | None, flags: int) -> None:
        source_bytes, kind_bytes = (os.fsencode(text) if text is not None else None for text in (source, kind))
        self._check(
            self._libc.mount(source_bytes, os.fsencode(target), kind_bytes, self._long(flags), None), f"mount {target}"
        )

    def make_read_only(self, path: str) -> None:
        """Make a file or directory read-only in this namespace. Failures are ignored: refs, configuration and hooks are
        compared after each call anyway."""
        try:
            self.mount(path, path, None, MS_BIND | MS_REC)
            # A remount in a user namespace must keep these flags.
            locked = os.statvfs(path).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
            self.mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | locked)
        except OSError:
            return

    def keep_writable(self, path: str) -> None:
        """Keep a directory writable inside one that is made read-only later."""
        try:
            self.mount(path, path, None, MS_BIND | MS_REC)
        except OSError:
            return

    def _check(self, result: int, call: str) -> None:
        if result != 0:
            number = self._errno()
            raise OSError(number, f"{call}: {os.strerror(number)}")
