"""What one command sees and may do: mounts, devices and capabilities where there are namespaces, else Landlock. It runs
in the command's guard and imports nothing of mz."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
from collections.abc import Sequence

SIOCSIFFLAGS, IFF_UP = 0x8914, 1
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 32, 4096, 16384, 1 << 19
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
SYS_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220, "ppc64le": 120}
"""By machine, where its arguments begin with the flags. Source: clone(2), "C library/kernel differences"."""
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE, SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_CREATE_RULESET_VERSION, LANDLOCK_RULE_PATH_BENEATH = 1, 1
LANDLOCK_LIST, LANDLOCK_READ, LANDLOCK_WRITE = 0x0008, 0x000D, 0x7FF2
"""Rights: list folders; execute, read files and folders; and all others of version 3, such as to write and remove."""
LANDLOCK_OF_FILES = 0x4007
"""Those of the rights that a file can have."""
LANDLOCK_VERSION_MIN, LANDLOCK_SCOPES_VERSION, LANDLOCK_ABSTRACT_SOCKETS, LANDLOCK_SIGNALS = 3, 6, 1, 2
"""Linux 6.2 and 6.12."""
ENOSYS = 38
CAPABILITIES_MAX = 64
KEPT_CAPABILITY = 31
"""CAP_SETFCAP, without which root cannot make a user namespace, as sandboxes of agents do. It gives no access, and no
program gains a capability by it, since none can gain any."""
KERNEL_CONTROLS = (b"/proc/sys", b"/proc/sysrq-trigger", b"/proc/irq", b"/proc/bus")
"""What root may write there needs no capability."""

EMPTY_DOCUMENTS = {b"json": b"{}\n", b"xml": b"<settings/>\n", b"Config": b"<configuration/>\n"}
"""What stands for hidden files, by their ending: Composer, Maven and NuGet fail at an empty one."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
SHARED_MEMORY = "/dev/shm"
TEMPORARY, FOLDER_OF_SOCKETS, SMALL = ("own", b"/tmp", b"/tmp"), b"/run", b"size=16m,mode=0755"
STANDARD_STREAMS = (("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2"))


def drop_privileges() -> None:
    """Leave what is started from now on, root too, without capabilities but one, and without a way to gain any."""
    for path in filter(os.path.exists, KERNEL_CONTROLS):
        kernel().mount(path, path, None, MS_BIND)
        remount_read_only(path)
    kernel().prctl(PR_SET_NO_NEW_PRIVS, 1)
    with contextlib.suppress(OSError):  # A kernel without Landlock.
        kernel().landlock((), LANDLOCK_ABSTRACT_SOCKETS)
    drop_capabilities()


def restrict_paths(paths: list[list[bytes]]) -> None:
    """Let what is started from now on read and change nothing else, and signal no process of others, where there are no
    mount namespaces. Raises OSError if the kernel has no Landlock that can."""
    kernel().prctl(PR_SET_NO_NEW_PRIVS, 1)
    kernel().landlock(paths, LANDLOCK_ABSTRACT_SOCKETS | LANDLOCK_SIGNALS)
    drop_capabilities()


def drop_capabilities() -> None:
    with contextlib.suppress(OSError):  # The first one that does not exist.
        for capability in range(CAPABILITIES_MAX):
            if capability != KEPT_CAPABILITY:
                kernel().prctl(PR_CAPBSET_DROP, capability)


def mount_all(mounts: list[tuple[str, bytes, bytes]], scratch: bytes, confined: bool) -> None:
    """Make each mount, whose kinds are those of `supervise.Mount`, in turn, of what its source was before the first
    one. A source that is gone is left out; any other failure is an error, since a command would see what it must not.
    If `confined`, everything else is read-only, except before Linux 5.12, which has no call for that, and `/dev` has
    few devices."""
    sources, read_only = dict[bytes, int](), dict[bytes, bool]()
    has_all = confined and kernel().can_set_read_only
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files[1], open_files[1]))  # Each source is open for a moment.
    for kind, *paths in mounts:
        for path in () if kind in ("empty", "own") else paths if kind == "kept" else paths[:1]:
            with contextlib.suppress(FileNotFoundError):
                sources[path] = sources.get(path) or os.open(path, os.O_PATH | os.O_CLOEXEC)
    if scratch:
        sources[scratch] = os.open(scratch, os.O_RDONLY | os.O_CLOEXEC)
    if confined:
        mount_devices()
        read_only[b"/dev"] = False
    covers: tuple[bytes, ...] = (b"/dev/",)
    for kind, source, target in mounts:
        names = {target, os.readlink(b"/proc/self/fd/%d" % sources[target]) if target in sources else target}
        if has_all and kind == "read" and source == target and not any(name.startswith(covers) for name in names):
            continue  # It is read-only like everything else.
        covers += tuple(name + b"/" for name in names)
        if kind == "empty" and not os.path.isfile(target):
            make_mount_point(target, is_directory=True)  # Below a folder of its own it is not there.
            kernel().mount(b"tmpfs", target, b"tmpfs", MS_NOSUID | MS_NODEV)
            read_only[target] = True
        elif kind == "own":
            mount_own(target, sources.get(scratch), TEMPORARY in mounts)
            read_only[target] = False
        elif kind == "kept":
            if source in sources and os.path.isdir(target):
                opened, read_only[target] = b"/proc/self/fd/%d" % sources[target], False
                if not mount_layers(opened, target, sources[source]) and not mount_overlay(opened, target, None):
                    kernel().mount(opened, target, None, MS_BIND | MS_REC)
        elif source in sources:
            opened = b"/proc/self/fd/%d" % sources[source]
            make_mount_point(target, os.path.isdir(opened))
            if kind == "overlay" and mount_overlay(opened, target, sources.get(scratch)):
                read_only[target] = False
                continue
            kernel().mount(opened, target, None, MS_BIND | MS_REC)
            read_only[target] = kind != "write"
    make_read_only(read_only, has_all)
    for opened_source in sources.values():
        os.close(opened_source)
    resource.setrlimit(resource.RLIMIT_NOFILE, open_files)


