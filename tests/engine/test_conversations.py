"""Sessions that go on: what is in them, what ends them, and that no call goes on in one that is not whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.decide.caller import agent_of
from mz_engine.decide.feature import decide_feature
from mz_engine.effects.prompt import SHARED_SECTIONS, keeps_session
from mz_engine.effects.prompt import drop_reason as talk_ended
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Config
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import AgentReview, AgentUse, Phase
from mz_engine.pipelines.load import load_pipeline
from mz_engine.ports import CallSpec
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    AgentSwitched,
    CallRef,
    Problem,
    ProblemClass,
    ReplyParsed,
    SessionDropped,
    SessionDropReason,
    Usage,
)
from mz_events.catalog.feature import (
    Blocked,
    FeatureHeld,
    FeatureRetried,
    HoldReleased,
    HumanAnswered,
    HumanRequested,
    PhaseStarted,
    QuestionKind,
    RolledBack,
    UnitStarted,
)
from mz_events.catalog.run import FeatureOutcome, Hold, Verdict
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated, ChangesChecked
from mz_events.names import Digest, FeatureId, feature_stream, run_stream
from mz_projections.feature.fold import fold
from mz_projections.feature.session import text_mark
from mz_projections.feature.state import AgentSession, progress_of
from mz_projections.run.fold import fold_run
from mz_projections.usage import sum_by_model
from mz_qa.simulation import trial
from mz_qa.simulation.world import Files, ScriptedReply, World

from tests.support import driving
from tests.support.crashing import CrashingWorld
from tests.support.examples import examples
from tests.support.steps import BASE, DIGEST, OPENED, recorded, ref, state_after
from tests.support.steps import requested as plain_request
from tests.support.tree import ROOT

ITEMS: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "c": ()}
IN_PLAN = (*OPENED, PhaseStarted(phase="plan", iteration=1), UnitStarted(phase="plan", unit="", iteration=1))
FIRST, SECOND = ref("plan"), ref("plan", 2)
USED = Usage(model="m", input=10, output=2, requests=1)


# the fold -------------------------------------------------------------------------------------------------------------
def requested(
    call: CallRef, *, resumes: bool = False, kept: bool = True, shown: tuple[str, ...] = ()
) -> AgentRequested:
    session = {"session": "s", "resumes": resumes, "keeps_session": kept, "seen_marks": shown}
    return replace(plain_request(call), agent="x", full_prompt=not resumes, **session)


def ended(call: CallRef, code: str = "", terminal: str = "error", session: str | None = None) -> tuple[Event, ...]:
    problem = Problem(kind=ProblemClass.PHASE, code=code) if code else None
    terminal = terminal if code else "success"
    return (
        AgentReplied(ref=call, stdout=DIGEST, stderr=DIGEST, exit=0, duration_ms=1, tree=BASE),
        ReplyParsed(
            ref=call, parser="p/1", ending=terminal, session=session, usage=(USED,), text=DIGEST, problem=problem
        ),
    )


def conversation_after(*events: Event) -> AgentSession | None:
    book = progress_of(state_after(*IN_PLAN, *events))
    assert book is not None
    return book.agent_session


def test_only_a_kept_session_is_remembered() -> None:
    assert conversation_after(requested(FIRST, kept=False), *ended(FIRST)) is None
    session = conversation_after(requested(FIRST, shown=("one",)), *ended(FIRST))
    assert session is not None
    assert (session.id, sorted(session.seen_marks)) == ("s", ["one"])
    assert (session.usage_before, session.usage) == ((), (USED,))


def test_the_agent_names_its_session() -> None:
    session = conversation_after(requested(FIRST), *ended(FIRST, session="its-own"))
    assert session is not None
    assert session.id == "its-own"


def test_a_later_call_adds_to_what_was_shown_and_used() -> None:
    refused = (ChangesChecked(ref=FIRST, tree=BASE), ArtifactValidated(ref=FIRST))
    session = conversation_after(
        requested(FIRST, shown=("one",)), *ended(FIRST), *refused, requested(SECOND, resumes=True, shown=("two",)),
        *ended(SECOND),
    )  # fmt: skip
    assert session is not None
    assert session.seen_marks == {"one", "two"}
    assert session.usage_before == (USED,)
    assert session.usage == (Usage(model="m", input=20, output=4, requests=2),)


def test_a_better_reading_of_the_same_call_counts_once() -> None:
    session = conversation_after(requested(FIRST), *ended(FIRST), ended(FIRST)[1])
    assert session is not None
    assert session.usage == (USED,)


def test_what_the_builder_handed_over_it_knows_and_what_a_reviewer_said_it_does_not() -> None:
    parsed = ArtifactParsed(artifact="plan", phase="plan", unit="", path=None, digest=Digest("a" * 64))
    checked = (ChangesChecked(ref=FIRST, tree=BASE), parsed, ArtifactValidated(ref=FIRST))
    review = ref("plan", role="reviewer")
    verdict = replace(parsed, artifact="verdict", digest=Digest("f" * 64))
    session = conversation_after(
        requested(FIRST), *ended(FIRST), *checked, requested(review, kept=False), *ended(review),
        ChangesChecked(ref=review, tree=BASE), verdict,
    )  # fmt: skip
    assert session is not None
    assert session.seen_marks == {text_mark(parsed.digest)}


def test_usage_is_summed_by_model() -> None:
    other = Usage(model="n", input=1, output=1)
    actual = tuple(sum_by_model((USED, other, USED, other)).values())
    assert actual == (Usage(model="m", input=20, output=4, requests=2), Usage(model="n", input=2, output=2))


LOST = ReplyParsed(
    ref=FIRST, parser="p/1", ending="no-terminal", session=None, text=DIGEST,
    problem=Problem(kind=ProblemClass.TRANSIENT, code="lost"),
)  # fmt: skip
TIMEOUT = Problem(kind=ProblemClass.PHASE, code="timeout")
BREAKS: dict[str, tuple[tuple[Event, ...], SessionDropReason]] = {
    "a failed call": (ended(FIRST, "turn-limit"), SessionDropReason.FAILED),
    "a session that the agent does not know": (ended(FIRST, "session-missing"), SessionDropReason.MISSING),
    "a lost call": ((AgentLost(ref=FIRST, stdout=DIGEST), LOST), SessionDropReason.LOST),
    "a call that we ended": (
        (
            AgentFailed(ref=FIRST, problem=TIMEOUT, stdout=DIGEST, stderr=DIGEST, duration_ms=1, tree=BASE),
            replace(LOST, problem=TIMEOUT),
        ),
        SessionDropReason.FAILED,
    ),
    "a rollback": (
        (
            *ended(FIRST),
            Blocked(phase="plan", unit="", cause="x", check="y", path="", note=None),
            RolledBack(source="plan", to="plan", units=(), keeps_tree=True),
        ),
        SessionDropReason.ROLLBACK,
    ),
    "a retry": (
        (*ended(FIRST), FeatureRetried(run_version=4, to="plan", note=None, actor=DIGEST)),
        SessionDropReason.ROLLBACK,
    ),
    "files put back because of a secret": (
        (
            *ended(FIRST),
            ChangesChecked(ref=FIRST, tree=BASE),
            HumanRequested(phase="plan", unit="", question_kind=QuestionKind.SECRET, code="x", detail=None),
            HumanAnswered(run_version=4, verdict=Verdict.APPROVE, note=None, actor=DIGEST),
        ),
        SessionDropReason.ROLLBACK,
    ),
}


@pytest.mark.parametrize("what", BREAKS)
def test_what_breaks_a_session(what: str) -> None:
    events, reason = BREAKS[what]
    session = conversation_after(requested(FIRST), *events)
    assert session is not None
    assert session.drop_reason is reason


MESSAGES: tuple[Event, ...] = (
    *IN_PLAN,
    *(event for events, _ in BREAKS.values() for event in events),
    *(requested(ref("plan", at), resumes=at > 1, shown=("a",)) for at in (1, 2, 3)),
    *ended(ref("plan", 2), "auth-failure"),
    *ended(ref("plan", 3), "rate-limit"),
    SessionDropped(key=FIRST.key, session="s", reason=SessionDropReason.FORK),
    AgentSwitched(ref=FIRST, source="x", to="two", code="auth-failure"),
    AgentSwitched(ref=FIRST, source="two", to="gone", code="auth-failure"),
    FeatureHeld(hold=Hold.FATAL, code="auth-failure"),
    HoldReleased(run_version=5, hold=Hold.FATAL),
)


PINS: dict[tuple[str, ...], Pins] = {
    failover: trial.pins(Config(agent="x", failover=failover, sessions="continue"))
    for failover in ((), ("two",), ("x", "two", "two"))
}


@examples(60)
@given_any(st.lists(st.sampled_from(MESSAGES), max_size=30), st.sampled_from(tuple(PINS)))
def test_any_order_of_sessions_and_agents_has_an_answer(events: list[Event], failover: tuple[str, ...]) -> None:
    """The new agent is another agent of the settings, and a continued session belongs to the run and is complete."""
    pinned = PINS[failover]
    state = fold(recorded(*IN_PLAN, *events))
    action, book = decide_feature(state, pinned), progress_of(state)
    if isinstance(action, AgentSwitched):
        assert book is not None
        assert action.to in set(pinned.config.failover) - {agent_of(book, pinned.config)}
    if book is not None and book.agent_session is not None:
        why = talk_ended(book.agent_session, "r1", "x", "m")
        assert why is book.agent_session.drop_reason
        assert talk_ended(book.agent_session, "r2", "x", "m") is not None


def test_an_agent_that_asks_for_a_person_keeps_its_session() -> None:
    session = conversation_after(requested(FIRST), *ended(FIRST, "agent-blocker", terminal="success"))
    assert session is not None
    assert session.drop_reason is None


def test_a_missing_session_is_no_failure_but_only_where_one_was_continued() -> None:
    def failures(resumes: bool) -> int:
        state = state_after(*IN_PLAN, requested(FIRST, resumes=resumes), *ended(FIRST, "session-missing"))
        return sum(state.unit_run.attempts["builder"].failures.values())  # type: ignore[union-attr]

    assert (failures(True), failures(False)) == (0, 1)


# runs in a simulated world --------------------------------------------------------------------------------------------
def pins(failover: tuple[str, ...] = ()) -> Pins:
    """The trial pipeline in sessions, with the templates that come with mz."""
    made = trial.pins(trial.trial_config("continue", failover))
    templates = dict(trial.pipeline_and_files()[1].templates)
    templates["trial/plan.md.j2"] += "\n" + "Mind the style of the house. " * 40
    return replace(made, templates=templates)


def script(spec: CallSpec, files: Files) -> ScriptedReply:
    """As in the trial, where a rework may be a continuation."""
    return trial.script(replace(spec, prompt=spec.prompt.replace("## Rework", "MEND")), files)


def new_world() -> World:
    return World(trial.FILES, script, trial.commands)


def deliver(world: World, pinned: Pins, seed: int = 7) -> World:
    trial.begin(world, pinned, ITEMS)
    driving.deliver(world, pinned, seed)
    return world


def requests(world: World, feature: str) -> list[AgentRequested]:
    stream = world.store.read(feature_stream(trial.RUN, FeatureId(feature)))
    return [item.event for item in stream if isinstance(item.event, AgentRequested)]


def breaks(world: World) -> list[SessionDropReason]:
    return [item.event.reason for item in world.store.log if isinstance(item.event, SessionDropped)]


def delivered(world: World) -> bool:
    tracks = fold_run(world.store.read(run_stream(trial.RUN))).tracks.values()
    return all(track.last_stop is not None and track.last_stop.status is FeatureOutcome.DELIVERED for track in tracks)


def text(world: World, request: AgentRequested) -> str:
    return world.blobs.get(request.prompt).decode()


def test_a_feature_without_trouble_has_one_session() -> None:
    world = deliver(new_world(), pins())
    assert delivered(world)
    mine = [request for request in requests(world, "b") if request.ref.role == "builder"]
    assert len(mine) > 3
    assert [item.resumes for item in mine] == [False, *([True] * (len(mine) - 1))]
    assert len({entry.session for entry in mine}) == 1
    assert all(
        agent_requested.keeps_session and (agent_requested.full_prompt_tokens is not None) == agent_requested.resumes
        for agent_requested in mine
    )


def test_a_reviewer_is_never_in_the_builders_session() -> None:
    world = deliver(new_world(), pins())
    reviews = [agent_requested for agent_requested in requests(world, "a") if agent_requested.ref.role == "reviewer"]
    assert reviews
    assert not any(item.resumes or item.keeps_session or item.seen_marks for item in reviews)
    builders = {request.session for request in requests(world, "a") if request.ref.role == "builder"}
    assert builders.isdisjoint({review.session for review in reviews})


def test_a_rework_tells_only_what_is_new() -> None:
    world = deliver(new_world(), pins())
    first, rework = requests(world, "a")[:2]
    assert (first.full_prompt, first.resumes, rework.full_prompt, rework.resumes) == (True, False, False, True)
    output = text(world, rework)
    assert "## Rework" in output
    assert "no plan" not in output, "it has written that itself"
    assert "Plan Feature a" not in output


def test_what_is_new_is_left_to_a_whole_prompt_that_is_shorter() -> None:
    pinned = replace(pins(), templates=trial.pipeline_and_files()[1].templates)
    rework = requests(deliver(new_world(), pinned), "a")[1]
    assert (rework.full_prompt, rework.resumes, rework.prompt_tokens) == (True, True, rework.full_prompt_tokens)


def test_a_rollback_ends_the_session_and_says_so() -> None:
    world = deliver(new_world(), pins())
    assert SessionDropReason.ROLLBACK in breaks(world)
    stream = [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("a")))]
    at, end = next((at, event) for at, event in enumerate(stream) if isinstance(event, SessionDropped))
    following = next(event for event in stream[at:] if isinstance(event, AgentRequested))
    assert following.full_prompt
    assert not following.resumes
    assert following.session != end.session


def test_an_agent_without_sessions_begins_anew_every_time() -> None:
    world = new_world()
    world.agents_without_sessions.add("simulated")
    deliver(world, pins())
    assert delivered(world)
    assert not any(
        request.resumes or request.keeps_session or not request.full_prompt
        for name in ITEMS
        for request in requests(world, name)
    )
    assert breaks(world) == []


def test_an_agent_may_name_its_sessions_itself() -> None:
    world = new_world()
    world.session_naming_agents.add("simulated")
    deliver(world, pins())
    assert delivered(world)
    assert any(
        request.session and request.session.startswith("simulated-")
        for request in requests(world, "b")
        if request.resumes
    )


class Forgets(World):
    """The agent's sessions are gone before one of its calls."""

    forgets_before = 0

    def tick(self, name: str) -> None:
        if name == "call.before" and len(self.call_keys) == self.forgets_before:
            self.session_prompts.clear()
        super().tick(name)


