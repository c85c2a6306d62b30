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
import time
from pathlib import Path
from typing import Any, NoReturn

from mz_recordings.cassette.placeholders import MachineValues, expand
from mz_recordings.replay.tree_id import tree_id

DRIFT = 3
MISSING = 4
KEY = re.compile(r"([^/]+)/([^/]+)/([^/]+)/([^/]+)/(\d+)/(\d+)/agent\.(.+)")
SESSION = "<SESSION>"
TOLERATED = frozenset({"MZ_KEY", "PWD", "OLDPWD", "SHLVL", "_", "__CF_USER_TEXT_ENCODING"})
"""The call's own key, and variables that shells and systems add."""
HANGING_FAILURES = frozenset({"timeout", "idle"})
"""Failures by a limit of mz: the stand-in hangs until the limit ends it."""
DIFF_LINES_MAX = 40
CHUNK = 1 << 16
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
        recording, folder = _find(library, os.environ.get("MZ_KEY", ""))
        values = _compare(recording, folder, inherited, DifferenceNotes(journal, recording))
        code = _serve(recording, folder, values)
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
def _find(library: Path, key: str) -> tuple[dict[str, Any], Path]:
    parts = KEY.fullmatch(key)
    if parts is None:
        raise StandInError(MISSING, f"MZ_KEY is {key!r}, which is not the key of an agent call")
    _, feature, phase, unit, iteration, attempt, role = parts.groups()
    wanted = {
        "feature": feature,
        "phase": phase,
        "unit": "" if unit == "-" else unit,
        "iteration": int(iteration),
        "attempt": int(attempt),
        "role": role,
    }
    path = library / feature / f"{_name(wanted)}.json"
    if not path.is_file():
        raise StandInError(MISSING, _missing_message(library, wanted))
    return _load(path), path.parent


def _name(identity: dict[str, Any]) -> str:
    """As `mz_recordings.cassette.model.Identity.name`, without its imports."""
    unit = identity["unit"]
    parts = (
        identity["phase"],
        f"unit={unit}" if re.fullmatch(r"[ia]\d+", unit) else unit,
        f"i{identity['iteration']}" if identity["iteration"] > 1 else "",
        f"a{identity['attempt']}" if identity["attempt"] > 1 else "",
        identity["role"] if identity["role"] != "builder" else "",
    )
    return ".".join(part for part in parts if part)


def _missing_message(library: Path, wanted: dict[str, Any]) -> str:
    """Return a message that names the recording with the most similar identity."""
    identities = [_identity(_load(path)) for path in _recordings(library)]
    name = f"{wanted['feature']}/{_name(wanted)}"
    if not identities:
        return f"there is no recording {name}: the cassette {library} is empty"
    weights = {"feature": 8, "phase": 8, "unit": 4, "role": 4, "iteration": 2, "attempt": 1}
    nearest = max(
        identities, key=lambda identity: sum(n for field, n in weights.items() if identity[field] == wanted[field])
    )
    differing = [f"{field} {nearest[field] or '-'}" for field in weights if nearest[field] != wanted[field]]
    return (
        f"there is no recording {name} in {library}\n"
        f"nearest: {nearest['feature']}/{_name(nearest)} ({', '.join(differing)})"
    )


def _identity(recording: dict[str, Any]) -> dict[str, Any]:
    defaults = {"unit": "", "iteration": 1, "attempt": 1, "role": "builder"}
    return {**defaults, **recording["identity"]}


def _recordings(library: Path) -> list[Path]:
    return [path for path in sorted(library.glob("*/*.json")) if not path.name.endswith(".out.json")]


def _version(library: Path, program: str) -> str:
    """Return the version of this program: a cassette may hold recordings of several agents."""
    for path in _recordings(library):
        recording = _load(path)
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
class DifferenceNotes:
    """Differences from the recording: rejected, or with a journal written to it."""

    def __init__(self, journal: str, recording: dict[str, Any]) -> None:
        identity = _identity(recording)
        self._file = Path(journal) / identity["feature"] / f"{_name(identity)}.json" if journal else None
        self._differences: dict[str, object] = {}

    @property
    def has_journal(self) -> bool:
        return self._file is not None

    def add(self, field: str, value: object, message: str) -> None:
        """Note a difference. Raises StandInError without a journal and for another tree."""
        self._differences[field] = value
        if self._file is None or field == "tree":
            self.close()
            raise StandInError(DRIFT, message)

    def close(self) -> None:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(self._differences))


