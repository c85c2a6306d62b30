"""Patterns for reading and normalising process output. Their values are data files beside this module."""

from __future__ import annotations

import msgspec


class PatternData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: an unknown key is an error."""


class Replacement(PatternData, frozen=True, kw_only=True):
    """Every match of `find` becomes `put` (with `\\1` for groups)."""

    name: str
    find: str
    put: str


class OutputPatterns(PatternData, frozen=True, kw_only=True):
    replacements: tuple[Replacement, ...]
    insignificant: tuple[str, ...]
    """Lines that say nothing about a failure; matched at their start, after normalisation."""


class RunnerPatterns(PatternData, frozen=True, kw_only=True):
    """Report format of one test runner. Within each match of `block` the numbers (first group) are added up; a pattern
    without a group counts 1. Passed is `passed`, or else `total` minus the others."""

    name: str
    block: str
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    total: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    """Neither passed nor failed: skipped, pending, expected failures."""
    alone: bool = False
    """Used only if no other runner reported."""


class CountPatterns(PatternData, frozen=True, kw_only=True):
    runners: tuple[RunnerPatterns, ...]