def mount_own(target: bytes, scratch: int | None, has_temporary: bool) -> None:
    """Mount an empty directory: for sockets a small one in memory; `/var/tmp` is the same as `/tmp` if that is mounted.
    Changes of others are in `scratch`, below an overlay where that is possible: the table of mounts shows where a bound
    directory is, and Codex then looks for it there."""
    make_mount_point(target, is_directory=True)
    if target == b"/var/tmp" and has_temporary:
        kernel().mount(b"/tmp", target, None, MS_BIND)
        return
    is_small = target.startswith(FOLDER_OF_SOCKETS)
    kernel().mount(b"tmpfs", target, b"tmpfs", MS_NOSUID | MS_NODEV, SMALL if is_small else None)
    if is_small or scratch is None:
        return
    prefix = new_prefix(scratch)
    if not mount_layers(target, target, scratch, prefix):
        kernel().mount(b"/proc/self/fd/%d/%supper" % (scratch, prefix), target, None, MS_BIND)


def new_prefix(scratch: int) -> bytes:
    return b"%d-" % len(os.listdir(scratch))


def mount_overlay(source: bytes, target: bytes, scratch: int | None) -> bool:
    """Mount a directory's content so that changes are kept apart, in `scratch` or else in memory; return False if this
    system cannot."""
    if scratch is not None and mount_layers(source, target, scratch, new_prefix(scratch)):
        return True
    # A directory for changes cannot itself be on an overlay, as all of a container may be.
    kernel().mount(b"tmpfs", target, b"tmpfs", MS_NOSUID | MS_NODEV)
    opened = os.open(target, os.O_PATH | os.O_CLOEXEC)
    try:
        return mount_layers(source, target, opened)
    finally:
        os.close(opened)


def mount_layers(source: bytes, target: bytes, kept: int, prefix: bytes = b"") -> bool:
    """Mount an overlay whose changes go to the directory `kept`, to names with this prefix; return True if that
    worked."""
    names = [prefix + name for name in (b"upper", b"work")]
    for name in names:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=kept)
    upper, work = (b"/proc/self/fd/%d/%s" % (kept, name) for name in names)
    layers = b"lowerdir=%s,upperdir=%s,workdir=%s" % (source, upper, work)
    # In a user namespace the other one is mounted too, but removes no directory.
    for options in (layers, layers + b",userxattr")[:: 1 if is_first_namespace() else -1]:
        with contextlib.suppress(OSError):
            kernel().mount(b"overlay", target, b"overlay", MS_NOSUID | MS_NODEV, options)
            return True
    return False


@functools.cache
def is_first_namespace() -> bool:
    """Return True if this is the user namespace of the system."""
    with open("/proc/self/uid_map") as file:
        return file.read().split() == ["0", "0", "4294967295"]


def mount_devices() -> None:
    """Cover /dev by the devices that any program may need, and new terminals: root can write to disks without a
    capability, and a user to the terminals where the user works."""
    kept = {}
    for name in DEVICES:
        with contextlib.suppress(OSError):
            kept[name] = os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC)
    kernel().mount(b"tmpfs", b"/dev", b"tmpfs", MS_NOSUID, b"mode=0755")
    for name, opened in kept.items():
        target = f"/dev/{name}".encode()
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        kernel().mount(b"/proc/self/fd/%d" % opened, target, None, MS_BIND)
        os.close(opened)
    for name in ("/dev/pts", SHARED_MEMORY):
        os.mkdir(name)
    kernel().mount(b"tmpfs", SHARED_MEMORY.encode(), b"tmpfs", MS_NOSUID | MS_NODEV)
    kernel().mount(b"devpts", b"/dev/pts", b"devpts", MS_NOSUID, b"newinstance,ptmxmode=0666,mode=0620")
    for name, target_path in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), *STANDARD_STREAMS):
        os.symlink(target_path, f"/dev/{name}")


