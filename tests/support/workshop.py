"""A project with a pipeline of its own, small enough to be run, recorded and played in a second or two.

Two features, one built on the other; two phases; a rework, a failed call, a rollback by a person, and a commit of the
agent's own. The agent is a real process that does what `Workshop.script` says.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mz_engine.run.process import RunProcess
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import AnswerPosted
from mz_events.catalog.run import FeatureOutcome, Verdict
from mz_events.names import FeatureId, inbox_stream
from mz_events.store import Append, Recorded
from mz_projections.run.fold import RunState
from mz_recordings.cassette.files import load, save
from mz_recordings.cassette.model import Cassette
from mz_recordings.findings.model import ReplayResult
from mz_recordings.record.recorder import RecordedRun, RecordSources, record_run
from mz_recordings.replay.replay import ReplayJob, replay_and_update, without_git_variables

from tests.support.gitrepo import GitRepo

TODAY = datetime.now(UTC)
PIPELINE = """\
pipeline: notes
version: 1
phases:
- phase: write
  agent: {tier: mid, tools: [read, write]}
  timeout: {total: 1m}
  prompt: write.md.j2
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
  gates: [{run: check, cause: text}]
- phase: sign
  agent: {tier: mid, tools: [read, write]}
  prompt: sign.md.j2
  inputs: [{artifact: note}]
  outputs: [{artifact: letter, path: "letters/{feature}.md", rules: note}]
  ask_person: [{autonomy: [supervised, checkpoint, full_auto]}]
  on_block: [{cause: person, to: write}, {cause: base, to: write, scope: tree, max_times: 1}]
  deliver: [merge_base, push, open_pr]
"""
RULES = """\
name: note
version: 1
form: markdown
rules:
- {kind: file, id: note.file, requirement: The note exists., message: there is no note}
- kind: bytes
  id: note.bytes
  min: 10
  max: 100000
  requirement: "At least {min} bytes."
  message: "{found}, at least {min} are needed"
"""
ASK = """\
{% for note in notes %}NOTE {{ note }}
{% endfor %}{% if rework %}MEND {{ rework.messages | join('; ') }} {{ rework.hints | join('; ') }}
{% endif %}"""
WRITE = f"Write a note on {{{{ title }}}}.\nKeep it short.\n{ASK}"
SIGN = f"Sign the note on {{{{ title }}}}: {{{{ inputs.note }}}}\n{ASK}"
SETTINGS = """\
pipeline: notes
commands:
  check: {run: "! grep -rh broken notes", timeout: 1m}
sandbox: {write: [~/.agent-state]}
"""
BACKLOG = """\
# Backlog

## [FEAT] alpha: The first

Please.

## [FEAT] beta: The second

- depends on: alpha

Please, too.
"""
AGENT = """#!{python} -IS
import sys
if "--version" in sys.argv:
    print("2.1.197 (Claude Code)")
    sys.exit(0)
import json, os
prompt = sys.stdin.read()
_, feature, phase, _, iteration, attempt, _ = os.environ["MZ_KEY"].split("/")
with open({script!r}) as file:
    script = json.load(file)
act = script[f"{{feature}}.{{phase}}.{{iteration}}.{{attempt}}"]
resumes = "--resume" in sys.argv
session = sys.argv[sys.argv.index("--resume" if resumes else "--session-id") + 1]
kept = os.path.join(os.environ["HOME"], ".claude", os.getcwd().replace("/", "-"), session)
if os.path.isfile(kept):
    with open(kept) as file:
        if prompt in file.read().split(chr(0)):
            sys.exit("the prompt is in the conversation already")
elif resumes:
    print("No conversation found with session ID: " + session, file=sys.stderr)
    sys.exit(1)
os.makedirs(os.path.dirname(kept), exist_ok=True)
with open(kept, "a") as file:
    file.write(prompt + chr(0))
def say(**line):
    print(json.dumps({{**line, "session_id": session}}), flush=True)
say(type="system", subtype="init", model="claude-sonnet-4-6", claude_code_version="2.1.197", cwd=os.getcwd())
for path, text in act.get("write", {{}}).items():
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
if act.get("run"):
    os.system(act["run"])
if "fail" in act:
    print(act["fail"], file=sys.stderr)
    sys.exit(1)
