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

from mz_engine.errors.diagnostics import MzError
from mz_engine.git.repository import find_root, run_git_as_user
from mz_engine.model.config import Config
from mz_engine.ports import RemoteError, RepositoryUnusable
from mz_engine.pricing.table import has_user_prices
from mz_engine.processes.supervise import best_level
from mz_engine.run.settings import LoadedConfig, load_config
from mz_engine.setup import checks as doctor_machine
from mz_engine.setup import doctor_agents, doctor_project
from mz_engine.setup.checks import CheckStatus, DoctorCheck, failed_check

OUTSIDE_HINT = "the checks of a project were skipped; change into a repository, or create one with `git init`"
ALL_ERRORS_HINT = "`mz config validate` shows all errors"


class DoctorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `mz doctor`."""

    directory: Path
    """The current directory, in a repository or not."""
    root: Path | None = None
    """The repository's main working tree, if the caller has found one."""
    environment: Mapping[str, str]
    online: bool
    """Remotes and the forge may be queried."""
    now_seconds: float
    """Seconds since the epoch."""


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    root: Path | None
    """The repository; None: the directory is in none."""
    checks: tuple[DoctorCheck, ...]


def run_checks(options: DoctorOptions) -> DoctorReport:
    """Return the results of all checks, in the order in which people should read them."""
    root, repository = _repository_check(options)
    loaded, settings = _load_settings(root, options.environment) if root else (None, ())
    config = loaded.config if loaded else None
    checks = [*_machine_checks(options, config, root), repository, *settings]
    if root and loaded:
        checks += _project_checks(options, root, loaded)
    return DoctorReport(root=root, checks=tuple(checks))


def overall_status(checks: Iterable[DoctorCheck]) -> CheckStatus:
    """Return `fail` if any check failed, else `warn` if any warned, else `ok`."""
    statuses = {check.status for check in checks}
    return next((status for status in (CheckStatus.FAIL, CheckStatus.WARN) if status in statuses), CheckStatus.OK)


def _machine_checks(options: DoctorOptions, config: Config | None, root: Path | None) -> Iterator[DoctorCheck]:
    environment, directory = options.environment, root or options.directory
    yield doctor_machine.python_check(sys.version_info[:3], sys.executable)
    yield from _run_check("git", lambda: doctor_machine.git_check(_git(directory, environment, "version")))
    identity = ("-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
    yield from _run_check(
        "git-identity", lambda: doctor_machine.identity_check(_git(directory, environment, *identity))
    )
    yield from _run_check("disk", lambda: doctor_machine.disk_check(shutil.disk_usage(directory).free, str(directory)))
    yield doctor_machine.sqlite_check(sqlite3.sqlite_version_info)
    yield doctor_machine.isolation_check(best_level(), sys.platform)
    yield from _run_check("prices", lambda: doctor_agents.price_table_check(options.now_seconds))
    if has_user_prices(environment):
        yield from _run_check("own-prices", lambda: doctor_agents.own_prices_check(environment))
    settings = config or Config()
    chosen = config.agent if config else None
    yield from doctor_agents.agent_checks(environment, chosen, settings.failover, settings.agents)


def _project_checks(options: DoctorOptions, root: Path, loaded: LoadedConfig) -> Iterator[DoctorCheck]:
    environment = options.environment
    yield from _run_check("base", lambda: doctor_project.base_check(root, loaded, environment))
    yield from _run_check("log", lambda: doctor_project.log_check(root))
    yield from _run_check("pipeline", lambda: doctor_project.pipeline_check(root, loaded))
    yield from _run_check("backlog", lambda: doctor_project.backlog_check(root, loaded))
    yield from _run_check("commands", lambda: doctor_project.commands_check(root, loaded.config, environment))
    if doctor_project.names_schema(root):
        yield from _run_check("editor-schema", lambda: doctor_project.editor_schema_check(root))
    if loaded.config.pull_requests.strategy != "none":
        yield from _run_check(
            "remote", lambda: doctor_project.remote_check(root, loaded.config, environment, options.online)
        )
        yield from _run_check("gh", lambda: doctor_project.gh_check(root, environment, options.online))


def _repository_check(options: DoctorOptions) -> tuple[Path | None, DoctorCheck]:
    try:
        root = options.root or find_root(options.directory, options.environment)
    except RepositoryUnusable as error:
        message, _, hint = str(error).partition("; ")
        if error.code in ("not-a-repository", "git-missing"):
            return None, DoctorCheck.warn("repository", message, OUTSIDE_HINT)
        return None, DoctorCheck.fail("repository", message, hint)
    return root, doctor_project.repository_check(root, options.environment)


def _load_settings(root: Path, environment: Mapping[str, str]) -> tuple[LoadedConfig | None, tuple[DoctorCheck, ...]]:
    try:
        loaded = load_config(root, environment, {})
    except MzError as error:
        return None, (failed_check("settings", error, ALL_ERRORS_HINT),)
    return loaded, (doctor_project.settings_check(loaded),)


def _run_check(name: str, check: Callable[[], DoctorCheck]) -> tuple[DoctorCheck]:
    try:
        return (check(),)
    except MzError as error:
        return (failed_check(name, error, ALL_ERRORS_HINT),)
    except RepositoryUnusable as error:
        message, _, hint = str(error).partition("; ")
        return (DoctorCheck.fail(name, message, hint),)
    except (OSError, RemoteError) as error:
        return (DoctorCheck.warn(name, f"the check could not run: {error}"),)


def _git(directory: Path, environment: Mapping[str, str], *arguments: str) -> str:
    """Return git's output; empty if it fails. Raises RepositoryUnusable if git is not installed."""
    result = run_git_as_user(directory, environment, *arguments)
    return result.text if result.exit_code == 0 else ""
