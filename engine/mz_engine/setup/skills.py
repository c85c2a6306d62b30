"""Install skills from a folder or a git repository, and tell what became of them. Nothing of a skill is executed: a
repository is checked out without hooks, filters and submodules, and files are only copied."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from mz_engine.cards.skills import SKILL_FILE, SKILLS_FOLDER, parse_skill
from mz_engine.decoding.structs import did_you_mean
from mz_engine.decoding.text_file import decode_text, read_text
from mz_engine.decoding.yaml import decode_yaml
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.files import write_bytes, write_project_file
from mz_engine.git.process import NO_USER_CONFIG, run_git, safe_environment, user_environment
from mz_engine.model.config import Name

LOCK_FILE = "skills.lock"
LOCK_HEADER = "# Written by `mz skills`: where each installed skill comes from, and what it was then. Commit it.\n"
FILES_MAX, BYTES_MAX = 200, 2_000_000
"""Of one skill."""
GIT_SOURCE = re.compile(r"(?:\w+://|[\w.-]+@[\w.-]+:).+|.+\.git(?:#.*)?\Z")
URL_WITH_SECRET = re.compile(r"https?://[^/]*@|\w+://[^/]*:[^/]*@", re.IGNORECASE)
GIT_SETTINGS = "protocol.ext.allow=never", "core.hooksPath=/dev/null"
SkillState = Literal["current", "missing", "drifted", "foreign"]
"""As installed; gone; changed since; not installed by mz."""


class LockedSkill(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    source: str
    """A folder, relative to the repository's root or absolute, or the URL of a git repository."""
    commit: str = ""
    """Of a git repository."""
    version: str = ""
    sha256: str
    """Of names and contents of its files."""


class SkillsLock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `skills.lock`."""

    version: Annotated[int, Meta(ge=1, le=1)] = 1
    skills: dict[Name, LockedSkill] = {}


class OfferedSkill(NamedTuple):
    """A skill in a source."""

    locked: LockedSkill
    files: dict[str, bytes]
    """By path in the skill's folder."""


def read_lock(root: Path) -> SkillsLock:
    """Read the file; empty without one. Raises MzError (MZ20nn)."""
    text = read_text(root / LOCK_FILE, LOCK_FILE) if os.path.lexists(root / LOCK_FILE) else ""
    return decode_yaml(text, LOCK_FILE, SkillsLock)


def write_lock(root: Path, skills: Mapping[str, LockedSkill]) -> None:
    """Write the file atomically, as YAML with strings in JSON quotes."""
    lines = [f"{LOCK_HEADER}version: 1\nskills:{'' if skills else ' {}'}"]
    lines += [f"  {name}: {msgspec.json.encode(skills[name]).decode()}" for name in sorted(skills)]
    write_project_file(root, LOCK_FILE, "\n".join(lines) + "\n", "try again")


def digest_of(files: Mapping[str, bytes]) -> str:
    parts = (f"{path}\0{len(files[path])}\0".encode() + files[path] for path in sorted(files))
    return sha256(b"".join(parts)).hexdigest()


def skill_states(root: Path, lock: SkillsLock) -> dict[str, SkillState]:
    """Return the state of each installed skill and of each other folder in `skills`, sorted by name. Raises MzError
    (MZ3028) for a link."""
    here = {path.parent.name for path in (root / SKILLS_FOLDER).glob(f"*/{SKILL_FILE}")}
    return {name: _state(_folder_of(root, name), lock.skills.get(name)) for name in sorted({*here, *lock.skills})}


def _folder_of(root: Path, name: str) -> Path:
    """Return the folder of an installed skill. Raises MzError (MZ3028) if it, or the folder `skills`, is a link."""
    for path in (SKILLS_FOLDER, f"{SKILLS_FOLDER}/{name}"):
        if (root / path).is_symlink():
            raise _refused(str(root), path, "a link")
    return root / SKILLS_FOLDER / name


def _state(folder: Path, locked: LockedSkill | None) -> SkillState:
    if locked is None:
        return "foreign"
    if not folder.is_dir():
        return "missing"
    try:
        return "current" if digest_of(_files_below(folder)) == locked.sha256 else "drifted"
    except MzError:
        return "drifted"


