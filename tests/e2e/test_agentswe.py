"""The pipeline of eight phases, in the installed program: a described agent, real commands, a person, a replay."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.cli.drive import Result, fork
from tests.engine.test_agentswe import CODE, UNITS, block
from tests.support import preloaded, swe_figures
from tests.support.agentswe import JUDGEMENT, SAMPLES, agentswe, outputs_of
from tests.support.gitrepo import GitRepo
from tests.support.tree import AGENT_STATE, STATE_SETTINGS

pytestmark = pytest.mark.slow

SETTINGS = (
    """\
pipeline: agentswe
autonomy: full_auto
papers: log
agent: house
agents:
  house: {command: [house], version: [], ends: {exits: [0]}}
commands:
  lint: "! grep -rn TODO pager"
  test: "! grep -rn broken pager"
  integration: test -f pager/report.py && echo 3 passed in 0.1s
  regression: "! grep -rn broken pager tests"
"""
    + STATE_SETTINGS
)
BACKLOG = """\
# Backlog

## [FEAT] ratelimit: Keep to the limit of the pager service

Calls are refused when they come too fast.

## [FEAT] again: Keep to the limit of another service

Calls are refused there, too.
"""
HOUSE = """#!{python} -IS
import json, os, pathlib, sys
prompt = sys.stdin.read()
key = os.environ["MZ_KEY"]
_, feature, phase, unit, iteration, attempt, role = key.split("/")
with open({log!r}, "a") as file:
    files = sorted(str(path) for path in pathlib.Path(".").rglob("*") if path.is_file() and ".git" not in path.parts)
    file.write(json.dumps([key, files]) + chr(10))
with open({script!r}) as file:
    script = json.load(file)
if role == "agent.judge":
    print(script["judge"])
    sys.exit(0)
acts = script.get("/".join((phase, unit, iteration, attempt)), {{}})
for name, text in {{**script[f"{{phase}}/{{unit}}"], **acts}}.items():
    path = pathlib.Path(name.replace("tasks/ratelimit", "tasks/" + feature))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
print("Done.")
"""
ORDER = """\
requirements/-/1/1 architecture/-/1/1 requirements/-/2/1 architecture/-/2/1 planning/-/1/1 implementation/unit-001/1/1
implementation/unit-001/1/2 implementation/unit-002/1/1 implementation/unit-003/1/1 verification/-/1/1
implementation/unit-002/2/1 implementation/unit-003/2/1 verification/-/2/1 security/-/1/1 security/-/1/2
"""


class House:
    """The project, and the program that plays its agents and notes each call with the files that it finds."""

    def __init__(self, folder: Path) -> None:
        state = folder / "home" / AGENT_STATE
        self.repository, self.log = GitRepo(folder / "project"), state / "house.log"
        self.root = self.repository.root
        self.repository.commit({"mz.yaml": SETTINGS, "features.md": BACKLOG, "pager/client.py": "send = print\n"})
        state.mkdir(parents=True)
        (folder / "bin").mkdir()
        script = {f"{phase.phase}/-": outputs_of(phase.phase, "ratelimit") for phase in agentswe().phases}
        built = {
            f"implementation/{unit}": {**outputs_of("implementation", "ratelimit", unit), **CODE[unit]}
            for unit in UNITS
        }
        doubt = SAMPLES["owasp"].replace('"status": "PASS", "notes": "one', '"status": "REVIEW", "notes": "one')
        doubt = doubt.replace('"status": "PASS",\n  "checked', '"status": "REVIEW",\n  "checked')
        acts = {
            "architecture/-/1/1": blocked("architecture", "spec"),
            "implementation/unit-001/1/1": {"pager/limit.py": "broken"},
            "implementation/unit-002/1/1": {"pager/other.py": "nobody asked for this"},
            "verification/-/1/1": blocked("verification", "code", "units: [unit-002]"),
            "implementation/unit-002/2/1": {"pager/auth_client.py": "URL = 'https://pager.example.org/token'\n"},
            "security/-/1/1": {"tasks/ratelimit/security/owasp-checklist.json": doubt},
            "security/-/1/2": {"tasks/ratelimit/security/owasp-checklist.json": doubt},
        }
        (state / "script.json").write_text(json.dumps(script | built | acts | {"judge": JUDGEMENT}))
        program = folder / "bin" / "house"
        program.write_text(HOUSE.format(python=sys.executable, log=str(self.log), script=str(state / "script.json")))
        program.chmod(0o755)
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder / "home"), "NO_COLOR": "1",
            **preloaded.read_at_start(os.environ),
        }  # fmt: skip

    def mz(self, *arguments: str, code: int = 0) -> Result:
        done = fork(self.root, arguments, self.environment, 200)
        assert done.exit == code, f"mz {arguments} gave {done.exit}\n{done.out}\n{done.err}"
        return done

    @property
    def calls(self) -> dict[str, list[str]]:
        """By phase, unit, iteration and attempt, the files that the agent found."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        files = {key: [path for path in files if not path.startswith(".mz/")] for key, files in lines}
        return {"/".join(key.split("/")[2:6]): files[key] for key in files}


