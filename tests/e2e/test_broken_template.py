"""A template that fails with the data of a call: no bug, the run halts with what helps, and can be given up."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from mz_cli.common.run_text import fatal_exit
from mz_engine.errors.diagnostics import Exit
from mz_engine.ports import TEMPLATE_BROKEN
from mz_engine.run.process import RunProcess
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.inbox import CancelPosted
from mz_events.catalog.run import FeatureOutcome, Hold
from mz_events.names import FeatureId, feature_stream, inbox_stream
from mz_events.store import Append

from tests.cli.drive import MZ, spawn
from tests.support.workshop import WRITE, Workshop

pytestmark = pytest.mark.slow


def test_the_run_halts_and_can_be_given_up(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.repository.write({"pipelines/templates/write.md.j2": WRITE + "{{ unit.id }}\n"})
    workshop.repository.commit()
    with RunProcess(workshop.root, workshop.environment, lambda recorded: None) as session:
        session.start({}, ())
        state = session.drive()
        assert state.started is not None
        run, rested = state.started.run, state.tracks["alpha"].last_stop
        assert rested is not None
        assert (rested.status, rested.hold, rested.code) == (FeatureOutcome.HELD, Hold.FATAL, TEMPLATE_BROKEN)
        assert state.halt is not None
        (held,) = [
            item.event
            for item in session.store.read(feature_stream(run, "alpha"))
            if isinstance(item.event, FeatureHeld)
        ]
        assert (held.template, held.line) == ("write.md.j2", WRITE.count("\n") + 1)
        assert held.detail is not None
        assert session.blobs.get(held.detail) == b"'None' has no attribute 'id'"
        session.resume(run)
        assert session.drive().halt is not None, "its template is pinned"
        for feature in ("alpha", "beta"):
            left = CancelPosted(feature=FeatureId(feature), note=None, actor=session.blobs.put(b"Ada"))
            session.store.append([Append(inbox_stream(run), None, (left,))], session.clock.now_us())
        session.resume(run)
        assert session.drive().finished
    assert fatal_exit(TEMPLATE_BROKEN) is Exit.INVALID
    again = spawn(workshop.root, "replay", "--run", run, **workshop.environment)
    assert (again.exit, again.out.endswith(": matches the log\n")) == (0, True), again


def test_the_way_out_can_be_pasted(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.repository.write({"pipelines/templates/write.md.j2": WRITE + "{{ unit.id }}\n"})
    workshop.repository.commit()
    program = tmp_path / "bin" / "mz"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(MZ)} "$@"\n')
    program.chmod(0o755)
    halted = spawn(workshop.root, "run", "--feature", "alpha", **workshop.environment)
    assert halted.exit == Exit.INVALID, halted
    match = re.search(r"so replace the run: (mz cancel .+), then: mz run", " ".join(halted.out.split()))
    assert match is not None, halted
    assert match[1].endswith(" && git branch -D feat/alpha")
    workshop.repository.write({"pipelines/templates/write.md.j2": WRITE})
    workshop.repository.commit()
    pasted = subprocess.run(
        ["sh", "-ec", match[1]], cwd=workshop.root, env={**os.environ, **workshop.environment}, check=False,
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert pasted.returncode == 0, pasted
    again = spawn(workshop.root, "run", "--feature", "alpha", **workshop.environment)
    assert (again.exit, "conflict" in again.out + again.err) == (Exit.WAITING, False), again
