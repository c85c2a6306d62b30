"""Adapter: what must never be written down: values of variables, of files that git ignores, and passwords in URLs.

Only the names are ever shown.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

from mz_events.redact import VALUE_CHARS_MIN

from mz_engine.adapters.git_repository import ask

SECRET_NAMES = re.compile(r"(?i)(key|token|secret|passw|credential|auth)")
"""Variables whose values are secrets; their names say so."""
NOT_SECRET = re.compile(r"(?i)(_sock|_file|_path|_dir|_url|_method|_type|_id)$|^MZ_KEY$")
"""Names that speak of a secret, and values that only say where it is."""
IN_URL = re.compile(r"://([^/\s:@'\"]*)(?::([^/\s@'\"]*))?@")
"""Who logs in, and with what."""
TOKEN_CHARS_MIN = 16
"""A name before the `@` of a URL, without a password, that is as long as this is a token."""
PASSWORD_CHARS_MIN = 12
"""Of what stands in URLs: shorter ones are mostly of a database on this machine (`postgres`), and words that
stand everywhere."""
IN_CONFIG = r"^(remote\..*\.(url|pushurl)|url\..*\.(insteadof|pushinsteadof)|http\.(.*\.)?extraheader)$"
DEFAULTS = frozenset(
    ("password", "changeme", "changeit", "postgres", "postgresql", "rabbitmq", "minioadmin", "localhost", "development")
)
"""What stands in many an `.env` file where a password would, and in many a text too."""
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
"""Name, and the value: in double quotes, where a backslash escapes, in others, or bare; in quotes it may go on over
several lines."""
COMMENT = re.compile(r"(?:^|\s)#.*")
"""Behind a bare value: only after a blank."""
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
DOTENV_BYTES_MAX = 1_000_000


def secret_values(environment: Mapping[str, str]) -> dict[str, str]:
    """Secrets of the environment, by variable."""
    named = {name: value for name, value in environment.items() if is_secret(name)}
    inside = {name: password for name, value in environment.items() if name not in named for password in in_urls(value)}
    return {**named, **inside}


def known_secrets(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Those, and what lies in a repository without being in git: logins to its remotes, and its `.env` files. By
    variable; those of git have names of their own. What is committed is no secret any more."""
    logins = {f"GIT_LOGIN_{at}": login for at, login in enumerate(_logins(root, environment), 1)}
    return {**_dotenv(root, environment), **logins, **secret_values(environment)}


def is_secret(name: str) -> bool:
    """Whether the name of a variable says that its value is one."""
    return bool(SECRET_NAMES.search(name)) and not NOT_SECRET.search(name)


def in_urls(text: str) -> Iterator[str]:
    """Passwords and tokens in URLs, as they are meant."""
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
        # Whoever may not read it may not show it either: agents and commands are the same user.
        with contextlib.suppress(OSError):
            if path.name not in committed and path.stat().st_size <= DOTENV_BYTES_MAX:
                found |= parse_dotenv(path.read_text("utf-8-sig", "replace"))
    return found


def parse_dotenv(text: str) -> dict[str, str]:
    """The secrets among the settings `NAME=value`, by name; passwords in URLs too."""
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
        return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[1]), escaped, flags=re.DOTALL)
    quoted = single if single is not None else ticked
    # A quote that is never closed belongs to nothing.
    return quoted if quoted is not None else COMMENT.sub("", bare).strip().strip("\"'`")
