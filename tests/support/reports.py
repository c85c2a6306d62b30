"""Reports for tests: one that passed, one with findings of many kinds, and names that mean harm."""

from __future__ import annotations

from mz_cli.reports.findings import Report, Suite
from mz_recordings.findings.model import Finding

ACCEPT = "mz replay {cassette} --accept %s -m TEXT"
HOSTILE = "<script>alert(1)</script>\u202egpj.exe\0"
FACTS = (("provenance", "live"), ("recordings", "3"), ("network", "cut off"))


def prompt(feature: str, call: str) -> Finding:
    return Finding(
        kind="PROMPT", message="the prompt differs from the recording", feature=feature, call=call, cause="write.md.j2",
        file="pipelines/templates/write.md.j2", line=14, fix=ACCEPT % "PROMPT",
        detail=("@@ -12,2 +12,2 @@", " Write a note.", "-Keep it short.", "+Be brief: 100%, `at` most."),
    )  # fmt: skip


FINDINGS = (
    prompt("alpha", "write"),
    prompt("alpha", "write.a2"),
    Finding(
        kind="TRACE", message="the trace of beta has another event at event 7", feature="beta",
        detail=("- gate.checked", "+ phase.blocked"), file="recordings/notes/beta/events.jsonl", line=7,
        fix=ACCEPT % "TRACE",
    ),
    Finding(
        kind="UNUSED", message="1 of 2 recordings of beta are unused", feature="beta", detail=("  sign.a2",),
        file="recordings/notes/cassette.yaml", fix="mz replay {cassette} --prune",
    ),
)  # fmt: skip
DAMAGED = Finding(
    kind="UNREADABLE", message="write.patch was changed since it was recorded", fix="git restore {cassette}"
)
NOTES = Suite(
    name="notes", path="recordings/notes", seconds=4.2, findings=FINDINGS, properties=FACTS,
    cases=("alpha/write", "alpha/write.a2", "alpha/sign", "beta/write", "alpha", "beta"),
)  # fmt: skip
COMPLETE = Suite(name="whole", path="recordings/whole", seconds=1.0, properties=FACTS, cases=("gamma/write", "gamma"))
FAILED = Report(
    title="mz replay", exit=3, version="1.2.3",
    suites=(NOTES, COMPLETE, Suite(name="x", path=f"recordings/{HOSTILE}", findings=(DAMAGED,))),
)  # fmt: skip
PASSED = Report(title="mz replay", exit=0, version="1.2.3", suites=(COMPLETE,))
