"""Fake keys of every rule, made from its expression, in every encoding in which a key may be printed."""

from __future__ import annotations

import importlib
import json
import random
import string
from base64 import b32encode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from mz_events.redaction.key_rules import KeyRule, find_keys

PRINTABLE = frozenset(string.printable) - frozenset("\r\n\t\v\f")
WORD = frozenset(string.ascii_letters + string.digits + "_")
CATEGORIES = {
    "CATEGORY_DIGIT": frozenset(string.digits), "CATEGORY_WORD": WORD, "CATEGORY_SPACE": frozenset(" "),
    "CATEGORY_NOT_WORD": PRINTABLE - WORD, "CATEGORY_NOT_SPACE": PRINTABLE - frozenset(" "),
}  # fmt: skip
WINDOW = 8
"""Characters of a secret in a row that tell something."""
COLOUR, COLOUR_END = "\x1b[01;31m", "\x1b[m"
Encode = Callable[[bytes], bytes]


class Canary(NamedTuple):
    """A text with a secret in it."""

    name: str
    text: str
    secret: str


# shapes ---------------------------------------------------------------------------------------------------------------
def sample(rule: KeyRule, seed: int = 0) -> Canary:
    """A text in which the rule, used alone, finds a key."""
    parser: Any = importlib.import_module("re._parser")
    regex = rule.regex.replace("(?i)", "").replace("(?-i:", "(?:").replace("[[:alnum:]]", "[a-zA-Z0-9]")
    tree = parser.parse(regex.replace(r"\z", r"\Z"))
    for attempt in range(200):
        text = _text(tree, random.Random(f"{rule.name}{seed}{attempt}"))
        if not any(word in text.lower() for word in rule.keywords):
            text = f"{rule.keywords[0]} {text}"
        for start, end, _ in find_keys(text.encode(), (rule,)):
            if len(text[start:end].strip()) >= WINDOW and "\\" not in text:
                return Canary(rule.name, text, text[start:end])
    raise AssertionError(f"{rule.name}: nothing found that it matches")


def _text(tree: Any, chance: random.Random) -> str:
    return "".join(_part(str(code), argument, chance) for code, argument in tree)


def _part(code: str, argument: Any, chance: random.Random) -> str:
    match code:
        case "LITERAL":
            return chr(argument)
        case "ANY" | "NOT_LITERAL":
            return chance.choice(string.ascii_letters)
        case "IN":
            return chance.choice(_letters(argument))
        case "BRANCH":
            return _text(chance.choice(argument[1]), chance)
        case "SUBPATTERN":
            return _text(argument[-1], chance)
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, inner = argument
            return "".join(
                _text(inner, chance) for _ in range(max(least, min(most, chance.choice((least, least + 3)))))
            )
        case "AT":
            return ""
    raise AssertionError(code)


def _letters(items: Any) -> str:
    """The letters of a class."""
    negated = False
    letters: set[str] = set()
    for code, argument in items:
        match str(code):
            case "NEGATE":
                negated = True
            case "LITERAL":
                letters.add(chr(argument))
            case "RANGE":
                letters |= {chr(number) for number in range(argument[0], argument[1] + 1)}
            case "CATEGORY":
                letters |= CATEGORIES[str(argument)]
    return "".join(sorted(PRINTABLE - letters if negated else PRINTABLE & letters)) or "~"


# encodings ------------------------------------------------------------------------------------------------------------
def encoded(canary: Canary) -> Iterator[tuple[str, bytes, Callable[[bytes], bytes], tuple[bytes, ...]]]:
    """Encoding, line with the canary, what makes such a line readable, and what must not be in it then."""
    text, secret = canary.text.encode(), canary.secret.encode()
    plain = windows(secret, WINDOW)
    yield "plain", b"say " + text + b" (end)", same, plain
    yield "JSON", json.dumps({"text": f"say\n{canary.text}\nend"}).encode(), unescaped, plain
    yield "JSON in JSON", json.dumps(json.dumps({"a": [canary.text, 1]})).encode(), unescaped, plain
    yield "URL", b"at ?q=" + quote(text, safe="").encode() + b"&r=1", same, windows(quote(secret, safe="").encode(), 10)
    for alignment in range(3):
        for name, encode in (("base64", b64encode), ("base64url", urlsafe_b64encode)):
            line = encode(b"\n" * alignment + text + b"\nend")
            first = (alignment + text.index(secret)) * 8 // 6 + 2
            wanted = windows(line[first : first + len(secret) * 8 // 6 - 3], 12)
            yield f"{name} at {alignment}", b"data:" + line, same, wanted
    yield "hexadecimal", b"0x" + text.hex().encode(), same, windows(secret.hex().encode(), 2 * WINDOW)
    line = b32encode(text + b"\nend")
    first = text.index(secret) * 8 // 5 + 2
    yield "base32", b"as " + line, same, windows(line[first : first + len(secret) * 8 // 5 - 3], 14)
    half = len(canary.secret) // 2
    for name, mark in (("colours", COLOUR), ("line end", "\n"), ("escaped line end", "\\n")):
        end = COLOUR_END if mark == COLOUR else ""
        split = canary.text.replace(canary.secret, canary.secret[:half] + mark + canary.secret[half:] + end)
        removed = [mark.encode(), *([end.encode()] if end else [])]
        yield name, split.encode(), lambda line, removed=removed: without(line, removed), plain  # type: ignore[misc]


def same(line: bytes) -> bytes:
    return line


def unescaped(line: bytes) -> bytes:
    return line.replace(b"\\", b"")


def without(line: bytes, removed: list[bytes]) -> bytes:
    for part in removed:
        line = line.replace(part, b"")
    return line


def windows(text: bytes, size: int) -> tuple[bytes, ...]:
    """Every part of this size."""
    return tuple(text[at : at + size] for at in range(max(1, len(text) - size + 1)))


def survivors(canary: Canary, clean: Callable[[bytes], bytes]) -> Iterator[str]:
    """Encodings in which something is left of the canary."""
    for encoding, line, readable, parts in encoded(canary):
        cleaned = readable(clean(line))
        if any(readable(part) in cleaned for part in parts):
            yield encoding
