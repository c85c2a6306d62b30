"""Path patterns as in .gitignore (gitignore(5), and the matching in git's `dir.c` and `wildmatch.c`), over byte paths.

The one matcher: for git's ignore rules and for patterns in settings, pipelines and tools. The library `pathspec` is not
used: it reads POSIX character classes otherwise than git, and fails on some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

import msgspec

P = TypeVar("P", bound=str)
WILDCARDS = frozenset(b"*?[\\")
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


class IgnoreRules(msgspec.Struct, frozen=True, dict=True):
    """Ignore rules: the text of each `.gitignore` by its directory (b"" is the top)."""

    texts: Mapping[bytes, bytes]

    @cached_property
    def _patterns(self) -> dict[bytes, tuple[IgnorePattern, ...]]:
        return {directory: tuple(parse_gitignore(text)) for directory, text in self.texts.items()}

    def ignores(self, path: bytes, is_directory: bool) -> bool:
        """Return True if the path itself is ignored, regardless of ignored directories above it."""
        directory = path.rpartition(b"/")[0]
        while True:
            inside = path[len(directory) + 1 :] if directory else path
            for pattern in reversed(self._patterns.get(directory, ())):
                if pattern.matches(inside, is_directory):
                    return not pattern.is_negative
            if not directory:
                return False
            directory = directory.rpartition(b"/")[0]


def ignore_rules(patterns: Iterable[str]) -> IgnoreRules:
    """Return rules from the patterns of a setting, all relative to the top."""
    return IgnoreRules({b"": _encode("\n".join(patterns))})


def is_pattern(text: str) -> bool:
    """Return True for a single pattern that can match something."""
    return len(tuple(parse_gitignore(_encode(text)))) == 1


def matches(patterns: Sequence[str], path: str) -> bool:
    """Return True if a file's path is selected: the last pattern that matches it, or a directory above it, decides.

    `!` excludes again, also below a selected directory, which git's own ignore rules cannot do.
    """
    parts = _encode(path).split(b"/")
    directories = [b"/".join(parts[:count]) for count in range(1, len(parts))]
    for pattern in reversed(_compiled(tuple(patterns))):
        if pattern.matches(_encode(path), False) or any(pattern.matches(directory, True) for directory in directories):
            return not pattern.is_negative
    return False


def select(patterns: Sequence[str], paths: Iterable[P]) -> tuple[P, ...]:
    """Return the paths that match, in their order."""
    return tuple(path for path in paths if matches(patterns, path))


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> tuple[IgnorePattern, ...]:
    return tuple(parse_gitignore(_encode("\n".join(patterns))))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def parse_gitignore(text: bytes) -> Iterable[IgnorePattern]:
    """Yield the patterns of one `.gitignore` in order, without those that can match nothing."""
    for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        pattern = _parse_line(_trim(line.removesuffix(b"\r")))
        if pattern is not None:
            yield pattern


def _parse_line(line: bytes) -> IgnorePattern | None:
    if not line or line.startswith(b"#"):
        return None
    negative = line.startswith(b"!")
    body = line[1:] if negative else line
    directory_only = body.endswith(b"/")
    body = body[:-1] if directory_only else body
    basename_only = b"/" not in body
    regex = translate_glob(body.removeprefix(b"/"), crossing=basename_only)
    return IgnorePattern(negative, directory_only, basename_only, regex) if body and regex else None


def _trim(line: bytes) -> bytes:
    """Remove trailing spaces that are not escaped by a backslash."""
    end, at = None, 0
    while at < len(line):
        if line[at : at + 1] == b" ":
            end = at if end is None else end
        else:
            at += line[at : at + 1] == b"\\"
            end = None
        at += 1
    return line if end is None else line[:end]


def translate_glob(glob: bytes, *, crossing: bool) -> re.Pattern[bytes] | None:
    """Translate a glob to a regular expression; `crossing`: wildcards also match `/`. None: it can match nothing."""
    any_char, any_text = (b".", b".*") if crossing else (b"[^/]", b"[^/]*")
    # git matches the text before the first wildcard separately, so a `**` right after it counts as leading.
    prefix_end = next((at for at, char in enumerate(glob) if char in WILDCARDS), len(glob))
    pieces, at = [], 0
    while at < len(glob):
        char = glob[at : at + 1]
        if char == b"*":
            piece, at = _translate_stars(glob, at, any_text, crossing, at == prefix_end)
        elif char == b"?":
            piece, at = any_char, at + 1
        elif char == b"[":
            bracket = _translate_bracket(glob, at + 1, crossing)
            if bracket is None:
                return None
            piece, at = bracket
        elif char == b"\\":
            if at + 1 == len(glob):
                return None
            piece, at = re.escape(glob[at + 1 : at + 2]), at + 2
        else:
            piece, at = re.escape(char), at + 1
        pieces.append(piece)
    return re.compile(b"".join(pieces), re.DOTALL)


def _translate_stars(glob: bytes, at: int, any_text: bytes, crossing: bool, first: bool) -> tuple[bytes, int]:
    """Translate `*`, or `**` where it means whole directories: at either end or between slashes."""
    end = at
    while glob[end : end + 1] == b"*":
        end += 1
    spans_directories = end - at > 1 and (first or glob[at - 1 : at] == b"/")
    if crossing or not spans_directories:
        return any_text, end
    if end == len(glob):
        return b".*", end
    if glob[end : end + 1] == b"/":
        return b"(?:.*/)?", end + 1
    if glob[end : end + 2] == b"\\/":
        return b"(?:.*/)?", end + 2
    return any_text, end


def _translate_bracket(glob: bytes, at: int, crossing: bool) -> tuple[bytes, int] | None:
    """Translate `[...]` from after the bracket; return the expression and its end, None if it is malformed."""
    negated = glob[at : at + 1] in (b"!", b"^")
    at += negated
    pieces: list[bytes] = []
    previous, first = b"", True
    while first or glob[at : at + 1] != b"]":
        first = False
        char = glob[at : at + 1]
        if char == b"-" and previous and glob[at + 1 : at + 2] not in (b"", b"]"):
            last, at = _literal(glob, at + 1)
            if not last:
                return None
            pieces.append(_range(previous, last))
            previous = b""
        elif glob[at : at + 2] == b"[:" and (name := _class_name(glob, at + 2)) is not None:
            if name not in CHARACTER_CLASSES:
                return None
            pieces.append(CHARACTER_CLASSES[name])
            previous, at = b"", at + len(name) + 4
        else:
            previous, at = _literal(glob, at)
            if not previous:
                return None
            pieces.append(re.escape(previous))
    return _character_set(b"".join(pieces), negated, crossing), at + 1


def _class_name(glob: bytes, at: int) -> bytes | None:
    """Return `alpha` of `[:alpha:]`; None if the text up to the next `]` is no class but plain characters."""
    end = glob.find(b"]", at)
    return glob[at : end - 1] if end > at and glob[end - 1 : end] == b":" else None


def _literal(glob: bytes, at: int) -> tuple[bytes, int]:
    """Return one character, escaped or not, and the position after it; empty at the end of the text."""
    at += glob[at : at + 1] == b"\\"
    return glob[at : at + 1], at + 1


def _range(low: bytes, high: bytes) -> bytes:
    return b"%s-%s" % (re.escape(low), re.escape(high)) if low <= high else b""


def _character_set(inside: bytes, negated: bool, crossing: bool) -> bytes:
    slash_guard = b"" if crossing else b"(?!/)"
    if not inside:
        return slash_guard + (b"." if negated else b"(?!)")
    return slash_guard + (b"[^%s]" if negated else b"[%s]") % inside
