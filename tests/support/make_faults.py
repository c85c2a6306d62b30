"""Makes the recorded faults that come with `mz` again: `python -m tests.support.make_faults [NAME...]`.

Each is a real run of the smallest project, in a fresh repository, whose agent goes wrong in the first call as the
fault says and does well in the next one. It is recorded with the provenance `documented`: the streams are written
after documentation. Takes about a minute: limits and waits are real here.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace
from mz_engine.run.process import RunProcess
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import AnswerPosted
from mz_events.catalog.run import FeatureOutcome, Verdict
from mz_events.names import FeatureId, inbox_stream
from mz_events.store import Append, Recorded
from mz_projections.run.fold import RunState
from mz_recordings.cassette.files import save
from mz_recordings.cassette.model import Cassette, RecordedCall
from mz_recordings.faults.faults import FAULTS, Fault
from mz_recordings.record.recorder import RecordSources, record_run
from mz_recordings.replay.replay import bundled_library

from tests.cli.drive import MZ
from tests.support.gitrepo import GitRepo

FEATURE = "note"
GOOD = "# The shed\n\nA spade, a rake and a bicycle.\n"
BAD = "todo\n"
DECISION = "Take lines of prose."
SECONDS = 60
AGENT = """#!{python} -IS
import os, pathlib, sys, time
if "--version" in sys.argv:
    print("2.1.197 (Claude Code)")
    sys.exit(0)
sys.stdin.read()
place = pathlib.Path({place!r})
first = os.environ["MZ_KEY"].split("/")[5] == "1"
session = sys.argv[sys.argv.index("--session-id") + 1]
told = (place / ("fault" if first else "good")).read_bytes()
note = (place / ("bad.md" if first else "good.md"))
if note.is_file():
    pathlib.Path("notes").mkdir(exist_ok=True)
    pathlib.Path("notes/{feature}.md").write_bytes(note.read_bytes())
sys.stdout.buffer.write(told.replace(b"<SESSION>", session.encode()).replace(b"<WORKTREE>", os.getcwd().encode()))
sys.stdout.flush()
if first and {hangs}:
    (place / "hangs").touch()
    for _ in range(60):
        time.sleep(1)
        if {at_work}:
            os.write(1, b"\\n")
if first and {code} < 0:
    os.kill(os.getpid(), -{code})
sys.exit({code} if first else 0)
"""


def make(fault: Fault, folder: Path) -> Cassette:
    """Runs and records the fault in `place`, which is empty."""
    root, home, bin_ = folder / "project", folder / "home", folder / "bin"
    shutil.copytree(bundled_library() / "faults" / "project", root)
    repository = GitRepo(root)
    repository.commit()
    home.mkdir()
    bin_.mkdir()
    (folder / "fault").write_text(fault.stdout)
    (folder / "good").write_text(FAULTS["malformed-artifact"].stdout)  # Nothing in it is wrong.
    (folder / "good.md").write_text(GOOD)
    if fault.name == "malformed-artifact":
        (folder / "bad.md").write_text(BAD)
    program = bin_ / "claude"
    text = AGENT.format(
        python=sys.executable, folder=str(folder), feature=FEATURE, hangs=bool(fault.hangs_until or fault.is_lost),
        at_work=fault.hangs_until == "timeout",
        code=fault.exit or 0,
    )  # fmt: skip
    program.write_text(text)
    program.chmod(0o755)
    environment = {
        "PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(home), "ANTHROPIC_API_KEY": "none", "LANG": "C.UTF-8",
    }  # fmt: skip
    if fault.is_lost:
        _die(root, environment, folder / "hangs")
    run = _run(root, environment)
    with RunProcess(root, environment, unseen) as session:
        sources = RecordSources(root, environment, session.store, session.blobs)
        made = record_run(sources, run, name=fault.name, provenance="documented")
    assert made.unrecordable == ()
    return _hanging(made.cassette, fault)


def _die(root: Path, environment: dict[str, str], mark: Path) -> None:
    """`mz` is killed while the agent works."""
    process = subprocess.Popen([*MZ, "run"], cwd=root, env=environment)
    limit = time.monotonic() + SECONDS
    while not mark.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()


def _run(root: Path, environment: dict[str, str]) -> str:
    """To the end, with a person who decides once; returns the run's id."""
    with RunProcess(root, environment, unseen) as session:
        session.start({}, ())
        state = session.drive()
        assert state.started is not None
        run = state.started.run
        if _waits(state):
            note, who = session.blobs.put(DECISION.encode()), session.blobs.put(b"Ada")
            left = AnswerPosted(feature=FeatureId(FEATURE), verdict=Verdict.APPROVE, note=note, actor=who)
            session.store.append([Append(inbox_stream(run), None, (left,))], session.clock.now_us())
            session.resume(run)
            session.drive()
    return run


def _waits(state: RunState) -> bool:
    track = state.tracks[FEATURE]
    return track.last_stop is not None and track.last_stop.status is FeatureOutcome.WAITING


def unseen(recorded: Recorded[Event]) -> None:
    del recorded


def _hanging(cassette: Cassette, fault: Fault) -> Cassette:
    """What was ended by a limit hangs again in a replay, and is ended by it again."""
    if not fault.hangs_until:
        return cassette
    first, *others = cassette.calls
    assert first.recording.failure == fault.failure
    changed = replace(first.recording, outcome="replied")
    return cassette._replace(calls=(RecordedCall(changed, first.contents), *others))


def main(names: list[str]) -> None:
    for name in names or FAULTS:
        with tempfile.TemporaryDirectory(prefix="mz-fault-") as directory:
            made = make(FAULTS[name], Path(directory))
        save(made, bundled_library() / "faults" / name, replace=True)
        sys.stderr.write(f"{name}: {len(made.calls)} calls\n")
    (bundled_library() / "faults" / "README.md").write_text(page())


def page() -> str:
    """What lies there, and after which document each is made."""
    rows = [f"| `{fault.name}` | {fault.description} | {fault.outcome} | {fault.source} |" for fault in FAULTS.values()]
    return "\n".join(
        (
            "# Faults, as recordings",
            "",
            "Made by `python -m tests.support.make_faults` after what `mz_recordings/faults/faults.toml` says;",
            "provenance `documented`. `mz replay --bundled` plays them through the pipeline of `project/`.",
            "",
            "| fault | what the agent does | what the pipeline makes of it | form, and where it was seen |",
            "|---|---|---|---|",
            *rows,
            "",
        )
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