say(type="result", subtype="success", is_error=False, result=act.get("say", "Done in " + os.getcwd()),
    total_cost_usd=0.01, api_error_status=None, terminal_reason="completed", num_turns=1,
    usage={{"service_tier": "standard", "speed": "standard", "input_tokens": 100, "output_tokens": 20,
           "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0,
           "cache_creation": {{"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0}}}},
    modelUsage={{"claude-sonnet-4-6": {{"inputTokens": 100, "outputTokens": 20, "cacheReadInputTokens": 0,
                                       "cacheCreationInputTokens": 0}}}})
"""
COMMIT = "git add -A && git -c user.name=x -c user.email=x@localhost commit -qm own"
SCRIPT: dict[str, dict[str, object]] = {
    "alpha.write.1.1": {"write": {"notes/alpha.md": "short"}},
    "alpha.write.1.2": {"write": {"notes/alpha.md": "# Alpha\nThis is long enough.\n"}, "run": COMMIT},
    "alpha.sign.1.1": {"write": {"letters/alpha.md": "# Letter\nabout alpha\n"}},
    "alpha.write.2.1": {"write": {"notes/alpha.md": "# Alpha\nThis is friendlier.\n"}},
    "alpha.sign.2.1": {"write": {"letters/alpha.md": "# Letter\nabout alpha, friendlier\n"}},
    "beta.write.1.1": {"fail": "API Error: 429 too many requests, retry-after: 1"},
    "beta.write.1.2": {"write": {"notes/beta.md": "# Beta\nThis is long enough.\n"}},
    "beta.sign.1.1": {"write": {"letters/beta.md": "# Letter\nabout beta\n"}},
}
"""By feature, phase, iteration and attempt."""
ANSWERS: dict[str, list[tuple[Verdict, str | None]]] = {
    "alpha": [(Verdict.REJECT, "be friendlier"), (Verdict.APPROVE, None)],
    "beta": [(Verdict.APPROVE, None)],
}


class Workshop:
    """The project in `place/project`, its agent in `place/bin`, a home in `place/home`."""

    def __init__(
        self, folder: Path, trace: Mapping[str, object] = SCRIPT, limit: str = "1m", settings: str = ""
    ) -> None:
        self.folder, self.root = folder, folder / "project"
        self.repository = GitRepo(self.root)
        self.repository.write(
            {
                "mz.yaml": SETTINGS + settings,
                "features.md": BACKLOG,
                "pipelines/notes.yaml": PIPELINE.replace("1m", limit),
                "pipelines/rules/note.yaml": RULES,
                "pipelines/templates/write.md.j2": WRITE,
                "pipelines/templates/sign.md.j2": SIGN,
            }
        )
        self.repository.commit()
        (folder / "home").mkdir()
        (folder / "bin").mkdir()
        self.script = folder / "script.json"
        self.script.write_text(json.dumps(trace))
        program = folder / "bin" / "claude"
        program.write_text(AGENT.format(python=sys.executable, script=str(self.script)))
        program.chmod(0o755)
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "ANTHROPIC_API_KEY": "fake-key-of-the-tests",
            "LANG": "C.UTF-8",
        }

    def ramble(self) -> None:
        """Has the prompts go on for a page, as real ones do."""
        page = "\n".join(f"{number}. Mind the style of the house, number {number} of it." for number in range(1, 30))
        texts = {"write": WRITE, "sign": SIGN}
        self.repository.write(
            {f"pipelines/templates/{name}.md.j2": f"{text}\n{page}\n" for name, text in texts.items()}
        )
        self.repository.commit()

    def run(self) -> str:
        """Delivers the backlog, with a person who answers; returns the run's id."""
        output = {feature: list(answers) for feature, answers in ANSWERS.items()}
        events: list[Recorded[Event]] = []
        with RunProcess(self.root, self.environment, events.append) as session:
            session.start({}, ())
            state = session.drive()
            assert state.started is not None
            run = state.started.run
            while (waiting := [f for f in state.tracks if _waits(state, f) and output[f]]) or state.halt:
                for feature in waiting:
                    verdict, note = output[feature].pop(0)
                    left = AnswerPosted(
                        feature=FeatureId(feature),
                        verdict=verdict,
                        note=session.blobs.put(note.encode()) if note else None,
                        actor=session.blobs.put(b"Ada"),
                    )
                    session.store.append([Append(inbox_stream(run), None, (left,))], session.clock.now_us())
                session.resume(run)
                state = session.drive()
        return run

    def record(self, run: str, **more: Any) -> RecordedRun:
        with RunProcess(self.root, self.environment, lambda recorded: None) as session:
            sources = RecordSources(self.root, self.environment, session.store, session.blobs)
            return record_run(sources, run, **{"name": "notes", "provenance": "live", **more})

    def keep(self, cassette: Cassette, name: str = "notes") -> Path:
        """Puts it into the project's library."""
        path = self.root / "recordings" / name
        path.parent.mkdir(exist_ok=True)
        save(cassette, path, replace=True)
        return path


def _waits(state: RunState, feature: str) -> bool:
    track = state.tracks[feature]
    return not track.active and track.last_stop is not None and track.last_stop.status is FeatureOutcome.WAITING


class Copy:
    """A project with a cassette in its library, to be changed by a test."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "recordings" / "notes"

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.root / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def job(self, **more: Any) -> ReplayJob:
        fields = {
            "path": str(self.folder), "project": str(self.root), "environment": without_git_variables(os.environ),
            "today": TODAY, **more,
        }  # fmt: skip
        return ReplayJob(**fields)

    def settle(self, **more: object) -> ReplayResult:
        return replay_and_update(self.job(**more))

    def cassette(self) -> Cassette:
        return load(self.folder)


def recorded_in(folder: Path) -> Path:
    """The project in `place`, which is empty, run and recorded; returns its root."""
    workshop = Workshop(folder)
    made = workshop.record(workshop.run())
    assert made.unrecordable == ()
    workshop.keep(made.cassette)
    assert Copy(workshop.root).settle(keep=True).findings == ()
    return workshop.root


def clone(recorded: Path, root: Path) -> Copy:
    """A copy without its history and its log: what a fresh clone has."""
    shutil.copytree(recorded, root, ignore=shutil.ignore_patterns(".git", ".mz"))
    return Copy(root)
