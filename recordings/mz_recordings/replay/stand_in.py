"""Stand-in: takes the place of an agent's CLI on PATH, and replies from a cassette.

Compares its input (arguments, prompt, environment, tree) with the recording, writes the recorded output with the values
of this machine, applies the recorded changes to the tree, and exits as the agent did. Standard library only, and little
of it: it starts as often as an agent.

Exits with 3 and a diff on stderr if the input differs, with 4 if there is no recording. With a journal it notes
differences and replies all the same, as long as the recorded changes fit the tree.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from mz_recordings.cassette.placeholders import MachineValues, call_name, expand

DRIFT = 3
MISSING = 4
KEY = re.compile(
    r"[^/]+/(?P<feature>[^/]+)/(?P<phase>[^/]+)/(?P<unit>[^/]+)/(?P<iteration>\d+)/(?P<attempt>\d+)/agent\.(?P<role>.+)"
)
SESSION = "<SESSION>"
SESSION_ID = re.compile(r"[0-9A-Za-z_.-]{1,128}")
TOLERATED = frozenset({"MZ_KEY", "PWD", "OLDPWD", "SHLVL", "_", "__CF_USER_TEXT_ENCODING"})
"""The call's own key, and variables that shells and systems add."""
HANGING_FAILURES = frozenset({"timeout", "idle"})
"""Failures by a limit of mz: the stand-in hangs until the limit ends it, or in a lost call until mz is stopped."""
DIFF_LINES_MAX = 40
SHA1_DIGITS = 40
SUBMODULE = b"160000 "

FORMATS = (3,)
GIT = ("git", "-c", "core.autocrlf=false", "-c", "core.excludesFile=/dev/null", "-c", "core.attributesFile=/dev/null")


