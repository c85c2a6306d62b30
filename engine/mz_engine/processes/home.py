"""What agents and commands see of HOME and of folders for temporary files: tools, their caches, and what settings or an
agent's description name. Everything else there, such as keys, logins, other projects and sockets, is hidden."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from mz_engine.processes.environment import DEFAULT_DIRECTORIES, LOCATING_NAMES, OWN_VARIABLES, program_folders
from mz_engine.processes.sandbox import SHARED_MEMORY
from mz_engine.processes.supervise import Launch, Mount, is_below

CACHED_MAX = 64
Names = tuple[str, ...]


def paths(*names: str) -> frozenset[Names]:
    return frozenset(tuple(name.split("/")) for name in names)


KEPT = paths(
    ".asdf", ".bun", ".bundle", ".cabal", ".cache", ".cargo", ".ccache", ".composer", ".conda", ".deno", ".dotnet",
    ".fnm", ".gem", ".ghcup", ".gitconfig", ".gradle", ".hex", ".ivy2", ".julia", ".m2", ".mix", ".node-gyp", ".npm",
    ".nuget", ".nvm", ".opam", ".pnpm-store", ".pub-cache", ".pyenv", ".rbenv", ".rustup", ".rvm", ".sbt", ".sdkman",
    ".stack", ".tool-versions", ".volta", ".yarn", "go", ".config/git/attributes", ".config/git/config",
    ".config/git/ignore", ".local/bin", ".local/lib", ".local/pipx", ".local/share/fnm", ".local/share/gem",
    ".local/share/mise", ".local/share/pipx", ".local/share/pnpm", ".local/share/uv", ".local/share/virtualenv",
    ".local/share/virtualenvs",
)  # fmt: skip
"""Tools and caches that set-ups and tests need, and the name that commits get."""
HIDDEN = paths(
    ".bundle/config", ".cargo/credentials", ".cargo/credentials.toml", ".composer/auth.json", ".gem/credentials",
    ".gradle/gradle.properties", ".local/share/gem/credentials", ".m2/settings-security.xml", ".m2/settings.xml",
    ".nuget/NuGet/NuGet.Config",
)  # fmt: skip
"""Logins within them."""
NESTED = {".config": 2, ".local": 2, ".local/share": 3, ".local/state": 3}
"""Folders of many programs: how many names lead to what one of them has there. Of others, the first does."""


OWN_FOLDERS = (*DEFAULT_DIRECTORIES, "/run")
"""Folders for temporary files and sockets. A command sees its own in place of these and of OWN_VARIABLES."""
RESOLVER = Path("/etc/resolv.conf")
"""May be a link to a file of a service."""
INSTALLED = frozenset({"bin", "lib", "node_modules"})
"""Folders of an installation, which is visible as a whole."""


def confine(launch: Launch, read: Collection[Path], own: Collection[Mount]) -> Launch:
    """Return the launch with what it sees besides its repository: programs, folders of its own for temporary files, the
    paths that settings name (`read`), and what its agent has (`own`) if that is not hidden."""
    mounts = {path: Mount(path, "read") for path in program_folders(launch.env, launch.cwd)}
    mounts = {path: mount for path, mount in mounts.items() if not launch.is_hidden(path)}
    named = {name: Path(launch.env[name]) for name in OWN_VARIABLES if name in launch.env}
    variables = {name: str(path.resolve()) for name, path in named.items() if path.is_absolute() and path.is_dir()}
    read = (*read, *_located(launch.env))
    folders = (Path(name) for name in (*OWN_FOLDERS, *variables.values()))
    changeable = {mount.target for mount in launch.mounts if mount.kind == "write"}
    new = {path: path.resolve() for path in folders if len(path.parts) > 1 and path.is_dir()}
    new = {path: target for path, target in new.items() if target not in changeable and target not in read}
    tops = (*new, *new.values(), Path(SHARED_MEMORY))  # The last one is mounted with the devices.
    programs = _programs(_fixed_path(launch), launch.argv[0], tops)
    covers = {*tops, *(mount.target for mount in (*launch.mounts, *own))}
    for path in (
        *read,
        *(path.resolve() for path in (*read, RESOLVER)),
        *(_installation(path, tops) for path in programs),
    ):
        if next((above for above in (path, *path.parents) if above in covers), None) in tops:
            mounts[path] = Mount(path, "read")
    mounts |= {mount.target: mount for mount in launch.mounts}
    mounts |= {mount.target: mount for mount in own if not launch.is_hidden(mount.target)}
    mounts |= {path: Mount(path, "own") for path in new.values()}
    visible = (*read, *(mount.target for mount in own), *new.values())
    others = {name: value for name, value in launch.env.items() if name not in named}
    launch = replace(launch, env={**others, **variables}, hidden=hidden_paths(launch, visible))
    return replace(launch, mounts=tuple(mounts[path] for path in sorted(mounts, key=lambda path: len(path.parts))))


def _located(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the paths of certificates and tools in variables, but not one that holds all of HOME."""
    home = Path(environment.get("HOME", "/"))
    for name in LOCATING_NAMES.split():
        for path in map(Path, environment.get(name, "").split(os.pathsep)):
            if path.is_absolute() and not any(is_below(home_path, path) for home_path in (home, home.resolve())):
                yield path


