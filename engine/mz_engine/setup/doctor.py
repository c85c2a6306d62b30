"""The checks of `mz doctor`: is everything a run needs installed and configured?

Each check has a stable name, a status, one sentence and a hint. Nothing is written, no model is called, and the network
is used only with `online`. A check never raises: a warning reports what could not be checked.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from types import MappingProxyType

import msgspec
from mz_events.adapters.migrate import MIGRATIONS, connect, format_of
from mz_events.store import StoreUnusable

from mz_engine.agents.contract import AuthCheck
from mz_engine.agents.registry import all_adapters
from mz_engine.backlog.item import ItemStatus
from mz_engine.backlog.load import read_backlog
from mz_engine.config.schema import schema_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.process import Git
from mz_engine.git.process import safe_environment as without_git
from mz_engine.git.remote import has_remote, remote_head
from mz_engine.git.repository import branch_commit, current_branch, describe_repository, find_root, run_git_as_user
from mz_engine.model.agent_description import AgentDescription
from mz_engine.model.config import FILE_NAME, SCHEMA_PATH, Config
from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_engine.ports import RemoteError, RepositoryUnusable
from mz_engine.pricing.table import PRICES_PACKAGE, has_user_prices, price_file, user_prices
from mz_engine.processes.supervise import best_level
from mz_engine.run.plan import load_configured_pipeline
from mz_engine.run.preflight import missing_programs, missing_tools
from mz_engine.run.settings import LoadedConfig, load_config
from mz_engine.setup import checks as machine
from mz_engine.setup.checks import CheckStatus, DoctorCheck, failed_check

OUTSIDE_HINT = "the checks of a project were skipped; change into a repository, or create one with `git init`"
ALL_ERRORS_HINT = "`mz config validate` shows all errors"
PRICES_DAYS_MAX = 90
DATES = re.compile(r"\b(20\d\d)-(\d\d)-(\d\d)\b|\bdate\((20\d\d), (\d{1,2}), (\d{1,2})\)")
GH_SECONDS = 30
STEP_SKIPPED = "MZ3009"
NO_PULL_REQUESTS_HINT = "or set pull_requests.strategy to none in mz.yaml"


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
    yield machine.python_check(sys.version_info[:3], sys.executable)
    yield from _run_check("git", lambda: machine.git_check(_git(directory, environment, "version")))
    identity = ("-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
    yield from _run_check("git-identity", lambda: machine.identity_check(_git(directory, environment, *identity)))
    yield from _run_check("disk", lambda: machine.disk_check(shutil.disk_usage(directory).free, str(directory)))
    yield machine.sqlite_check(sqlite3.sqlite_version_info)
    yield machine.isolation_check(best_level(), sys.platform)
    yield from _run_check("prices", lambda: price_table_check(options.now_seconds))
    if has_user_prices(environment):
        yield from _run_check("own-prices", lambda: own_prices_check(environment))
    settings = config or Config()
    chosen = config.agent if config else None
    yield from agent_checks(environment, chosen, settings.failover, settings.agents)


def _project_checks(options: DoctorOptions, root: Path, loaded: LoadedConfig) -> Iterator[DoctorCheck]:
    environment = options.environment
    yield from _run_check("base", lambda: base_check(root, loaded, environment))
    yield from _run_check("log", lambda: log_check(root))
    yield from _run_check("pipeline", lambda: pipeline_check(root, loaded))
    yield from _run_check("backlog", lambda: backlog_check(root, loaded))
    yield from _run_check("commands", lambda: commands_check(root, loaded.config, environment))
    if names_schema(root):
        yield from _run_check("editor-schema", lambda: editor_schema_check(root))
    if loaded.config.pull_requests.strategy != "none":
        yield from _run_check("remote", lambda: remote_check(root, loaded.config, environment, options.online))
        yield from _run_check("gh", lambda: gh_check(root, environment, options.online))


def _repository_check(options: DoctorOptions) -> tuple[Path | None, DoctorCheck]:
    try:
        root = options.root or find_root(options.directory, options.environment)
    except RepositoryUnusable as error:
        message, _, hint = str(error).partition("; ")
        if error.code in ("not-a-repository", "git-missing"):
            return None, DoctorCheck.warn("repository", message, OUTSIDE_HINT)
        return None, DoctorCheck.fail("repository", message, hint)
    return root, repository_check(root, options.environment)


def _load_settings(root: Path, environment: Mapping[str, str]) -> tuple[LoadedConfig | None, tuple[DoctorCheck, ...]]:
    try:
        loaded = load_config(root, environment, {})
    except MzError as error:
        return None, (failed_check("settings", error, ALL_ERRORS_HINT),)
    return loaded, (settings_check(loaded),)


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


# agents and prices ----------------------------------------------------------------------------------------------------
def agent_checks(
    environment: Mapping[str, str],
    chosen: str | None,
    successors: tuple[str, ...] = (),
    described: Mapping[str, AgentDescription] = MappingProxyType({}),
) -> Iterator[DoctorCheck]:
    """Return one check per agent. Required are the chosen agent and its successors; if none is chosen, any one."""
    adapters_by_name = all_adapters(described)
    logins = {name: adapter.check_auth(environment) for name, adapter in adapters_by_name.items()}
    usable = [name for name, login in logins.items() if not login.code]
    required = dict.fromkeys((chosen or next(iter(usable), Config().agent), *successors))
    for name, login in logins.items():
        yield _agent_check(name, login, adapters_by_name[name].capabilities().auth, name in required)
    for name in required:
        if name not in adapters_by_name:
            key = "failover" if name in successors else "agent"
            hint = f"set `{key}:` in mz.yaml to one of: {', '.join(adapters_by_name)}"
            yield DoctorCheck.fail(f"agent:{name}", "there is no such agent", hint)


def _agent_check(name: str, login: AuthCheck, methods: tuple[str, ...], required: bool) -> DoctorCheck:
    """Return the check of one agent; `methods` are its ways to log in."""
    check_name = f"agent:{name}"
    if not login.code:
        return DoctorCheck.ok(check_name, f"{login.version or 'unknown version'}, logged in")
    if not required:
        return DoctorCheck.ok(
            check_name, f"{'not installed' if login.code == 'tool-missing' else login.message} (optional)"
        )
    version = f"{login.version}; " if login.version else ""
    is_complete = login.code == "tool-missing" or all(method in login.fix for method in methods)
    hint = login.fix if is_complete else f"{login.fix} (ways to log in: {'; '.join(methods)})"
    return DoctorCheck.fail(check_name, f"{version}{login.message}", hint)


def price_table_check(now_seconds: float) -> DoctorCheck:
    """Check the age of the price table by the newest date that it names: the package has no date of its own."""
    version = importlib.metadata.version(PRICES_PACKAGE)
    newest = newest_date(
        _price_table_path().read_text("utf-8", "replace"), datetime.fromtimestamp(now_seconds, UTC).date()
    )
    if newest is None:
        return DoctorCheck.warn("prices", f"{PRICES_PACKAGE} {version} names no date", "update mz")
    days = (datetime.fromtimestamp(now_seconds, UTC).date() - newest).days
    summary = f"{PRICES_PACKAGE} {version}, newest price of {newest.isoformat()}, {days} days ago"
    if days > PRICES_DAYS_MAX:
        return DoctorCheck.warn("prices", summary, "new models may have no price, so their cost is unknown: update mz")
    return DoctorCheck.ok("prices", summary)


def own_prices_check(environment: Mapping[str, str]) -> DoctorCheck:
    """Check the user's own price file. Raises OSError."""
    try:
        rows = user_prices(environment)
    except MzError as error:
        return failed_check("own-prices", error, "`mz run --dry-run` shows all errors")
    return DoctorCheck.ok(
        "own-prices", f"{price_file(environment)}: {len(rows)} {'price' if len(rows) == 1 else 'prices'}"
    )