@pytest.mark.slow
def test_a_session_that_the_agent_lost_is_replaced_without_counting_as_a_failure() -> None:
    for at in (1, 5):
        world = Forgets({"README.md": "a project"}, script, trial.commands)
        world.forgets_before = at
        pinned = pins()
        strict = replace(
            pinned, pipeline=replace(
                pinned.pipeline, phases=tuple(replace(phase, retries=0) for phase in pinned.pipeline.phases)
            ),
        )  # fmt: skip
        deliver(world, strict)
        assert delivered(world)
        assert SessionDropReason.MISSING in breaks(world)
        assert not any(
            isinstance(item.event, HumanRequested) and item.event.question_kind is QuestionKind.RETRIES
            for item in world.store.log
        )


def sessions_are_whole(world: World) -> None:
    """A call goes on in a session only after a call of the same session that ended well, in the same feature, and with
    no rollback in between."""
    for feature in ITEMS:
        alive = ""
        for item in world.store.read(feature_stream(trial.RUN, FeatureId(feature))):
            match item.event:
                case AgentRequested(ref=ref, resumes=resumes, session=session) if ref.role == "builder":
                    assert not resumes or session == alive, (feature, ref)
                    alive = ""
                case ReplyParsed(ref=ref, problem=None, session=session) if ref.role == "builder":
                    alive = session or ""
                case RolledBack() | SessionDropped():
                    alive = ""