def _fixed_path(launch: Launch) -> str:
    """Return PATH without folders in the worktree, where an agent could make links."""
    folders = launch.env.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not is_below(Path(folder), launch.cwd))


@lru_cache(CACHED_MAX)
def _installation(folder: Path, tops: tuple[Path, ...]) -> Path:
    """Return the folder that holds the whole installation of the programs in this one, below one of `tops`."""
    above = max((len(top.parts) for top in tops if is_below(folder, top)), default=0)
    names = folder.parts
    end = next((number for number, name in enumerate(names) if number > above and name in INSTALLED), len(names))
    return Path(*names[:end])


def hidden_paths(launch: Launch, read: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files and folders of HOME that a command must not see, besides what its mounts hide. `read` are
    paths that settings name. Links stay: what they lead to is hidden or not by itself."""
    home = Path(launch.env.get("HOME", ""))
    if len(home.parts) < 2 or not home.is_absolute():
        return ()
    homes = (home, home.resolve())
    targets = [mount.target for mount in launch.mounts if mount.target not in homes]
    visible = (*targets, launch.cwd, *read)
    linked = (path.resolve() for path in visible if path.is_symlink())
    named = set(_below(homes, (*visible, *linked, *_linked(home))))
    if () in named:
        return ()
    kept = named.union(KEPT, map(_tool, _below(homes, _programs(_fixed_path(launch), launch.argv[0], homes))))
    hidden = HIDDEN - named
    inner = {names[:end] for names in kept | hidden for end in range(1, len(names))}
    pending, covered = list[tuple[Names, bool]]([((), False)]), list[Path]()
    while pending:
        names, is_kept = pending.pop()
        with suppress(OSError), os.scandir(homes[1].joinpath(*names)) as entries:
            for entry in entries:
                path = (*names, entry.name)
                stays = path not in hidden and (is_kept or path in kept)
                if path in inner and path not in hidden:
                    pending.append((path, stays))
                elif not (stays or entry.is_symlink()):
                    covered.append(Path(entry.path))
    return tuple(covered)


@lru_cache(CACHED_MAX)
def _linked(home: Path) -> tuple[Path, ...]:
    """Return what links to tools and caches lead to."""
    return tuple(path.resolve() for path in (home.joinpath(*names) for names in KEPT) if path.is_symlink())


def _below(homes: Iterable[Path], paths: Iterable[Path]) -> Iterator[Names]:
    """Yield the names below HOME, under any of its names, of the paths that are there."""
    return (path.parts[len(home.parts) :] for path in paths for home in homes if is_below(path, home))


@lru_cache(CACHED_MAX)
def _programs(path: str, program: str, homes: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the folders below HOME, or other folders, with programs on PATH, with this one, with those that links
    there lead to, and with mz itself."""
    named = [*map(Path, (*path.split(os.pathsep), *sys.path, sys.prefix, sys.base_prefix)), Path(program).parent]
    folders = dict.fromkeys(folder for name in named if name.is_absolute() for folder in (name, name.resolve()))
    inside = [folder for folder in folders if folder not in homes and any(is_below(folder, home) for home in homes)]
    for folder in tuple(inside):
        with suppress(OSError), os.scandir(folder) as entries:
            links = (Path(os.path.realpath(entry.path)) for entry in entries if entry.is_symlink())
            inside += (target.parent for target in links if target.parent not in homes)
    return tuple(inside)


def _tool(names: Names) -> Names:
    """Return the folder of the tool that has programs in this folder."""
    if names[0].startswith("."):
        return names[: max(NESTED.get("/".join(names[:length]), 1) for length in (1, 2))]
    return names[:-1] if names[-1] == "bin" and len(names) > 1 else names
