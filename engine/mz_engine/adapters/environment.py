"""Environment of an outside command: its variables, directory, and write access."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Mapping

from mz_engine.agents.guard import MARK
from mz_engine.home import HOME, WORKTREES
from mz_engine.ports import Place

INHERITED = re.compile(
    r"""PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH
    |XDG_(CONFIG|DATA|CACHE|STATE)_HOME|XDG_RUNTIME_DIR
    |(HTTP|HTTPS|ALL|NO)_PROXY|(http|https|all|no)_proxy
    |SSL_CERT_(FILE|DIR)|NODE_EXTRA_CA_CERTS|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE
    |VIRTUAL_ENV|JAVA_HOME|GOPATH|GOROOT|CARGO_HOME|RUSTUP_HOME|NVM_DIR|PYENV_ROOT""",
    re.VERBOSE,
)
"""Variables that locate tools and the network; anything else may be a secret and is passed by name only."""

WRITABLE = ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


def variables(
    environment: Mapping[str, str], key: str, *, passed: Iterable[str] = (), own: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the complete environment of a command: the allow list and `passed` from `environment`, then `extra`, then
    MZ_KEY."""
    names = frozenset(passed)
    kept = {name: value for name, value in environment.items() if name in names or INHERITED.fullmatch(name)}
    return {**kept, **(own or {}), MARK: key}


def worktree(root: pathlib.Path, place: Place) -> pathlib.Path:
    """Return the path of a feature's worktree; it need not exist."""
    return root / HOME / WORKTREES / place.run / place.feature


def fenced(root: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """Return the existing paths of the user's checkout and the repository's configuration and hooks. `root` may itself
    be a linked worktree."""
    directory = git_directory(root)
    if directory is None:
        return ()
    return (root, *(path for path in (directory / "config", directory / "hooks") if path.exists()))


def opened(
    root: pathlib.Path, place: Place, environment: Mapping[str, str], around: pathlib.Path | None = None
) -> tuple[pathlib.Path, ...]:
    """Return what a command may write to although it is in the user's checkout (`checkout`, default `root`): its
    worktree, git's own directory, and a home or temporary directory in there."""
    wanted = [worktree(root, place), git_directory(root)]
    wanted += [pathlib.Path(environment[name]) for name in WRITABLE if environment.get(name)]
    return tuple(path for path in wanted if path is not None and path.is_relative_to(around or root) and path.exists())


def git_directory(root: pathlib.Path) -> pathlib.Path | None:
    """Return the directory that all worktrees of the repository share; None if `root` is no repository."""
    place = root / ".git"
    if place.is_file():
        place = root / place.read_text().removeprefix("gitdir:").strip()
        common = place / "commondir"
        if common.is_file():
            place = place / common.read_text().strip()
    return place.resolve() if place.is_dir() else None
