"""Learned noise: what an entry hides, what none may hide, and how entries are proposed, kept and found useless."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from mz_recordings.cassette.files import CassetteUnreadable, load
from mz_recordings.drift.compare import differences
from mz_recordings.drift.model import Difference, LeafDifference
from mz_recordings.drift.noise import (
    FILE_NAME,
    NoiseEntry,
    add_noise,
    hide_noise,
    may_match,
    propose_noise,
    read_noise,
    rejection_of,
)
from mz_recordings.findings.model import Finding, FindingKind

from tests.support.changed import with_event, with_fields, with_file, with_line
from tests.support.rerecord import BUNDLED

TODAY = date(2026, 6, 2)
COMPLETE = load(BUNDLED)
SINGLE = COMPLETE._replace(
    calls=tuple(call for call in COMPLETE.calls if call.recording.identity.feature == "month-filter")
)
NAMED = SINGLE.manifest.name
CODE, PRD = "month-filter/code", "month-filter/prd"


def entry(kind: FindingKind, path: str, **more: object) -> NoiseEntry:
    return NoiseEntry(kind=kind, path=path, **{"reason": "it varies", **more})  # type: ignore[arg-type]


def cost(old: int, new: int, path: str = "usage.output") -> Difference:
    return Difference(Finding(kind="COST", message="w"), (LeafDifference(path, str(old), str(new)),))


def text(*lines: tuple[str, str]) -> Difference:
    return Difference(
        Finding(kind="ARTIFACT", message="w"), tuple(LeafDifference("prd.text", old, new) for old, new in lines)
    )


# what may be noise ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("noise_entry", "name"),
    [
        (entry("ARTIFACT", "prd.text"), None),
        (entry("ARTIFACT", r"^Took \d+ ms$"), None),
        (entry("COST", "usage.output", within=20), None),
        (entry("STREAM", "assistant:timestamp"), None),
        (entry("ARTIFACT", "prd.text", reason=" "), "NO_REASON"),
        (entry("DECISION", "gate"), "HIDES_VERDICT"),
        (entry("PROMPT", "prd.text"), "HIDES_INPUT"),
        (entry("CONFIG", "model"), "HIDES_INPUT"),
        (entry("FILES", "files"), "STRUCTURAL_CHANGE"),
        (entry("TRACE", "trace"), "STRUCTURAL_CHANGE"),
        (entry("MISSING", "code"), "STRUCTURAL_CHANGE"),
        (entry("ARTIFACT", "prd"), "STRUCTURAL_CHANGE"),
        (entry("COST", "models", within=5), "STRUCTURAL_CHANGE"),
        (entry("ARTIFACT", "*.text"), "OVER_BROAD_PATH"),
        (entry("ARTIFACT", "^.*$"), "OVER_BROAD_PATH"),
        (entry("ARTIFACT", r"^[\w .|,-]+$"), "OVER_BROAD_PATH"),
        (entry("COST", "usage.*", within=5), "OVER_BROAD_PATH"),
        (entry("STREAM", "*"), "OVER_BROAD_PATH"),
        (entry("COST", "usage.output"), "OVER_BROAD_RANGE"),
        (entry("COST", "usage.output", within=80), "OVER_BROAD_RANGE"),
        (entry("ARTIFACT", r"^Took 3 ms\.$"), "PATTERN_TOO_NARROW"),
        (entry("ARTIFACT", r"Took \d+ ms"), "PATTERN_BROKEN"),
        (entry("ARTIFACT", "^(a$"), "PATTERN_BROKEN"),
        (entry("ARTIFACT", "^x(a+)+y$"), "OVER_BROAD_PATH"),
        (entry("ARTIFACT", "^x.*y.*z.*$"), "OVER_BROAD_PATH"),
        (entry("ARTIFACT", "prd.text", until=date(2026, 6, 1)), "EXPIRED"),
        (entry("ARTIFACT", "prd.text", until=TODAY), None),
    ],
)
def test_an_entry_that_would_hide_more_is_refused_by_name(noise_entry: NoiseEntry, name: str | None) -> None:
    assert rejection_of(noise_entry, TODAY) == name


# what it hides --------------------------------------------------------------------------------------------------------
def test_amounts_within_their_range() -> None:
    entries = (entry("COST", "usage.output", within=20),)
    match = hide_noise(
        [cost(100, 120), cost(100, 121), cost(100, 80), cost(0, 5), cost(100, 110, "reported")], entries, ["x"]
    )
    assert (match.hidden_count, len(match.remaining)) == (2, 3)
    assert match.matched_entries == {entries[0]: 2}


def test_what_was_learned_from_a_difference_hides_it() -> None:
    """To the token: a range is rounded up, never down."""
    for old, new, within in ((10_000, 12_000, 20), (10_000, 12_004, 25), (3, 4, 35), (10**18, 10**18 + 1, 5)):
        difference = cost(old, new)
        learned, refused = propose_noise([difference], "x", "why", TODAY)
        assert ([noise_entry.within for noise_entry in learned], refused) == ([within], ())
        assert hide_noise([difference], learned, ["x"]).remaining == ()
    just_over = cost(10**18, 12 * 10**17 + 1)
    assert hide_noise([just_over], [entry("COST", "usage.output", within=20)], ["x"]).remaining == (just_over,)


def test_lines_that_match_and_all_of_them() -> None:
    entries = (entry("ARTIFACT", r"^Took \d+ ms$"),)
    assert hide_noise([text(("Took 3 ms", "Took 4 ms"))], entries, ["x"]).remaining == ()
    assert hide_noise([text(("", "Took 4 ms"))], entries, ["x"]).remaining == ()
    partly = text(("Took 3 ms", "Took 4 ms"), ("It is good.", "It is bad."))
    assert hide_noise([partly], entries, ["x"]).remaining == (partly,)
    assert hide_noise([text(("Took 3 ms", "It is bad."))], entries, ["x"]).hidden_count == 0


def test_an_entry_of_another_cassette_or_kind_hides_nothing() -> None:
    entries = (entry("COST", "usage.output", within=50, cassette="other"), entry("ARTIFACT", "usage.output.text"))
    assert hide_noise([cost(100, 101)], entries, ["x"]).hidden_count == 0
    assert hide_noise([cost(100, 101)], entries, ["x", "other"]).hidden_count == 1


def test_what_has_no_parts_is_never_hidden() -> None:
    grave = Difference(Finding(kind="ARTIFACT", message="built otherwise"))
    assert hide_noise([grave], [entry("ARTIFACT", "prd.text")], ["x"]).remaining == (grave,)


# what is learned ------------------------------------------------------------------------------------------------------
def test_words_and_amounts_of_a_live_model_are_learned_and_then_hidden() -> None:
    other = with_file(SINGLE, PRD, "artifact", lambda content: content.replace("month", "period", 1) + "More words.\n")
    other = with_line(other, CODE, "result", lambda line: {**line, "total_cost_usd": line["total_cost_usd"] * 1.12})
    changes = differences(SINGLE, other, {})
    learned, refused = propose_noise(changes, NAMED, "a live model", TODAY)
    assert [(item.kind, item.path, item.within, item.cassette) for item in learned] == [
        ("ARTIFACT", "prd.text", None, NAMED), ("COST", "reported", 15, NAMED),
    ]  # fmt: skip
    assert refused == ()
    assert hide_noise(changes, learned, [NAMED]).remaining == ()


def test_what_is_no_noise_is_not_learned() -> None:
    """And says by name why."""
    other = with_file(SINGLE, PRD, "artifact", lambda content: content.replace("## Problem", "Problem"))
    other = with_fields(other, CODE, exit=1, environment=("MORE",))
    other = with_event(other, "month-filter", "gate.checked", lambda line: {**line, "passed": not line["passed"]})
    other = with_line(other, "month-filter/tests", "result", lambda line: {**line, "total_cost_usd": 99})
    learned, refused = propose_noise(differences(SINGLE, other, {}), NAMED, "why", TODAY)
    assert learned == ()
    assert {(rejection.name, rejection.subject.split()[0]) for rejection in refused} == {
        ("STRUCTURAL_CHANGE", "ARTIFACT"), ("STRUCTURAL_CHANGE", "TRACE"), ("HIDES_INPUT", "CONFIG"),
        ("HIDES_VERDICT", "DECISION"), ("OVER_BROAD_RANGE", "COST"),
    }  # fmt: skip


def test_too_many_differences_are_none_of_the_same_thing() -> None:
    many = [Difference(Finding(kind="STREAM", message="w"), (LeafDifference(f"event:{at}"),)) for at in range(1, 40)]
    learned, refused = propose_noise(many, "x", "why", TODAY)
    assert (learned, [rejection.name for rejection in refused]) == ((), ["TOO_MANY_DIFFS"])


@pytest.mark.parametrize(
    ("noise_entry", "matches"),
    [
        (entry("ARTIFACT", "prd.text"), True),
        (entry("ARTIFACT", "poem.text"), False),
        (entry("ARTIFACT", r"^# Show .*$"), True),
        (entry("ARTIFACT", r"^Took \d+ ms$"), False),
        (entry("COST", "usage.output", within=5), True),
        (entry("COST", "usage.output", within=5, cassette="gone"), False),
        (entry("STREAM", "assistant:message.id"), True),
        (entry("STREAM", "assistant:message.dreams"), False),
    ],
)
def test_an_entry_that_nothing_is_left_for(noise_entry: NoiseEntry, matches: bool) -> None:
    assert may_match(noise_entry, SINGLE) is matches


# the file -------------------------------------------------------------------------------------------------------------
def test_entries_are_added_below_what_people_wrote(tmp_path: Path) -> None:
    assert read_noise(tmp_path) == ()
    first = entry("COST", "usage.output", within=20, cassette="notes", until=date(2027, 1, 31))
    path = add_noise(tmp_path, (first,))
    path.write_text(path.read_text().replace("- kind: COST", "# Ada looked at it.\n- kind: COST"))
    second = entry("ARTIFACT", r"^Took \d+ ms$")
    add_noise(tmp_path, (second,))
    assert read_noise(tmp_path) == (first, second)
    assert "# Ada looked at it." in path.read_text()


@pytest.mark.parametrize("content", ["", "noise:\n", "noise: []\n", "noise: [ ]  # for now\n", "{}\n", "noise: ~\n"])
def test_a_file_without_entries_keeps_its_comments(tmp_path: Path, content: str) -> None:
    noise_entry = entry("COST", "usage.output", within=20)
    (tmp_path / FILE_NAME).write_text(f"# Ada decides what goes in here.\n{content}")
    add_noise(tmp_path, (noise_entry,))
    assert read_noise(tmp_path) == (noise_entry,)
    text = (tmp_path / FILE_NAME).read_text()
    assert text.startswith("# Ada decides what goes in here.\n")
    assert text.count("noise:") == 1
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("the disk failed")

    path = add_noise(tmp_path, (entry("COST", "usage.output", within=20),))
    before, names = path.read_bytes(), sorted(tmp_path.iterdir())
    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OSError, match="the disk failed"):
        add_noise(tmp_path, (entry("COST", "usage.input", within=20),))
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == names


def test_a_file_in_another_style_keeps_its_entries(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"noise": [{"kind": "STREAM", "path": "a:b", "reason": "r"}]}\n')
    add_noise(tmp_path, (entry("ARTIFACT", "prd.text"),))
    assert [noise_entry.path for noise_entry in read_noise(tmp_path)] == ["a:b", "prd.text"]


@pytest.mark.parametrize(
    "content",
    ["[", "- a", "noise: [{kind: TEA, path: x}]", "noise: [{kind: COST}]", "noise: [{kind: COST, path: x, on: 1}]"],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(CassetteUnreadable, match=r"noise\.yaml"):
        read_noise(tmp_path)
