"""Any past run becomes a cassette, from the log, the blobs and the trees alone; secrets stop it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.artifacts.load import load_rules
from mz_engine.model.config import Config
from mz_engine.model.pins import Pins, encode_pins
from mz_engine.model.pipeline import AgentReview, AgentUse, Phase, PhaseOutput, Pipeline
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallRef,
    ComposedLearning,
    ContextComposed,
    Problem,
    ProblemClass,
    ReplyParsed,
    Usage,
)
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.run import (
    CommandsChanged,
    FeatureAdmitted,
    FeatureOutcome,
    FeatureStopped,
    ItemAdded,
    RunStarted,
)
from mz_events.names import Commit, FeatureId, RunId, feature_stream, run_stream
from mz_events.redaction.redactor import Secrets
from mz_events.store import Append
from mz_recordings.cassette.files import load, write_copy
from mz_recordings.cassette.model import Cassette, Failure
from mz_recordings.record.recorder import NothingToRecord, RecordSources, SecretInRecording, UnknownRun, record_run

from tests.support.tapes import PROMPT, SESSION, git, repository

PIPELINE = Pipeline(
    pipeline="small",
    version=1,
    phases=(
        Phase(
            phase="prd",
            agent=AgentUse(),
            outputs=(PhaseOutput(artifact="prd", path="tasks/{feature}/prd.md", rules="prd"),),
            agent_review=AgentReview(role="reviewer", output="verdict", prompt="review.md.j2"),
        ),
    ),
)


class Past:
    """A log that is written by hand: one feature, and the calls that a test adds."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "repository"
        repository(self.root)
        (self.root / "tasks" / "f").mkdir(parents=True)
        (self.root / "tasks" / "f" / "prd.md").write_text("# A document\n")
        self.before = Commit(git(self.root, "rev-parse", "HEAD"))
        git(self.root, "add", "tasks")
        git(self.root, "commit", "-qm", "what the agent left")
        self.after = Commit(git(self.root, "rev-parse", "HEAD"))
        self.store = SqliteStore(directory / "log" / "mz.db")
        self.blobs = FileBlobs(directory / "log" / "blobs")
        self.environment = {"HOME": str(directory / "home"), "PATH": "/usr/bin:/bin"}
        pins = Pins(pipeline=PIPELINE, rules=load_rules(), templates={"prd.md.j2": "x"}, config=Config())
        text = self.blobs.put(b"text")
        run, feature = RunId("r"), FeatureId("f")
        self.add(
            RunStarted(
                run=run,
                pipeline="small",
                base="main",
                base_commit=self.before,
                pins=self.blobs.put(encode_pins(pins)),
                mz_version="0.1.0",
            ),
            ItemAdded(feature=feature, source="features.md#f", priority=1, order=0, title=text, body=text),
            stream=run_stream("r"),
        )
        started = FeatureStarted(
            feature=feature,
            run_version=1,
            branch="feat/f",
            target="main",
            starts_from=(self.before,),
            title=text,
            body=text,
        )
        self.add(started)
        rested = FeatureStopped(feature=feature, version=1, status=FeatureOutcome.DELIVERED)
        self.add(FeatureAdmitted(feature=feature), rested, stream=run_stream("r"))

    def add(self, *events: Event, stream: str = "") -> None:
        self.store.append([Append(run_stream("r") if stream else feature_stream("r", "f"), None, events)], 10**15)

    def request(self, attempt: int = 1, role: str = "builder", **more: object) -> CallRef:
        key = f"r/f/prd/-/1/{attempt}/agent.{role}"
        ref = CallRef(key=key, phase="prd", unit="", iteration=1, attempt=attempt, role=role)
        usual = AgentRequested(
            ref=ref,
            agent="claude-code",
            model="claude-sonnet-4-6",
            prompt=self.blobs.put(PROMPT.encode()),
            template="prd.md.j2",
            full_prompt=True,
            session=SESSION,
            resumes=False,
            tree=self.before,
            estimated_tokens=1,
            estimated_nanousd=None,
        )
        self.add(replace(usual, **more))
        return ref

    def reply(
        self, stdout: bytes = b"", stderr: bytes = b"", attempt: int = 1, role: str = "builder", **more: object
    ) -> CallRef:
        ref = self.request(attempt, role, **more)
        out, err = self.blobs.put(stdout), self.blobs.put(stderr)
        self.add(
            AgentReplied(ref=ref, stdout=out, stderr=err, exit=0, duration_ms=5, tree=self.after, version="2.1.197")
        )
        return ref

    def sources(self) -> RecordSources:
        return RecordSources(self.root, self.environment, self.store, self.blobs)

    def record(self, secrets: Mapping[str, str] | None = None) -> Cassette:
        sources = self.sources()
        if secrets is not None:
            sources.secrets = Secrets(secrets)
        return record_run(sources, "r", name="c", provenance="live").cassette


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    made = Past(tmp_path)
    yield made
    made.store.close()


