"""The built-in pipeline of eight phases: its order, gates, routes, tiers, and when a person is asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from mz_engine.artifacts.load import load_rules
from mz_engine.model.config import Command, Config, PullRequests
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import PathsCheck
from mz_engine.path_patterns import matches
from mz_engine.pipelines.load import built_in_rewards
from mz_engine.ports import CallSpec
from mz_engine.prompts.render import load_templates
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.feature import Blocked, FeatureDelivered, HumanRequested, PhaseSkipped, RolledBack
from mz_events.catalog.run import Verdict
from mz_events.catalog.validation import ArtifactParsed
from mz_events.names import BUILDER, FeatureId, feature_stream
from mz_events.store import Append
from mz_projections.rewards.facts import fold_facts
from mz_projections.rewards.reward import reward_of
from mz_projections.views.timeline import describe
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, World

from tests.support import driving
from tests.support.agentswe import JUDGEMENT, SAMPLES, agentswe, outputs_of
from tests.support.examples import first_of_each
from tests.support.samples import sample

UNITS = ("unit-001", "unit-002", "unit-003")
CODE = {
    "unit-001": {"pager/limit.py": "CALLS = 5\n", "tests/test_limit.py": "ok\n"},
    "unit-002": {
        "pager/auth_client.py": "URL = 'https://pager.example.org/login'\n",
        "tests/test_auth_client.py": "ok\n",
    },
    "unit-003": {"pager/report.py": "waits\n", "tests/test_report.py": "ok\n"},
}
EARLIER = (replace(sample(ArtifactParsed), artifact="services", ids=("pager",)), sample(FeatureDelivered))
"""An earlier feature called the same system."""
Written = dict[str, str | None]
Act = Callable[[str, str, str], Written | None]
BUILT = [f"implementation/{unit}/1/1" for unit in UNITS]
PLANNED = ["requirements/-/1/1", "architecture/-/1/1", "planning/-/1/1"]


def pins(names: str = "lint test integration regression secrets") -> Pins:
    config = Config(
        agent="simulated", autonomy="full_auto", commands={name: Command(run=name) for name in names.split()},
        pull_requests=PullRequests(strategy="draft"),
    )  # fmt: skip
    return Pins(pipeline=agentswe(), rules=load_rules(), templates=load_templates(), config=config)


class Delivery:
    """One feature on its way; its agents do what `act` says for a call (phase, unit, prompt), or else what is right."""

    def __init__(
        self,
        act: Act = lambda *_: None,
        request: bytes = b"Please.",
        pinned: Pins | None = None,
        verdicts: tuple[str, ...] = (JUDGEMENT,),
    ) -> None:
        self.act, self.pins, self.prompts = act, pinned or pins(), dict[str, str]()
        self.verdicts = list(verdicts)
        self.world = World(trial.FILES, self.script, self.commands)
        self.world.store.append([Append(feature_stream("earlier", FeatureId("a")), 0, EARLIER)], self.world.now_us)
        trial.begin(self.world, self.pins, {"b": ()}, request)
        self.go_on()

    def go_on(self) -> None:
        drive_run(self.world, trial.RUN, self.pins, 1)

    def script(self, spec: CallSpec, files: Files) -> ScriptedReply:
        _, _, phase, unit, iteration, attempt, role = spec.key.split("/")
        if role == "agent.judge":
            return ScriptedReply(text=self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0])
        self.prompts["/".join((phase, unit, iteration, attempt))] = spec.prompt
        written = self.act(phase, unit, spec.prompt)
        right = {**outputs_of(phase, "b", unit), **CODE.get(unit, {})}
        return ScriptedReply(files=right if written is None else {**right, **written})

    def commands(self, command: str, files: Files) -> tuple[int, str]:
        broken = [path for path, data in files.items() if f"breaks {command}".encode() in data]
        return (1, f"{broken[0]} breaks {command}\n1 failed, 2 passed") if broken else (0, "3 passed")

    @property
    def events(self) -> list[Event]:
        return [item.event for item in self.world.store.read(feature_stream(trial.RUN, FeatureId("b")))]

    @property
    def calls(self) -> list[str]:
        refs = [event.ref for event in self.events if isinstance(event, AgentRequested)]
        refs = [ref for ref in refs if ref.role == BUILDER]
        return [f"{ref.phase}/{ref.unit or '-'}/{ref.iteration}/{ref.attempt}" for ref in refs]

    @property
    def tiers(self) -> dict[str, str]:
        """By the call, the tiers that are not the phase's own, with the reason."""
        requests = [event for event in self.events if isinstance(event, AgentRequested) and event.escalated_to]
        return {
            f"{e.ref.phase}/{e.ref.unit or '-'}/{e.ref.iteration}/{e.ref.attempt}": f"{e.escalated_to} {e.escalated_by}"
            for e in requests
        }

    @property
    def question(self) -> str:
        """The code of the open question; empty without one."""
        last = self.events[-1]
        return last.code if isinstance(last, HumanRequested) else ""

    @property
    def blocks(self) -> list[str]:
        return [f"{event.phase} {event.cause} {event.check}" for event in self.events if isinstance(event, Blocked)]


