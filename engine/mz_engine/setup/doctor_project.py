"""Checks of `mz doctor` on one project."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

from mz_events.adapters.migrate import MIGRATIONS, connect, format_of
from mz_events.store import StoreUnusable

from mz_engine.backlog.item import ItemStatus
from mz_engine.backlog.load import read_backlog
from mz_engine.config.schema import schema_text
from mz_engine.git.process import Git
from mz_engine.git.process import safe_environment as without_git
from mz_engine.git.remote import has_remote, remote_head
from mz_engine.git.repository import branch_commit, current_branch, describe_repository
from mz_engine.model.config import FILE_NAME, SCHEMA_PATH, Config
from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_engine.ports import RepositoryUnusable
from mz_engine.run.plan import load_configured_pipeline
from mz_engine.run.preflight import missing_programs, missing_tools
from mz_engine.run.settings import LoadedConfig
from mz_engine.setup.checks import DoctorCheck

GH_SECONDS = 30
STEP_SKIPPED = "MZ3009"
NO_PULL_REQUESTS_HINT = "or set pull_requests.strategy to none in mz.yaml"


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
        return DoctorCheck.fail("log", str(error), "use a newer mz, or restore the log from a copy; see `mz verify`")
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
