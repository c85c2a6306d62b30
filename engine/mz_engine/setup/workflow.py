"""What the workflow of `mz init --ci` installs: this `mz`, and the programs of the project's commands."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from mz_engine.errors.diagnostics import MzError
from mz_engine.git.process import NO_USER_CONFIG, mask_credentials, run_program, safe_environment
from mz_engine.git.repository import output_as_user
from mz_engine.ports import RepositoryUnusable
from mz_engine.run.plan import program_of
from mz_engine.setup.detect import tables
from mz_engine.version import VERSION

PACKAGE = "mz-engine"
INSTALL_HINT = "name what the workflow installs: mz init --ci --install 'mz-engine @ git+https://HOST/PATH@COMMIT'"
SCP_URL = re.compile(r"(?:[\w.-]+@)?([\w.-]+\.[\w-]+):(?!/)(.+)")
LOOPBACK = re.compile(r"(?:.+\.)?localhost\.?|127(?:\.\d+){0,3}\.?|[0:]*:0*1|::ffff:127\.[\d.]+")
"""Names and addresses of this machine, as `urlsplit` gives a host."""
MODULE = re.compile(r"python3?\s+-m\s+([\w-]+)")
PIP_SECONDS = 300
PIP_OPTIONS = "--dry-run --ignore-installed --no-deps --no-input --disable-pip-version-check --quiet --report - --"
PIP_ERROR = re.compile(r"^\s*(?:ERROR|fatal): (.+)$", re.MULTILINE)


class Origin(msgspec.Struct, frozen=True):
    """`direct_url.json` of an installed package; pip writes none for a package from an index. Source: PEP 610."""

    url: str
    vcs_info: dict[str, str] = {}
    archive_info: dict[str, Any] = {}
    subdirectory: str = ""


def refusal(reason: str, hint: str = INSTALL_HINT) -> MzError:
    return MzError("MZ2021", f"the workflow would not be green: {reason}", hint=hint)


def installed_requirement(environment: Mapping[str, str]) -> str:
    """Return the requirement with which pip installs this `mz` on another machine, pinned. Raises MzError (MZ2021)."""
    try:
        text = metadata.distribution(PACKAGE).read_text("direct_url.json")
    except metadata.PackageNotFoundError as error:
        raise refusal(f"the package {PACKAGE} is not installed here") from error
    if text is None:
        return f"{PACKAGE}=={VERSION}"
    origin = msgspec.json.decode(text, type=Origin)
    path = Path(unquote(urlsplit(origin.url).path))
    return _pushed_commit(path, environment) if origin.url.startswith("file:") and path.is_dir() else _pinned(origin)


def checked_requirement(requirement: str, root: Path, environment: Mapping[str, str]) -> str:
    """Return what pip would install for the requirement without the user's settings of git, pinned. Raises MzError."""
    if (masked := mask_credentials(requirement)) != requirement:
        raise refusal(f"{masked} needs a user or password of yours, which CI does not have")
    command = (sys.executable, "-P", "-m", "pip", "install", *PIP_OPTIONS.split(), requirement)
    try:
        result = run_program(command, Path.cwd(), {**safe_environment(environment), **NO_USER_CONFIG}, PIP_SECONDS)
        error = next(iter(PIP_ERROR.findall(result.stderr)), result.stderr[-500:]) if result.exit_code else ""
    except subprocess.TimeoutExpired:
        error = f"it did not end within {PIP_SECONDS} s"
    if error:
        raise refusal(f"pip cannot install {requirement}: {error}", "name another; offline, add --unchecked")
    downloads = msgspec.json.decode(result.stdout)["install"]  # pip's "Installation Report"
    names = [re.sub(r"[-_.]+", "-", download["metadata"]["name"]).lower() for download in downloads]
    if names != [PACKAGE]:
        raise refusal(f"{requirement} installs {names[0] if names else 'nothing'}, not {PACKAGE}")
    origin = msgspec.convert(downloads[0]["download_info"], Origin)
    path = Path(unquote(urlsplit(origin.url).path))
    if path.is_relative_to(root) and output_as_user(root, environment, "ls-files", "--", str(path)):
        return f"./{path.relative_to(root)}"
    is_of_pypi = origin.url.startswith("https://files.pythonhosted.org/")
    return f"{PACKAGE}=={downloads[0]['metadata']['version']}" if is_of_pypi else _pinned(origin)


def _pinned(origin: Origin) -> str:
    if urlsplit(origin.url).scheme not in ("https", "http") or not public_url(origin.url):
        raise refusal(f"CI does not have {origin.url}")
    if origin.vcs_info:
        folder = f"#subdirectory={origin.subdirectory}" if origin.subdirectory else ""
        return f"{PACKAGE} @ {origin.vcs_info['vcs']}+{origin.url}@{origin.vcs_info['commit_id']}{folder}"
    hashes = (f"#{name}={value}" for name, value in origin.archive_info.get("hashes", {}).items())
    return f"{PACKAGE} @ {origin.url}{next(hashes, '')}"


def _pushed_commit(checkout: Path, environment: Mapping[str, str]) -> str:
    """Return the requirement of the checkout's commit on a remote that others can reach."""
    git = partial(output_as_user, checkout, environment)
    try:
        commit, changes = git("rev-parse", "--verify", "HEAD"), git("status", "--porcelain")
        remotes = git("remote").split() if commit else []
        contains = ("branch", "--remotes", "--contains", commit, "--list")
        urls = [public_url(git("remote", "get-url", name)) for name in remotes if git(*contains, f"{name}/*")]
    except RepositoryUnusable as error:
        raise refusal(f"mz was installed from {checkout}, which is no repository") from error
    if changes:
        raise refusal(f"mz was installed from {checkout}, which has uncommitted changes")
    if url := next(filter(None, urls), ""):
        return f"{PACKAGE} @ git+{url}@{commit}"
    raise refusal(f"mz was installed from {checkout}, whose commit is on no remote that CI can reach")


def public_url(url: str) -> str:
    """Return the address of a remote for people without its keys; empty for a path of this machine."""
    if match := SCP_URL.fullmatch(url):
        url = f"https://{match[1]}/{match[2]}"
    parts = urlsplit(url)
    is_remote = parts.scheme in ("https", "http", "ssh") and not LOOPBACK.fullmatch(parts.hostname or "localhost")
    return f"https://{parts.hostname}{parts.path}" if is_remote else ""


def program_installs(setup: Iterable[str], commands: Iterable[str]) -> tuple[str, ...]:
    """Return the commands that install the programs of the project's command lines on the workflow's machine. Raises
    MzError (MZ2021) for a program that is neither there nor has such a command."""
    programs = tables().workflow_programs
    setup, installs = tuple(setup), dict[str, None]()
    lines = [name for name in programs.installs if " " in name]
    for line in (*setup, *commands):
        program = program_of(line) or ""
        module = MODULE.search(line)
        for name in (program, module[1] if module and not setup else "", *(name for name in lines if name in line)):
            if name in programs.installs:
                installs[programs.installs[name]] = None
        if program and "/" not in program and program not in (*programs.preinstalled, *programs.installs):
            hint = "write the workflow by hand; `mz init --ci` of a project without this command shows it"
            raise refusal(f"it cannot install `{program}`, which `{line}` needs", hint)
    return tuple(installs)