def block(phase: str, cause: str, more: str = "") -> Written:
    text = f"cause: {cause}\nreason: This cannot go on as it stands.\nmissing: [what is said above]\n{more}\n"
    return {f"tasks/b/{phase}/BLOCKED.md": text}


def once(at: str, written: Written) -> Act:
    """The first call of this phase, or of this phase and unit, writes this too."""
    left = [written]
    return lambda phase, unit, _: left.pop() if at in (phase, f"{phase}/{unit}") and left else None


def without_auth(phase: str, unit: str, prompt: str) -> Written | None:
    """A plan that touches nothing which a person has to look at."""
    if phase == "planning":
        plan = SAMPLES["work"].replace("auth_client", "token_client").replace("type: auth", "type: scaffold")
        return {"tasks/b/planning/work-breakdown.yaml": plan}
    if unit == "unit-002":
        moved: Written = {path.replace("auth_client", "token_client"): text for path, text in CODE[unit].items()}
        return moved | dict.fromkeys(CODE[unit])
    return None


def then(first: Act, second: Act) -> Act:
    """What both write."""

    def act(phase: str, unit: str, prompt: str) -> Written | None:
        results = [result for result in (first(phase, unit, prompt), second(phase, unit, prompt)) if result is not None]
        return {path: text for result in results for path, text in result.items()} if results else None

    return act


def test_a_feature_goes_through_eight_phases_and_a_person_looks_at_what_touches_auth() -> None:
    delivery = Delivery()
    assert delivery.question == "touches_auth"
    assert delivery.calls == [*PLANNED, *BUILT, "verification/-/1/1", "security/-/1/1"]
    driving.answer(delivery.world, "b")
    delivery.go_on()
    assert delivery.calls[-2:] == ["integration/-/1/1", "retrospective/-/1/1"]
    assert isinstance(delivery.events[-1], FeatureDelivered)
    assert delivery.tiers == {
        "implementation/unit-001/1/1": "mid unit.type",
        "implementation/unit-002/1/1": "premium unit.type",
    }
    messages = [tree.message.decode().partition("\n")[0] for tree in delivery.world.commits("feat/b")]
    assert messages[:3] == [f"feat(b): Feature b, {unit}" for unit in reversed(UNITS)]
    assert {path for path in delivery.world.commits("feat/b")[0].files if path.startswith("tasks/")} == set()


def test_a_feature_that_touches_nothing_of_that_kind_asks_nobody() -> None:
    delivery = Delivery(without_auth)
    assert isinstance(delivery.events[-1], FeatureDelivered)
    assert not [event for event in delivery.events if isinstance(event, HumanRequested)]


def test_each_phase_is_shown_its_inputs_and_no_more() -> None:
    prompts = Delivery(without_auth).prompts
    built, verified = prompts["implementation/unit-003/1/1"], prompts["verification/-/1/1"]
    assert '"fixtures": "a journal with three waits"' in built, "the plan of the unit"
    assert "### wait_for_turn" in built
    for hidden in ("## Acceptance Criteria", "The client waits for its turn", "## Rollback Path", "## Intent"):
        assert hidden not in built
    assert "+CALLS = 5" in verified
    assert "gate test: exit 0" in verified
    for hidden in ("## Alternatives Rejected", "## Rollback Path"):
        assert hidden not in verified
    assert "+CALLS = 5" in prompts["security/-/1/1"]
    assert "## Self-Check" not in prompts["security/-/1/1"]


