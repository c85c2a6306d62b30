"""Secrets that must never be recorded: values of variables, of ignored `.env` files, and passwords in URLs.

Only their names are ever shown."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

from mz_events.redaction.values import VALUE_CHARS_MIN

from mz_engine.git.repository import run_git_as_user

SECRET_NAMES = re.compile(
    r"(?i)key|token|secret|passw|passphrase|passcode|credential|auth(?!or(?!iz))|cookie|webhook|bearer|jwt|private"
    r"|mnemonic|connection_?string|(?:^|_)(?:pat|pass|otp|totp|salt|pepper|signature)(?:_|$)|pwd$|_(?:dsn|sas|conn_str)$"
)
"""Names of variables whose values are secrets."""
NOT_SECRET_NAMES = re.compile(
    r"(?i)_(?:sock|file|path|dir|method|type|id|name|domain|algorithm|header|ttl)$|(?<!hook)_url$|^(?:old)?pwd$|^MZ_KEY$"
)
"""Names that match SECRET_NAMES although their values only locate or describe a secret."""
URL_LOGIN = re.compile(r"://([^/\s:@'\"]*)(?::([^/\s@'\"]*))?@")
"""User and password of a URL."""
TOKEN_CHARS_MIN = 16
"""A user name without a password in a URL is a token if it is at least this long."""
PASSWORD_CHARS_MIN = 12
"""For passwords in URLs: shorter ones are mostly of a local database (`postgres`), and common words."""
CONFIG_KEYS_WITH_LOGINS = r"^(remote\..*\.(url|pushurl)|url\..*\.(insteadof|pushinsteadof)|http\.(.*\.)?extraheader)$"
DEFAULT_PASSWORDS = frozenset(
    ("password", "changeme", "changeit", "postgres", "postgresql", "rabbitmq", "minioadmin", "localhost", "development")
)
"""Default passwords in many `.env` files; they also occur in many texts."""
DOTENV_SETTING = re.compile(
    r"""
    ^[ \t]* (?:export[ \t]+)? ([A-Za-z_][A-Za-z0-9_]*) [ \t]*=[ \t]*
    (?:
        (?: "([^"\\]*+(?:\\.[^"\\]*+)*+)" | '([^']*+)' | `([^`]*+)` ) [ \t\r]*(?:\#[^\n]*)?$
        | ([^\n]*)
    )
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
"""Name and value: in double quotes with backslash escapes, in other quotes, or bare; quoted values may span lines."""
COMMENT = re.compile(r"(?:^|\s)#.*")
"""After a bare value: only behind white space."""
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
DOTENV_BYTES_MAX = 1_000_000


def environment_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets of the environment by variable."""
    secret_variables = {name: value for name, value in environment.items() if is_secret(name)}
    url_passwords = {
        name: password
        for name, value in environment.items()
        if name not in secret_variables
        for password in url_logins(value)
    }
    return {**secret_variables, **url_passwords}


def project_secrets(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets of the environment, of the repository's `.env` files that are not committed, and of its
    remotes, by variable. Secrets from git's configuration get generated names."""
    settings = run_git_as_user(root, environment, "config", "--null", "--get-regexp", CONFIG_KEYS_WITH_LOGINS)
    remote_logins = list[str]()
    for entry in settings.text.split("\0") if not settings.exit_code else ():
        name, _, value = entry.partition("\n")
        remote_logins += url_logins(f"{name} {value}")
        remote_logins += [value.split(" ")[-1]] if name.endswith("extraheader") else []
    logins = {f"GIT_LOGIN_{at}": login for at, login in enumerate(remote_logins, 1)}
    return {**_dotenv_secrets(root, environment), **logins, **environment_secrets(environment)}


def is_secret(name: str) -> bool:
    """Return True if the name of a variable says that its value is a secret."""
    return bool(SECRET_NAMES.search(name)) and not NOT_SECRET_NAMES.search(name)


def url_logins(text: str) -> Iterator[str]:
    """Yield passwords and tokens in URLs, unquoted."""
    for user, password in URL_LOGIN.findall(text):
        if len(password) >= PASSWORD_CHARS_MIN:
            yield unquote(password)
        elif not password and len(user) >= TOKEN_CHARS_MIN:
            yield unquote(user)


def _dotenv_secrets(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    files = [path for path in sorted(root.glob(".env*")) if path.is_file()]
    if not files:
        return {}
    tracked_files = run_git_as_user(root, environment, "ls-files", "-z", "--", *(path.name for path in files))
    tracked_names = set(tracked_files.text.split("\0"))
    secrets: dict[str, str] = {}
    for path in files:
        # Agents and commands run as the same user, so they cannot read an unreadable file either.
        with contextlib.suppress(OSError):
            if path.name not in tracked_names and path.stat().st_size <= DOTENV_BYTES_MAX:
                secrets |= parse_dotenv(path.read_text("utf-8-sig", "replace"))
    return secrets


def parse_dotenv(text: str) -> dict[str, str]:
    """Return the secrets among `NAME=value` settings by name, including passwords in URLs."""
    secrets: dict[str, str] = {}
    for match in DOTENV_SETTING.finditer(text):
        name, value = match[1], _dotenv_value(match).strip()
        if not is_secret(name):
            value = next(url_logins(value), "")
        if len(value) >= VALUE_CHARS_MIN and value.lower() not in DEFAULT_PASSWORDS:
            secrets[name] = value
    return secrets


def _dotenv_value(setting: re.Match[str]) -> str:
    _, escaped, single, ticked, bare = setting.groups()
    if escaped is not None:
        return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), escaped, flags=re.DOTALL)
    quoted = single if single is not None else ticked
    # A quote that is never closed is no part of the value.
    return quoted if quoted is not None else COMMENT.sub("", bare).strip().strip("\"'`")
