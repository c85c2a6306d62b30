"""Path patterns as in .gitignore (gitignore(5), and the matching in git's `dir.c` and `wildmatch.c`), over byte paths.

The one matcher: for git's ignore rules and for patterns in settings, pipelines and tools. The library `pathspec` is not
used: it reads POSIX character classes otherwise than git, and fails on some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

P = TypeVar("P", bound=str)
CHARACTER_CLASSES: Mapping[bytes, bytes] = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"!-~",
    b"lower": rb"a-z",
    b"print": rb" -~",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t\n\v\f\r",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}
ITEM = rb"\[:([^\]]*):\]|(\\.|[^\\])(?:-(\\.|[^\]\\]))?"
"""Inside brackets: a class, a character, or a range."""
ITEM_PATTERN = re.compile(ITEM, re.DOTALL)
TOKEN = re.compile(
    rb"(?P<plain>[^*?\[\\]++)|\\(?P<escaped>.)|(?P<stars>\*++)(?P<slash>\\?/)?|\?"
    rb"|\[(?P<negated>[!^]?+)(?P<items>(?>%b)(?:(?!\])(?>%b))*+)\]" % (ITEM, ITEM),
    re.DOTALL,
)
"""One part of a glob. It never goes back, so that the rest of a malformed bracket is not taken for something else."""


class IgnorePattern(NamedTuple):
    """One line of a `.gitignore`."""

    is_negative: bool
    directory_only: bool
    basename_only: bool
    """Without a slash: matches the last part of a path, at any depth."""
    regex: re.Pattern[bytes]

    def matches(self, path: bytes, is_directory: bool) -> bool:
        """Return True if the pattern, negative or not, is about this path itself, relative to its `.gitignore`."""
        if self.directory_only and not is_directory:
            return False
        return self.regex.fullmatch(path.rpartition(b"/")[2] if self.basename_only else path) is not None


class IgnoreRules:
    """Ignore rules: the text of each `.gitignore` by its directory (b"" is the top)."""

    def __init__(self, texts: Mapping[bytes, bytes]) -> None:
        self.patterns = {directory: parse_gitignore(text) for directory, text in texts.items()}

    def ignores(self, path: bytes, is_directory: bool) -> bool:
        """Return True if the path itself is ignored, regardless of ignored directories above it."""
        directory = path.rpartition(b"/")[0]
        while True:
            inside = path[len(directory) + 1 :] if directory else path
            for pattern in reversed(self.patterns.get(directory, ())):
                if pattern.matches(inside, is_directory):
                    return not pattern.is_negative
            if not directory:
                return False
            directory = directory.rpartition(b"/")[0]

    def covers(self, path: bytes) -> bool:
        """Return True if the path, which ends in `/` for a directory, or a directory above it is ignored."""
        parts = path.removesuffix(b"/").split(b"/")
        above = (b"/".join(parts[:count]) for count in range(1, len(parts)))
        return self.ignores(b"/".join(parts), path.endswith(b"/")) or any(
            self.ignores(folder, True) for folder in above
        )


def ignore_rules(patterns: Iterable[str]) -> IgnoreRules:
    """Return rules from the patterns of a setting, all relative to the top."""
    return IgnoreRules({b"": _encode("\n".join(patterns))})


def is_pattern(text: str) -> bool:
    """Return True for a single pattern that can match something."""
    return len(parse_gitignore(_encode(text))) == 1


def matches(patterns: Sequence[str], path: str) -> bool:
    """Return True if a file's path is selected: the last pattern that matches it or a directory above it decides. `!`
    excludes again, also below a selected directory, unlike in git's own ignore rules."""
    return _matches(tuple(patterns), path)


@lru_cache(maxsize=4096)
def _matches(patterns: tuple[str, ...], path: str) -> bool:
    parts = _encode(path).split(b"/")
    directories = [b"/".join(parts[:count]) for count in range(1, len(parts))]
    for pattern in reversed(parse_gitignore(_encode("\n".join(patterns)))):
        if pattern.matches(_encode(path), False) or any(pattern.matches(directory, True) for directory in directories):
            return not pattern.is_negative
    return False


def select(patterns: Sequence[str], paths: Iterable[P]) -> tuple[P, ...]:
    """Return the paths that match, in their order."""
    return tuple(path for path in paths if matches(patterns, path))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@lru_cache(maxsize=256)
def parse_gitignore(text: bytes) -> tuple[IgnorePattern, ...]:
    """Return the patterns of one `.gitignore` in order, without those that can match nothing."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return tuple(filter(None, (_parse_line(line.removesuffix(b"\r")) for line in lines)))


def _parse_line(line: bytes) -> IgnorePattern | None:
    if line.startswith(b"#"):
        return None
    body = line.rstrip(b" ")
    if body != line and (len(body) - len(body.rstrip(b"\\"))) % 2:
        body += b" "  # A backslash keeps one trailing space.
    negative = body.startswith(b"!")
    body = body[1:] if negative else body
    directory_only = body.endswith(b"/")
    body = body[:-1] if directory_only else body
    basename_only = b"/" not in body
    regex = translate_glob(body.removeprefix(b"/"), crossing=basename_only)
    return IgnorePattern(negative, directory_only, basename_only, regex) if body and regex else None


@lru_cache(maxsize=256)
def translate_glob(glob: bytes, *, crossing: bool) -> re.Pattern[bytes] | None:
    """Translate a glob to a regular expression; `crossing`: wildcards also match `/`. None: it can match nothing."""
    any_char, any_text = (b".", b".*") if crossing else (b"[^/]", b"[^/]*")
    pieces: list[bytes] = []
    at, seen_plain_only = 0, True
    while at < len(glob):
        token = TOKEN.match(glob, at)
        if token is None:
            return None
        piece: bytes | None = any_char
        if (char := token["plain"] or token["escaped"]) is not None:
            piece = re.escape(char)
        elif token["stars"]:
            # git matches the text before the first wildcard separately, so a `**` right after it counts as leading.
            leads = seen_plain_only or glob[at - 1 : at] == b"/"
            spans_directories = not crossing and len(token["stars"]) > 1 and leads
            if token["slash"]:
                piece = b"(?:.*/)?" if spans_directories else any_text + b"/"
            else:
                piece = b".*" if spans_directories and token.end() == len(glob) else any_text
        elif token["items"]:
            piece = _translate_bracket(token["items"], bool(token["negated"]), any_char)
        if piece is None:
            return None
        pieces.append(piece)
        at, seen_plain_only = token.end(), seen_plain_only and token["plain"] is not None
    return re.compile(b"".join(pieces), re.DOTALL)


def _translate_bracket(items: bytes, negated: bool, any_char: bytes) -> bytes | None:
    """Translate the inside of `[...]`; None if it names an unknown class."""
    inside = b""
    for name, low, high in ITEM_PATTERN.findall(items):
        if low:
            inside += re.escape(low[-1:])
            inside += b"-" + re.escape(high[-1:]) if low[-1:] <= high[-1:] else b""
        elif name in CHARACTER_CLASSES:
            inside += CHARACTER_CLASSES[name]
        else:
            return None
    guard = b"(?=%b)" % any_char
    if not inside:
        return guard + (b"." if negated else b"(?!)")
    return guard + (b"[^%b]" if negated else b"[%b]") % inside