@pytest.mark.slow
def test_a_call(past: Past) -> None:
    past.reply(f'{{"cwd":"{past.root}/.mz/worktrees/r/f","session_id":"{SESSION}"}}\n'.encode(), b"careful\n")
    (call,) = past.record().calls
    assert call.recording.argv[7:9] == ("--session-id", "<SESSION>")
    assert call.recording.argv[-1] == "--tools=Read,Glob,Grep,Write,Edit"
    assert "ANTHROPIC_API_KEY" in call.recording.environment
    assert call.recording.tree_before == git(past.root, "rev-parse", f"{past.before}^{{tree}}")
    assert call.recording.tree_after == git(past.root, "rev-parse", f"{past.after}^{{tree}}")
    assert call.contents["prd.prompt.md"].decode() == PROMPT
    assert call.contents["prd.stream-json"] == b'{"cwd":"<WORKTREE>","session_id":"<SESSION>"}\n'
    assert call.contents["prd.stderr"] == b"careful\n"
    assert call.contents["prd.md"] == b"# A document\n"
    assert b"+# A document" in call.contents["prd.patch"]


@pytest.mark.parametrize(
    ("data", "name"),
    [(b'{"a":1}\n{"a":2}\n', "prd.jsonl"), (b'{"a":1}\n{"a"', "prd.jsonl"), (b'{\n"a":1}', "prd.txt"),
     (b'{"a":1}\n', "prd.jsonl"), (b'[{"a":1}]', "prd.txt"), (b"I did it.\n", "prd.txt"), (b"", "prd.txt")],
)  # fmt: skip
@pytest.mark.slow
def test_a_stream_is_named_after_what_it_is(past: Past, data: bytes, name: str, tmp_path: Path) -> None:
    """And never like the recording itself."""
    past.reply(data, agent="codex")
    write_copy(past.record(), tmp_path / "cassette")
    (call,) = load(tmp_path / "cassette").calls
    assert call.contents[name] == data


@pytest.mark.slow
def test_what_a_session_had_used_before(past: Past) -> None:
    """Some agents count on over a whole session."""
    text, used = past.blobs.put(b"text"), Usage(model="m", input=10, output=2)
    for attempt, session in ((1, SESSION), (2, "another"), (3, SESSION)):
        ref = past.reply(attempt=attempt, session=session, resumes=attempt > 1)
        past.add(
            ReplyParsed(
                ref=ref, parser="codex/1", ending="success", session=session, usage=(used,), reported_nanousd=None,
                text=text, problem=None,
            )
        )  # fmt: skip
    assert [call.recording.earlier for call in past.record().calls] == [(), (), (used,)]


@pytest.mark.slow
def test_a_repository_that_was_moved_since(past: Past) -> None:
    past.reply(b'{"cwd":"/old place/x/.mz/worktrees/r/f","text":"see /old place/x/README.md"}\n')
    (call,) = past.record().calls
    assert call.contents["prd.stream-json"] == b'{"cwd":"<WORKTREE>","text":"see <REPOSITORY>/README.md"}\n'


