"""`mz fork`: from a past event, live, and compared; what cannot be forked says why. As docs/fork.md tells it."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.drive import Result, on_terminal, spawn
from tests.support.tree import ROOT
from tests.support.workshop import SCRIPT, Workshop

PAGE = (ROOT / "docs" / "fork.md").read_text("utf-8")
OTHER = {**SCRIPT, "alpha.sign.2.1": {"write": {"letters/alpha.md": "# Letter\nanother one, from the fork\n"}}}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workshop, str]:
    workshop = Workshop(tmp_path_factory.mktemp("fork"))
    run = workshop.run()
    workshop.script.write_text(json.dumps(OTHER))
    return workshop, run


def output(done: tuple[Workshop, str], *args: str) -> Result:
    return spawn(done[0].root, *args, **done[0].environment)


@pytest.mark.slow
def test_the_commands_of_the_page(done: tuple[Workshop, str]) -> None:
    _, run = done
    look, fork, compare = re.findall(r"^mz (.*)$", PAGE, flags=re.MULTILINE)
    assert output(done, *look.split()).exit == 0
    made = output(done, *fork.replace("RUN", run).split())
    assert made.exit == 21  # A person is asked before it is delivered.
    assert f"of alpha in run {run}" in made.err
    name = re.search(rf"compare: mz diff {run} (\S+)", made.err)
    assert name is not None

    result = output(done, *compare.replace("RUN", run).replace("FORK", name[1]).split(), "--json")
    report = json.loads(result.out)
    assert [feature["id"] for feature in report["features"]] == ["alpha"]
    differences = {item["path"]: (item["left"], item["right"]) for item in report["features"][0]["differences"]}
    assert differences["status"] == ("delivered", "waiting")
    assert "artifacts.letter" in differences
    assert "input_tokens" not in differences  # As many calls on either side, of which the fork paid one.
    paid = json.loads(output(done, "cost", name[1], "--json").out)
    assert paid["total"]["calls"] == 1

    listed = {line["run"]: line for line in json.loads(output(done, "runs", "--json").out)["runs"]}
    assert listed[name[1]]["fork_of"].startswith(f"run/{run}/alpha@")
    assert listed[run]["fork_of"] is None
    approved = output(done, "resume", name[1], "--answer", "approve")
    assert approved.exit == 0, approved.err
    assert "nothing to do: 2 features of the backlog already delivered" in output(done, "run").err
    assert output(done, "verify").exit == 0
    assert "forked from version" in output(done, "log", name[1]).out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("alpha",), 2, "name a phase or an event to start from"),
        (("nope/alpha@1",), 10, "there is no run or feature 'nope'"),
        (("{run}/alpha@9999",), 2, "MZ5007"),
        (("{run}/alpha/nope",), 2, "alpha has not started nope"),
        (("{run}/alpah@1",), 10, "did you mean `alpha`"),
        (("{run}/alpha@0",), 2, "MZ5007"),
        (("{run}/alpha@\N{SUPERSCRIPT TWO}",), 2, "MZ5007"),
        (("{run}/alpha@last",), 2, "MZ5008"),
        (("{run}/alpha@1", "--agent", "nobody"), 11, "MZ1004"),
        (("{run}/alpha@1", "--without", "L-0"), 2, "MZ5016"),
        (("{run}/alpha@1", "--prompt", "missing.md.j2"), 10, "missing.md.j2"),
        (("{run}/alpha@1", "--prompt", "broken.md.j2"), 10, "MZ3017"),
    ],
)
def test_what_cannot_be_forked(done: tuple[Workshop, str], args: tuple[str, ...], code: int, message: str) -> None:
    workshop, run = done
    (workshop.root / "broken.md.j2").write_text("{{ nothing_like_it }}")
    events = json.loads("[" + ",".join(output(done, "log", f"{run}/alpha", "--json").out.splitlines()) + "]")
    last = str(max(event["version"] for event in events if event.get("stream", "").endswith("/alpha")))
    before = output(done, "runs").out
    result = output(done, "fork", *(word.replace("{run}", run).replace("@last", f"@{last}") for word in args), "--yes")
    assert (result.exit, message in result.err) == (code, True), result.err
    assert output(done, "runs").out == before


@pytest.mark.slow
def test_nothing_is_paid_without_a_yes(done: tuple[Workshop, str]) -> None:
    workshop, run = done
    before = output(done, "runs").out
    result = output(done, "fork", f"{run}/alpha/sign")
    assert (result.exit, "nobody can be asked: add --yes" in result.err) == (2, True)
    shown = on_terminal(
        workshop.root, "fork", f"{run}/alpha/sign", env={**workshop.environment, "CI": ""}, answers="n\n"
    )
    assert "Call the agent? The original paid $0." in shown
    assert output(done, "runs").out == before


def test_the_page_names_what_there_is() -> None:
    assert {"--agent", "--model", "--prompt", "--without"} <= set(re.findall(r"--\w+", PAGE))