def _compare(recording: dict[str, Any], folder: Path, inherited: str, notes: DifferenceNotes) -> MachineValues:
    """Compare all inputs. Raises StandInError at the first difference that may not be noted."""
    values = _machine_values(recording)
    _compare_arguments(recording, values, notes)
    _compare_environment(recording, inherited, notes)
    _compare_prompt(_read(recording, folder, "prompt"), values, notes)
    _compare_tree(recording, notes)
    notes.close()
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


def _compare_arguments(recording: dict[str, Any], values: MachineValues, notes: DifferenceNotes) -> None:
    expected = [word.replace(SESSION, values.session) if values.session else word for word in recording["argv"][1:]]
    if expected != sys.argv[1:]:
        tokenised = [word.replace(values.session, SESSION) if values.session else word for word in sys.argv[1:]]
        message = "called with other arguments\n" + _diff("\n".join(expected), "\n".join(sys.argv[1:]))
        notes.add("argv", [recording["argv"][0], *tokenised], message)
    if SESSION in recording["argv"] and not re.fullmatch(r"[0-9A-Za-z_.-]{1,128}", values.session):
        raise StandInError(DRIFT, f"called with an invalid session {values.session!r}")


def _compare_environment(recording: dict[str, Any], inherited: str, notes: DifferenceNotes) -> None:
    """Compare names only; values of the environment are never read or shown."""
    allowed = TOLERATED.union(recording["environment"])
    surplus = sorted(name for name in os.environ if name not in allowed and not re.fullmatch(inherited, name, re.X))
    if surplus:
        notes.add("environment", surplus, f"called with variables that no agent call may see: {', '.join(surplus)}")


def _compare_prompt(recorded: bytes, values: MachineValues, notes: DifferenceNotes) -> None:
    prompt, expected = sys.stdin.buffer.read(), expand(recorded, values)
    if prompt != expected:
        prompt_text = prompt.decode("utf-8", "replace")
        diff = "" if notes.has_journal else _diff(expected.decode("utf-8", "replace"), prompt_text)
        notes.add("prompt", prompt_text, "the prompt differs from the recording\n" + diff)


def _compare_tree(recording: dict[str, Any], notes: DifferenceNotes) -> None:
    paths, modules = _committed_paths()
    tree = tree_id(paths, "sha1" if len(recording["tree_before"]) == SHA1_DIGITS else "sha256", modules)
    if tree != recording["tree_before"]:
        recorded_tree = recording["tree_before"]
        notes.add("tree", tree, f"the worktree is the tree {tree}; the recorded call started from {recorded_tree}")


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


def _diff(expected: str, actual: str) -> str:
    import difflib  # Only on a difference: it takes as long to load as everything else.

    lines = list(
        difflib.unified_diff(expected.splitlines(), actual.splitlines(), "recorded", "given", lineterm="", n=1)
    )
    omitted = len(lines) - DIFF_LINES_MAX
    return "\n".join(lines[:DIFF_LINES_MAX] + ([f"... and {omitted} more lines"] if omitted > 0 else []))


# reply ----------------------------------------------------------------------------------------------------------------
def _serve(recording: dict[str, Any], folder: Path, values: MachineValues) -> int | None:
    """Write the output and apply the changes; the last line, which reports the end, follows the changes."""
    stdout = expand(_read(recording, folder, "stdout"), values, in_json=True)
    stderr = expand(_read(recording, folder, "stderr"), values)
    patch = _read(recording, folder, "patch")
    last = stdout.rstrip(b"\n").rfind(b"\n") + 1
    pace = recording.get("pace")
    _write(1, stdout[:last], pace)
    if patch:
        _git("apply", "--binary", "--whitespace=nowarn", "-", stdin=patch)
    _write(1, stdout[last:], pace)
    _write(2, stderr)
    failure = recording.get("failure") or {}
    while failure.get("code") in HANGING_FAILURES:
        signal.pause()
    code = recording["exit"]
    return code if code is None else int(code)


def _write(stream: int, data: bytes, pace: dict[str, int] | None = None) -> None:
    size, pause_ms = (max(1, pace["piece_bytes"]), pace["pause_ms"]) if pace else (CHUNK, 0)
    for start in range(0, len(data), size):
        view = memoryview(data)[start : start + size]
        while view:
            view = view[os.write(stream, view) :]
        if pause_ms:
            time.sleep(pause_ms / 1000)