@pytest.mark.slow
def test_failed_and_lost_calls_are_recorded_too(past: Past) -> None:
    nothing = past.blobs.put(b"")
    timeout = Problem(kind=ProblemClass.TRANSIENT, code="timeout")
    failed = AgentFailed(
        ref=past.request(1), problem=timeout, stdout=nothing, stderr=nothing, duration_ms=9, tree=past.before
    )
    past.add(failed)
    past.add(AgentLost(ref=past.request(2), stdout=nothing))
    past.request(3)
    first, second = past.record().calls
    assert (first.recording.outcome, first.recording.exit) == ("failed", None)
    assert first.recording.failure == Failure(kind="transient", code="timeout")
    assert (second.recording.identity.name, second.recording.outcome) == ("prd.a2", "lost")
    assert "prd.a2.patch" not in second.contents


@pytest.mark.slow
def test_a_review_hands_over_its_reply(past: Past) -> None:
    ref = past.reply(role="reviewer")
    text = past.blobs.put(b'{"severity": "NONE"}')
    past.add(ReplyParsed(ref=ref, parser="p/1", ending="success", session=None, text=text))
    (call,) = past.record().calls
    assert call.recording.argv[-1] == "--tools=Read,Glob,Grep"
    assert call.contents["prd.reviewer.md"] == b'{"severity": "NONE"}'
    file = call.recording.find("artifact")
    assert file is not None
    assert (file.artifact, file.path) == ("verdict", "")


@pytest.mark.slow
def test_the_world_and_the_evidence(past: Past) -> None:
    past.reply()
    manifest = past.record().manifest
    assert manifest.fixture.items[0].title == "text"
    assert manifest.fixture.base_commit == past.before
    assert "commands" in manifest.fixture.config
    assert "agent" not in manifest.fixture.config
    assert manifest.evidence["templates"] == {"prd.md.j2": "x"}


@pytest.mark.parametrize(
    ("secret", "where"), [("good English", "the prompt of f/prd"), ("A document", "the artifact prd of f/prd")]
)
@pytest.mark.slow
def test_a_secret_that_cannot_be_taken_out_stops_it(past: Past, secret: str, where: str) -> None:
    past.reply()
    with pytest.raises(SecretInRecording, match=where):
        past.record({"TOKEN": secret})


def give_learning(past: Past, text: str) -> None:
    """A call that was given a learning."""
    learning = ComposedLearning(id="L-1", text=past.blobs.put(text.encode()))
    past.add(ContextComposed(key="r/f/prd/-/1/1/agent.builder", learnings=(learning,)))
    past.reply()


@pytest.mark.slow
def test_a_learning_names_no_path_of_the_machine(past: Past) -> None:
    give_learning(past, f"see {past.root}/a.py and {past.environment['HOME']}/b")
    (hint,) = past.record().manifest.fixture.hints
    assert hint.text == "see <REPOSITORY>/a.py and <HOME>/b"


@pytest.mark.slow
def test_a_secret_in_a_learning_stops_it(past: Past) -> None:
    give_learning(past, "the key is hunter2hunter2")
    with pytest.raises(SecretInRecording, match="a learning that f was given"):
        past.record({"TOKEN": "hunter2hunter2"})


@pytest.mark.slow
def test_a_secret_in_the_output_is_taken_out(past: Past) -> None:
    past.reply(b'{"text":"the key is hunter2hunter2"}\n')
    (call,) = past.record({"TOKEN": "hunter2hunter2"}).calls
    assert b"hunter2" not in call.contents["prd.stream-json"]


def test_a_run_without_calls_is_not_recorded(past: Past) -> None:
    with pytest.raises(NothingToRecord, match=r"no feature of run r can be recorded \(f: no agent was called\)"):
        past.record()


def test_a_feature_is_left_out_if_its_commands_were_corrected(past: Past) -> None:
    past.add(CommandsChanged(commands=past.blobs.put(b"{}")), stream="run")
    reason = "f: the commands of the settings were corrected after it had started"
    with pytest.raises(NothingToRecord, match=reason):
        past.record()


def test_a_run_that_never_was(past: Past) -> None:
    with pytest.raises(UnknownRun, match="there is no run 'x'"):
        record_run(past.sources(), "x", name="c", provenance="live")
