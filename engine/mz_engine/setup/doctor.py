"""The checks of `mz doctor`: is everything a run needs installed and configured?

Each check has a stable name, a status, one sentence and a hint. Nothing is written, no model is called, and the network
is used only with `online`. A check never raises: a warning reports what could not be checked.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, date, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_events.adapters.migrate import MIGRATIONS, connect, format_of
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.store import StoreUnusable
from mz_projections.run.spending import budget_text

from mz_engine.agents.catalog import agent_package
from mz_engine.agents.contract import AuthCheck
from mz_engine.agents.package import AgentPackage
from mz_engine.agents.registry import all_adapters
from mz_engine.backlog.item import ItemStatus
from mz_engine.backlog.listed import FORGE_SOURCE
from mz_engine.config.schema import schema_text
from mz_engine.errors.diagnostics import Diagnostic, MzError
from mz_engine.git import repository
from mz_engine.git.process import run_program
from mz_engine.git.process import safe_environment as without_git
from mz_engine.model.config import FILE_NAME, SCHEMA_PATH, Config
from mz_engine.paths import LOG_FILE, MZ_FOLDER, spending_folder
from mz_engine.pipelines.load import load_valid_pipeline_files, pin_files
from mz_engine.ports import RemoteError, RepositoryUnusable
from mz_engine.pricing.table import PRICES_DATA_FILE, PRICES_PACKAGE, price_file, user_prices
from mz_engine.processes import guard
from mz_engine.processes.container import container_of
from mz_engine.processes.supervise import best_level, can_hide
from mz_engine.run import plan
from mz_engine.run.base import try_base
from mz_engine.run.settings import LoadedConfig, load_config
from mz_engine.run.spending_record import SpendingRecord

OUTSIDE_HINT = "the checks of a project were skipped; change into a repository, or create one with `git init`"
PRICES_DAYS_MAX = 90
DATES = re.compile(r"(20\d\d)(?:-|, )(\d{1,2})(?:-|, )(\d{1,2})\b")
"""As ISO 8601 writes them, and Python. With a literal start, which is searched for thirty times faster."""
GH_SECONDS = 30
DEFAULTS = Config()
STEP_SKIPPED = "MZ3009"
NO_PULL_REQUESTS_HINT = "or leave out `tracker` and `pull_requests` in mz.yaml"

Version = tuple[int, ...]
GIT_MIN = (2, 30)
GIT_MERGE_MIN = (2, 38)
"""Minimum for merging branches."""
SQLITE_MIN = (3, 24)
"""The first version with upserts."""
SQLITE_WAL_FIXED = (3, 51, 3)
"""In older versions two connections that write and checkpoint at the same time can damage a file in WAL mode."""
FREE_BYTES_MIN = 200 * 10**6
FREE_BYTES_WARN = 2 * 10**9

ISOLATION_SUMMARIES = {
    guard.NAMESPACE: "agents run in PID and mount namespaces of their own",
    guard.USER_NAMESPACE: "agents run in PID and mount namespaces of their own, inside a user namespace",
    guard.BUBBLEWRAP: "agents run in PID and mount namespaces of their own, made by bubblewrap",
    guard.LANDLOCK: "agents read and change only what they may (Landlock), but reach sockets of yours",
    guard.SUBREAPER: "an agent's child processes end with it, found by its process tree",
    guard.MARKER: "an agent's child processes end with it, found by a marker in their environment",
}
NOT_WRITE_PROTECTED = "without mount namespaces your checkout is not write-protected, nor is any other file of yours"


class CheckStatus(StrEnum):
    OK = "ok"
    WARN = "warn"
    """Runs work, but with limitations, or not for long."""
    FAIL = "fail"
    """Something that a run needs is missing."""


class DoctorCheck(msgspec.Struct, frozen=True):
    """Result of a check, as `mz doctor --json` prints it."""

    name: str
    """Stable, since scripts may rely on it; empty until the check is listed."""
    status: CheckStatus
    summary: str
    """One sentence, without a final full stop."""
    hint: str = ""
    """How to fix it."""


ok = partial(DoctorCheck, "", CheckStatus.OK)
warn = partial(DoctorCheck, "", CheckStatus.WARN)
fail = partial(DoctorCheck, "", CheckStatus.FAIL)


def fail_with_error(error: MzError, default_hint: str = "") -> DoctorCheck:
    """Fail with the first error's message, and the number of others. `default_hint` is the hint if there are several
    diagnostics, or none has a hint."""
    first, *more = [item for item in error.diagnostics if item.severity == "error"] or error.diagnostics
    location = f"{first.location} " if first.location else ""
    count = f" (and {len(more)} more)" if more else ""
    return fail(f"{location}{first.message}{count}", default_hint if more or not first.hint else first.hint)


def warn_of(diagnostics: Iterable[Diagnostic]) -> DoctorCheck | None:
    """Warn with the messages and hints of all diagnostics; None if there are none."""
    hints = {diagnostic.message: diagnostic.hint for diagnostic in diagnostics}
    return warn("; ".join(hints), "\n".join(dict.fromkeys(hints.values()))) if hints else None


CheckFunction = Callable[[], DoctorCheck | None]
"""None: the check does not apply here."""


class DoctorOptions(msgspec.Struct, frozen=True, kw_only=True):
    directory: Path
    """The current directory, in a repository or not."""
    root: Path | None = None
    """The repository's main working tree, if the caller has found one."""
    environment: Mapping[str, str]
    online: bool
    """Remotes and the forge may be queried."""
    run_commands: bool = False
    """The set-up and the commands of the pipeline are run on the base."""
    now_seconds: float
    """Seconds since the epoch."""


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    root: Path | None
    """The repository; None: the directory is in none."""
    checks: tuple[DoctorCheck, ...]