@pytest.mark.parametrize(
    ("phase", "file", "artifact", "old", "new"),
    first_of_each(
        [
            ("requirements", "spec.md", "spec", "None\n", "- Is five the limit?\n"),
            ("architecture", "interfaces.md", "interfaces", "output:", "result:"),
            ("planning", "work-breakdown.yaml", "work", "[AC-003]", "[AC-002]"),
            ("verification", "spec-fidelity.md", "fidelity", "| met |", "| unclear |"),
            ("security", "owasp-checklist.json", "owasp", '"blocking_findings": []', '"blocking_findings": ["x"]'),
            ("integration", "merge-plan.md", "merge_plan", "## Merge Status", "## Result"),
        ],
        lambda _: None,
    ),
)
def test_a_result_that_breaks_its_rules_is_asked_for_again(
    phase: str, file: str, artifact: str, old: str, new: str
) -> None:
    wrong: Written = {f"tasks/b/{phase}/{file}": SAMPLES[artifact].replace(old, new)}
    delivery = Delivery(then(without_auth, once(phase, wrong)))
    assert delivery.calls[delivery.calls.index(f"{phase}/-/1/1") + 1] == f"{phase}/-/1/2"
    assert isinstance(delivery.events[-1], FeatureDelivered)


def test_what_only_a_reader_can_judge_is_judged_and_sent_back() -> None:
    broken = JUDGEMENT.replace('"met"', '"broken"', 1)
    delivery = Delivery(without_auth, verdicts=(broken, JUDGEMENT))
    assert delivery.calls[:3] == ["requirements/-/1/1", "architecture/-/1/1", "architecture/-/1/2"]
    assert "interfaces.explicit" in delivery.prompts["architecture/-/1/2"]
    assert isinstance(delivery.events[-1], FeatureDelivered)


@pytest.mark.parametrize("command", ["lint", "test"])
def test_a_red_command_sends_a_unit_back_and_after_three_attempts_asks_a_person(command: str) -> None:
    broken: Written = {"pager/limit.py": f"breaks {command}"}
    delivery = Delivery(then(without_auth, once("implementation/unit-001", broken)))
    assert delivery.calls[3:6] == [
        "implementation/unit-001/1/1",
        "implementation/unit-001/1/2",
        "implementation/unit-002/1/1",
    ]
    delivery = Delivery(lambda phase, unit, _: broken if unit == "unit-001" else None)
    assert delivery.calls[3:] == [f"implementation/unit-001/1/{attempt}" for attempt in (1, 2, 3)]
    assert delivery.question == f"implementation.{command}"


ROUTES = [
    ("architecture", "spec", ["requirements/-/2/1"]),
    ("planning", "spec", ["requirements/-/2/1"]),
    ("planning", "design", ["architecture/-/2/1"]),
    ("implementation", "design", ["architecture/-/2/1"]),
    ("implementation", "plan", ["planning/-/2/1"]),
    ("verification", "code", ["implementation/unit-002/2/1", "implementation/unit-003/2/1", "verification/-/2/1"]),
    ("verification", "design", ["architecture/-/2/1"]),
    ("verification", "spec", ["requirements/-/2/1"]),
    ("security", "code", ["implementation/unit-002/2/1", "implementation/unit-003/2/1", "verification/-/2/1"]),
    ("security", "design", ["architecture/-/2/1"]),
    ("integration", "drift", ["architecture/-/2/1"]),
]


@pytest.mark.parametrize(
    ("phase", "cause", "following"),
    first_of_each(ROUTES, lambda route: route[0]),
    ids=[f"{phase}-{cause}" for phase, cause, _ in ROUTES],
)
def test_a_block_goes_where_its_cause_leads(phase: str, cause: str, following: list[str]) -> None:
    at = f"{phase}/unit-001" if phase == "implementation" else phase
    more = "units: [unit-002]" if cause == "code" else ""
    delivery = Delivery(then(without_auth, once(at, block(phase, cause, more))))
    assert delivery.blocks == [f"{phase} {cause} raised.{cause}"]
    blocked = next(at for at, call in enumerate(delivery.calls) if call.startswith(f"{phase}/"))
    assert delivery.calls[blocked + 1 :][: len(following)] == following
    assert isinstance(delivery.events[-1], FeatureDelivered)


def test_requirements_that_can_be_read_in_two_ways_are_a_question() -> None:
    delivery = Delivery(then(without_auth, once("requirements", block("requirements", "ambiguous"))))
    assert (delivery.question, delivery.calls) == ("ambiguous.raised.ambiguous", ["requirements/-/1/1"])
    driving.answer(delivery.world, "b", Verdict.RETRY, "Five calls, not ten.")
    delivery.go_on()
    assert "Five calls, not ten." in delivery.prompts["requirements/-/1/2"]
    assert isinstance(delivery.events[-1], FeatureDelivered)


