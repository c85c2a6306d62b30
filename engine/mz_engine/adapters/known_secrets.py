"""Secrets that must never be recorded: values of variables, of ignored `.env` files, and passwords in URLs.

Only their names are ever shown."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

from mz_events.redact import VALUE_CHARS_MIN

from mz_engine.adapters.git_repository import ask

SECRET_NAMES = re.compile(r"(?i)(key|token|secret|passw|credential|auth)")
"""Names of variables whose values are secrets."""
NOT_SECRET = re.compile(r"(?i)(_sock|_file|_path|_dir|_url|_method|_type|_id)$|^MZ_KEY$")
"""Names that match SECRET_NAMES although their values only locate a secret."""
IN_URL = re.compile(r"://([^/\s:@'\"]*)(?::([^/\s@'\"]*))?@")
"""User and password of a URL."""
TOKEN_CHARS_MIN = 16
"""A user name without a password in a URL is a token if it is at least this long."""
PASSWORD_CHARS_MIN = 12
"""For passwords in URLs: shorter ones are mostly of a local database (`postgres`), and common words."""
IN_CONFIG = r"^(remote\..*\.(url|pushurl)|url\..*\.(insteadof|pushinsteadof)|http\.(.*\.)?extraheader)$"
DEFAULTS = frozenset(
    ("password", "changeme", "changeit", "postgres", "postgresql", "rabbitmq", "minioadmin", "localhost", "development")
)
"""Default passwords in many `.env` files; they also occur in many texts."""
DOTENV = re.compile(
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


def secret_values(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets of the environment by variable."""
    named = {name: value for name, value in environment.items() if is_secret(name)}
    inside = {name: password for name, value in environment.items() if name not in named for password in in_urls(value)}
    return {**named, **inside}


def known_secrets(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets of the environment, of the repository's `.env` files that are not committed, and of its
    remotes, by variable. Secrets from git's configuration get generated names."""
    logins = {f"GIT_LOGIN_{at}": login for at, login in enumerate(_logins(root, environment), 1)}
    return {**_dotenv(root, environment), **logins, **secret_values(environment)}


def is_secret(name: str) -> bool:
    """Return True if the name of a variable says that its value is a secret."""
    return bool(SECRET_NAMES.search(name)) and not NOT_SECRET.search(name)


def in_urls(text: str) -> Iterator[str]:
    """Yield passwords and tokens in URLs, unquoted."""
    for user, password in IN_URL.findall(text):
        if len(password) >= PASSWORD_CHARS_MIN:
            yield unquote(password)
        elif not password and len(user) >= TOKEN_CHARS_MIN:
            yield unquote(user)


def _logins(root: Path, environment: Mapping[str, str]) -> Iterator[str]:
    found = ask(root, environment, "config", "--null", "--get-regexp", IN_CONFIG)
    for entry in found.text.split("\0") if not found.code else ():
        name, _, value = entry.partition("\n")
        yield from in_urls(f"{name} {value}")
        if name.endswith("extraheader"):
            yield value.split(" ")[-1]


def _dotenv(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    files = [path for path in sorted(root.glob(".env*")) if path.is_file()]
    if not files:
        return {}
    listed = ask(root, environment, "ls-files", "-z", "--", *(path.name for path in files))
    committed = set(listed.text.split("\0"))
    found: dict[str, str] = {}
    for path in files:
        # Agents and commands run as the same user, so they cannot read an unreadable file either.
        with contextlib.suppress(OSError):
            if path.name not in committed and path.stat().st_size <= DOTENV_BYTES_MAX:
                found |= parse_dotenv(path.read_text("utf-8-sig", "replace"))
    return found


def parse_dotenv(text: str) -> dict[str, str]:
    """Return the secrets among `NAME=value` settings by name, including passwords in URLs."""
    found: dict[str, str] = {}
    for parts in DOTENV.finditer(text):
        name, value = parts[1], _meant(parts).strip()
        if not is_secret(name):
            value = next(in_urls(value), "")
        if len(value) >= VALUE_CHARS_MIN and value.lower() not in DEFAULTS:
            found[name] = value
    return found


def _meant(parts: re.Match[str]) -> str:
    _, escaped, single, ticked, bare = parts.groups()
    if escaped is not None:
        return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), escaped, flags=re.DOTALL)
    quoted = single if single is not None else ticked
    # A quote that is never closed is no part of the value.
    return quoted if quoted is not None else COMMENT.sub("", bare).strip().strip("\"'`")
