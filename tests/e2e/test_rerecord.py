"""The real CLI, whose model behaves otherwise than when it was recorded: every class of drift that an agent can cause,
once; and what was recorded anew plays. Other classes are in `tests/recordings/test_rerecord.py`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from mz_engine.run.process import RunProcess
from mz_recordings.cassette.files import load, save
from mz_recordings.record.recorder import RecordSources, record_run

from tests.cli.drive import Result, fork
from tests.support import preloaded
from tests.support.claude_cli import CLIS, environment
from tests.support.endpoint import Answer, Endpoint, Reply, Request, Unexpected, Use
from tests.support.gitrepo import GitRepo

pytestmark = [pytest.mark.cli, pytest.mark.slow]

PIPELINE = """\
pipeline: notes
version: 1
phases:
- phase: write
  agent: {tier: mid, tools: [read, write]}
  timeout: {total: 2m}
  prompt: write.md.j2
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
  writable: ["more/**"]
  deliver: [push, open_pr]
"""
RULES = """\
name: note
version: 1
form: markdown
rules:
- {kind: bytes, id: note.bytes, min: 10, max: 100000, requirement: "At least {min} bytes.",
   message: "{found}, at least {min} are needed"}
"""
TEMPLATE = "Write a note on {{ title }}.\n{% if rework %}MEND {{ rework.messages | join('; ') }}\n{% endif %}"
BACKLOG = "# Backlog\n" + "".join(f"\n## [FEAT] {name}: {name}\n\nPlease.\n" for name in ("built", "refused"))
OWN_COMMIT = "git -c user.name=x -c user.email=x@localhost commit -q --allow-empty -m own"
PLAIN = "# Note\nlong enough to be one\n"


class Model:
    """Writes the note that is asked for; `mood` is what changes between two recordings."""

    def __init__(self) -> None:
        self.mood = "plain"

    def __call__(self, request: Request) -> Answer:
        match = re.search(r"Write a note on (\w+)", request.prompt)
        if match is None:
            raise Unexpected(request.prompt[:200])
        uses = [Use("Write", {"file_path": f"{request.cwd}/{path}", "content": text})
                for path, text in self._files(match[1], "MEND" in request.prompt).items()]  # fmt: skip
        if "MEND" in request.prompt:  # A file that is there has to be read before it may be written.
            uses.insert(0, Use("Read", {"file_path": f"{request.cwd}/notes/{match[1]}.md"}))
        done = len(request.results())
        return Reply("", (uses[done],)) if done < len(uses) else Reply("Done.")

    def _files(self, feature: str, again: bool) -> dict[str, str]:
        note = f"notes/{feature}.md"
        if self.mood == "plain" or again:
            return {note: PLAIN}
        return {
            "built": {note: "# Note\n## Another heading\nlong enough to be one\n", "more/extra.md": "one file more\n"},
            "refused": {note: "short"},
        }[feature]


def wrapped(directory: Path) -> Path:
    """The CLI as a newer version may be: a line of its stream that nobody knows; and once a commit of its own."""
    directory.mkdir()
    program = directory / "claude"
    program.write_text(
        f"#!/bin/sh\ncase $1 in --version) exec {CLIS}/claude --version;; esac\n"
        f"case $MZ_KEY in */built/*) {OWN_COMMIT};; esac\n"
        f"""{CLIS}/claude "$@" | sed '1i {{"type":"novelty","since":"today"}}'\n"""
    )
    program.chmod(0o755)
    return directory


def mz(root: Path, outside: dict[str, str], *args: str) -> Result:
    return fork(root, args, {**outside, **preloaded.read_at_start(os.environ)}, seconds=250)


def test_an_agent_that_has_changed_is_seen_by_class_and_recorded_again(tmp_path: Path) -> None:
    root, home, model = tmp_path / "project", tmp_path / "home", Model()
    home.mkdir()
    GitRepo(root).commit(
        {
            "mz.yaml": "pipeline: notes\n", "features.md": BACKLOG, "pipelines/notes.yaml": PIPELINE,
            "pipelines/rules/note.yaml": RULES, "pipelines/templates/write.md.j2": TEMPLATE,
        }
    )  # fmt: skip
    with Endpoint(model) as endpoint:
        outside = {**environment(home, endpoint.url), "CI": ""}
        with RunProcess(root, outside, lambda recorded: None) as session:
            session.start({}, ())
            state = session.drive()
            assert state.started is not None
            sources = RecordSources(root, outside, session.store, session.blobs)
            made = record_run(sources, state.started.run, name="notes", provenance="scripted-model").cassette
        folder = root / "recordings" / "notes"
        folder.parent.mkdir()
        save(made, folder)

        model.mood, before = "changed", len(endpoint.requests)
        outside["PATH"] = f"{wrapped(tmp_path / 'bin')}:{outside['PATH']}"
        args = ("--all", "--yes", "--accept", "ALL", "--provenance", "scripted-model", "--json")
        done = mz(root, outside, "rerecord", *args)
        assert endpoint.complaints == []
        assert done.exit == 0, done.err[-6000:]
        assert len(endpoint.requests) > before
        (summary,) = json.loads(done.out)["cassettes"]
        assert summary["kept"] == ["built", "refused"]
        assert sorted(summary["called"]) == ["built/write", "refused/write", "refused/write.a2"]
        result = {(item["kind"], item["feature"]) for item in summary["differences"]}
        kinds = {kind for kind, _ in result}
        assert {("ARTIFACT", "built"), ("FILES", "built"), ("MISSING", "refused")} <= result
        assert {"STREAM", "COST"} <= kinds
        assert ("DECISION", "refused") in result, result

        count = len(endpoint.requests)
        replayed = mz(root, outside, "replay")
        assert replayed.exit == 0, replayed.out
        assert len(endpoint.requests) == count
        new = load(folder)
    assert new.manifest.provenance == "scripted-model"
    assert new.manifest.fixture == made.manifest.fixture
    assert not (root / ".mz" / "rerecord").exists() or not [
        path for path in (root / ".mz" / "rerecord").iterdir() if path.is_dir()
    ]
