"""Adapter: what a person asks first when something does not work: is everything there that a run needs?

Each check has a name that stays, a status, one sentence, and what to do. Nothing is written, no model is called, and
nothing goes over the network unless `online` allows it. A check never raises: what cannot be looked at says so.
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

OUTSIDE = "what concerns a project was not looked at; change into a repository, or begin one with `git init`"


ALL = "`mz config validate` shows all of it"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be examined."""

    place: Path
    """Where the person is: a directory, in a repository or not."""
    home: Path | None = None
    """The repository's main working tree, where the caller has found one."""
    environment: Mapping[str, str]
    online: bool
    """Whether remotes and the forge may be asked."""
    now: float
    """Seconds since the epoch."""


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    root: Path | None
    """The repository; None: the place is in none."""
    checks: tuple[Check, ...]


def examine(asked: Asked) -> Examined:
    """All checks, in an order in which they can be read."""
    root, repository = _repository(asked)
    loaded, settings = _settings(root, asked.environment) if root else (None, ())
    config = loaded.config if loaded else None
    checks = [*_machine(asked, config, root), repository, *settings]
    if root and loaded:
        checks += _project(asked, root, loaded)
    return Examined(root=root, checks=tuple(checks))


def worst(checks: Iterable[Check]) -> Status:
    """`fail` before `warn` before `ok`."""
    found = {check.status for check in checks}
    return next((status for status in (Status.FAIL, Status.WARN) if status in found), Status.OK)


def _machine(asked: Asked, config: Config | None, root: Path | None) -> Iterator[Check]:
    environment, place = asked.environment, root or asked.place
    yield doctor_machine.python(sys.version_info[:3], sys.executable)
    yield from _guarded("git", lambda: doctor_machine.git(_git(place, environment, "version")))
    who = ("-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
    yield from _guarded("git-identity", lambda: doctor_machine.identity(_git(place, environment, *who)))
    yield from _guarded("disk", lambda: doctor_machine.disk(shutil.disk_usage(place).free, str(place)))
    yield doctor_machine.sqlite(sqlite3.sqlite_version_info)
    yield doctor_machine.isolation(best_level(), sys.platform)
    yield from _guarded("prices", lambda: doctor_agents.prices(asked.now))
    if has_own_prices(environment):
        yield from _guarded("own-prices", lambda: doctor_agents.own_prices(environment))
    known = config or Config()
    yield from doctor_agents.agents(environment, config.agent if config else None, known.failover, known.agents)


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
        outside = error.code in ("not-a-repository", "git-missing")
        said, _, hint = str(error).partition("; ")
        if outside:
            return None, Check.warn("repository", said, OUTSIDE)
        return None, Check.fail("repository", said, hint)
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
        said, _, hint = str(error).partition("; ")
        return (Check.fail(name, said, hint),)
    except (OSError, RemoteRefused) as error:
        return (Check.warn(name, f"it could not be looked at: {error}"),)


def _git(place: Path, environment: Mapping[str, str], *words: str) -> str:
    """What git says; empty where it says no. Raises RepositoryUnusable where there is no git."""
    done = ask(place, environment, *words)
    return done.text if done.code == 0 else ""