class StandInError(Exception):
    """The input differs from the recording."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def install(
    directory: Path, cassette: Path, agents: tuple[str, ...], inherited: str, journal: Path | None = None
) -> None:
    """Write one small executable per agent command into `directory`, to be put first on PATH.

    `inherited`: regular expression of the variables that every command may see. `journal`: directory that gets a file
    `<feature>/<name>.json` for each call; without it any difference is rejected.
    """
    directory.mkdir(parents=True, exist_ok=True)
    import_root = str(Path(__file__).resolve().parents[2])
    for agent in agents:
        path = directory / agent
        arguments = ", ".join(map(repr, (str(cassette.resolve()), inherited, str(journal or ""))))
        # A shell starts the interpreter, because a `#!` line has a limited length.
        path.write_text(
            f"#!/bin/sh\n'''exec' '{sys.executable}' -I -S \"$0\" \"$@\"\n'''\n"
            f"import sys\nsys.path.insert(0, {import_root!r})\n"
            f"from mz_recordings.replay.stand_in import main\nmain({arguments})\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def main(cassette: str, inherited: str, journal: str = "") -> NoReturn:
    """Run as an installed executable."""
    library = Path(cassette)
    try:
        if "--version" in sys.argv[1:]:
            sys.stdout.write(f"{_version(library, Path(sys.argv[0]).name)} (recorded)\n")
            sys.exit(0)
        recording, path = _find(library, os.environ.get("MZ_KEY", ""))
        values = _compare(recording, path, inherited, journal)
        code = _serve(recording, path.parent, values)
    except StandInError as mismatch:
        sys.stderr.write(f"stand-in: {mismatch}\n")
        sys.exit(mismatch.code)
    except Exception as error:  # Must not look like a failure of the agent.
        sys.stderr.write(f"stand-in: internal error: {type(error).__name__}: {error}\n")
        sys.exit(DRIFT)
    if code is not None and code < 0:
        with contextlib.suppress(OSError):  # The handler of SIGKILL cannot be set.
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code or 0)


# lookup ---------------------------------------------------------------------------------------------------------------
def parse_key(key: str) -> dict[str, Any] | None:
    """Return feature, phase, unit, iteration, attempt and role of the call with this key; None: it names no call."""
    parts = KEY.fullmatch(key)
    if parts is None:
        return None
    numbers = {name: int(parts[name]) for name in ("iteration", "attempt")}
    return {**parts.groupdict(), **numbers, "unit": "" if parts["unit"] == "-" else parts["unit"]}


def _find(library: Path, key: str) -> tuple[dict[str, Any], Path]:
    """Return the recording of the call with this key, and its file."""
    call = parse_key(key)
    if call is None:
        raise StandInError(MISSING, f"MZ_KEY is {key!r}, which is not the key of an agent call")
    path = library / call.pop("feature") / f"{call_name(**call)}.json"
    if not path.is_file():
        raise StandInError(MISSING, f"there is no recording {path.parent.name}/{path.stem} in {library}")
    return _load(path), path


def _version(library: Path, program: str) -> str:
    """Return the version of this program: a cassette may hold recordings of several agents."""
    for recording in (_load(path) for path in sorted(library.glob("*/*.json")) if not path.match("*.out.json")):
        if recording["version"] and recording["argv"][:1] == [program]:
            return str(recording["version"])
    raise StandInError(MISSING, f"the cassette {library} has no recording that names the version of {program}")


def _load(path: Path) -> dict[str, Any]:
    try:
        recording = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StandInError(MISSING, f"{path} cannot be read: {error}") from error
    if not isinstance(recording, dict) or recording.get("format") not in FORMATS:
        raise StandInError(MISSING, f"{path} has a format that this mz cannot read")
    return recording


def _read(recording: dict[str, Any], folder: Path, kind: str) -> bytes:
    for file in recording["files"]:
        if file["kind"] == kind:
            data: bytes = (folder / file["name"]).read_bytes()
            if hashlib.sha256(data).hexdigest() != file["sha256"]:
                raise StandInError(DRIFT, f"{folder / file['name']} was changed since it was recorded")
            return data
    return b""


# comparison -----------------------------------------------------------------------------------------------------------
class CallInput(NamedTuple):
    """What an agent is given, or what a recording says that it was given."""

    argv: Sequence[str]
    """The program, and its arguments."""
    environment: Iterable[str]
    """Names of variables."""
    prompt: bytes
    """Its standard input."""


class Difference(NamedTuple):
    """A difference between a call and its recording."""

    field: str
    """As in `mz_recordings.findings.model.CallMismatch`."""
    value: object
    message: str
    recorded: str = ""
    current: str = ""


def _compare(recording: dict[str, Any], path: Path, inherited: str, journal: str) -> MachineValues:
    """Compare all inputs. Raises StandInError for another tree, and without a journal for any difference."""
    values, noted = _machine_values(recording), dict[str, object]()
    prompt = _read(recording, path.parent, "prompt")
    try:
        for difference in _differences(recording, prompt, inherited, values):
            noted[difference.field] = difference.value
            if not journal or difference.field == "tree":
                raise StandInError(DRIFT, difference.message + _diff(difference.recorded, difference.current))
    finally:
        if journal:
            file = Path(journal, path.parent.name, path.name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(noted))
    return values


def _machine_values(recording: dict[str, Any]) -> MachineValues:
    """Return the values of this call; the session is the argument at the position of the recorded one."""
    expected, arguments = recording["argv"][1:], sys.argv[1:]
    session = next(
        (argument for recorded, argument in zip(expected, arguments, strict=False) if recorded == SESSION), ""
    )
    worktree = str(Path.cwd())
    repository = worktree.partition("/.mz/worktrees/")[0]
    home = os.environ.get("HOME", "")
    return MachineValues(worktree, repository, home, os.environ.get("USER") or Path(home).name, session)


def input_differences(
    recorded: CallInput, current: CallInput, inherited: re.Pattern[str], values: MachineValues
) -> Iterator[Difference]:
    """Yield the differences of a call from its recording, except that of the tree."""
    session, (program, *arguments) = values.session, recorded.argv
    expected = [word.replace(SESSION, session) if session else word for word in arguments]
    if expected != list(current.argv[1:]):
        tokenised = [word.replace(session, SESSION) if session else word for word in current.argv[1:]]
        lines = "\n".join(expected), "\n".join(current.argv[1:])
        yield Difference("argv", [program, *tokenised], "called with other arguments", *lines)
    # Names only: values of the environment are never read or shown.
    allowed = TOLERATED.union(recorded.environment)
    surplus = sorted(name for name in current.environment if name not in allowed and not inherited.fullmatch(name))
    if surplus:
        message = f"called with variables that no agent call may see: {', '.join(surplus)}"
        yield Difference("environment", surplus, message)
    prompt, expected_prompt = current.prompt, expand(recorded.prompt, values)
    if prompt != expected_prompt:
        text = prompt.decode("utf-8", "replace")
        message = "the prompt differs from the recording"
        yield Difference("prompt", text, message, expected_prompt.decode("utf-8", "replace"), text)


def _differences(
    recording: dict[str, Any], recorded_prompt: bytes, inherited: str, values: MachineValues
) -> Iterator[Difference]:
    if SESSION in recording["argv"] and not SESSION_ID.fullmatch(values.session):
        raise StandInError(DRIFT, f"called with an invalid session {values.session!r}")
    recorded = CallInput(recording["argv"], recording["environment"], recorded_prompt)
    current = CallInput(sys.argv, os.environ, sys.stdin.buffer.read())
    yield from input_differences(recorded, current, re.compile(inherited), values)
    paths, modules = _committed_paths()
    recorded_tree = recording["tree_before"]
    tree = tree_id(paths, "sha1" if len(recorded_tree) == SHA1_DIGITS else "sha256", modules)
    if tree != recorded_tree:
        message = f"the worktree is the tree {tree}; the recorded call started from {recorded_tree}"
        yield Difference("tree", tree, message)


def _committed_paths() -> tuple[list[bytes], dict[bytes, str]]:
    """Return what git would commit here: paths, and commits of submodules by path."""
    paths: list[bytes] = []
    modules: dict[bytes, str] = {}
    # The tag distinguishes tracked files, `H 100644 <id> 0\t<path>`, from others, `? <path>`.
    for line in _git("ls-files", "-t", "-s", "--cached", "--others", "--exclude-standard", "-z").split(b"\0")[:-1]:
        status, _, path = (b"", b"", line[2:]) if line.startswith(b"? ") else line.partition(b"\t")
        paths.append(path)
        if status[2:].startswith(SUBMODULE):
            modules[path] = status.split(b" ")[2].decode()
    return paths, modules


def _git(*arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        [*GIT, *arguments],
        input=stdin,
        env={
            **os.environ,
            "PATH": _path_without_stand_ins(),
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
        },
        capture_output=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        stderr = done.stderr.decode("utf-8", "replace").strip()
        raise StandInError(DRIFT, f"`git {arguments[0]}` failed in {Path.cwd()}: {stderr}")
    out: bytes = done.stdout
    return out


def _path_without_stand_ins() -> str:
    """Return PATH without the folder of the stand-ins, so that none calls another."""
    stand_in_folder = Path(sys.argv[0]).resolve().parent
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if Path(folder).resolve() != stand_in_folder)


def _diff(recorded: str, current: str) -> str:
    import difflib  # Only on a difference: it takes as long to load as everything else.

    lines = list(
        difflib.unified_diff(recorded.splitlines(), current.splitlines(), "recorded", "given", lineterm="", n=1)
    )
    omitted = len(lines) - DIFF_LINES_MAX
    shown = lines[:DIFF_LINES_MAX] + ([f"... and {omitted} more lines"] if omitted > 0 else [])
    return "".join(f"\n{line}" for line in shown)


# reply ----------------------------------------------------------------------------------------------------------------
def _serve(recording: dict[str, Any], folder: Path, values: MachineValues) -> int | None:
    """Write the output and apply the changes; the last line, which reports the end, follows the changes."""
    stdout = expand(_read(recording, folder, "stdout"), values, in_json=True)
    stderr = expand(_read(recording, folder, "stderr"), values)
    patch = _read(recording, folder, "patch")
    last = stdout.rstrip(b"\n").rfind(b"\n") + 1
    _write(1, stdout[:last])
    if patch:
        _git("apply", "--binary", "--whitespace=nowarn", "-", stdin=patch)
    _write(1, stdout[last:])
    _write(2, stderr)
    failure = recording.get("failure") or {}
    while failure.get("code") in HANGING_FAILURES or recording["outcome"] == "lost":
        signal.pause()
    code = recording["exit"]
    return code if code is None else int(code)


def _write(stream: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(stream, view) :]


# the tree -------------------------------------------------------------------------------------------------------------
def tree_id(paths: Iterable[bytes], algorithm: str, modules: Mapping[bytes, str]) -> str:
    """Return git's id of the tree with these files and links, relative to the working directory, without leaving a
    trace: no filter, index or new object. Missing paths, directories and paths behind a link are left out.

    `algorithm`: the repository's object format, sha1 or sha256. `modules`: commits of submodules by path, included if
    their directory exists.
    """
    root: dict[bytes, Any] = {}
    links: dict[bytes, bool] = {}
    for path in set(paths):
        mode = _mode_of(path)
        if mode is None or _is_behind_link(path, links):
            continue
        if stat.S_ISDIR(mode):
            if path in modules:
                _add_path(root, path, modules[path])
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            _add_path(root, path, path)
    return _tree_id(root, algorithm).hex()


def _mode_of(path: bytes) -> int | None:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None


def _is_behind_link(path: bytes, links: dict[bytes, bool]) -> bool:
    """Return True if a directory of the path is a link, which git does not follow."""
    folder = path.rpartition(b"/")[0]
    if not folder:
        return False
    if folder not in links:
        links[folder] = stat.S_ISLNK(_mode_of(folder) or 0) or _is_behind_link(folder, links)
    return links[folder]


def _add_path(root: dict[bytes, Any], path: bytes, content: bytes | str) -> None:
    *folders, name = path.split(b"/")
    for folder in folders:
        root = root.setdefault(folder, {})
    root[name] = content


def _tree_id(folder: dict[bytes, Any], algorithm: str) -> bytes:
    entries = []
    for name, content in folder.items():
        if isinstance(content, dict):
            # git sorts a directory as if its name ended in a slash, but not a submodule.
            entries.append((name + b"/", b"40000 " + name, _tree_id(content, algorithm)))
        elif isinstance(content, str):
            entries.append((name, b"160000 " + name, bytes.fromhex(content)))
        else:
            mode, data = _file(Path(os.fsdecode(content)))
            entries.append((name, mode + name, _object_id(b"blob", data, algorithm)))
    listing = b"".join(entry + b"\0" + oid for _, entry, oid in sorted(entries))
    return _object_id(b"tree", listing, algorithm)


def _file(path: Path) -> tuple[bytes, bytes]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return b"120000 ", os.fsencode(path.readlink())
    return (b"100755 " if mode & stat.S_IXUSR else b"100644 "), path.read_bytes()


def _object_id(kind: bytes, data: bytes, algorithm: str) -> bytes:
    return hashlib.new(algorithm, b"%s %d\0" % (kind, len(data)) + data).digest()
