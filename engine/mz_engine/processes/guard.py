"""The process between `mz` and one external command, forked by a server that `mz` starts. It imports nothing of mz but
`sandbox`.

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
import marshal
import os
import resource
import select
from typing import NamedTuple

from mz_engine.processes import sandbox
from mz_engine.processes.sandbox import kernel

NAMESPACE = "namespace"
"""PID and mount namespace; the guard is process 1 there, so the kernel kills all processes with it. Needs root."""
USER_NAMESPACE = "user-namespace"
"""The same, inside a user namespace."""
BUBBLEWRAP = "bubblewrap"
"""Mounts and a PID namespace by that program, and as the level subreaper."""
LANDLOCK = "landlock"
"""As the next one, and the kernel refuses to read or change other paths."""
SUBREAPER = "subreaper"
"""Orphans are reparented to the guard, which kills its descendants until none is left."""
MARKER = "marker"
"""Kill processes with the same MZ_KEY in their environment, and the command's process group."""
LEVELS = (NAMESPACE, USER_NAMESPACE, BUBBLEWRAP, LANDLOCK, SUBREAPER, MARKER)
MOUNTING = (NAMESPACE, USER_NAMESPACE, BUBBLEWRAP)
"""Those where commands see mounts of their own."""

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
NAMESPACES = {NAMESPACE: CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID}
NAMESPACES[USER_NAMESPACE] = NAMESPACES[NAMESPACE] | CLONE_NEWUSER
PR_SET_CHILD_SUBREAPER = 36
FLAGS_BYTES = 4
STATUS_FD = 9
"""Through which bubblewrap tells `mz` that it started the command, and how that ended."""

KEY_VARIABLE = "MZ_KEY"

SIGKILL, SIGPIPE, SIGTERM, SIGCHLD, SIGXFSZ = 9, 13, 15, 17, 25  # The same on every POSIX system.
STREAMS = 3  # Standard input, output and error.
SERVER_MARK = "-" * 4000
"""The server's MZ_KEY: room for the key that each guard writes there, by which other processes find it."""

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
    allowed: list[list[bytes]]
    """At the level landlock: folders whose names may be read, what may be read, and what may also be changed; empty:
    nothing is restricted."""
    read_only: bool
    """With a mount namespace everything is read-only but mounts that are writable, and `/dev` has what any program may
    need."""
    offline: bool
    """In a network namespace with only the loopback."""
    scratch: bytes
    """An empty directory for what the command changes in overlays and its own folders; empty: in memory."""
    memory_bytes: int
    """Limits of the tree's memory and threads, except at the level marker; 0: none."""
    threads: int
    file_bytes: int
    """Limits of each process: size of a file, seconds of CPU; 0: none."""
    cpu_seconds: int
    end_argv: list[bytes]
    """Run before and after the tree is killed: it ends what the tree started elsewhere, such as a container."""

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
        return kernel().clone(flags | SIGCHLD) if flags else os.fork(), ""
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
    if request.level == BUBBLEWRAP:
        os.dup2(control, STATUS_FD)
    try:
        tree.command = os.posix_spawn(
            request.program, request.argv, request.env, setpgroup=0, setsigmask=(), setsigdef=(SIGPIPE, SIGXFSZ)
        )
    except OSError as error:
        write_status(control, f"unstartable {error.errno}")
        return 0
    if excess := wait_for_end(tree, control, request):
        write_status(control, f"exceeded {excess}")
    end_elsewhere(request)  # An engine ends a container better while its own processes live.
    tree.kill()
    end_elsewhere(request)
    if request.offline:
        write_status(control, f"denied {count_denied()}")
    write_status(control, f"exit {tree.code if tree.code is not None else -SIGKILL}")
    return 0


def end_elsewhere(request: Request) -> None:
    pid = os.posix_spawn(request.end_argv[0], request.end_argv, request.env) if request.end_argv else 0
    for _ in range(GIVE_UP_SECONDS * 50 if pid else 0):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        select.poll().poll(10)


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
        is_over = limit < pages * page_bytes and limit < sum(memory_of(pid, page_bytes) for pid in pids)
        shared_bytes = 0  # Of files in the tree's own shared memory, which need not be part of any process.
        if limit and self.level in NAMESPACES and request.read_only:
            files = os.statvfs(sandbox.SHARED_MEMORY)
            shared_bytes = (files.f_blocks - files.f_bfree) * files.f_frsize
        if limit and (is_over or limit < shared_bytes):
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
        pids = pids_with_key(self.key) if self.level == MARKER else descendants(os.getpid())
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
    if request.level in (BUBBLEWRAP, LANDLOCK, SUBREAPER):
        kernel().prctl(PR_SET_CHILD_SUBREAPER, 1)
    if request.level == LANDLOCK:
        sandbox.restrict_paths(request.allowed)
    if request.level not in NAMESPACES:
        return
    if request.level == USER_NAMESPACE:
        user, group = (f"{number} {number} 1" for number in (request.user, request.group))
        for name, text in (("setgroups", "deny"), ("uid_map", user), ("gid_map", group)):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    if request.offline:
        kernel().enable_loopback()
    kernel().mount(None, b"/", None, sandbox.MS_REC | sandbox.MS_SLAVE)
    sandbox.mount_all(request.mounts, request.scratch, request.read_only)
    if request.hidden:
        sandbox.hide(request.hidden)
    os.chdir(request.cwd)  # Its old handle would bypass the mounts.
    kernel().mount(b"proc", b"/proc", b"proc", sandbox.MS_NOSUID | sandbox.MS_NODEV | sandbox.MS_NOEXEC)
    sandbox.drop_privileges()
