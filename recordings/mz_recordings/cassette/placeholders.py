"""Replacement of machine-specific values in recorded bytes by tokens, and back.

Tokens such as `<WORKTREE>` and `<HOME>` consist of `[A-Za-z_<>]`, so a line of JSON still parses to the same structure.
Paths are replaced at path boundaries only, the longest first; the user's name only inside home paths. A token that was
in the original bytes gets an underscore and loses it again: scrub and expand on one machine return the same bytes.

Also the names of a call's files. Standard library only: the stand-in starts with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

NAMES = ("WORKTREE", "REPOSITORY", "HOME", "USER", "SESSION")
SLUG = "_SLUG"
"""`<HOME_SLUG>`: the path as a directory name of agents, `/home/x` as `-home-x`."""
URL = "_URL"
"""`<HOME_URL>`: the path as a part of a URL, `/home/x` as `%2Fhome%2Fx`."""
ALL_NAMES = tuple(name + form for name in NAMES for form in ("", SLUG, URL))

UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"
_HEX = re.compile("%[0-9A-F]{2}")
_TOKEN = re.compile(rb"<(_*)(" + "|".join(sorted(ALL_NAMES, key=len, reverse=True)).encode() + rb")>")

_PATH_START = rb"(?:(?<![\w.\-/~])|(?<=://)|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"
"""Before a path: no character of a longer path. The letter of a JSON escape is not one."""
_PATH_END = rb"(?![\w-])(?!\.\w)"
_URL_PATH_START = rb"(?:(?<![\w.\-/~])|(?<=%[0-9A-Fa-f]{2}))"
_HOMES = rb"((?:/|%2[Ff])(?:home|Users)(?:/|%2[Ff]))"


class MachineValues(NamedTuple):
    """Values of one machine and one call. Empty: unknown."""

    worktree: str = ""
    repository: str = ""
    home: str = ""
    user: str = ""
    session: str = ""

    def paths(self) -> dict[str, str]:
        """Return absolute paths by token; not the root itself."""
        candidates = {"WORKTREE": self.worktree, "REPOSITORY": self.repository, "HOME": self.home}
        return {
            name: path.rstrip("/") for name, path in candidates.items() if path.startswith("/") and path.rstrip("/")
        }


def slug(path: str) -> str:
    """Return a path as a directory name, as Claude Code builds it."""
    return re.sub(r"[^A-Za-z0-9]", "-", path)


def url_quote(path: str, unquoted: bytes = b"") -> str:
    """Return a path as a part of a URL; bytes in `unquoted` are kept. Replaces urllib, which takes most of the
    stand-in's loading time."""
    raw = path.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in UNRESERVED + unquoted else f"%{byte:02X}" for byte in raw)


def scrub(data: bytes, machine_values: Iterable[MachineValues]) -> bytes:
    """Return the bytes with tokens. Several values are several names of one directory; `expand` with the first of
    `machine_values` restores the first value of each token."""
    data, all_values = _TOKEN.sub(rb"<_\1\2>", data), tuple(machine_values)
    for suffix, forms_of, begins, ends in _FORMS:
        tokens_by_form: dict[bytes, bytes] = {}
        for values in all_values:
            for name, path in values.paths().items():
                for form in forms_of(path):
                    tokens_by_form.setdefault(form, f"<{name}{suffix}>".encode())
        data = _replace(data, tokens_by_form, begins, ends)
    for values in all_values:
        data = _replace_names(data, values)
    return data


def expand(data: bytes, machine_values: MachineValues, *, in_json: bool = False) -> bytes:
    """Return the bytes with the values of this machine, escaped if they are `in_json` strings. A token without a value
    remains."""
    user = machine_values.user
    values_by_token = {"USER": user, "USER" + SLUG: slug(user), "SESSION": machine_values.session}
    for name, path in machine_values.paths().items():
        values_by_token |= {name: path, name + SLUG: slug(path), name + URL: url_quote(path)}

    def value(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return b"<%s%s>" % (match[1][1:], match[2])
        text = values_by_token.get(match[2].decode(), "")
        if not text:
            return match[0]
        return _json_escape(text) if in_json else text.encode()

    return _TOKEN.sub(value, data)


def _replace_names(data: bytes, values: MachineValues) -> bytes:
    if values.session:
        data = data.replace(values.session.encode(), b"<SESSION>")
    if values.user:
        user = re.escape(values.user.encode())
        data = re.sub(_HOMES + user + _PATH_END, rb"\1<USER>", data)
        user_slug = re.escape(slug(values.user).encode())
        data = re.sub(rb"(?<=/)(-(?:home|Users)-)" + user_slug + rb"(?![A-Za-z0-9])", rb"\1<USER_SLUG>", data)
    return data


def _replace(data: bytes, replacements: Mapping[bytes, bytes], begins: bytes, ends: bytes) -> bytes:
    """Replace all words in one pass, the longest first, so that no replacement is replaced again."""
    if not replacements:
        return data
    alternatives = b"|".join(re.escape(word) for word in sorted(replacements, key=len, reverse=True))
    return re.sub(begins + rb"(" + alternatives + rb")" + ends, lambda match: replacements[match[1]], data)


def _spellings(path: str) -> tuple[bytes, ...]:
    """Return the spellings of a path: text, JSON, ASCII-only JSON, JSON with escaped slashes, and after `file://`."""
    plain, ascii_only = path.encode("utf-8", "surrogateescape"), json.dumps(path)[1:-1].encode()
    in_url = url_quote(path, b"/").encode()
    return tuple(dict.fromkeys((plain, _json_escape(path), ascii_only, ascii_only.replace(b"/", b"\\/"), in_url)))


def _url_forms(path: str) -> tuple[bytes, ...]:
    quoted = url_quote(path)
    return quoted.encode(), _HEX.sub(lambda match: match[0].lower(), quoted).encode()


def _json_escape(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape")


_FORMS = (
    ("", _spellings, _PATH_START, _PATH_END),
    (SLUG, lambda path: (slug(path).encode(),), rb"(?<=/)", rb"(?![A-Za-z0-9])"),
    (URL, _url_forms, _URL_PATH_START, _PATH_END),
)
"""Suffix of tokens, forms of a path, and what must be around one."""


BUILDER = "builder"
"""Role of the phase's own agent. File names leave it out."""


def call_name(phase: str, unit: str, iteration: int, attempt: int, role: str) -> str:
    """Return the base name of a call's files, such as `code.U1.i2.a3.reviewer`. Defaults are left out."""
    parts = (
        phase,
        # A unit whose name looks like an iteration or an attempt must stay distinguishable from one.
        f"unit={unit}" if re.fullmatch(r"[ia]\d+", unit) else unit,
        f"i{iteration}" if iteration > 1 else "",
        f"a{attempt}" if attempt > 1 else "",
        role if role != BUILDER else "",
    )
    return ".".join(part for part in parts if part)