def run_checks(options: DoctorOptions) -> DoctorReport:
    """Return the results of all checks, in the order in which people should read them."""
    environment, root = options.environment, options.root
    with suppress(RepositoryUnusable):
        root = root or repository.find_root(options.directory, environment)
    loaded: LoadedConfig | None = None
    if root:
        with suppress(MzError):
            loaded = load_config(root, environment, {})
    settings, chosen = (loaded.config, loaded.config.agent) if loaded else (DEFAULTS, None)
    directory, identity = root or options.directory, ("-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
    machine_checks: dict[str, CheckFunction] = {
        "python": lambda: ok(f"{format_version(sys.version_info[:3])}, {sys.executable}"),
        "git": lambda: git_check(repository.output_as_user(directory, environment, "version")),
        "git-identity": lambda: identity_check(repository.output_as_user(directory, environment, *identity)),
        "disk": lambda: disk_check(shutil.disk_usage(directory).free, str(directory)),
        "sqlite": lambda: sqlite_check(sqlite3.sqlite_version_info),
        "isolation": lambda: isolation_check(best_level(), sys.platform, settings.isolation),
        "prices": lambda: price_table_check(options.now_seconds),
        "own-prices": lambda: own_prices_check(environment),
    }
    checks = [*_run_all(machine_checks), *agent_checks(environment, chosen, settings)]
    checks += _run_all({"repository": lambda: repository_check(options)})
    if root:
        checks += _run_all({"settings": lambda: settings_check(loaded or load_config(root, environment, {}))})
    if root and loaded:
        delivers = settings.pull_requests.strategy != "none"
        project_checks: dict[str, CheckFunction] = {
            "base": lambda: base_check(root, settings, environment),
            "budget": lambda: budget_check(settings, environment, options.now_seconds),
            "log": lambda: log_check(root),
            "pipeline": lambda: pipeline_check(root, loaded),
            "models": lambda: warn_of(plan.unknown_models(settings, plan.price_lookup(settings, environment))),
            "backlog": lambda: backlog_check(root, settings, environment),
            "commands": lambda: commands_check(root, settings, environment),
            "content": lambda: content_check(root, settings, environment),
            "run-commands": lambda: run_commands_check(root, loaded, environment) if options.run_commands else None,
            "editor-schema": lambda: editor_schema_check(root),
            "remote": lambda: remote_check(root, settings, environment, options.online) if delivers else None,
            "gh": lambda: gh_check(root, environment, options.online) if delivers or settings.tracker else None,
        }
        checks += _run_all(project_checks)
    return DoctorReport(root=root, checks=tuple(checks))


def overall_status(checks: Iterable[DoctorCheck]) -> CheckStatus:
    """Return `fail` if any check failed, else `warn` if any warned, else `ok`."""
    statuses = {check.status for check in checks}
    return next((status for status in (CheckStatus.FAIL, CheckStatus.WARN) if status in statuses), CheckStatus.OK)


def _run_all(checks: Mapping[str, CheckFunction]) -> Iterator[DoctorCheck]:
    for name, check in checks.items():
        try:
            result = check()
        except MzError as error:
            result = fail_with_error(error, "`mz config validate` shows all errors")
        except RepositoryUnusable as error:
            message, _, hint = str(error).partition("; ")
            result = fail(message, hint)
        except (OSError, RemoteError) as error:
            result = warn(f"the check could not run: {error}")
        if result:
            yield replace(result, name=name)


# the machine, from versions and sizes ---------------------------------------------------------------------------------
def git_check(output: str) -> DoctorCheck:
    """Check the version in the output of `git version`."""
    match = re.search(r"(\d+)\.(\d+)[.\w]*", output)
    if match is None:
        return fail(f"`git version` says {output[:80]!r}", f"install git {format_version(GIT_MIN)} or newer")
    version = int(match[1]), int(match[2])
    if version < GIT_MIN:
        return fail(match[0], f"mz needs git {format_version(GIT_MIN)} or newer: update git")
    if version < GIT_MERGE_MIN:
        return warn(match[0], f"merging branches needs git {format_version(GIT_MERGE_MIN)} or newer: update git")
    return ok(match[0])


def identity_check(author: str) -> DoctorCheck:
    """Check the author that git would write into a commit, `Name <address> time zone`; empty: git has none."""
    name, bracket, _ = author.partition(">")
    if not bracket or name.strip().startswith("<"):
        hint = "git config --global user.name 'Your Name', and user.email"
        return warn("git has no name and address of yours; commits get the author mz", hint)
    return ok(f"commits are by {name}>")


def disk_check(free_bytes: int, directory: str) -> DoctorCheck:
    summary = f"{free_bytes / 10**9:.1f} GB free at {directory}"
    if free_bytes < FREE_BYTES_MIN:
        return fail(summary, "free disk space: worktrees, the log and agents' output need it")
    if free_bytes < FREE_BYTES_WARN:
        return warn(summary, "each active feature has a full worktree; `mz clean` and `mz clean --blobs` free space")
    return ok(summary)


def sqlite_check(version: Version) -> DoctorCheck:
    text = format_version(version)
    if version < SQLITE_MIN:
        return fail(text, f"mz needs SQLite {format_version(SQLITE_MIN)} or newer: update Python or SQLite")
    if version < SQLITE_WAL_FIXED:
        fault = f"mz's own lock avoids the write-ahead log bug of versions before {format_version(SQLITE_WAL_FIXED)}"
        return ok(f"{text}; {fault}", "let no other program write to .mz/mz.db")
    return ok(text)


def isolation_check(level: str, platform: str, required: str = DEFAULTS.isolation) -> DoctorCheck:
    """Check how agents are confined, by the best of `guard.LEVELS` that works here, `sys.platform` and settings."""
    judge, summary = warn, ISOLATION_SUMMARIES[level]
    if level in guard.MOUNTING:
        return ok(summary)
    if required not in (DEFAULTS.isolation, level):
        judge, summary = fail, f"`isolation: {required}` is required, but {summary}"
    if platform == "darwin":
        hint = "run mz on Linux, for example in a container, if agents must not write to your checkout"
        return judge(f"macOS: {summary}; {NOT_WRITE_PROTECTED}", hint)
    hint = (
        "allow unprivileged user namespaces (`sysctl kernel.unprivileged_userns_clone=1`), install bubblewrap where "
        "only that may make them, or run mz as root"
    )
    return judge(summary if level == guard.LANDLOCK else f"{summary}; {NOT_WRITE_PROTECTED}", hint)


def format_version(version: Version) -> str:
    return ".".join(str(part) for part in version)


# agents and prices ----------------------------------------------------------------------------------------------------
def agent_checks(environment: Mapping[str, str], chosen: str | None, config: Config) -> Iterator[DoctorCheck]:
    """Return one check per agent. Required are the chosen agent and its successors; if none is chosen, any one."""
    adapters_by_name = all_adapters(config.agents, container_of(config, environment))
    logins = {name: adapter.check_auth(environment) for name, adapter in adapters_by_name.items()}
    usable = [name for name, login in logins.items() if not login.code]
    required = dict.fromkeys((chosen or next(iter(usable), DEFAULTS.agent), *config.failover))
    for name, login in logins.items():
        methods = adapters_by_name[name].capabilities().auth
        check = _agent_check(login, methods, name in required)
        yield replace(with_tested_version(check, login.version, agent_package(name)), name=f"agent:{name}")
    for name in required:
        if name not in adapters_by_name:
            key = "failover" if name in config.failover else "agent"
            hint = f"set `{key}:` in mz.yaml to one of: {', '.join(adapters_by_name)}"
            yield replace(fail("there is no such agent", hint), name=f"agent:{name}")


def _agent_check(login: AuthCheck, methods: tuple[str, ...], required: bool) -> DoctorCheck:
    """Check the login of one agent; `methods` are its ways to log in."""
    if not login.code:
        return ok(f"{login.version or 'unknown version'}, logged in")
    if not required:
        return ok(f"{'not installed' if login.code == 'tool-missing' else login.message} (optional)")
    version = f"{login.version}; " if login.version else ""
    is_complete = login.code == "tool-missing" or all(method in login.fix for method in methods)
    hint = login.fix if is_complete else f"{login.fix} (ways to log in: {'; '.join(methods)})"
    return fail(f"{version}{login.message}", hint)


def with_tested_version(check: DoctorCheck, version: str, agent: AgentPackage) -> DoctorCheck:
    """Say so if the installed version is newer than the newest one that was tested."""
    if not agent.tested_version or _numbers(version) <= _numbers(agent.tested_version):
        return check
    summary = f"{check.summary}; newer than {agent.tested_version}, the newest version that mz was tested with"
    hint = f"update mz; `mz drift` on a recording with {version} shows what is new in its output"
    return replace(check, summary=summary, hint=check.hint or hint)


def _numbers(version: str) -> Version:
    return tuple(int(digits) for digits in re.findall(r"\d{1,9}", version)[:3])


def price_table_check(now_seconds: float) -> DoctorCheck:
    """Check the age of the price table by the newest date that it names: the package has no date of its own."""
    today = datetime.fromtimestamp(now_seconds, UTC).date()
    package = importlib.metadata.distribution(PRICES_PACKAGE)
    newest = newest_date(Path(str(package.locate_file(PRICES_DATA_FILE))).read_text("utf-8", "replace"), today)
    if newest is None:
        return warn(f"{PRICES_PACKAGE} {package.version} names no date", "update mz")
    days = (today - newest).days
    summary = f"{PRICES_PACKAGE} {package.version}, newest price of {newest.isoformat()}, {days} days ago"
    if days > PRICES_DAYS_MAX:
        return warn(summary, "new models may have no price, so their cost is unknown: update mz")
    return ok(summary)


def newest_date(text: str, today: date) -> date | None:
    """Return the latest date in the text that is not in the future."""
    dates = []
    for match in DATES.finditer(text):
        with suppress(ValueError):
            dates.append(date(*map(int, match.groups())))
    return max((day for day in dates if day <= today), default=None)


def own_prices_check(environment: Mapping[str, str]) -> DoctorCheck | None:
    """Check the user's own price file, if any. Raises OSError."""
    path = price_file(environment)
    if path is None or not os.path.lexists(path):
        return None
    try:
        count = len(user_prices(environment))
    except MzError as error:
        return fail_with_error(error, "`mz run --dry-run` shows all errors")
    return ok(f"{path}: {count} {'price' if count == 1 else 'prices'}")


# the project ----------------------------------------------------------------------------------------------------------
def repository_check(options: DoctorOptions) -> DoctorCheck:
    try:
        root = options.root or repository.find_root(options.directory, options.environment)
        repository.open_repository(root, options.environment)
    except RepositoryUnusable as error:
        if error.code not in ("not-a-repository", "git-missing"):
            raise
        return warn(str(error).partition("; ")[0], OUTSIDE_HINT)
    return ok(str(root))


def settings_check(loaded: LoadedConfig) -> DoctorCheck:
    if loaded.warnings:
        return warn(loaded.warnings[0].message, loaded.warnings[0].hint)
    if not loaded.file_exists:
        return warn(f"there is no {FILE_NAME}: defaults are used", "`mz init` writes one")
    return ok(f"{FILE_NAME} is valid")


def base_check(root: Path, config: Config, environment: Mapping[str, str]) -> DoctorCheck:
    branch, commit = repository.base_commit(root, config.base, environment)
    repository.reject_tracked_folder(root, commit, environment)
    return ok(f"{branch} at {commit[:12]}")


def budget_check(config: Config, environment: Mapping[str, str], now_seconds: float) -> DoctorCheck:
    """Check that no agent can delete the record that the budget of a day needs. Raises OSError."""
    folder, limits = spending_folder(environment), config.budget
    summary = budget_text(limits, SpendingRecord(folder).day(int(now_seconds * 1_000_000)))
    is_below = any(folder.is_relative_to(Path(path).expanduser()) for path in config.sandbox.write)
    if (limits.day_nanousd is not None or limits.day_tokens is not None) and (is_below or not can_hide()):
        return warn(f"{summary}; agents may change {folder}, where the day's spending is", "see docs/costs.md#budgets")
    return ok(summary)


def log_check(root: Path) -> DoctorCheck:
    """Check that `.mz` is writable and that this version can read its log; opens nothing for writing."""
    mz_folder = root / MZ_FOLDER
    folder = mz_folder if mz_folder.exists() else root
    if not os.access(folder, os.W_OK | os.X_OK):
        return fail(f"{folder} is not writable", "mz keeps its log there; make it writable")
    path = mz_folder / LOG_FILE
    if not path.exists():
        return ok("nothing has run here yet")
    wal = path.with_name(path.name + "-wal")
    # Without a write-ahead log the file is opened as immutable, to create no files.
    immutable = "" if wal.exists() and wal.stat().st_size else "&immutable=1"
    try:
        with closing(connect(f"{path.absolute().as_uri()}?mode=ro{immutable}", 1.0)) as connection:
            version = format_of(connection, path, len(MIGRATIONS))
    except (StoreUnusable, sqlite3.Error) as error:
        return fail(str(error), "use a newer mz, or restore the log from a copy; see `mz audit --verify`")
    if version == len(MIGRATIONS):
        return ok(f"format {version}, current")
    return ok(f"format {version}; the next run migrates it to {len(MIGRATIONS)} and keeps a copy")


def pipeline_check(root: Path, loaded: LoadedConfig) -> DoctorCheck:
    chosen, warnings = plan.load_configured_pipeline(loaded, root)
    skipped_steps = {warning.message for warning in warnings if warning.code == STEP_SKIPPED}
    others = [warning for warning in warnings if warning.code != STEP_SKIPPED]
    others += plan.missing_tools(chosen, loaded.config)
    summary = f"{chosen.pipeline}: {', '.join(phase.phase for phase in chosen.phases)}"
    summary += f"; steps without a command: {len(skipped_steps)}" if skipped_steps else ""
    return warn_of(others) or ok(summary)


def backlog_check(root: Path, config: Config, environment: Mapping[str, str]) -> DoctorCheck:
    name = config.backlog
    if not FORGE_SOURCE.fullmatch(name) and not os.path.lexists(root / name):
        return warn(f"there is no {name} yet", "`mz init` writes a first one")
    items = plan.read_backlog(root, config, environment)
    delivered: Container[str] = ()
    if (log := root / MZ_FOLDER / LOG_FILE).exists():
        with suppress(StoreUnusable), SqliteStore(log, read_only=True) as store:
            delivered = plan.delivered_items(None, store)
    open_count = sum(item.status is ItemStatus.BACKLOG and item.source not in delivered for item in items)
    return ok(f"{name}: {open_count} of {len(items)} features to do")


def commands_check(root: Path, config: Config, environment: Mapping[str, str]) -> DoctorCheck:
    count = len(config.commands) + len(config.workspace.setup)
    missing = plan.missing_programs(root, config, environment)
    if missing:
        summary = ", ".join(f"`{name}` needs {program}" for name, program in missing.items())
        return fail(f"{summary}: not on PATH", "install it, or change the command in mz.yaml")
    if "test" not in config.commands:
        hint = "write `test: COMMAND LINE` under `commands:` in mz.yaml"
        return warn("there is no `test` command: agents' work is not tested", hint)
    return ok(f"programs found for {count} of {count} command line{'' if count == 1 else 's'}")


def content_check(root: Path, config: Config, environment: Mapping[str, str]) -> DoctorCheck | None:
    """Check that worktrees have the content of submodules and LFS files, if there are any."""
    _, commit = repository.base_commit(root, config.base, environment)
    return warn_of(plan.missing_content(root, commit, config.workspace.setup, environment))


def run_commands_check(root: Path, loaded: LoadedConfig, environment: Mapping[str, str]) -> DoctorCheck:
    """Run the set-up and the commands on the base, as a run does before it costs anything. Raises MzError."""
    material = load_valid_pipeline_files(root)
    pipeline, _ = plan.load_configured_pipeline(loaded, root, material)
    pins = pin_files(pipeline, material, loaded.config)
    branch, commit = repository.base_commit(root, loaded.config.base, environment)
    problem, warnings = try_base(root, commit, pins, environment)
    if problem is not None:
        return fail(problem.message, problem.hint)
    return warn_of(warnings) or ok(f"set-up and commands succeeded on {branch} at {commit[:12]}")


def editor_schema_check(root: Path) -> DoctorCheck | None:
    """Check the schema that `mz init` writes, if `mz.yaml` names it. Raises OSError."""
    settings = root / FILE_NAME
    if not settings.is_file() or SCHEMA_PATH not in settings.read_text("utf-8"):
        return None
    path = root / SCHEMA_PATH
    if not path.is_file():
        return warn(f"{SCHEMA_PATH} is missing; editors need it", "`mz init` writes it")
    if path.read_bytes() != schema_text():
        return warn(f"{SCHEMA_PATH} is from another version of mz", "`mz init` renews it")
    return ok(f"{SCHEMA_PATH}, which the first lines of {FILE_NAME} name")


def remote_check(root: Path, config: Config, environment: Mapping[str, str], online: bool) -> DoctorCheck:
    """Check the remote of branches. Raises RepositoryUnusable, and with `online` RemoteError."""
    name = config.pull_requests.remote
    git = repository.open_repository(root, environment)
    if not repository.has_remote(git, name):
        return fail(f"there is no remote {name!r}", f"`git remote add {name} URL`, {NO_PULL_REQUESTS_HINT}")
    if not online:
        return ok(f"{name}, not contacted; `--online` contacts it")
    branch = config.base or repository.current_branch(root, environment)
    if repository.remote_head(git, name, branch) is None:
        return warn(f"{name} answers, but has no branch {branch}", f"push it once: git push {name} {branch}")
    return ok(f"{name} answers, and has {branch}")


def gh_check(root: Path, environment: Mapping[str, str], online: bool) -> DoctorCheck:
    """Check that `gh` is installed and logged in; only with `online` that the login is still valid. Its output is not
    shown, since it may hold the token."""
    if not shutil.which("gh", path=environment.get("PATH")):
        return fail("`gh` is not on PATH", f"install it from https://cli.github.com, {NO_PULL_REQUESTS_HINT}")
    command = ["gh", "auth", "status" if online else "token"]
    quiet = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
    try:
        result = run_program(command, root, {**without_git(environment), **quiet}, GH_SECONDS)
    except subprocess.TimeoutExpired:
        return warn(f"`{' '.join(command)}` did not end within {GH_SECONDS} s")
    if result.exit_code:
        return fail("`gh` is not logged in", f"`gh auth login`, or set GH_TOKEN, {NO_PULL_REQUESTS_HINT}")
    return ok("logged in" if online else "has a login; `--online` checks that it is still valid")
