"""Two recordings of the same calls: nothing where they are the same, and each change in its class, at its place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from _pytest.mark import ParameterSet
from mz_engine.pricing.table import GenaiPrices
from mz_qa.simulation import trial
from mz_recordings.cassette.files import CassetteUnreadable, digest, load, save
from mz_recordings.cassette.model import Cassette, Failure
from mz_recordings.drift.compare import compare_cassettes
from mz_recordings.drift.outputs import changed_files, structure
from mz_recordings.drift.run import check_cassette
from mz_recordings.findings.model import Finding, Risk, risk_of

from tests.support.changed import call, with_event, with_fields, with_file, with_line, with_world, without_call
from tests.support.examples import first_of_each
from tests.support.rerecord import BUNDLED, LIBRARY

COMPLETE = load(BUNDLED)
ONE_FEATURE = COMPLETE._replace(
    calls=tuple(single for single in COMPLETE.calls if single.recording.identity.feature == "month-filter")
)
CODE, PRD, TASKS = "month-filter/code", "month-filter/prd", "month-filter/tasks"
Change = Callable[[Cassette], Cassette]


def summary(finding: Finding) -> tuple[str, str, str]:
    return finding.kind, risk_of(finding), "/".join(filter(None, (finding.feature, finding.call)))


def changes(*tables: tuple[str, Risk, str, Change]) -> list[ParameterSet]:
    """The first of each kind is tried in `make quick` too."""
    ids = (f"{table[0]}-{at}" for at, table in enumerate(tables))
    parameters = first_of_each(tables, lambda table: table[0])
    return [pytest.param(*case.values, marks=case.marks, id=name) for case, name in zip(parameters, ids, strict=True)]


def longer(text: str) -> str:
    return f"{text}One line more.\n"


def _last_line(text: str, kind: str) -> str:
    return [line for line in text.splitlines() if msgspec.json.decode(line).get("type") == kind][-1]


def no_story(cassette: Cassette) -> Cassette:
    return cassette._replace(traces={}, manifest=msgspec.structs.replace(cassette.manifest, traces={}))


SINGLE = changes(
    ("PROMPT", "medium", CODE, lambda single: with_file(single, CODE, "prompt", longer)),
    (
        "CONFIG",
        "medium",
        CODE,
        lambda single: with_fields(single, CODE, argv=(*call(single, CODE).recording.argv, "--max-turns=3")),
    ),
    ("CONFIG", "medium", CODE, lambda single: with_fields(single, CODE, environment=("MORE",))),
    ("CONFIG", "low", CODE, lambda single: with_fields(single, CODE, version="2.1.329")),
    (
        "CONFIG",
        "medium",
        "",
        lambda single: with_world(single, config={**single.manifest.fixture.config, "autonomy": "full_auto"}),
    ),
    ("CONFIG", "medium", "", lambda single: with_world(single, items=single.manifest.fixture.items[1:])),
    ("FILES", "high", "", lambda single: with_world(single, base_tree="1" * 40)),
    ("FILES", "low", CODE, lambda entry: with_file(entry, CODE, "patch", lambda text: text.replace("+", "+ ", 9))),
    (
        "ARTIFACT",
        "high",
        PRD,
        lambda item: with_file(item, PRD, "artifact", lambda text: text.replace("## Problem", "Problem")),
    ),
    (
        "ARTIFACT",
        "low",
        PRD,
        lambda single: with_file(single, PRD, "artifact", lambda text: f"{text}\n## Risks\nNone.\n"),
    ),
    ("ARTIFACT", "low", PRD, lambda single: with_file(single, PRD, "artifact", longer)),
    (
        "ARTIFACT",
        "high",
        TASKS,
        lambda single: with_file(single, TASKS, "artifact", lambda text: text.replace('"title"', '"name"')),
    ),
    ("ARTIFACT", "high", TASKS, lambda single: with_file(single, TASKS, "artifact", lambda text: text[:-20])),
    (
        "COST",
        "medium",
        CODE,
        lambda single: with_line(single, CODE, "result", lambda line: {**line, "total_cost_usd": 9.5}),
    ),
    (
        "COST",
        "low",
        CODE,
        lambda single: with_line(
            single, CODE, "result", lambda line: {**line, "total_cost_usd": line["total_cost_usd"] * 1.1}
        ),
    ),
    (
        "STREAM",
        "high",
        "",
        lambda single: with_line(
            single, CODE, "result", lambda line: {name: value for name, value in line.items() if name != "is_error"}
        ),
    ),
    ("STREAM", "high", "", lambda single: with_line(single, CODE, "result", lambda line: {**line, "result": ["x"]})),
    (
        "STREAM",
        "medium",
        "",
        lambda single: with_file(single, CODE, "stdout", lambda text: f'{{"type":"poem"}}\n{text}'),
    ),
    ("STREAM", "medium", "", lambda single: with_file(single, CODE, "stdout", lambda text: f'{text}{{"type":"user"')),
    (
        "STREAM",
        "medium",
        "",
        lambda single: with_file(single, CODE, "stdout", lambda text: f"{text}{_last_line(text, 'user')}\n"),
    ),
    ("STREAM", "low", "", lambda single: with_line(single, CODE, "result", lambda line: {**line, "mood": "good"})),
    ("TRACE", "high", CODE, lambda single: with_fields(single, CODE, exit=1)),
    ("TRACE", "high", CODE, lambda single: with_fields(single, CODE, failure=Failure(kind="phase", code="timeout"))),
    ("UNUSED", "low", CODE, lambda single: without_call(single, CODE)),
    (
        "DECISION",
        "high",
        "month-filter/prd",
        lambda single: with_event(
            single,
            "month-filter",
            "artifact.validated",
            lambda line: {**line, "violations": [{"rule": "prd.why", "path": "x"}]},
        ),
    ),
    (
        "DECISION",
        "high",
        "month-filter",
        lambda single: with_event(
            single, "month-filter", "gate.checked", lambda line: {**line, "passed": not line["passed"]}
        ),
    ),
    (
        "DECISION",
        "high",
        "month-filter",
        lambda single: with_event(single, "month-filter", "gate.checked", lambda line: None),
    ),
    (
        "ARTIFACT",
        "medium",
        "month-filter",
        lambda single: with_event(
            single, "month-filter", "artifact.parsed", lambda line: {**line, "files": ["other.py"]}, 1
        ),
    ),
    (
        "ARTIFACT",
        "medium",
        "month-filter",
        lambda single: with_event(
            single, "month-filter", "artifact.parsed", lambda line: {**line, "fields": {"model": "other"}}
        ),
    ),
    (
        "DECISION",
        "high",
        "month-filter/prd",
        lambda single: with_event(
            single,
            "month-filter",
            "changes.checked",
            lambda line: {**line, "forbidden_changes": [{"kind": "outside", "path": "x"}]},
        ),
    ),
    (
        "STREAM",
        "medium",
        "month-filter/prd",
        lambda single: with_event(single, "month-filter", "reply.parsed", lambda line: {**line, "ending": "error"}),
    ),
    (
        "TRACE",
        "high",
        "month-filter",
        lambda single: with_event(single, "month-filter", "unit.completed", lambda line: None),
    ),
)


def test_a_recording_is_as_itself() -> None:
    assert compare_cassettes(ONE_FEATURE, ONE_FEATURE, {}) == ()


@pytest.mark.parametrize(("kind", "risk", "folder", "change"), SINGLE)
@pytest.mark.slow
def test_one_change_is_one_finding_of_its_class(kind: str, risk: str, folder: str, change: Change) -> None:
    (finding,) = compare_cassettes(ONE_FEATURE, change(ONE_FEATURE), {})
    assert summary(finding) == (kind, risk, folder)
    assert finding.fix.startswith("mz rerecord {cassette} ")
    assert compare_cassettes(change(ONE_FEATURE), change(ONE_FEATURE), {}) == ()
    other_side = compare_cassettes(change(ONE_FEATURE), ONE_FEATURE, {})
    assert other_side or finding.cause == "frames", "it is seen from the other side too; intact frames are no finding"


def test_an_event_after_the_final_one_that_lacks_a_field_is_two_findings() -> None:
    """The parser reads `message` of these events (it is one with the reader of transcripts), so that its absence is a
    defect by itself, whatever the order of the frames."""
    findings = compare_cassettes(
        ONE_FEATURE,
        with_file(ONE_FEATURE, CODE, "stdout", lambda text: f'{text}{{"type":"user","session_id":"s"}}\n'),
        {},
    )
    assert [summary(finding) for finding in findings] == [("STREAM", "high", ""), ("STREAM", "medium", "")]
    assert findings[0].detail == ("- user message: object (read)",)
    assert findings[1].cause == "frames"


def test_which_files_a_unit_may_change_is_no_matter_of_words() -> None:
    def with_units(*files: str) -> Cassette:
        units = [{"id": "u1", "depends_on": [], "files": list(files)}]
        return with_event(ONE_FEATURE, "month-filter", "artifact.parsed", lambda line: {**line, "units": units})

    (finding,) = compare_cassettes(with_units("a.py"), with_units("a.py", "secrets.py"), {})
    assert summary(finding) == ("ARTIFACT", "medium", "month-filter")


def test_another_model_is_told_once() -> None:
    recording = call(ONE_FEATURE, CODE).recording
    argv = tuple("claude-opus-5" if word == recording.model else word for word in recording.argv)
    (finding,) = compare_cassettes(ONE_FEATURE, with_fields(ONE_FEATURE, CODE, model="claude-opus-5", argv=argv), {})
    assert (finding.kind, finding.cause) == ("CONFIG", "model")
    assert finding.detail == ("@@ -1 +1 @@", "-claude-code claude-sonnet-4-6", "+claude-code claude-opus-5")


def test_a_call_more_is_missing_in_the_old_one() -> None:
    findings = compare_cassettes(without_call(ONE_FEATURE, CODE), ONE_FEATURE, {})
    assert [summary(finding) for finding in findings] == [("MISSING", "high", CODE)]
    assert findings[0].fix == "mz rerecord {cassette} --new"


def test_a_prompt_that_holds_an_earlier_answer_differs_with_it() -> None:
    """The words of the requirements stand in the prompts of what follows them."""
    line = next(
        line for line in _artifact(PRD).splitlines() if len(line) > 40 and line in _prompt("month-filter/techspec")
    )
    cassette = with_file(ONE_FEATURE, PRD, "artifact", lambda text: text.replace(line, "Otherwise."))
    for path in [
        item.recording.identity.path for item in ONE_FEATURE.calls if item.recording.identity.feature == "month-filter"
    ]:
        if line in _prompt(path):
            cassette = with_file(cassette, path, "prompt", lambda text: text.replace(line, "Otherwise."))
    findings = compare_cassettes(ONE_FEATURE, cassette, {})
    assert {(finding.kind, risk_of(finding), finding.cause) for finding in findings} == {
        ("ARTIFACT", "low", "prd.text"), ("PROMPT", "low", "earlier replies"),
    }  # fmt: skip


def _artifact(path: str) -> str:
    item = call(ONE_FEATURE, path)
    file = item.recording.find("artifact")
    assert file is not None
    return item.contents[file.name].decode()


def _prompt(path: str) -> str:
    item = call(ONE_FEATURE, path)
    file = item.recording.find("prompt")
    assert file is not None
    return item.contents[file.name].decode()


@pytest.mark.slow
def test_trees_after_other_files_are_not_told_again() -> None:
    cassette = with_file(COMPLETE, CODE, "patch", lambda text: text.replace("+", "+ ", 9))
    cassette = with_fields(cassette, CODE, tree_after="1" * 40)
    cassette = with_fields(cassette, "month-filter/tests", tree_before="1" * 40)
    cassette = with_fields(cassette, "month-compare/prd", tree_before="2" * 40)
    assert [summary(finding) for finding in compare_cassettes(COMPLETE, cassette, {})] == [("FILES", "low", CODE)]
    cassette = with_fields(cassette, "group-thousands/prd", tree_before="2" * 40)
    assert ("FILES", "high", "group-thousands/prd") in map(summary, compare_cassettes(COMPLETE, cassette, {}))


def test_a_recording_without_stories_is_compared_by_its_calls() -> None:
    bare = no_story(ONE_FEATURE)
    assert compare_cassettes(bare, bare, {}) == ()
    assert {finding.kind for finding in compare_cassettes(ONE_FEATURE, bare, {})} == {"TRACE"}


def test_differences_are_bounded() -> None:
    cassette = with_file(ONE_FEATURE, PRD, "prompt", lambda text: "".join(f"{at}\n" for at in range(5000)))
    (finding,) = compare_cassettes(ONE_FEATURE, cassette, {})
    assert len(finding.detail) == 41
    assert finding.detail[-1].startswith("... and ")


# how things are built -------------------------------------------------------------------------------------------------
def test_the_structure_of_an_artifact() -> None:
    text = "# Any title\n\n## 1. Scope\n\n| file | why |\n|---|---|\n| a | b |\n| c | d |\n\n### Deep\n\n#### Deeper\n"
    assert structure(text, "x.md") == ("#", "## scope", "table: file | why", "### deep")
    assert structure('[{"id": "U1", "files": ["a"], "size": 2}]', "x.json") == (
        "[U1]", "[]", "[].files[]", "[].files[]: string", "[].id: string", "[].size: number",
    )  # fmt: skip
    value, two = '{"units": [{"id": "a"}]}', '{"units": [{"id": "a"}, {"id": "b"}]}'
    assert set(structure(two, "x.json")) - set(structure(value, "x.json")) == {"units[b]"}
    assert set(structure("[{}, {}]", "x.json")) - set(structure("[{}]", "x.json")) == {"[1]"}
    assert structure("{", "x.json") == ("no JSON",)


def test_what_a_patch_changes() -> None:
    patch = (
        b"diff --git a/a b b/a b\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/a b\n"
        b"@@ -0,0 +1 @@\n+diff --git\n"
        b"diff --git a/gone b/gone\ndeleted file mode 100644\nindex 1..0\n"
        b"diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n"
    )
    result = {path: change.description for path, change in changed_files(patch).items()}
    assert result == {"a b": "added 100755", "gone": "deleted ", "mode": "modified 100755"}
    assert changed_files(b"no patch at all") == {}


# bytes that are no story ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (b"not json\n", "line 1 is not an event"),
        (b"[]\n", "line 1 is not an event"),
        (b'{"a":1}\n', "line 1 is not an event"),
        (b'{"type":"x"}\n\xff\n', "line 2 is not an event"),
        (b'{"type":"reply.parsed"}\n', "line 1 is a reply.parsed without a call"),
        (b'{"type":"reply.parsed","ref":{"phase":3}}\n', "line 1 is not an event"),
    ],
)
def test_a_story_that_is_none_is_found_when_it_is_loaded(tmp_path: Path, trace: bytes, why: str) -> None:
    stories = {"month-filter": trace}
    digests = {feature: digest(text) for feature, text in stories.items()}
    manifest = msgspec.structs.replace(ONE_FEATURE.manifest, traces=digests)
    save(ONE_FEATURE._replace(traces=stories, manifest=manifest), tmp_path / "x")
    with pytest.raises(CassetteUnreadable, match=why):
        load(tmp_path / "x")


def test_what_stories_say_beyond_that_is_never_relied_on() -> None:
    odd = with_event(
        ONE_FEATURE, "month-filter", "artifact.validated", lambda line: {**line, "violations": [1], "report": {}}
    )
    odd = with_event(
        odd, "month-filter", "reply.parsed", lambda line: {**line, "problem": "x", "usage": None, "parser": []}
    )
    odd = with_event(odd, "month-filter", "artifact.parsed", lambda line: {"type": line["type"]})
    assert {finding.kind for finding in compare_cassettes(ONE_FEATURE, odd, {})} >= {"STREAM"}
    assert compare_cassettes(odd, odd, {}) == ()
    assert check_cassette(odd, None, GenaiPrices(), datetime(2026, 12, 1, tzinfo=UTC))[0]


def test_a_lost_call_is_no_drift() -> None:
    cassette = load(BUNDLED.with_name("generation-claude-code"))
    assert "lost" in {call.recording.outcome for call in cassette.calls}
    assert check_cassette(cassette, None, GenaiPrices(), datetime(2026, 11, 1, tzinfo=UTC)) == ((), 0)


def test_outputs_of_a_call_that_raised_a_block_are_not_judged() -> None:
    cassette = load(LIBRARY / "trial-claude-code")
    assert any(b'"check":"raised.unclear"' in trace for trace in cassette.traces.values())
    differences, _ = check_cassette(cassette, trial.pins(), GenaiPrices(), datetime(2026, 12, 1, tzinfo=UTC))
    assert not [item for item in differences if item.finding.kind == "DECISION"]