def blocked(phase: str, cause: str, more: str = "") -> dict[str, str | None]:
    return {path.replace("tasks/b/", "tasks/ratelimit/"): text for path, text in block(phase, cause, more).items()}


def check_figures(house: House, run: str) -> None:
    """Compare rewards and metrics with what the page's formulas give, computed apart from mz."""
    logs = (house.mz("log", *chosen, "--json").out for chosen in ((run,), ()))
    lines = [json.loads(line) for log in logs for line in log.splitlines()]
    streams = [
        [line for line in lines if line.get("stream", "").endswith(f"/{feature}")] for feature in ("ratelimit", "again")
    ]
    assert swe_figures.scores(streams[0]) == {
        "correctness": 1, "spec_fidelity": 1, "architectural_compliance": 1, "verification_cleanliness": 0,
        "phase_discipline": 0, "context_efficiency": 1, "rollback_stability": 1, "maintainability": None,
        "composite": 1,
    }  # fmt: skip
    for name, stream in zip((f"{run}/ratelimit", "again"), streams, strict=True):
        reward = json.loads(house.mz("show", name, "--artifact", "reward", "--json").out)
        measured = {item["name"]: item["score"] for item in reward["dimensions"]} | {"composite": reward["composite"]}
        assert measured == swe_figures.scores(stream)
    shown = json.loads(house.mz("metrics", "--json").out)["metrics"]
    assert {
        (metric["name"], item["subject"], item["statistic"]): (item["value"], item["n"])
        for metric in shown for item in metric["values"]
    } == swe_figures.metrics(streams)  # fmt: skip


def test_a_feature_from_its_request_to_a_branch(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.mz("run", "--feature", "ratelimit", code=21)
    assert list(house.calls) == ORDER.split()
    (question,) = json.loads(house.mz("review", "list", "--json").out)["questions"]
    assert question["code"] == "touches_auth, new_service"
    shown_text = house.mz("review", "show", "ratelimit").out
    assert "pager/auth_client.py changed" in shown_text
    assert "services names pager for the first time" in shown_text
    house.mz("review", "approve", "ratelimit")
    house.mz("resume")
    assert list(house.calls)[-2:] == ["integration/-/1/1", "retrospective/-/1/1"]

    changed = house.repository.git("log", "--name-only", "--format=", "main..feat/ratelimit").split()
    assert sorted({*changed}) == sorted(path for files in CODE.values() for path in files), (
        "no paper, no block, no other.py"
    )
    shown = json.loads(house.mz("show", "ratelimit", "--json").out)
    assert "pager/other.py" in json.dumps(shown), "what was put back is in the log"
    context = json.loads(house.mz("show", "ratelimit", "--context", "implementation/unit-003", "--json").out)
    assert "pager/auth_client.py" in json.dumps(context), "what the unit depends on is shown"

    run = shown["run"]
    for folder in ("one", "two"):
        house.mz("export", run, "--as", "agentswe", "--to", str(tmp_path / folder))
    exported = [
        {
            str(path.relative_to(tmp_path / at)): path.read_bytes()
            for path in (tmp_path / at).rglob("*")
            if path.is_file()
        }
        for at in ("one", "two")
    ]
    assert exported[0] == exported[1]

    verified = {
        path for path in house.calls["verification/-/1/1"] if not path.startswith("tasks/ratelimit/implementation/")
    }
    folder = "tasks/ratelimit"
    assert verified == {
        f"{folder}/requirements/acceptance-criteria.yaml", f"{folder}/architecture/interfaces.md",
        f"{folder}/planning/work-breakdown.yaml",
    }, "a judge sees its inputs alone"  # fmt: skip
    built = {path for path in house.calls["implementation/unit-003/1/1"] if not path.startswith(folder)}
    assert built == {*CODE["unit-002"]}, "a unit sees what it depends on"
    house.mz("run", "--feature", "again", code=21)
    (question,) = json.loads(house.mz("review", "list", "--json").out)["questions"]
    assert question["code"] == "touches_auth", "the service was called before"
    ledger = json.loads(house.mz("show", "again", "--context", "implementation/unit-001", "--json").out)
    assert "learning" in json.dumps(ledger), "what fixed the same failure of another feature"

    check_figures(house, run)
    calls = len(house.calls)
    house.mz("record", run, "--to", "recordings/house")
    house.mz("replay", "recordings/house")
    house.mz("replay", "--real", "recordings/house")
    assert len(house.calls) == calls, "a replay starts no agent"
