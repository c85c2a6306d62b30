"""Facts: the patterns by which process output is read and normalised. Their values are data beside this module."""

from __future__ import annotations

import msgspec


class Pattern(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: an unknown key is an error."""


class Replacement(Pattern, frozen=True, kw_only=True):
    """Every match of `find` becomes `put` (with `\\1` for groups)."""

    name: str
    find: str
    put: str


class OutputPatterns(Pattern, frozen=True, kw_only=True):
    replacements: tuple[Replacement, ...]
    insignificant: tuple[str, ...]
    """Lines that say nothing about what failed; matched at their start, after normalisation."""


class Runner(Pattern, frozen=True, kw_only=True):
    """How one test runner reports. Within each match of `block` the numbers (first group) are added up; a pattern
    without a group counts 1. Passed is `passed`, or else `total` less the rest."""

    name: str
    block: str
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    total: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    """Neither passed nor failed: skipped, pending, expected failures."""
    alone: bool = False
    """Only where no other runner reported."""


class CountPatterns(Pattern, frozen=True, kw_only=True):
    runners: tuple[Runner, ...]