def install_skills(
    root: Path, source: str, names: Collection[str], environment: Mapping[str, str]
) -> dict[str, LockedSkill]:
    """Copy the skills of a source, or only those named, to `skills/`; update an unchanged earlier copy. Return their
    entries of the lock. Raises MzError: MZ3028 for a skill that cannot be used, MZ3029 for one that would be lost."""
    offered = read_source(source, environment, names)
    for name in names:
        if name not in offered:
            hint = did_you_mean(name, sorted(offered))
            raise MzError("MZ3022", f"{source} has no skill `{name[:80]}`", hint=hint)
    lock, chosen = read_lock(root), {name: offered[name] for name in (names or offered)}
    for name, skill in chosen.items():
        _refuse_loss(root, name, lock, skill.locked)
    _write_skills(root, chosen)
    entries = {name: skill.locked for name, skill in chosen.items()}
    if Path(source).is_dir() and not Path(source).is_absolute():
        relative = os.path.relpath(source, root)
        entries = {name: msgspec.structs.replace(locked, source=relative) for name, locked in entries.items()}
    write_lock(root, {**lock.skills, **entries})
    return entries


def restore_skills(root: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Copy the missing skills of the lock again, and return their names. Raises MzError (MZ3029) for a skill that
    differs from the lock, here or in its source."""
    lock, restored = read_lock(root), dict[str, OfferedSkill]()
    for name, state in skill_states(root, lock).items():
        if state == "drifted":
            raise MzError("MZ3029", f"the skill `{name}` was changed since it was installed", hint=LOSS_HINT)
        if state == "missing":
            locked = lock.skills[name]
            address = f"{locked.source}#{locked.commit}" if locked.commit else str(root / locked.source)
            skill = read_source(address, environment, (name,)).get(name)
            if skill is None or skill.locked.sha256 != locked.sha256:
                hint = "look at what changed there, then install it again without `--locked`"
                raise MzError("MZ3029", f"{locked.source} has another `{name}` than {LOCK_FILE}", hint=hint)
            restored[name] = skill
    _write_skills(root, restored)
    return tuple(restored)


def uninstall_skill(root: Path, name: str) -> None:
    """Remove an unchanged copy and its entry of the lock. Raises MzError: MZ3022 unknown, MZ3029 changed."""
    lock = read_lock(root)
    if name not in lock.skills:
        hint = did_you_mean(name, sorted(lock.skills))
        raise MzError("MZ3022", f"mz has not installed a skill `{name[:80]}`", hint=hint)
    _refuse_loss(root, name, lock)
    shutil.rmtree(_folder_of(root, name), ignore_errors=True)
    write_lock(root, {other: locked for other, locked in lock.skills.items() if other != name})


LOSS_HINT = "move its folder away, or take the change back"


def _refuse_loss(root: Path, name: str, lock: SkillsLock, offered: LockedSkill | None = None) -> None:
    """Raise MzError (MZ3029) if the folder is neither as locked nor what is offered, as after a crash before the lock
    was written."""
    folder, locked = _folder_of(root, name), lock.skills.get(name)
    if os.path.lexists(folder) and "current" not in (_state(folder, locked), _state(folder, offered)):
        reason = "is not installed by mz" if locked is None else "was changed since it was installed"
        raise MzError("MZ3029", f"{SKILLS_FOLDER}/{name} {reason}", hint=LOSS_HINT)


def _write_skills(root: Path, skills: Mapping[str, OfferedSkill]) -> None:
    for name, skill in skills.items():
        target = _folder_of(root, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
            for path, data in skill.files.items():
                write_bytes(Path(scratch) / name / path, data)
            shutil.rmtree(target, ignore_errors=True)
            (Path(scratch) / name).rename(target)


# sources --------------------------------------------------------------------------------------------------------------
def read_source(source: str, environment: Mapping[str, str], names: Collection[str]) -> dict[str, OfferedSkill]:
    """Return the skills in a folder, or in a git repository at `URL#COMMIT`: the source itself, or each folder in it or
    in its `skills`; with names, folders of other names may have errors. Raises MzError: MZ1003 if it cannot be read
    or its URL has a secret, MZ3028 for what is refused."""
    if URL_WITH_SECRET.match(source):
        raise MzError("MZ1003", "the URL of the skills has a user name or password", hint="use a credential helper")
    if not Path(source).is_dir() and GIT_SOURCE.match(source):
        with tempfile.TemporaryDirectory(prefix="mz-skills-") as scratch:
            return _read_repository(source, Path(scratch), environment, names)
    if not Path(source).is_dir():
        raise MzError("MZ1003", f"{source} is neither a folder nor the URL of a git repository")
    return _read_folder(Path(source), source, names)


def _read_repository(
    source: str, scratch: Path, environment: Mapping[str, str], names: Collection[str]
) -> dict[str, OfferedSkill]:
    url, _, commit = source.partition("#")
    top, own = scratch / "files", {**safe_environment(environment), **NO_USER_CONFIG}
    top.mkdir()

    def git(*args: str, variables: Mapping[str, str] = own) -> str:
        result = run_git(args, scratch, variables, settings=GIT_SETTINGS)
        if result.exit_code:
            raise MzError("MZ1003", f"git cannot read {source}: {result.stderr}", hint="check URL and commit")
        return result.stdout.decode().strip()

    git("clone", "--bare", "--quiet", "--template=", "--", url, "repository", variables=user_environment(environment))
    inside = f"--git-dir={scratch / 'repository'}"
    name = git(inside, "rev-parse", "--verify", "--end-of-options", f"{commit or 'HEAD'}^{{commit}}")
    git(inside, f"--work-tree={top}", "read-tree", "--reset", "-u", name)
    return _read_folder(top, url, names, name)


def _read_folder(top: Path, source: str, names: Collection[str], commit: str = "") -> dict[str, OfferedSkill]:
    folders = [top] if os.path.lexists(top / SKILL_FILE) else []
    for pattern in ("*", f"{SKILLS_FOLDER}/*"):
        folders += [path.parent for path in sorted(top.glob(f"{pattern}/{SKILL_FILE}"))]
    for folder in folders:
        if folder != top and (folder.is_symlink() or folder.parent.is_symlink()):
            raise _refused(source, folder.relative_to(top).as_posix(), "a link")
    if not folders:
        raise MzError("MZ3028", f"{source} has no skill", hint=f"a skill is a folder with a file {SKILL_FILE}")
    skills = dict[str, OfferedSkill]()
    for folder in folders:
        name = "/".join((source, *folder.relative_to(top).parts))
        try:
            files = _files_below(folder, name, left_out=".git")
            skill = parse_skill(decode_text(files[SKILL_FILE], f"{name}/{SKILL_FILE}"), None, f"{name}/{SKILL_FILE}")
        except MzError:
            if names and folder != top and folder.name not in names:
                continue
            raise
        locked = LockedSkill(source=source, commit=commit, version=skill.version, sha256=digest_of(files))
        skills[skill.name] = OfferedSkill(locked, files)
    return skills


def _files_below(folder: Path, name: str = "", left_out: str = "") -> dict[str, bytes]:
    """Return all files of a folder by their path in it, without entries called `left_out`; `name` is that of the folder
    in messages. Raises MzError (MZ3028) for links and special files."""
    files, size = dict[str, bytes](), 0
    for directory, names, leaves in os.walk(folder):
        names[:] = [entry for entry in names if entry.lower() != left_out]
        for path in (Path(directory) / entry for entry in (*names, *leaves) if entry.lower() != left_out):
            relative = path.relative_to(folder).as_posix()
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise _refused(name, relative, "a link or a special file")
            if path.is_file():
                size += path.stat().st_size
                if len(files) == FILES_MAX or size > BYTES_MAX:
                    message = f"{name}: a skill has at most {FILES_MAX} files with {BYTES_MAX:,} bytes"
                    raise MzError("MZ3028", message, hint="leave out what agents do not read")
                files[relative] = path.read_bytes()
    return files


def _refused(folder: str, path: str, kind: str) -> MzError:
    return MzError("MZ3028", f"{folder}: {path[:200]} is {kind}", hint="a skill has plain files in its own folder only")
