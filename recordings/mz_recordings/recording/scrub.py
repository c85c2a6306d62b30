"""Replacement of machine-specific values in recorded bytes by tokens, and back.

Tokens such as `<WORKTREE>` and `<HOME>` consist of `[A-Za-z_<>]`, so a line of JSON still parses to the same structure.
Paths are replaced at path boundaries only, the longest first; the user's name only inside home paths. A token that was
in the original bytes gets an underscore and loses it again: scrub and expand on one machine return the same bytes.
Standard library only: the stand-in starts with it.
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
_WRITTEN = re.compile(rb"<(_*)(" + "|".join(sorted(ALL_NAMES, key=len, reverse=True)).encode() + rb")>")

_BEGINS = rb"(?:(?<![\w.\-/~])|(?<=://)|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"
"""Before a path: no character of a longer path. The letter of a JSON escape is not one."""
_ENDS = rb"(?![\w-])(?!\.\w)"
_URL_BEGINS = rb"(?:(?<![\w.\-/~])|(?<=%[0-9A-Fa-f]{2}))"
_HOMES = rb"((?:/|%2[Ff])(?:home|Users)(?:/|%2[Ff]))"


class Places(NamedTuple):
    """Values of one machine and one call. Empty: unknown."""

    worktree: str = ""
    repository: str = ""
    home: str = ""
    user: str = ""
    session: str = ""

    def paths(self) -> dict[str, str]:
        """Return absolute paths by token; not the root itself."""
        found = {"WORKTREE": self.worktree, "REPOSITORY": self.repository, "HOME": self.home}
        return {name: path.rstrip("/") for name, path in found.items() if path.startswith("/") and path.rstrip("/")}


def slug(path: str) -> str:
    """Return a path as a directory name, as Claude Code builds it."""
    return re.sub(r"[^A-Za-z0-9]", "-", path)


def quoted(path: str, kept: bytes = b"") -> str:
    """Return a path as a part of a URL; bytes in `unquoted` are kept. Replaces urllib, which takes most of the
    stand-in's loading time."""
    raw = path.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in UNRESERVED + kept else f"%{byte:02X}" for byte in raw)


def scrub(data: bytes, places: Iterable[Places]) -> bytes:
    """Return the bytes with tokens. Several values are several names of one directory; `expand` with the first of
    `machine_values` restores the first value of each token."""
    data = _WRITTEN.sub(rb"<_\1\2>", data)
    known = tuple(places)
    words: dict[bytes, bytes] = {}
    for place in known:
        for name, path in place.paths().items():
            for form in _forms(path):
                words.setdefault(form, b"<%s>" % name.encode())
    data = _replace(data, words, _BEGINS, _ENDS)
    data = _replace(data, _slugs(known), rb"(?<=/)", rb"(?![A-Za-z0-9])")
    data = _replace(data, _urls(known), _URL_BEGINS, _ENDS)
    for place in known:
        data = _scrub_names(data, place)
    return data


def expand(data: bytes, place: Places, *, in_json: bool = False) -> bytes:
    """Return the bytes with the values of this machine, escaped if they are `in_json` strings. A token without a value
    remains."""
    values: dict[str, str] = {**place.paths(), "USER": place.user, "SESSION": place.session}
    values |= {name + SLUG: slug(path) for name, path in place.paths().items()}
    values |= {name + URL: quoted(path) for name, path in place.paths().items()}
    values["USER" + SLUG] = slug(place.user)

    def value(found: re.Match[bytes]) -> bytes:
        if found[1]:
            return b"<%s%s>" % (found[1][1:], found[2])
        words = values.get(found[2].decode(), "")
        if not words:
            return found[0]
        return _escaped(words) if in_json else words.encode()

    return _WRITTEN.sub(value, data)


def _scrub_names(data: bytes, place: Places) -> bytes:
    if place.session:
        data = data.replace(place.session.encode(), b"<SESSION>")
    if place.user:
        user = re.escape(place.user.encode())
        data = re.sub(_HOMES + user + _ENDS, rb"\1<USER>", data)
        dashed = re.escape(slug(place.user).encode())
        data = re.sub(rb"(?<=/)(-(?:home|Users)-)" + dashed + rb"(?![A-Za-z0-9])", rb"\1<USER_SLUG>", data)
    return data


def _slugs(places: Iterable[Places]) -> dict[bytes, bytes]:
    return {
        slug(path).encode(): b"<%s%s>" % (name.encode(), SLUG.encode())
        for place in reversed(tuple(places))
        for name, path in place.paths().items()
    }


def _urls(places: Iterable[Places]) -> dict[bytes, bytes]:
    return {
        form.encode(): b"<%s%s>" % (name.encode(), URL.encode())
        for place in reversed(tuple(places))
        for name, path in place.paths().items()
        for form in (quoted(path), _HEX.sub(lambda found: found[0].lower(), quoted(path)))
    }


def _replace(data: bytes, words: Mapping[bytes, bytes], begins: bytes, ends: bytes) -> bytes:
    """Replace all words in one pass, the longest first, so that no replacement is replaced again."""
    if not words:
        return data
    choice = b"|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.sub(begins + rb"(" + choice + rb")" + ends, lambda found: words[found[1]], data)


def _forms(path: str) -> tuple[bytes, ...]:
    """Return the spellings of a path: text, JSON, ASCII-only JSON, JSON with escaped slashes, and after `file://`."""
    plain, ascii_only = path.encode("utf-8", "surrogateescape"), json.dumps(path)[1:-1].encode()
    in_url = quoted(path, b"/").encode()
    return tuple(dict.fromkeys((plain, _escaped(path), ascii_only, ascii_only.replace(b"/", b"\\/"), in_url)))


def _escaped(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape")