SINGLE_ITEM: dict[str, tuple[str, ...]] = {"a": ()}
"""The feature with a rework, units, a review that sends one back, and questions."""


def crashed(pinned: Pins, every: int) -> Iterator[World]:
    """Runs that were killed, each in another state, and resumed."""
    world = CrashingWorld(trial.FILES, script, trial.commands)
    trial.begin(world, pinned, SINGLE_ITEM)
    world.crash_at(1, every)
    driving.deliver(world, pinned, 7)
    for cut, left in enumerate(world.left):
        driving.deliver(left, pinned, 7)
        assert delivered(left), cut
        sessions_are_whole(left)
        yield left


@pytest.mark.parametrize("seed", range(3))
def test_sessions_are_whole_in_any_interleaving(seed: int) -> None:
    world = deliver(new_world(), pins(), seed)
    assert delivered(world)
    sessions_are_whole(world)


@pytest.mark.slow
def test_a_call_that_a_crash_left_open_ends_its_session_and_no_other_crash_does() -> None:
    pinned, observed = pins(), set()
    clean = new_world()
    trial.begin(clean, pinned, SINGLE_ITEM)
    driving.deliver(clean, pinned, 7)
    for cut, world in enumerate(crashed(pinned, 7)):
        lost = [item.event for item in world.store.log if isinstance(item.event, AgentLost)]
        builders = [agent_lost for agent_lost in lost if agent_lost.ref.role == "builder"]
        extra = len(breaks(world)) - len(breaks(clean))
        assert extra <= len(builders), cut
        observed.add(bool(builders))
    assert False in observed


