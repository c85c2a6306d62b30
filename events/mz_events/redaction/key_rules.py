"""Keys of services, found by rules: those of gitleaks (`gitleaks.json`, made by `tools/secret_rules.py`), and ours
(`key_rules.toml`).

A first search tells which keywords occur; only rules with such a keyword are tried. RE2 searches in linear time.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import msgspec

MEMORY_BYTES_MAX = 1 << 26
"""Limit for one expression, far more than any needs: a first search without memory would find nothing."""


class KeyRule(msgspec.Struct, frozen=True, kw_only=True):
    """How one kind of key is found, within one line."""

    name: str
    regex: str
    """In the syntax of RE2, over bytes."""
    keywords: tuple[str, ...]
    """One of them, in lower case, is in every match, in any case."""
    group: int | None = None
    """The group that is the secret, 0: the whole match; None: the first one that took part, else the whole match."""
    certain: bool = True
    """False: matches are often no secrets; they are redacted from output, but do not stop a call."""
    entropy: float = 0
    """Secrets have more bits per character."""
    allow: tuple[str, ...] = ()
    """What no secret matches."""
    allow_match: tuple[str, ...] = ()
    """What no match with a secret matches."""
    stopwords: tuple[str, ...] = ()
    """No secret contains them, in lower case."""


class RuleSet(msgspec.Struct, frozen=True, kw_only=True):
    """A file of rules."""

    rules: tuple[KeyRule, ...]
    allow: tuple[str, ...] = ()
    """What no secret of an uncertain rule matches."""
    stopwords: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    """Names of rules of another file that are not certain."""


class KeyRules:
    """Rules, ready to search with, and `marks`: expressions for whatever else is to be found by the same first search.
    Each expression is compiled when it is first needed."""

    def __init__(self, rules: Sequence[KeyRule], marks: Sequence[str] = ()) -> None:
        self._rules, self._marks = tuple(rules), tuple(marks)
        rules_by_word: dict[str, list[int]] = {}
        for index, rule in enumerate(self._rules):
            for keyword in rule.keywords:
                rules_by_word.setdefault(keyword, []).append(index)
        self._keywords, self._rules_of_word = tuple(rules_by_word), tuple(rules_by_word.values())

    @cached_property
    def _first_search(self) -> Any:
        import re2

        first_search = re2.Set.SearchSet(_options(case_sensitive=False))
        for expression in (*map(re2.escape, self._keywords), *(f"(?-i:{mark})" for mark in self._marks)):
            first_search.Add(expression)
        first_search.Compile()
        return first_search

    def scan(self, text: bytes) -> tuple[frozenset[str], tuple[KeyRule, ...]]:
        """Return the marks that occur in the text, and the rules that may find something in it."""
        matched = self._first_search.Match(text) or ()
        keyword_count = len(self._keywords)
        indexes = {rule for at in matched if at < keyword_count for rule in self._rules_of_word[at]}
        marks = frozenset(self._marks[at - keyword_count] for at in matched if at >= keyword_count)
        return marks, tuple(self._rules[index] for index in sorted(indexes))


def find_keys(text: bytes, rules: Iterable[KeyRule]) -> Iterator[tuple[int, int, KeyRule]]:
    """Yield start and end of each key and its rule; they may overlap."""
    for rule in rules:
        for match in compile_regex(rule.regex).finditer(text):
            group = rule.group
            if group is None:
                group = next((at for at, part in enumerate(match.groups(), 1) if part), 0)
            if not _is_allowed(rule, match[group], match[0]):
                yield *match.span(group), rule


def load_rules() -> tuple[KeyRule, ...]:
    """Return all rules, ours first."""
    folder = files("mz_events.redaction")
    own = msgspec.convert(tomllib.loads((folder / "key_rules.toml").read_text("utf-8")), RuleSet)
    upstream = msgspec.json.decode((folder / "gitleaks.json").read_bytes(), type=RuleSet)
    rules = list(own.rules)
    for rule in upstream.rules:
        if not rule.certain or rule.name in own.uncertain:
            allow, stopwords = rule.allow + upstream.allow + own.allow, rule.stopwords + upstream.stopwords
            rule = msgspec.structs.replace(rule, certain=False, allow=allow, stopwords=stopwords)
        rules.append(rule)
    return tuple(rules)


@cache
def compile_regex(regex: str) -> Any:
    """Compile an expression over bytes."""
    import re2

    return re2.compile(regex.encode(), _options())


@cache
def _compile_joined(expressions: tuple[str, ...]) -> Any:
    return compile_regex("|".join(f"(?:{expression})" for expression in expressions))


def _options(case_sensitive: bool = True) -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.case_sensitive = case_sensitive
    options.log_errors = False
    options.max_mem = MEMORY_BYTES_MAX
    return options


def _is_allowed(rule: KeyRule, secret: bytes, match: bytes) -> bool:
    """Return True if what the rule found is no secret."""
    if rule.entropy and entropy(secret) <= rule.entropy:
        return True
    for expressions, text in ((rule.allow, secret), (rule.allow_match, match)):
        if expressions and _compile_joined(expressions).search(text) is not None:
            return True
    lower = secret.lower().decode("latin-1")
    return any(word in lower for word in rule.stopwords)


def entropy(word: bytes) -> float:
    """Return the entropy in bits per character."""
    counts = Counter(word).values()
    return -sum(count / len(word) * math.log2(count / len(word)) for count in counts)