def newest_date(text: str, today: date) -> date | None:
    """Return the latest date in the text that is not in the future."""
    dates = []
    for match in DATES.finditer(text):
        year, month, day = (int(part) for part in match.groups() if part)
        with suppress(ValueError):
            dates.append(date(year, month, day))
    return max((day for day in dates if day <= today), default=None)


def _price_table_path() -> Path:
    """Return the price table's file without importing the package, which is slow. Raises OSError."""
    spec = importlib.util.find_spec(PRICES_PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{PRICES_PACKAGE} is not installed")
    return Path(spec.origin).with_name("data.py")


# the project ----------------------------------------------------------------------------------------------------------
def repository_check(root: Path, environment: Mapping[str, str]) -> DoctorCheck:
    """Check that the repository can be read and written."""
    try:
        describe_repository(root, environment)
    except RepositoryUnusable as error:
        message, _, hint = str(error).partition("; ")
        return DoctorCheck.fail("repository", message, hint)
    return DoctorCheck.ok("repository", str(root))


def settings_check(loaded: LoadedConfig) -> DoctorCheck:
    if loaded.warnings:
        return DoctorCheck.warn("settings", loaded.warnings[0].message, loaded.warnings[0].hint)
    if not loaded.file_exists:
        return DoctorCheck.warn("settings", f"there is no {FILE_NAME}: defaults are used", "`mz init` writes one")
    return DoctorCheck.ok("settings", f"{FILE_NAME} is valid")


def base_check(root: Path, loaded: LoadedConfig, environment: Mapping[str, str]) -> DoctorCheck:
    """Check the commit that features start from. Raises RepositoryUnusable."""
    branch = loaded.config.base or current_branch(root, environment)
    return DoctorCheck.ok("base", f"{branch} at {branch_commit(root, branch, environment)[:12]}")


def log_check(root: Path) -> DoctorCheck:
    """Check that `.mz` is writable and that this version can read its log; opens nothing for writing."""
    home = root / MZ_FOLDER
    folder = home if home.exists() else root
    if not os.access(folder, os.W_OK | os.X_OK):
        return DoctorCheck.fail("log", f"{folder} is not writable", "mz keeps its log there; make it writable")
    path = home / LOG_FILE
    if not path.exists():
        return DoctorCheck.ok("log", "nothing has run here yet")
    try:
        version = _log_format(path)
    except (StoreUnusable, sqlite3.Error) as error:
        hint = "use a newer mz, or restore the log from a copy; see `mz audit --verify`"
        return DoctorCheck.fail("log", str(error), hint)
    if version == len(MIGRATIONS):
        return DoctorCheck.ok("log", f"format {version}, current")
    return DoctorCheck.ok("log", f"format {version}; the next run migrates it to {len(MIGRATIONS)} and keeps a copy")


def _log_format(path: Path) -> int:
    """Return the log's format. Without a write-ahead log the file is opened as immutable, to create no files."""
    wal = path.with_name(path.name + "-wal")
    immutable = "" if wal.exists() and wal.stat().st_size else "&immutable=1"
    with closing(connect(f"{path.absolute().as_uri()}?mode=ro{immutable}", 1.0)) as connection:
        return format_of(connection, path, len(MIGRATIONS))


def pipeline_check(root: Path, loaded: LoadedConfig) -> DoctorCheck:
    """Check the configured pipeline. Raises MzError."""
    chosen, warnings = load_configured_pipeline(loaded, root)
    summary = f"{chosen.pipeline}: {', '.join(phase.phase for phase in chosen.phases)}"
    skipped_steps = {warning.message for warning in warnings if warning.code == STEP_SKIPPED}
    others = [warning for warning in warnings if warning.code != STEP_SKIPPED]
    others += missing_tools(chosen, loaded.config)
    if others:
        return DoctorCheck.warn("pipeline", others[0].message, others[0].hint)
    return DoctorCheck.ok(
        "pipeline", f"{summary}; steps without a command: {len(skipped_steps)}" if skipped_steps else summary
    )


def backlog_check(root: Path, loaded: LoadedConfig) -> DoctorCheck:
    """Check the backlog if it exists. Raises MzError."""
    name = loaded.config.backlog
    if not os.path.lexists(root / name):
        return DoctorCheck.warn("backlog", f"there is no {name} yet", "`mz init` writes a first one")
    items = read_backlog(root, name)
    open_count = sum(item.status is ItemStatus.BACKLOG for item in items)
    return DoctorCheck.ok("backlog", f"{name}: {open_count} of {len(items)} features to do")


def commands_check(root: Path, config: Config, environment: Mapping[str, str]) -> DoctorCheck:
    """Check that the program of every command line is installed."""
    count = len(config.commands) + len(config.workspace.setup)
    missing = missing_programs(root, config, environment)
    if missing:
        summary = ", ".join(f"`{name}` needs {program}" for name, program in missing.items())
        return DoctorCheck.fail("commands", f"{summary}: not on PATH", "install it, or change the command in mz.yaml")
    if "test" not in config.commands:
        hint = "write `test: COMMAND LINE` under `commands:` in mz.yaml"
        return DoctorCheck.warn("commands", "there is no `test` command: agents' work is not tested", hint)
    return DoctorCheck.ok("commands", f"programs found for {count} of {count} command line{'' if count == 1 else 's'}")


def names_schema(root: Path) -> bool:
    """Return True if `mz.yaml` names the schema that `mz init` writes."""
    with suppress(OSError, UnicodeDecodeError):
        return SCHEMA_PATH in (root / FILE_NAME).read_text("utf-8")
    return False


def editor_schema_check(root: Path) -> DoctorCheck:
    path = root / SCHEMA_PATH
    try:
        current = path.read_bytes() == schema_text()
    except OSError:
        return DoctorCheck.warn("editor-schema", f"{SCHEMA_PATH} is missing; editors need it", "`mz init` writes it")
    if not current:
        return DoctorCheck.warn("editor-schema", f"{SCHEMA_PATH} is from another version of mz", "`mz init` renews it")
    return DoctorCheck.ok("editor-schema", f"{SCHEMA_PATH}, which the first lines of {FILE_NAME} name")


def remote_check(root: Path, config: Config, environment: Mapping[str, str], online: bool) -> DoctorCheck:
    """Check the remote of branches. Raises RepositoryUnusable, and with `online` RemoteError."""
    name = config.pull_requests.remote
    git = Git(describe_repository(root, environment).directory, environment)
    if not has_remote(git, name):
        return DoctorCheck.fail(
            "remote", f"there is no remote {name!r}", f"`git remote add {name} URL`, {NO_PULL_REQUESTS_HINT}"
        )
    if not online:
        return DoctorCheck.ok("remote", f"{name}, not contacted; `--online` contacts it")
    branch = config.base or current_branch(root, environment)
    if remote_head(git, name, branch) is None:
        hint = f"push it once: git push {name} {branch}"
        return DoctorCheck.warn("remote", f"{name} answers, but has no branch {branch}", hint)
    return DoctorCheck.ok("remote", f"{name} answers, and has {branch}")


def gh_check(root: Path, environment: Mapping[str, str], online: bool) -> DoctorCheck:
    """Check that `gh` is installed and logged in; only with `online` that the login is still valid.

    Its output is discarded, since it may hold the token.
    """
    if not shutil.which("gh", path=environment.get("PATH")):
        return DoctorCheck.fail(
            "gh", "`gh` is not on PATH", f"install it from https://cli.github.com, {NO_PULL_REQUESTS_HINT}"
        )
    arguments = ("auth", "status") if online else ("auth", "token")
    quiet = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
    try:
        result = subprocess.run(
            ["gh", *arguments], cwd=root, env={**without_git(environment), **quiet}, timeout=GH_SECONDS, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return DoctorCheck.warn("gh", f"`gh {' '.join(arguments)}` did not end within {GH_SECONDS} s")
    if result.returncode:
        return DoctorCheck.fail(
            "gh", "`gh` is not logged in", f"`gh auth login`, or set GH_TOKEN, {NO_PULL_REQUESTS_HINT}"
        )
    return DoctorCheck.ok("gh", "logged in" if online else "has a login; `--online` checks that it is still valid")
