"""Which file and line a finding is about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mz_recordings.findings.location import add_locations
from mz_recordings.findings.model import Finding, FindingKind
from mz_recordings.replay.project import project_texts

from tests.support.timing import ENDS, grows_evenly

CASSETTE = "recordings/notes"
TEXTS = {
    "mz.yaml": "pipeline: notes\ncommands:\n  check: {run: 'curl x'}\nagents:\n  model: opus-9  # dear\n",
    "pipelines/notes.yaml": "pipeline: notes\nphases:\n- phase: write\n  tools: [shell]\n",
    "pipelines/rules/note.yaml": 'name: n\nrules:\n- {id: note.bytes, requirement: "At least {min} bytes of prose."}\n',
    "pipelines/templates/part.md.j2": "{# shared #}\nSign {{ name }}, in full.\n",
    "pipelines/templates/write.md.j2": "Write on {{ title }}.\nThe end of {{ it }}\n{% if a %}Say why.{% endif %}\n",
    f"{CASSETTE}/cassette.yaml": "format: 3\nprovenance: copied\nmax_age_days: 90\n",
}


def folder(kind: FindingKind, *detail: str, **more: object) -> tuple[str, int | None]:
    fields = {"message": "x", "feature": "alpha", "call": "write.a2", "cause": "write.md.j2", **more}
    (finding,) = add_locations([Finding(kind=kind, detail=detail, **fields)], TEXTS, CASSETTE)  # type: ignore[arg-type]
    return finding.file, finding.line


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        (("-Write about alpha.", "+Write on alpha."), ("pipelines/templates/write.md.j2", 1)),
        (("+Say why.",), ("pipelines/templates/write.md.j2", 3)),
        (("+Sign it, in full.",), ("pipelines/templates/part.md.j2", 2)),
        (("+At least 12 bytes of prose.",), ("pipelines/rules/note.yaml", 3)),
        (("@@ -1,2 +1 @@", " Write on alpha.", "-gone"), ("pipelines/templates/write.md.j2", 1)),
        (("+Write on alpha, and say why!",), ("pipelines/templates/write.md.j2", None)),
        (("+So: Say why. In full.",), ("pipelines/templates/write.md.j2", 3)),
        (("+The end of all, Say why.",), ("pipelines/templates/write.md.j2", 2)),
        (("+nobody wrote this",), ("pipelines/templates/write.md.j2", None)),
    ],
)
def test_a_prompt_is_about_the_line_that_its_words_come_from(
    detail: tuple[str, ...], expected: tuple[str, int | None]
) -> None:
    assert folder("PROMPT", *detail) == expected


def test_a_prompt_of_a_template_that_comes_with_mz_is_about_the_recorded_prompt() -> None:
    detail = ("@@ -12,3 +12,3 @@", " same", " same", "-old words", "+new words")
    assert folder("PROMPT", *detail, cause="prd.md.j2") == ("recordings/notes/alpha/write.a2.prompt.md", 14)
    assert folder("PROMPT", cause="prd.md.j2") == ("recordings/notes/alpha/write.a2.prompt.md", None)


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("CONFIG", {"detail": ("---model", "-opus-8", "+opus-9")}, ("mz.yaml", 5)),
        ("CONFIG", {"detail": ("+shell",)}, ("pipelines/notes.yaml", 4)),
        ("CONFIG", {"detail": ("+--print",)}, ("recordings/notes/alpha/write.a2.json", None)),
        ("CONFIG", {"detail": ("+dear",)}, ("recordings/notes/alpha/write.a2.json", None)),
        ("NETWORK", {"cause": "gate.check"}, ("mz.yaml", 3)),
        ("NETWORK", {"cause": "agent.writer"}, ("recordings/notes/cassette.yaml", None)),
        ("FILES", {}, ("recordings/notes/alpha/write.a2.json", None)),
        ("TRACE", {"call": "", "line": 7}, ("recordings/notes/alpha/events.jsonl", 7)),
        ("MISSING", {}, ("recordings/notes/cassette.yaml", None)),
        ("MISSING", {"detail": ("  caused by: note.bytes a.md",)}, ("pipelines/rules/note.yaml", 3)),
        ("MISSING", {"detail": ("  caused by: note.byte a.md",)}, ("recordings/notes/cassette.yaml", None)),
        ("UNUSED", {"call": ""}, ("recordings/notes/cassette.yaml", None)),
        ("EXPIRED", {"call": "", "feature": ""}, ("recordings/notes/cassette.yaml", 3)),
        ("COPIED", {"call": "", "feature": ""}, ("recordings/notes/cassette.yaml", 2)),
        ("PIPELINE", {"file": "pipelines/x.yaml", "line": 3}, ("pipelines/x.yaml", 3)),
    ],
)
def test_other_findings(kind: FindingKind, fields: dict[str, object], expected: tuple[str, int | None]) -> None:
    assert folder(kind, *fields.pop("detail", ()), **fields) == expected  # type: ignore[misc]


def test_files_of_a_cassette_elsewhere_are_not_named() -> None:
    stale = Finding(kind="EXPIRED", message="x")
    event = Finding(kind="TRACE", message="x", feature="alpha", line=3)
    assert [(finding.file, finding.line) for finding in add_locations([stale, event], TEXTS, "")] == [
        ("", None),
        ("", None),
    ]


@ENDS
def test_a_template_full_of_holes_is_searched_in_even_time() -> None:
    def work(length: int) -> Callable[[], object]:
        texts = {"pipelines/templates/write.md.j2": "{{ a }}abc" * 200}
        detail = ("+" + "ab" * (length // 2),)
        return lambda: add_locations(
            [Finding(kind="PROMPT", message="x", cause="write.md.j2", detail=detail)], texts, ""
        )

    assert grows_evenly(work, 50_000)


def test_what_can_be_pointed_at_is_read(tmp_path: Path) -> None:
    for name, text in TEXTS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "pipelines" / "binary.yaml").write_bytes(b"\xff\0")
    assert project_texts(tmp_path, tmp_path / CASSETTE) == TEXTS
    elsewhere = project_texts(tmp_path, Path("/elsewhere"))
    assert elsewhere == {name: text for name, text in TEXTS.items() if not name.startswith("recordings")}
