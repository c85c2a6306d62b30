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
from mz_recordings.rerecord.driver import CallProgress, StopControl
from mz_recordings.rerecord.plan import CallSelection
from mz_recordings.rerecord.rerecord import RerecordJob, RerecordPlan, RerecordResult, prepare_rerecord, run_rerecord
from mz_recordings.rerecord.workspace import lock_workspace

from tests.support.workshop import AGENT, STORY, TODAY, Copy

KEY = "fake-key-of-the-tests"


class Again:
    """The project `copy`, and in `place` an agent that does what `script` says today."""

    def __init__(self, copy: Copy, place: Path) -> None:
        self.copy, self.place = copy, place
        for name in ("bin", "home"):
            (place / name).mkdir()
        self.script, self.log, self.program = place / "script.json", place / "calls", place / "bin" / "claude"
        self.log.touch()
        self.program.write_text(AGENT.format(python=sys.executable, script=str(self.script)))
        self.program.chmod(0o755)
        self.says(STORY)
        self.environment = {
            "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
            "HOME": str(place / "home"),
            "ANTHROPIC_API_KEY": KEY,
            "LANG": "C.UTF-8",
            "CI": "",
        }
        self.told: list[CallProgress] = []

    def says(self, story: Mapping[str, Mapping[str, object]]) -> None:
        """What the agent does from now on, call by call; each call is written down before."""
        counted = {
            name: {**act, "run": f"echo {name} >> {self.log}; {act.get('run', 'true')}"} for name, act in story.items()
        }
        self.script.write_text(json.dumps(counted))

    def alone(self) -> None:
        """Alpha without beta, which builds on it: half the time."""
        whole = self.copy.cassette()
        world = whole.manifest.fixture
        only = replace(
            whole.manifest,
            traces={"alpha": whole.manifest.traces["alpha"]},
            fixture=replace(
                world,
                items=tuple(item for item in world.items if item.feature == "alpha"),
                decisions=tuple(one for one in world.decisions if one.feature == "alpha"),
            ),
        )
        taken = tuple(one for one in whole.calls if one.recording.identity.feature == "alpha")
        self.keep(Cassette(only, taken, {"alpha": whole.traces["alpha"]}, whole.bundle))

    def calls(self) -> list[str]:
        """What the real agent was asked, in order."""
        return self.log.read_text().split()

    def order(self, wish: CallSelection, **more: object) -> RerecordJob:
        fields: dict[str, object] = {
            "path": str(self.copy.place), "project": str(self.copy.root), "environment": self.environment,
            "now": TODAY, "selection": wish, **more,
        }  # fmt: skip
        return RerecordJob(**fields)  # type: ignore[arg-type]

    def prepared(self, wish: CallSelection, **more: object) -> RerecordPlan:
        order = self.order(wish, **more)
        with lock_workspace(self.copy.root, self.copy.place) as place:
            return prepare_rerecord(order, place)

    def record(
        self, wish: CallSelection, budget_nanousd: int | None = None, **more: object
    ) -> tuple[RerecordPlan, RerecordResult]:
        """An attempt; what it has paid stays where it is."""
        order = self.order(wish, **more)
        with lock_workspace(self.copy.root, self.copy.place) as place:
            prepared = prepare_rerecord(order, place)
            outcome = run_rerecord(order, prepared, place, budget_nanousd, self.told.append, StopControl())
        return prepared, outcome

    def keep(self, cassette: Cassette | None) -> Cassette:
        """Puts it into the library, and reads it from there."""
        assert cassette is not None
        save(cassette, self.copy.place, replace=True)
        return load(self.copy.place)


def asked(prepared: RerecordPlan) -> dict[str, str]:
    """By call: why it is asked, or what it follows."""
    return {one.identity.path: ",".join(one.reasons) or f"({one.follows})" for one in prepared.calls}
