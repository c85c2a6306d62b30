"""A gate whose command failed on the base passes if no other tests fail; a person can add to what is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.effects.commands import Counts, objection
from mz_engine.model.config import Gates
from mz_engine.model.pins import Pins
from mz_engine.ports import CommandResult
from mz_engine.run.base import SEVERAL_CHECKS, base_warnings, drive_base_test
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.delivery import PullRequestRequested
from mz_events.catalog.feature import Blocked, FeatureDelivered, FeatureStarted, HumanRequested
from mz_events.catalog.run import BaseTested, Verdict
from mz_events.catalog.validation import CommandRan, GateChecked
from mz_events.names import FeatureId, feature_stream, run_stream
from mz_events.store import Append
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, SimulatedPorts, World

from tests.support import driving
from tests.support.asking import must_pass

OLD, NEW = "tests/test_a.py::test_old[x - y]", "tests/test_a.py::test_new"
Outputs = Callable[[str, Files], tuple[int, str]]


def pytest_output(*failed: str) -> tuple[int, str]:
    lines = [f"FAILED {name} - AssertionError: no" for name in failed]
    text = "\n".join(["== short test summary info ==", *lines, f"{len(failed)} failed, 3 passed in 0.1s"])
    return 1 if failed else 0, f"something was printed\n{text}\n"


def world_after(
    outputs: Outputs, pins: Pins, failures: dict[str, list[str]], results: Mapping[str, object] | None = None
) -> World:
    """A run of the feature `b` on a base on which these tests failed, and commands had these results."""
    world = World({"README.md": "a project"}, trial.script, outputs)
    trial.begin(world, pins, {"b": ()})
    digest = world.blobs.put(msgspec.json.encode(failures))
    counts = None if results is None else world.blobs.put(msgspec.json.encode(results))
    tested = BaseTested(red=tuple(failures), known_failures=digest, results=counts)
    world.store.append([Append(run_stream(trial.RUN), None, (tested,))], world.now_us)
    drive_run(world, trial.RUN, pins, seed=1)
    return world


def events(world: World) -> list[Event]:
    return [recorded.event for recorded in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]


def of(world: World, kind: type[Event]) -> Iterator[Event]:
    return (event for event in events(world) if isinstance(event, kind))


def gates_of(world: World) -> list[bool]:
    return [event.passed for event in events(world) if isinstance(event, GateChecked) and event.gate == "check"]


def test_what_failed_on_the_base_passes() -> None:
    world = world_after(lambda command, files: pytest_output(OLD), must_pass(), {"check": [OLD], "final": [OLD]})
    assert gates_of(world) == [True] * 3
    assert {event.new_failures for event in events(world) if isinstance(event, CommandRan)} == {0}
    assert not list(of(world, Blocked)), "a preparation that must pass does, too"
    assert list(of(world, FeatureDelivered))
    (request,) = of(world, PullRequestRequested)
    assert isinstance(request, PullRequestRequested)
    body = world.blobs.get(request.body).decode()
    assert "- `check`: 1 failed tests, which fail without this change too; no others fail." in body


def test_what_did_not_fail_there_is_refused_and_named_alone() -> None:
    world = world_after(lambda command, files: pytest_output(OLD, NEW), trial.pins(), {"check": [OLD]})
    first = next(event for event in events(world) if isinstance(event, GateChecked))
    assert first.passed is False
    assert first.report is not None
    (message,) = json.loads(world.blobs.get(first.report))
    assert f"- {NEW}\n" in message
    assert OLD not in message


def test_the_same_name_twice_is_a_new_failure() -> None:
    world = world_after(lambda command, files: pytest_output(OLD, OLD), trial.pins(), {"check": [OLD]})
    assert gates_of(world)[0] is False


def test_a_strict_baseline_knows_nothing() -> None:
    pins = trial.pins()
    pins = replace(pins, config=replace(pins.config, gates=Gates(baseline="strict")))
    world = world_after(lambda command, files: pytest_output(OLD), pins, {"check": [OLD]})
    (started,) = of(world, FeatureStarted)
    assert isinstance(started, FeatureStarted)
    assert started.known_failures is None
    assert gates_of(world)[0] is False


@pytest.mark.parametrize(("passed", "is_excused"), [(3, True), (4, False), (2, True)])
def test_known_failures_excuse_nothing_if_fewer_tests_pass_than_on_the_base(passed: int, is_excused: bool) -> None:
    """The run may have ended at the first failure, or left out what fails now; three tests pass in it."""
    counts = {"check": (1, passed, 1), "final": (1, passed, 1)}
    failing = {"check": [OLD], "final": [OLD]}
    world = world_after(lambda command, files: pytest_output(OLD), trial.pins(), failing, counts)
    assert gates_of(world)[0] is is_excused
    if not is_excused:
        first = next(event for event in events(world) if isinstance(event, GateChecked) and event.report)
        assert first.report is not None
        message = world.blobs.get(first.report).decode()
        assert "3 tests passed, and 4 on the base, so failures from there excuse nothing" in message


@pytest.mark.parametrize(
    ("output", "report", "is_excused"),
    [
        ("", (4, 1), True),
        ("", (3, 1), False),
        (pytest_output(OLD)[1], (4, 1), True),
        (pytest_output(OLD)[1].replace("3 passed", "4 passed"), (1, 1), True),
    ],
)
def test_a_report_counts_tests_if_it_has_at_least_those_of_the_output(
    output: str, report: tuple[int, int], is_excused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four tests passed on the base, and one failed."""
    passes = tuple(map(str, range(report[0])))
    result = CommandResult(
        exit=1, output=output.encode(), duration_ms=1, passed_tests=passes, failed_tests=(OLD,) * report[1]
    )
    monkeypatch.setattr(SimulatedPorts, "run", lambda *_: result)
    counts, failing = dict.fromkeys(("check", "final"), (1, 4, 1)), {"check": [OLD], "final": [OLD]}
    world = world_after(lambda command, files: (1, ""), trial.pins(), failing, counts)
    assert gates_of(world)[0] is is_excused
    ran = next(event for event in events(world) if isinstance(event, CommandRan))
    assert (ran.passed, ran.failed) == (4 if is_excused else 3, 1)


