"""`mz check`: what it prints, its JSON, its reports and its exit codes."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mz_cli.check.command import check_document, check_suites, layer_line, remaining_lines, summary
from mz_cli.terminal.text import plain_text
from mz_engine.agents.registry import built_in_adapters
from mz_engine.artifacts.load import load_rules
from mz_qa.layers import adapters, artifacts, replays
from mz_qa.layers.run import LAYERS
from mz_qa.results import CheckRun, LayerResult
from mz_recordings.cassette.files import list_cassettes
from mz_recordings.findings.model import Finding
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, spawn
from tests.support.gitrepo import GitRepo

AT = datetime(2026, 11, 21, 10, 28, tzinfo=UTC)
RULE = Finding(
    kind="RULE",
    message="the rule set own: an artifact with 'TODO' in it is not refused by own.words",
    cause="own.words",
    file="pipelines/rules/own.yaml",
    line=12,
    detail=("  it is accepted",),
)
PROMPTS = tuple(
    Finding(
        kind="PROMPT", message="the prompt differs from the recording", feature="alpha", call=call, cause="write.md.j2",
        detail=("@@ -1 +1 @@", "-Keep it short.", "+Be brief."), file="pipelines/templates/write.md.j2", line=2,
        fix="mz replay recordings/notes --accept PROMPT -m TEXT",
    )
    for call in ("write", "write.a2")
)  # fmt: skip
COUNTS = {"static": {"pipelines": 2, "prompts": 40}, "artifacts": {"artifacts": 2744}, "replays": {"cassettes": 3}}
FINDINGS = {"artifacts": (RULE,), "replays": PROMPTS}
RESULT = CheckRun(
    started=AT, finished=AT, duration_ms=12_340,
    layers=tuple(
        LayerResult(
            number=layer.number, name=layer.name, about=layer.about, duration_ms=layer.number * 1000,
            status="empty" if layer.name == "formats" else "failed" if layer.name in FINDINGS else "passed",
            reason="nothing to check" if layer.name == "formats" else "",
            checked=COUNTS.get(layer.name, {}), findings=FINDINGS.get(layer.name, ()),
            remarks=("there is no features.md",) if layer.name == "static" else (),
        )
        for layer in LAYERS
    ),
)  # fmt: skip


# pages ----------------------------------------------------------------------------------------------------------------
def test_the_page(snapshot: SnapshotAssertion) -> None:
    lines = [*map(layer_line, RESULT.layers), *remaining_lines(RESULT)]
    assert "\n".join(plain_text(line) for line in lines) == snapshot


def test_the_document(snapshot: SnapshotAssertion) -> None:
    from mz_cli.terminal.json import json_document as written

    assert written("check", check_document(RESULT)).replace('"version": "0.1.0"', '"version": "0"') == snapshot


def test_the_summary_of_a_check_that_passes() -> None:
    passed = CheckRun(started=AT, finished=AT, duration_ms=900, layers=RESULT.layers[:1])
    assert summary(passed) == "check passed: 1 layer, 42 checks, 0.9 s, $0"


def test_a_suite_for_each_layer_that_ran() -> None:
    suites = check_suites(RESULT)
    assert [suite.name for suite in suites] == ["1 static", "3 artifacts", "4 formats", "7 replays", "8 specs"]
    assert suites[3].findings == PROMPTS


# the command ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("begun")
    GitRepo(root).commit({"README.md": "x"})
    assert spawn(root, "init").exit == 0
    return root


@pytest.fixture
def project(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True, symlinks=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_project_that_has_just_begun(project: Path, mz: Mz) -> None:
    result = mz("check", "--allow-empty", "7", "--junit", "check.xml", "--html", "check.html")
    assert result.exit == 0, result.out
    lines = result.out.splitlines()
    assert [line.split()[2] for line in lines[:4]] == ["passed", "empty", "empty", "empty"]
    assert lines[-1].startswith("check passed: 5 layers, ")
    assert 'name="3 artifacts"' in (project / "check.xml").read_text()
    assert "artifacts" in (project / "check.html").read_text()


@pytest.mark.slow
def test_a_self_test(project: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one adapter, one rule set and one cassette; tests of the layers try all."""
    monkeypatch.setattr(adapters, "built_in_adapters", lambda: {"codex": built_in_adapters()["codex"]})
    monkeypatch.setattr(artifacts, "load_rules", lambda: {"prd": load_rules()["prd"]})
    monkeypatch.setattr(replays, "list_cassettes", lambda folder: list_cassettes(folder)[:1])
    result = mz("doctor", "--self-test", "--json")
    document = json.loads(result.out)
    assert (result.exit, document["schema"], document["verdict"]) == (0, "mz.doctor-self-test/1", "passed"), result.err
    assert [layer["name"] for layer in document["layers"]] == [
        "static", "adapters", "artifacts", "formats", "replays",
    ]  # fmt: skip


@pytest.mark.slow
def test_nothing_recorded(project: Path, mz: Mz) -> None:
    result = mz("check", "--layer", "7")
    assert result.exit == 4
    assert "NOTHING-CHECKED  nothing to check, so nothing was verified\n" in result.out
    assert mz("check", "--layer", "7", "--allow-empty", "7").exit == 0


@pytest.mark.slow
def test_a_fault_has_its_exit_code_and_is_the_first_failure(project: Path, mz: Mz) -> None:
    (project / "mz.yaml").write_text("budgte: 1\n")
    result = mz("check", "--layer", "1", "--layer", "7", "--json")
    reported = json.loads(result.out)
    assert result.exit == reported["exit"] == 10
    assert (reported["schema"], reported["verdict"], reported["cost_usd"]) == ("mz.check/1", "failed", "0.00")
    assert reported["first_failure"]["number"] == 1
    assert [layer["status"] for layer in reported["layers"]] == ["failed", "skipped", "skipped", "failed", "skipped"]
    assert reported["layers"][0]["findings"][0]["file"] == "mz.yaml"
    assert "1  static     FAILED" in result.err


@pytest.mark.parametrize(
    "args", [("--layer", "2"), ("--layer", "5"), ("--layer", "static"), ("--allow-empty", "6"), ("-j", "0")]
)
def test_wrong_use(project: Path, mz: Mz, args: tuple[str, ...]) -> None:
    assert mz("check", *args).exit == 2


def test_a_place_without_cassettes(project: Path, mz: Mz) -> None:
    result = mz("check", "nowhere")
    assert (result.exit, result.out) == (4, "")
    assert "MZ6001" in result.err