def test_the_builder_reads_the_block_and_nothing_else_of_the_reviewer() -> None:
    act = once("verification", block("verification", "code", "units: [unit-002]\nseverity: MAJOR"))
    prompt = Delivery(then(without_auth, act)).prompts["implementation/unit-002/2/1"]
    assert "This cannot go on as it stands." in prompt
    assert "Spec Fidelity" not in prompt
    assert "axis" not in prompt.casefold()


def test_a_command_that_is_red_at_verification_goes_back_by_a_block() -> None:
    """The verifier cannot hand over beside it."""
    act = then(without_auth, once("implementation/unit-003", {"pager/report.py": "breaks integration"}))
    replies = iter([None, block("verification", "code", "units: [unit-003]")])

    def verify(phase: str, unit: str, prompt: str) -> Written | None:
        return next(replies, None) if phase == "verification" else None

    delivery = Delivery(then(act, verify))
    at = delivery.calls.index("verification/-/1/1")
    assert delivery.calls[at : at + 4] == [
        "verification/-/1/1",
        "verification/-/1/2",
        "implementation/unit-003/2/1",
        "verification/-/2/1",
    ]
    assert isinstance(delivery.events[-1], FeatureDelivered)


def test_a_regression_goes_to_verification_which_names_the_unit() -> None:
    act = then(without_auth, once("implementation/unit-001", {"pager/limit.py": "breaks regression"}))
    replies = iter([None, block("verification", "code", "units: [unit-001]")])
    delivery = Delivery(then(act, lambda phase, *_: next(replies, None) if phase == "verification" else None))
    at = delivery.calls.index("security/-/1/1")
    assert delivery.blocks[0].startswith("integration ")
    assert delivery.calls[at + 1 : at + 4] == [
        "verification/-/2/1",
        "implementation/unit-001/2/1",
        "verification/-/3/1",
    ]
    assert isinstance(delivery.events[-1], FeatureDelivered)


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"pager/report.py": "URL = 'https://rates.example.org'"}, "undeclared_host"),
        ({"pager/report.py": "waits", "schema_of_users.sql": "email text"}, "pii_schema"),
    ],
)
def test_other_reasons_to_ask_a_person(files: Written, code: str) -> None:
    plan: Written = {
        "tasks/b/planning/work-breakdown.yaml": SAMPLES["work"].replace(
            "tests/test_report.py]", "tests/test_report.py, schema_of_users.sql]"
        )
    }
    delivery = Delivery(then(once("planning", plan), once("implementation/unit-003", files)))
    question = delivery.events[-1]
    assert isinstance(question, HumanRequested)
    assert question.codes == ("touches_auth", code), "one question about all"
    assert question.detail is not None
    text = delivery.world.blobs.get(question.detail).decode()
    rules = [line.rpartition("[")[2] for line in text.splitlines()]
    assert list(dict.fromkeys(rules)) == ["touches_auth]", f"{code}]"]
    assert describe(question) == f"security: question to a person, approval (touches_auth, {code})"
    driving.answer(delivery.world, "b")
    delivery.go_on()
    assert isinstance(delivery.events[-1], FeatureDelivered)
    assert f"touches_auth, {code}: approve by a person" in delivery.prompts["integration/-/1/1"], "the approvals"


def test_a_person_looks_at_a_system_that_is_called_for_the_first_time() -> None:
    services: Written = {
        "tasks/b/architecture/external-dependencies.yaml": SAMPLES["services"].replace("id: pager", "id: ledger")
    }
    delivery = Delivery(then(without_auth, once("architecture", services)))
    assert (delivery.question, delivery.calls[-1]) == ("new_service", "security/-/1/1")


@pytest.mark.parametrize("severity", ["CRITICAL", "BLOCKER"])
def test_a_person_looks_at_a_severe_finding_before_it_goes_back(severity: str) -> None:
    act = once("security", block("security", "code", f"units: [unit-001]\nseverity: {severity}"))
    delivery = Delivery(then(without_auth, act))
    assert delivery.question == "block.severity"
    driving.answer(delivery.world, "b")
    delivery.go_on()
    assert delivery.calls[-5:-2] == ["implementation/unit-001/2/1", "verification/-/2/1", "security/-/2/1"]
    assert [event.units for event in delivery.events if isinstance(event, RolledBack)] == [("unit-001",)]
    assert isinstance(delivery.events[-1], FeatureDelivered)


