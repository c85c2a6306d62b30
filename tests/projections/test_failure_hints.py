"""What the log knows about failures and what mended them."""

from __future__ import annotations

from msgspec.structs import replace
from mz_events.catalog.validation import Change, ChangesChecked
from mz_events.names import Path, StreamId
from mz_projections.failure_hints import known_fixes, prompt_hint

from tests.support.steps import BASE, gate, recorded, ref

FAILED = replace(gate("test", False), signature="s1")
PASSED = gate("test", True)


def changed(path: str) -> ChangesChecked:
    return ChangesChecked(ref=ref("code"), tree=BASE, changes=(Change(path=Path(path), kind="modified"),))


def test_what_passed_the_gate_after_a_failure_is_remembered() -> None:
    events = recorded(changed("broken.py"), FAILED, changed("mended.py"), PASSED)
    assert known_fixes(events) == {"s1": ("mended.py",)}
    assert "mended.py" in (prompt_hint("s1", events) or "")
    assert prompt_hint("s2", events) is None


def test_a_failure_that_was_never_mended_has_no_remedy() -> None:
    assert known_fixes(recorded(changed("broken.py"), FAILED, FAILED)) == {}


def test_another_gate_or_another_cell_mends_nothing() -> None:
    other_gate = replace(PASSED, gate="lint")
    other_cell = replace(PASSED, unit="u2")
    assert known_fixes(recorded(FAILED, changed("x"), other_gate, other_cell)) == {}


def test_streams_do_not_mix() -> None:
    first = recorded(FAILED)
    second = recorded(changed("x"), PASSED, stream="run/r1/b")
    assert known_fixes((*first, *second)) == {}


def test_a_fork_knows_nothing_that_its_source_did_not() -> None:
    """Its copies are told by their causation; what it mends itself is learned."""
    own = recorded(FAILED, changed("mended.py"), PASSED)
    copies = tuple(
        replace(item, stream=StreamId("run/r2/a"), position=item.position + 10, causation=item.event_ref)
        for item in own
    )
    assert known_fixes((*own, *copies)) == known_fixes(own)
    live = recorded(FAILED, changed("other.py"), PASSED, stream="run/r2/a")
    assert known_fixes((*own, *copies[:1], *live[1:])) == {"s1": ("other.py",)}
