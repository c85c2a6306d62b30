"""`mz cost --sessions`: prompts by estimate, and what two runs of the same features used."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from mz_cli.cost.sessions import SessionsReport
from mz_events.catalog.call import AgentRequested, CallRef, SessionDropped, SessionDropReason
from mz_events.names import Commit

from tests.cli.drive import Mz
from tests.cli.stored_run import RUN, TREE, StoredRun

NEWER = "20260302-080000-ffff"


class InSessions(StoredRun):
    """Every second call goes on in the session of the one before."""

    requested = 0

    def ask(self, feature: str, ref: CallRef, tree: Commit = TREE, routed_to: str = "") -> None:
        self.requested += 1
        goes_on = self.requested % 2 == 0
        if self.requested == 3:
            self.to_feature(feature, SessionDropped(key=ref.key, session="s1", reason=SessionDropReason.ROLLBACK))
        self.to_feature(
            feature,
            AgentRequested(
                ref=ref, agent="claude-code", model="claude-sonnet-4-5", prompt=self.blob("Do it, please."),
                template=f"{ref.phase}.md.j2", full_prompt=not goes_on, session="s1", resumes=goes_on, tree=tree,
                estimated_tokens=3000, estimated_nanousd=25_000_000, keeps_session=True,
                prompt_tokens=400 if goes_on else None, full_prompt_tokens=1000 if goes_on else None,
            ),
        )  # fmt: skip


@pytest.fixture
def two_runs(stored_run: StoredRun) -> Path:
    stored_run.close()
    newer = InSessions(stored_run.home, run=NEWER)
    newer.begin("login")
    newer.deliver("login")
    newer.close()
    return stored_run.home


def report(mz: Mz, *args: str) -> SessionsReport:
    answer = mz("cost", *args, "--sessions", "--json")
    assert (answer.exit, answer.err) == (0, "")
    return msgspec.convert({**msgspec.json.decode(answer.out)}, SessionsReport, strict=False)


def test_prompts_are_compared_with_themselves_in_full(two_runs: Path, mz: Mz) -> None:
    sessions = report(mz)
    assert (sessions.run, sessions.baseline, sessions.measured) == (NEWER, None, ())
    total = sessions.total
    assert total.continued_calls > 0
    assert total.sessions + total.continued_calls == total.calls
    assert (total.sent_tokens, total.full_prompt_tokens) == (400 * total.continued_calls, 1000 * total.continued_calls)
    assert total.saved == 0.6
    assert total.dropped == {"rollback": 1}
    assert "not measured" in " ".join(sessions.notes)


def test_two_runs_are_measured_over_what_both_delivered(two_runs: Path, mz: Mz) -> None:
    sessions = report(mz, NEWER, "--baseline", RUN)
    assert sessions.baseline == RUN
    assert sessions.compared == ("login",)
    figures = {session_figure.figure: session_figure for session_figure in sessions.measured}
    assert set(figures) == {"input", "new-input", "cache-reads", "output", "usd", "calls"}
    assert figures["input"].baseline == figures["input"].run
    assert figures["input"].saved == 0


def test_runs_without_a_common_feature_measure_nothing(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.close()
    other = InSessions(stored_run.home, run=NEWER)
    other.begin("search")
    other.close()
    sessions = report(mz, NEWER, "--baseline", RUN)
    assert (sessions.compared, sessions.measured, sessions.features) == ((), (), ())
    assert "nothing can be measured" in " ".join(sessions.notes)


def test_in_words(two_runs: Path, mz: Mz) -> None:
    answer = mz("cost", "--sessions", "--baseline", RUN)
    assert answer.exit == 0
    assert "60.0%" in answer.out
    assert "rollback 1" in answer.out
    assert "estimates" in answer.err


@pytest.mark.parametrize(
    "args", [("--all",), ("--gate", "+5%", "--baseline", RUN), (RUN, "--baseline", RUN)], ids=["all", "gate", "itself"]
)
def test_what_makes_no_sense_is_refused(stored_run: StoredRun, args: tuple[str, ...], mz: Mz) -> None:
    stored_run.close()
    assert mz("cost", "--sessions", *args).exit == 2