def test_what_a_person_rejects_is_built_again() -> None:
    delivery = Delivery()
    driving.answer(delivery.world, "b", Verdict.REJECT, "No login of our own.")
    delivery.go_on()
    assert delivery.calls[8:11] == [f"implementation/{unit}/2/1" for unit in UNITS]
    assert "No login of our own." in delivery.prompts["implementation/unit-001/2/1"]


def test_the_third_block_on_the_same_issue_is_a_question() -> None:
    def always(phase: str, unit: str, prompt: str) -> Written | None:
        return block(phase, "code", "units: [unit-003]") if phase == "verification" else None

    delivery = Delivery(then(without_auth, always))
    assert delivery.blocks == ["verification code raised.code"] * 3
    assert delivery.question == "code.raised.code"
    assert delivery.tiers["implementation/unit-003/3/1"] == "premium rolled_back"


def test_uncertainty_about_security_is_looked_at_by_a_better_tier() -> None:
    doubt = SAMPLES["owasp"].replace('"status": "PASS", "notes": "one', '"status": "REVIEW", "notes": "one')
    doubt = doubt.replace('"status": "PASS",\n  "checked', '"status": "REVIEW",\n  "checked')
    delivery = Delivery(then(without_auth, once("security", {"tasks/b/security/owasp-checklist.json": doubt})))
    assert delivery.tiers["security/-/1/2"] == "premium owasp.status"
    assert isinstance(delivery.events[-1], FeatureDelivered)


def test_a_sensitive_request_gets_a_better_tier() -> None:
    assert Delivery(without_auth, b"Show what a patient owes.").tiers["requirements/-/1/1"] == "mid sensitive_domain"


def test_a_retrospective_that_fails_is_left_out() -> None:
    wrong: Written = {"tasks/b/retrospective/lessons.yaml": "none"}
    delivery = Delivery(then(without_auth, lambda phase, *_: wrong if phase == "retrospective" else None))
    assert [event.phase for event in delivery.events if isinstance(event, PhaseSkipped)] == ["retrospective"]
    assert isinstance(delivery.events[-1], FeatureDelivered)


def test_without_commands_the_phases_are_the_same() -> None:
    delivery = Delivery(without_auth, pinned=pins(""))
    assert delivery.calls[3:6] == BUILT
    assert isinstance(delivery.events[-1], FeatureDelivered)


@pytest.mark.parametrize(
    "path",
    ["auth.py", "src/auth/x.py", "oauth2.py", "x/authorise.go", "session_store.ts", "login.html", "user_passwords.sql"],
)
def test_what_touches_auth(path: str) -> None:
    assert _touches_auth(path)


@pytest.mark.parametrize("path", ["authors.md", "src/coauthor.py", "report.py", "authority.md"])
def test_what_does_not(path: str) -> None:
    assert not _touches_auth(path)


def _touches_auth(path: str) -> bool:
    check = agentswe().checks["touches_auth"]
    assert isinstance(check, PathsCheck)
    return matches(check.patterns, path)


def test_a_feature_that_went_well_and_one_that_was_sent_back_have_their_rewards() -> None:
    def scores(act: Act) -> tuple[int | None, dict[str, int | None]]:
        events = Delivery(act).world.store.read(feature_stream(trial.RUN, FeatureId("b")))
        facts = fold_facts(events)
        assert facts is not None
        reward = reward_of(facts, built_in_rewards()["agentswe"])
        return reward.composite, {score.name: score.score for score in reward.dimensions}

    best: dict[str, int | None] = dict.fromkeys(built_in_rewards()["agentswe"].dimensions, 1)
    best |= {"correctness": 0, "maintainability": None}  # The commands of this world count no tests.
    assert scores(without_auth) == (1, best)
    more = "units: [unit-002]\nseverity: MAJOR"
    sent_back = once("verification", block("verification", "code", more))
    assert scores(then(without_auth, sent_back)) == (1, best | {"verification_cleanliness": 0})
    outside = once("implementation/unit-001", {"other.py": "x"})
    assert scores(then(without_auth, outside)) == (1, best | {"phase_discipline": 0})
