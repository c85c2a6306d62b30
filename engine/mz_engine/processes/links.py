"""Find what a command in a worktree would use in place of the worktree's own code: installations of Python and Node
projects that lead into the user's checkout or into another worktree, and copies of a project, which never change.

Only the environment that the command uses is read, and nothing is started: `.pth` files, loaders of editable
installations, `direct_url.json`, and symbolic links."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from mz_engine.processes.environment import ENVIRONMENT_MARK

PYTHON_PROGRAMS = ("python", "python3", "pytest")
SITE_PATTERNS = (
    *("lib/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/dist-packages"),
    "versions/*/lib/python3*/site-packages",  # From the programs of pyenv, which start the selected version's.
)
USER_SITE_PATTERN = ".local/lib/python3*/site-packages"
NODE_FOLDERS = ("node_modules", "*/node_modules", "*/*/node_modules")
PATH_VARIABLES = ("PYTHONPATH", "NODE_PATH", "RUBYLIB", "CLASSPATH")
INSTALLED = frozenset({"node_modules", "site-packages"})
"""Folders of installed packages: what leads into them leads to no code of the project."""
COPIED = re.compile(r'"dir_info"\s*:\s*\{(?![^}]*"editable"\s*:\s*true)')
"""A `direct_url.json` of a folder that was installed, but not as editable."""
READ_BYTES_MAX = 1_000_000
CACHED_MAX = 64


class EnvironmentLink(NamedTuple):
    """A file of an environment, or a variable, that leads out of the worktree."""

    source: str
    target: Path
    is_copy: bool = False
    """The environment has a copy of the target."""

    def __str__(self) -> str:
        return f"{self.source} {'holds a copy of' if self.is_copy else 'leads to'} {self.target}"


def environment_links(worktree: Path, checkout: Path, variables: Mapping[str, str]) -> tuple[EnvironmentLink, ...]:
    """Return what leads a command with these variables from its worktree into the rest of the checkout."""
    entries = [(name, Path(entry)) for name in PATH_VARIABLES for entry in variables.get(name, "").split(os.pathsep)]
    links = [EnvironmentLink(name, entry) for name, entry in entries if entry.is_relative_to(checkout)]
    links += _node_links(worktree, checkout)
    for folder in _site_folders(variables.get("PATH", os.defpath), variables.get("HOME", "")):
        with suppress(OSError):
            links += _site_links(folder, checkout, folder.stat().st_mtime_ns)
    return tuple(
        link
        for link in dict.fromkeys(links)
        if link.is_copy
        or not (link.target.is_relative_to(worktree) or INSTALLED.intersection(link.target.relative_to(checkout).parts))
    )


# Python ---------------------------------------------------------------------------------------------------------------
@lru_cache(CACHED_MAX)
def _site_folders(path: str, home: str) -> Iterable[Path]:
    """Return the folders with the packages of the Python programs that a command finds first."""
    paths = (shutil.which(name, path=path) for name in PYTHON_PROGRAMS)
    folders = dict[Path, None]()
    for program in map(Path, filter(None, paths)):
        prefix = program.parent.parent
        prefixes = [prefix]
        settings = prefix / ENVIRONMENT_MARK
        if not settings.is_file() or re.search(r"include-system-site-packages\s*=\s*true", _read_text(settings)):
            prefixes.append(program.resolve().parent.parent)
            folders |= dict.fromkeys(Path(home).glob(USER_SITE_PATTERN) if home else ())
        folders |= dict.fromkeys(path for top in prefixes for pattern in SITE_PATTERNS for path in top.glob(pattern))
    return dict.fromkeys(folder.resolve() for folder in folders)


@lru_cache(CACHED_MAX)
def _site_links(site: Path, checkout: Path, modified_ns: int) -> tuple[EnvironmentLink, ...]:
    """Return the links in a folder of packages, which was `modified_ns` when a package was last installed."""
    links = list[EnvironmentLink]()
    for entry in _entries(site):
        if entry.is_symlink():
            target = Path(os.path.realpath(entry.path))
            links += [EnvironmentLink(entry.path, target)] if target.is_relative_to(checkout) else []
        elif entry.name.endswith(".dist-info"):
            file = Path(entry.path, "direct_url.json")
            text = unquote(_read_text(file))
            is_copy = COPIED.search(text) is not None
            links += [EnvironmentLink(str(file), path, is_copy) for path in _paths_in(text, checkout)]
        elif entry.name.endswith((".pth", ".egg-link")) or re.fullmatch(r"_.*(finder|editable.*)\.py", entry.name):
            text = _read_text(Path(entry.path))
            links += [EnvironmentLink(entry.path, path) for path in _paths_in(text, checkout)]
    return tuple(links)


def _paths_in(text: str, checkout: Path) -> Iterator[Path]:
    """Yield the paths of the checkout that a text names."""
    for match in re.finditer(rf"{re.escape(str(checkout))}(?:/[^'\"\n;,]*)?(?=['\"\n;,]|\Z)", text):
        yield Path(match[0])


# Node -----------------------------------------------------------------------------------------------------------------
def _node_links(worktree: Path, checkout: Path) -> Iterator[EnvironmentLink]:
    """Yield links of the worktree's dependencies, and of those in the folders above it, which Node searches next."""
    if not (worktree / "package.json").is_file():
        return
    own = [folder for pattern in NODE_FOLDERS for folder in worktree.glob(pattern)]
    for folder in (*own, checkout / "node_modules"):
        for name, entry in _packages(folder):
            target = Path(os.path.realpath(entry.path))
            is_reached = folder in own or not os.path.lexists(worktree / "node_modules" / name)
            if is_reached and target.is_relative_to(checkout):
                yield EnvironmentLink(entry.path, target)


def _packages(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the linked packages in a `node_modules`, by name."""
    for entry in _entries(folder):
        if entry.is_symlink():
            yield entry.name, entry
        elif entry.name.startswith("@"):
            yield from ((f"{entry.name}/{scoped.name}", scoped) for scoped in _entries(entry) if scoped.is_symlink())


# ----------------------------------------------------------------------------------------------------------------------
def _entries(folder: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def _read_text(file: Path) -> str:
    with suppress(OSError), open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        return (stream.read(READ_BYTES_MAX) or b"").decode("utf-8", "replace")
    return ""