@pytest.mark.parametrize(
    ("command", "has_several"),
    [
        ("pytest -q", False),
        ("cd backend && pytest -q", False),
        ("cargo test --no-fail-fast", False),
        ("make -k test", True),
        ("cd backend && pytest && mypy .", True),
        ("pytest\nmypy .; true", True),
    ],
)
def test_a_warning_tells_that_known_failures_may_hide_other_checks(command: str, has_several: bool) -> None:
    assert bool(SEVERAL_CHECKS.search(command)) is has_several


FRONT, FIVE = "ui::old", tuple("abcde")
BASE = Counts(1, 5, 1, printed=(3,))


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        (BASE, BASE, ""),
        (BASE, BASE._replace(printed=(4, 2)), ""),
        (BASE, BASE._replace(printed=(2,)), "fewer tests passed in one"),
        (BASE, BASE._replace(passed=4), "4 tests passed, and 5 on the base"),
        (BASE._replace(printed=(1, 3)), BASE._replace(printed=(7,)), "fewer tests passed in one"),
        (BASE, BASE._replace(exit=2), "it ended with exit 1 on the base"),
        (BASE._replace(exit=2), BASE, "it ended with exit 2 on the base"),
        (BASE._replace(exit=2, failed=2), BASE, ""),
        (BASE._replace(exit=0), BASE, ""),
        (Counts(), BASE, ""),
    ],
)
def test_known_failures_excuse_what_ended_as_on_the_base(before: Counts, now: Counts, reason: str) -> None:
    assert objection(before, now).startswith(reason)
    assert bool(objection(before, now)) is bool(reason)