@pytest.mark.slow
def test_a_crash_at_any_step_leaves_every_session_whole() -> None:
    assert any(SessionDropReason.LOST in breaks(world) for world in list(crashed(pins(), 2)))


def test_a_phase_may_say_otherwise_than_the_settings() -> None:
    agent = AgentUse(session="continue")
    phase, review = Phase(phase="p", agent=agent), AgentReview(role="y", output="v", prompt="v.md.j2")
    fresh, continued = Config(), Config(sessions="continue")
    assert keeps_session(phase, "builder", fresh)
    assert not keeps_session(replace(phase, agent=replace(agent, session="fresh")), "builder", continued)
    unsaid = replace(phase, agent=replace(agent, session=None), agent_review=review)
    assert (keeps_session(unsaid, "builder", fresh), keeps_session(unsaid, "builder", continued)) == (False, True)
    assert not keeps_session(unsaid, "y", continued), "a reviewer"
    assert not keeps_session(Phase(phase="p"), "builder", continued), "nobody is called"


def test_a_pipeline_file_may_ask_for_either(tmp_path: Path) -> None:
    text = (ROOT / "pipelines" / "trial.yaml").read_text()
    for word, right in (("continue", True), ("fresh", True), ("shared", False)):
        file = tmp_path / "pipelines" / "mine.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.replace("agent: {tier", f"agent: {{session: {word}, tier", 1).replace(": trial", ": mine"))
        if right:
            agent = load_pipeline("mine", tmp_path)[0].find_phase("plan").agent
            assert agent is not None
            assert agent.session == word
        else:
            with pytest.raises(MzError, match="session"):
                load_pipeline("mine", tmp_path)


def test_the_same_sections_are_there_in_every_phase() -> None:
    assert set(SHARED_SECTIONS.values()) <= set(trial.pipeline_and_files()[1].templates)
