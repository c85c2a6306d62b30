"""Errors as people and programs read them, and the exit code that remains when several apply."""

from __future__ import annotations

import itertools
import json

import pytest
from mz_cli.app.failures import error_json
from mz_engine.errors.codes import CODES
from mz_engine.errors.diagnostics import Diagnostic, Exit, MzError, SourceLocation, most_severe


def test_an_error_is_one_line_with_a_hint_below() -> None:
    error = MzError(
        "MZ2003", "not YAML", hint="indent with spaces\nnot tabs", location=SourceLocation("mz.yaml", 14, 7)
    )
    assert str(error) == ("error[MZ2003] mz.yaml:14:7 not YAML\nhint: indent with spaces\n      not tabs")


def test_places_leave_out_what_is_unknown() -> None:
    actual = [str(SourceLocation("f")), str(SourceLocation("f", 3)), str(SourceLocation("f", 3, 4))]
    assert actual == ["f", "f:3", "f:3:4"]
    assert str(MzError("MZ1001", "it broke")) == "error[MZ1001] it broke"


def test_several_diagnostics_are_told_in_order() -> None:
    error = MzError.from_diagnostics(
        [Diagnostic(code="MZ4007", message="one"), Diagnostic(code="MZ1003", message="two")]
    )
    assert str(error) == "error[MZ4007] one\n\nerror[MZ1003] two"
    assert (error.code, error.message, error.hint, error.location) == ("MZ4007", "one", "", None)
    assert error.exit_code is Exit.INVALID


def test_the_json_form_is_one_object_with_all_of_them() -> None:
    error = MzError.from_diagnostics(
        [
            Diagnostic(code="MZ2005", message="unknown", hint="did you mean", location=SourceLocation("mz.yaml", 2)),
            Diagnostic(code="MZ2012", message="odd", severity="warning"),
        ]
    )
    document = json.loads(error_json(error))
    first = {
        "severity": "error",
        "code": "MZ2005",
        "message": "unknown",
        "hint": "did you mean",
        "location": {"file": "mz.yaml", "line": 2, "column": None},
    }
    second = {"severity": "warning", "code": "MZ2012", "message": "odd", "hint": None, "location": None}
    assert document == {"schema": "mz.error/1", "exit": 10, **first, "errors": [first, second]}


def test_codes_are_unique_and_explained() -> None:
    assert list(CODES) == sorted(CODES)
    for code in CODES.values():
        assert code.title
        assert code.explanation.endswith(".")
        assert code.exit is not Exit.OK


def test_an_unknown_code_cannot_be_raised_unnoticed() -> None:
    with pytest.raises(KeyError):
        _ = MzError("MZ9999", "no such code").exit_code


def test_exit_codes_are_those_that_were_published() -> None:
    assert {item.name: item.value for item in Exit} == {
        "OK": 0,
        "VERDICT": 1,
        "USAGE": 2,
        "DRIFT": 3,
        "RECORDING": 4,
        "SECRET": 5,
        "NETWORK": 6,
        "INVALID": 10,
        "PREREQUISITE": 11,
        "REPOSITORY": 15,
        "BUSY": 16,
        "STOPPED": 20,
        "WAITING": 21,
        "LIMIT": 22,
        "BUG": 70,
        "NOT_COMPARABLE": 125,
    }


def test_the_published_order_decides_between_several() -> None:
    order = [Exit(item) for item in (70, 11, 20, 22, 21, 1, 6, 5, 3, 4, 125, 0)]
    for before, after in itertools.combinations(order, 2):
        assert most_severe([after, before]) is before
    assert most_severe([]) is Exit.OK


def test_any_two_exit_codes_have_one_answer() -> None:
    """The published order with the refusals put in where they were published too; whichever comes first is told."""
    order = [Exit(item) for item in (70, 11, 2, 10, 15, 16, 20, 22, 21, 1, 6, 5, 3, 4, 125, 0)]
    assert sorted(order) == sorted(Exit)
    for entry, other in itertools.permutations(Exit, 2):
        assert most_severe([entry, other]) is min((entry, other), key=order.index)
        assert most_severe([entry, other, entry]) is most_severe([other, entry])


def test_in_a_bisection_not_comparable_beats_drift_and_recording_only() -> None:
    nothing_to_compare = Exit.NOT_COMPARABLE
    assert most_severe([Exit.DRIFT, Exit.RECORDING, nothing_to_compare], bisect=True) is nothing_to_compare
    assert most_severe([Exit.VERDICT, Exit.DRIFT, nothing_to_compare], bisect=True) is Exit.VERDICT
    assert most_severe([Exit.DRIFT, Exit.RECORDING], bisect=True) is Exit.DRIFT


def test_every_exit_code_has_a_rank() -> None:
    for item in Exit:
        assert most_severe([item]) is item
