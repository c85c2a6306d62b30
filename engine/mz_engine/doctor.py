"""The checks of `mz doctor`: is everything a run needs installed and configured?

Each check has a stable name, a status, one sentence and a hint. Nothing is written, no model is called, and the network
is used only with `online`. A check never raises: a warning reports what could not be checked.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from mz_engine import doctor_agents, doctor_machine, doctor_project
from mz_engine.adapters.git_repository import ask, find_root
from mz_engine.adapters.pricefile import has_own_prices
from mz_engine.agents.supervise import best_level
from mz_engine.check import Check, Status, told
from mz_engine.config import Config
from mz_engine.configfile import Loaded, load_config
from mz_engine.errors import MzError
from mz_engine.ports import RemoteRefused, RepositoryUnusable

OUTSIDE = "the checks of a project were skipped; change into a repository, or create one with `git init`"
ALL = "`mz config validate` shows all errors"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `mz doctor`."""

    place: Path
    """The current directory, in a repository or not."""
    home: Path | None = None
    """The repository's main working tree, if the caller has found one."""
    environment: Mapping[str, str]
    online: bool
    """Remotes and the forge may be queried."""
    now: float
    """Seconds since the epoch."""


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    root: Path | None
    """The repository; None: the directory is in none."""
    checks: tuple[Check, ...]


def examine(asked: Asked) -> Examined:
    """Return the results of all checks, in the order in which people should read them."""
    root, repository = _repository(asked)
    loaded, settings = _settings(root, asked.environment) if root else (None, ())
    config = loaded.config if loaded else None
    checks = [*_machine(asked, config, root), repository, *settings]
    if root and loaded:
        checks += _project(asked, root, loaded)
    return Examined(root=root, checks=tuple(checks))


def worst(checks: Iterable[Check]) -> Status:
    """Return `fail` if any check failed, else `warn` if any warned, else `ok`."""
    statuses = {check.status for check in checks}
    return next((status for status in (Status.FAIL, Status.WARN) if status in statuses), Status.OK)


def _machine(asked: Asked, config: Config | None, root: Path | None) -> Iterator[Check]:
    environment, directory = asked.environment, root or asked.place
    yield doctor_machine.python(sys.version_info[:3], sys.executable)
    yield from _guarded("git", lambda: doctor_machine.git(_git(directory, environment, "version")))
    identity = ("-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
    yield from _guarded("git-identity", lambda: doctor_machine.identity(_git(directory, environment, *identity)))
    yield from _guarded("disk", lambda: doctor_machine.disk(shutil.disk_usage(directory).free, str(directory)))
    yield doctor_machine.sqlite(sqlite3.sqlite_version_info)
    yield doctor_machine.isolation(best_level(), sys.platform)
    yield from _guarded("prices", lambda: doctor_agents.prices(asked.now))
    if has_own_prices(environment):
        yield from _guarded("own-prices", lambda: doctor_agents.own_prices(environment))
    settings = config or Config()
    chosen = config.agent if config else None
    yield from doctor_agents.agents(environment, chosen, settings.failover, settings.agents)


def _project(asked: Asked, root: Path, loaded: Loaded) -> Iterator[Check]:
    environment = asked.environment
    yield from _guarded("base", lambda: doctor_project.base(root, loaded, environment))
    yield from _guarded("log", lambda: doctor_project.log(root))
    yield from _guarded("pipeline", lambda: doctor_project.pipeline(root, loaded))
    yield from _guarded("backlog", lambda: doctor_project.backlog(root, loaded))
    yield from _guarded("commands", lambda: doctor_project.commands(root, loaded.config, environment))
    if doctor_project.names_schema(root):
        yield from _guarded("editor-schema", lambda: doctor_project.editor_schema(root))
    if loaded.config.pull_requests.strategy != "none":
        yield from _guarded("remote", lambda: doctor_project.remote(root, loaded.config, environment, asked.online))
        yield from _guarded("gh", lambda: doctor_project.forge(root, environment, asked.online))


def _repository(asked: Asked) -> tuple[Path | None, Check]:
    try:
        root = asked.home or find_root(asked.place, asked.environment)
    except RepositoryUnusable as error:
        message, _, hint = str(error).partition("; ")
        if error.code in ("not-a-repository", "git-missing"):
            return None, Check.warn("repository", message, OUTSIDE)
        return None, Check.fail("repository", message, hint)
    return root, doctor_project.usable(root, asked.environment)


def _settings(root: Path, environment: Mapping[str, str]) -> tuple[Loaded | None, tuple[Check, ...]]:
    try:
        loaded = load_config(root, environment, {})
    except MzError as error:
        return None, (told("settings", error, ALL),)
    return loaded, (doctor_project.settings(loaded),)


def _guarded(name: str, look: Callable[[], Check]) -> tuple[Check]:
    try:
        return (look(),)
    except MzError as error:
        return (told(name, error, ALL),)
    except RepositoryUnusable as error:
        message, _, hint = str(error).partition("; ")
        return (Check.fail(name, message, hint),)
    except (OSError, RemoteRefused) as error:
        return (Check.warn(name, f"the check could not run: {error}"),)


def _git(directory: Path, environment: Mapping[str, str], *arguments: str) -> str:
    """Return git's output; empty if it fails. Raises RepositoryUnusable if git is not installed."""
    result = ask(directory, environment, *arguments)
    return result.text if result.code == 0 else ""
