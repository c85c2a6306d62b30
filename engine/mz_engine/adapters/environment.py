"""Environment of an outside command: its variables, directory, and write access."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Mapping

from mz_engine.agents.guard import KEY_VARIABLE
from mz_engine.home import MZ_FOLDER, WORKTREES_FOLDER
from mz_engine.ports import FeatureWorktree

INHERITED_VARIABLES = re.compile(
    r"""PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH
    |XDG_(CONFIG|DATA|CACHE|STATE)_HOME|XDG_RUNTIME_DIR
    |(HTTP|HTTPS|ALL|NO)_PROXY|(http|https|all|no)_proxy
    |SSL_CERT_(FILE|DIR)|NODE_EXTRA_CA_CERTS|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE
    |VIRTUAL_ENV|JAVA_HOME|GOPATH|GOROOT|CARGO_HOME|RUSTUP_HOME|NVM_DIR|PYENV_ROOT""",
    re.VERBOSE,
)
"""Variables that locate tools and the network; anything else may be a secret and is passed by name only."""

WRITABLE_VARIABLES = ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


def command_environment(
    environment: Mapping[str, str], key: str, *, passed: Iterable[str] = (), extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the complete environment of a command: the allow list and `passed` from `environment`, then `extra`, then
    MZ_KEY."""
    names = frozenset(passed)
    inherited = {name: value for name, value in environment.items() if name in names or INHERITED_VARIABLES.fullmatch(name)}
    return {**inherited, **(extra or {}), KEY_VARIABLE: key}


def worktree_path(root: pathlib.Path, worktree: FeatureWorktree) -> pathlib.Path:
    """Return the path of a feature's worktree; it need not exist."""
    return root / MZ_FOLDER / WORKTREES_FOLDER / worktree.run / worktree.feature


def protected_paths(root: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """Return the existing paths of the user's checkout and the repository's configuration and hooks. `root` may itself
    be a linked worktree."""
    directory = git_directory(root)
    if directory is None:
        return ()
    return (root, *(path for path in (directory / "config", directory / "hooks") if path.exists()))


def writable_paths(
    root: pathlib.Path, feature_worktree: FeatureWorktree, environment: Mapping[str, str], checkout: pathlib.Path | None = None
) -> tuple[pathlib.Path, ...]:
    """Return what a command may write to although it is in the user's checkout (`checkout`, default `root`): its
    worktree, git's own directory, and a home or temporary directory in there."""
    candidates = [worktree_path(root, feature_worktree), git_directory(root)]
    candidates += [pathlib.Path(environment[name]) for name in WRITABLE_VARIABLES if environment.get(name)]
    return tuple(path for path in candidates if path is not None and path.is_relative_to(checkout or root) and path.exists())


def git_directory(root: pathlib.Path) -> pathlib.Path | None:
    """Return the directory that all worktrees of the repository share; None if `root` is no repository."""
    path = root / ".git"
    if path.is_file():
        path = root / path.read_text().removeprefix("gitdir:").strip()
        common = path / "commondir"
        if common.is_file():
            path = path / common.read_text().strip()
    return path.resolve() if path.is_dir() else None
