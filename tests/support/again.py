"""A recorded project with an agent of its own, whose calls are counted, so that it can be recorded again."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace
from mz_recordings.cassette.files import load, save
from mz_recordings.cassette.model import Cassette
from mz_recordings.rerecord.driver import CallProgress, RunControl
from mz_recordings.rerecord.plan import CallSelection
from mz_recordings.rerecord.rerecord import RerecordJob, RerecordPlan, RerecordResult, prepare_rerecord, run_rerecord
from mz_recordings.rerecord.workspace import lock_workspace

from tests.support.tree import AGENT_STATE
from tests.support.workshop import AGENT, SCRIPT, TODAY, Copy

KEY = "fake-key-of-the-tests"


class Again:
    """The project `copy`, and in `place` an agent that does what `script` says today."""

    def __init__(self, copy: Copy, folder: Path) -> None:
        self.copy, self.folder = copy, folder
        own = folder / "home" / AGENT_STATE
        for path in (folder / "bin", own):
            path.mkdir(parents=True)
        self.script, self.log, self.program = own / "script.json", own / "calls", folder / "bin" / "claude"
        self.log.touch()
        self.program.write_text(AGENT.format(python=sys.executable, script=str(self.script)))
        self.program.chmod(0o755)
        self.says(SCRIPT)
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "ANTHROPIC_API_KEY": KEY,
            "LANG": "C.UTF-8",
            "CI": "",
        }
        self.progress: list[CallProgress] = []

    def says(self, trace: Mapping[str, Mapping[str, object]]) -> None:
        """What the agent does from now on, call by call; each call is written down before."""
        counted = {
            name: {**act, "run": f"echo {name} >> {self.log}; {act.get('run', 'true')}"} for name, act in trace.items()
        }
        self.script.write_text(json.dumps(counted))

    def single(self) -> None:
        """Alpha without beta, which builds on it: half the time."""
        full = self.copy.cassette()
        world = full.manifest.fixture
        only = replace(
            full.manifest,
            traces={"alpha": full.manifest.traces["alpha"]},
            fixture=replace(
                world,
                items=tuple(item for item in world.items if item.feature == "alpha"),
                decisions=tuple(
                    recorded_decision for recorded_decision in world.decisions if recorded_decision.feature == "alpha"
                ),
            ),
        )
        recorded = tuple(call for call in full.calls if call.recording.identity.feature == "alpha")
        self.keep(Cassette(only, recorded, {"alpha": full.traces["alpha"]}, full.bundle))

    def calls(self) -> list[str]:
        """What the real agent was asked, in order."""
        return self.log.read_text().split()

    def order(self, call_selection: CallSelection, **more: object) -> RerecordJob:
        fields: dict[str, object] = {
            "path": str(self.copy.folder), "project": str(self.copy.root), "environment": self.environment,
            "now": TODAY, "selection": call_selection, **more,
        }  # fmt: skip
        return RerecordJob(**fields)  # type: ignore[arg-type]

    def prepared(self, call_selection: CallSelection, **more: object) -> RerecordPlan:
        order = self.order(call_selection, **more)
        with lock_workspace(self.copy.root, self.copy.folder) as workspace:
            return prepare_rerecord(order, workspace)

    def record(
        self, call_selection: CallSelection, budget_nanousd: int | None = None, **more: object
    ) -> tuple[RerecordPlan, RerecordResult]:
        """An attempt; what it has paid stays where it is."""
        order = self.order(call_selection, **more)
        with lock_workspace(self.copy.root, self.copy.folder) as workspace:
            prepared = prepare_rerecord(order, workspace)
            outcome = run_rerecord(order, prepared, workspace, RunControl(budget_nanousd, self.progress.append))
        return prepared, outcome

    def keep(self, cassette: Cassette | None) -> Cassette:
        """Puts it into the library, and reads it from there."""
        assert cassette is not None
        save(cassette, self.copy.folder, replace=True)
        return load(self.copy.folder)


def requests(prepared: RerecordPlan) -> dict[str, str]:
    """By call: why it is asked, or what it follows."""
    return {
        repeated_call.identity.path: ",".join(repeated_call.reasons) or f"({repeated_call.follows})"
        for repeated_call in prepared.calls
    }