def make_read_only(mounted: dict[bytes, bool], has_all: bool) -> None:
    """Make mounts read-only, or everything but the others; outer ones first, since a flag is set for all mounts below
    too."""
    if not has_all:
        for path in (path for path, is_read_only in mounted.items() if is_read_only):
            remount_read_only(path)
        return
    for path, is_read_only in sorted({b"/": True, **mounted}.items(), key=lambda item: item[0].count(b"/")):
        kernel().set_read_only(path, is_read_only)


def hide(paths: list[bytes]) -> None:
    """Cover folders by an empty one that nobody can change, and files by an empty one or what their readers need."""
    empty = b"/dev/empty"
    os.mkdir(empty)
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samefile(path, empty):
                continue  # Covered under another name; what is mounted on the empty folder itself stays.
            try:
                kernel().mount(empty, path, None, MS_BIND)
            except NotADirectoryError:
                hide_file(path)
    os.rmdir(empty)  # Who has it mounted can make nothing there.


def hide_file(path: bytes) -> None:
    ending = os.path.basename(path).rpartition(b".")[2]
    if ending not in EMPTY_DOCUMENTS:
        kernel().mount(b"/dev/null", path, None, MS_BIND)
        return
    document = b"/dev/" + ending
    with open(document, "wb") as file:
        file.write(EMPTY_DOCUMENTS[ending])
    kernel().mount(document, path, None, MS_BIND)
    remount_read_only(path)
    os.unlink(document)


def make_mount_point(path: bytes, is_directory: bool) -> None:
    if is_directory:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError:  # A link into a folder of the command's own, where nothing is yet.
            os.makedirs(os.path.realpath(path), exist_ok=True)
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
        self._libc.mount.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p]
        self._libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
        self._libc.syscall(ctypes.c_long(SYS_MOUNT_SETATTR), -1, None, 0, None, ctypes.c_ulong(0))
        self.can_set_read_only = ctypes.get_errno() != ENOSYS
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
        pid = int(self._libc.syscall(*map(self._long, (number, flags, 0, 0, 0, 0))))
        self._check(min(pid, 0), "clone")
        return pid

    def prctl(self, option: int, value: int) -> None:
        self._check(self._libc.prctl(option, value, 0, 0, 0), "prctl")

    def mount(
        self, source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None
    ) -> None:
        self._check(self._libc.mount(source, target, kind, flags, data), "mount", target)

    def set_read_only(self, path: bytes, is_read_only: bool) -> None:
        """Set or clear the flag of the mount at the path and of all below it. Source: mount_setattr(2)."""
        change = MOUNT_ATTR_RDONLY if is_read_only else 0
        attributes = self._pack("QQQQ", change, MOUNT_ATTR_RDONLY - change, 0, 0)
        arguments = (AT_FDCWD, path, AT_RECURSIVE, attributes, self._long(len(attributes)))
        self._check(self._libc.syscall(self._long(SYS_MOUNT_SETATTR), *arguments), "mount_setattr", path)

    def landlock(self, paths: Sequence[Sequence[bytes]], scopes: int) -> None:
        """Keep this process and its children from other paths, if any are given, and from abstract sockets and
        processes of others, where the kernel can. Source: landlock(7)."""
        long, version_flag = self._long, LANDLOCK_CREATE_RULESET_VERSION
        version = int(self._libc.syscall(long(SYS_LANDLOCK_CREATE_RULESET), None, long(0), long(version_flag)))
        handled = LANDLOCK_READ | LANDLOCK_WRITE if any(paths) else 0
        if handled and version < LANDLOCK_VERSION_MIN:
            raise OSError(ENOSYS, f"landlock: {os.strerror(ENOSYS)}")
        attributes = self._pack("QQQ", handled, 0, scopes if version >= LANDLOCK_SCOPES_VERSION else 0)
        create = (long(SYS_LANDLOCK_CREATE_RULESET), attributes, long(len(attributes)), long(0))
        rules = int(self._libc.syscall(*create))
        self._check(min(rules, 0), "landlock_create_ruleset")
        rights_of = (LANDLOCK_LIST, LANDLOCK_READ, LANDLOCK_READ | LANDLOCK_WRITE)
        for rights, path in ((rights, path) for rights, some in zip(rights_of, paths, strict=False) for path in some):
            with contextlib.suppress(FileNotFoundError):
                opened = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
                rule = self._pack("=Qi", rights if os.path.isdir(path) else rights & LANDLOCK_OF_FILES, opened)
                add = (long(SYS_LANDLOCK_ADD_RULE), long(rules), long(LANDLOCK_RULE_PATH_BENEATH), rule, long(0))
                self._check(self._libc.syscall(*add), "landlock_add_rule", path)
                os.close(opened)
        result = self._libc.syscall(long(SYS_LANDLOCK_RESTRICT_SELF), long(rules), long(0))
        os.close(rules)
        self._check(result, "landlock_restrict_self")

    def _check(self, result: int, call: str, path: bytes = b"") -> None:
        if result != 0:
            number = self._errno()
            raise OSError(number, f"{call} {os.fsdecode(path)}".strip() + f": {os.strerror(number)}")


kernel = functools.cache(Kernel)