def report_of(*passed: str, failed: tuple[str, ...] = (OLD,)) -> CommandResult:
    return CommandResult(exit=int(bool(failed)), output=b"", duration_ms=1, passed_tests=passed, failed_tests=failed)


@pytest.mark.parametrize(
    ("now", "missing", "passes"),
    [
        (report_of("a", "b", "c[0xabcdef]"), [], True),
        (report_of("a", "b", "b", "c[0x123456]", "d"), [], True),
        (report_of("a", "new", "c[0xabcdef]"), ["b"], False),
        (report_of("a", "c[0xabcdef]"), ["b"], False),
        (report_of("a", "new", "c[0xabcdef]", failed=()), ["b"], True),
        (report_of("a", "c[0xabcdef]", failed=(OLD, "b")), [], False),
        (
            CommandResult(exit=1, output=pytest_output(OLD)[1].encode(), duration_ms=1),
            ["a", "b", "c[<address>]"],
            False,
        ),
    ],
)
def test_tests_that_passed_on_the_base_are_missed_by_their_ids(
    now: CommandResult, missing: list[str], passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one in place of a deleted or skipped one keeps the number. As gates excuse known failures, so they do
    with all ids; a command that succeeds needs no excuse."""
    monkeypatch.setattr(SimulatedPorts, "run", lambda *_: now)
    counts = dict.fromkeys(("check", "final"), Counts(1, 3, 1, passes=("a", "b", "c[0xabcdef]")))
    world = world_after(lambda command, files: (1, ""), trial.pins(), {"check": [OLD], "final": [OLD]}, counts)
    ran = next(event for event in events(world) if isinstance(event, CommandRan))
    assert ([] if ran.missing is None else json.loads(world.blobs.get(ran.missing))) == missing
    first = next(event for event in events(world) if isinstance(event, GateChecked))
    assert first.passed is passes
    requests = list(of(world, PullRequestRequested))
    assert len(requests) == passes
    for request in requests:
        assert isinstance(request, PullRequestRequested)
        body = world.blobs.get(request.body).decode()
        assert ("tests that passed on the base are missing: `b`" in body) is bool(missing)
    if missing and first.report is not None:
        text = f"tests that passed on the base are missing: {', '.join(missing)}, so failures from there excuse nothing"
        assert text in world.blobs.get(first.report).decode()


@pytest.mark.parametrize(
    ("output", "failures"),
    [
        ("3 passed in 0.1s", [FRONT]),
        (pytest_output(NEW)[1], [FRONT, NEW]),
        (pytest_output("tests/ui.py::old")[1], [FRONT]),
        ("1 failed, 2 passed in 0.1s", [FRONT]),
        ("2 failed, 1 passed in 0.1s", None),
        (pytest_output(OLD, NEW)[1], [FRONT, NEW, OLD]),
    ],
)
def test_what_a_report_does_not_name_has_failed_too(
    output: str, failures: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command of two runners: one writes a report, the other prints."""
    result = CommandResult(exit=1, output=output.encode(), duration_ms=1, passed_tests=FIVE, failed_tests=(FRONT,))
    monkeypatch.setattr(SimulatedPorts, "run", lambda *_: result)
    world = world_after(lambda command, files: (1, ""), trial.pins(), {"check": [FRONT]})
    ran = next(event for event in events(world) if isinstance(event, CommandRan))
    assert (None if ran.failures is None else json.loads(world.blobs.get(ran.failures))) == failures


@pytest.mark.parametrize("output", ["", "Ran 0 tests in 0.1s\n\nOK\n"])
def test_a_command_whose_tests_are_gone_proves_nothing(output: str) -> None:
    counts = {"check": (0, 7, 0), "final": (0, None, None)}
    world = world_after(lambda command, files: (0, output), trial.pins(), {}, counts)
    first = next(event for event in events(world) if isinstance(event, GateChecked))
    assert (first.gate, first.passed) == ("check", False)
    assert first.report is not None
    assert "no test ran, although 7 passed on the base" in world.blobs.get(first.report).decode()
    kept = world_after(lambda command, files: (0, "Ran 1 test in 0.1s\n\nOK\n"), trial.pins(), {}, counts)
    assert list(of(kept, FeatureDelivered))


CARGO = "test a ... FAILED\ntest result: FAILED. 1 passed; 1 failed\nerror: test failed, to rerun pass `--lib`\n"
NEXTEST = "Summary [ 0.1s] 2{} tests run: 1 passed, 1 failed, 0 skipped\n  FAIL [ 0.0s] a old\n"
MAVEN = (
    "[ERROR] shop.DateTest.old -- Time elapsed: 0.01 s <<< FAILURE!\n"
    "[ERROR] Tests run: 2, Failures: 1, Errors: 0, Skipped: 0\n"
    "[INFO] Reactor Summary for shop 1.0:\n[INFO] \n[INFO] dates ........................ FAILURE [  1.203 s]\n"
    "[INFO] orders ....................... {}\n"
)
PYTEST = f"{pytest_output(OLD)[1]}!!!!!!! {{}}stopping after 1 failures !!!!!!!\n"


@pytest.mark.parametrize(
    ("output", "remedy"),
    [
        (CARGO, "add `--no-fail-fast`"),
        (f"{CARGO}test result: ok. 1 passed; 0 failed\nerror: 1 target failed:\n    `--lib`\n", ""),
        (NEXTEST.format("/9"), "add `--no-fail-fast`"),
        (NEXTEST.format(""), ""),
        (PYTEST.format(""), "leave out `-x` and `--maxfail`"),
        (PYTEST.format("xdist.dsession.Interrupted: "), "leave out `-x` and `--maxfail`"),
        (MAVEN.format("SKIPPED"), "test each module by a command of its own, `-pl MODULE -am`"),
        (MAVEN.format("SUCCESS [  0.420 s]"), ""),
        (pytest_output(OLD)[1], ""),
    ],
)
def test_a_command_that_leaves_tests_out_names_no_known_failures(output: str, remedy: str) -> None:
    """What it left out on the base may fail, or be there only since the work."""
    world, ran_events, pins = World({}, trial.script, lambda command, files: (1, output)), list[Event](), trial.pins()
    drive_base_test(trial.RUN, world.base, pins, SimulatedPorts(world), ran_events.extend, lambda: False)
    tested = ran_events[-1]
    assert isinstance(tested, BaseTested)
    assert (tested.known_failures is None) is bool(remedy)
    warnings = [warning.hint for warning in base_warnings(ran_events, world.blobs, pins)]
    assert all((f"runs not all tests after a failed one ({remedy})" in hint) is bool(remedy) for hint in warnings)


def test_a_command_that_was_killed_has_not_run_all_tests() -> None:
    def outputs(command: str, files: Files) -> tuple[int, str]:
        return -9, pytest_output(OLD)[1]

    assert gates_of(world_after(outputs, trial.pins(), {"check": [OLD]}))[0] is False


def test_what_a_person_accepts_is_known_from_there_on() -> None:
    """`check` prints no tests: the same output passes in the next unit, another one does not."""
    world = world_after(
        lambda command, files: (1, "line too long") if command == "check" else (0, ""), trial.pins(), {}
    )
    assert list(of(world, HumanRequested))
    calls = len(list(of(world, AgentRequested)))
    driving.answer(world, "b", Verdict.ACCEPT, "the linter is wrong")
    drive_run(world, trial.RUN, trial.pins(), seed=1)
    assert gates_of(world)[-2:] == [True, True], "those of the other units"
    later = [event for event in list(of(world, AgentRequested))[calls:] if isinstance(event, AgentRequested)]
    assert all(event.ref.attempt == 1 or event.ref.role == "reviewer" for event in later)
    (request,) = of(world, PullRequestRequested)
    assert isinstance(request, PullRequestRequested)
    assert "`check` failed and was accepted as it is by" in world.blobs.get(request.body).decode()
