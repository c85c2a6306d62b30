"""Pipelines are found by name or path, read with their durations, and refused with all that is wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.decoding.quantity import decode_quantity, encode_quantity
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Command, Config
from mz_engine.model.pipeline import Edit, Pipeline
from mz_engine.pipelines.load import PipelineSource, built_in_pipelines, find_source, load_pipeline, load_pipeline_files

SMALL = """\
pipeline: small
version: 1
phases:
- phase: only
  timeout: {total: 1h30m, idle: 90}
  deliver: [push, open_pr]
"""


def configured(*commands: str) -> Config:
    return Config(commands={name: Command(run="true") for name in commands})


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize("name", built_in_pipelines())
def test_built_in_pipelines_are_clean(tmp_path: Path, name: str) -> None:
    config = configured("test", "lint", "build", "integration", "regression", "secrets")
    config = replace(config, edits={"seed": Edit()})
    _, warnings = load_pipeline(name, tmp_path, load_pipeline_files(tmp_path), config)
    assert warnings == ()


def test_a_built_in_pipeline_leaves_out_what_the_project_cannot_run(tmp_path: Path) -> None:
    _, warnings = load_pipeline("monozukuri", tmp_path, load_pipeline_files(tmp_path), configured("test"))
    assert {(diagnostic.code, diagnostic.severity) for diagnostic in warnings} == {("MZ3009", "warning")}


def test_durations_become_seconds(tmp_path: Path) -> None:
    write(tmp_path, "pipelines/small.yaml", SMALL)
    pipeline, _ = load_pipeline("small", tmp_path)
    timeout = pipeline.find_phase("only").timeout
    assert (timeout.total, timeout.idle) == (5400, 90)


def test_a_pipeline_of_the_project_comes_before_a_built_in_one(tmp_path: Path) -> None:
    assert find_source("monozukuri", tmp_path).built_in
    write(tmp_path, "pipelines/monozukuri.yaml", SMALL)
    pipeline_source = find_source("monozukuri", tmp_path)
    assert (pipeline_source.built_in, pipeline_source.parse()[0].pipeline) == (False, "small")
    assert pipeline_source.name == "pipelines/monozukuri.yaml"


def test_a_path_names_a_file(tmp_path: Path) -> None:
    write(tmp_path, "etc/p.yaml", SMALL)
    assert load_pipeline("etc/p.yaml", tmp_path)[0].pipeline == "small"


def test_an_unknown_name_is_told_with_those_that_are_there(tmp_path: Path) -> None:
    write(tmp_path, "pipelines/small.yaml", SMALL)
    with pytest.raises(MzError) as caught:
        load_pipeline("smal", tmp_path)
    actual = str(caught.value)
    assert actual == "error[MZ3001] pipelines/smal.yaml there is no pipeline `smal`\nhint: did you mean `small`?"
    with pytest.raises(MzError, match="known here: agentswe, generation, monozukuri, quick, small"):
        load_pipeline("qqq", tmp_path)


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("idle: 5x", "error[MZ2009] p.yaml:6:11 `phases[0].timeout.idle`: '5x' is not a duration"),
        ("total: 0", "error[MZ2009] p.yaml:6:12 `phases[0].timeout.total`: 0 is not between a second and a week"),
        (
            "total: true",
            "error[MZ2006] p.yaml:6:12 `phases[0].timeout.total`: expected a whole number or text, got true",
        ),
        ("totl: 5m", "error[MZ2005] p.yaml:6:5 unknown key `totl` in `phases[0].timeout`"),
    ],
)
def test_timeouts_are_checked(text: str, summary: str) -> None:
    with pytest.raises(MzError) as caught:
        PipelineSource(
            name="p.yaml", text=f"pipeline: p\nversion: 1\nphases:\n- phase: a\n  timeout:\n    {text}\n"
        ).parse()
    assert str(caught.value).splitlines()[0] == summary


def test_a_key_of_an_earlier_version_is_refused_with_what_replaces_it() -> None:
    with pytest.raises(MzError) as caught:
        PipelineSource(name="p.yaml", text="pipeline: p\nversion: 1\nterminal: delivered\nphases: []\n").parse()
    assert str(caught.value).splitlines()[:2] == [
        "error[MZ2005] p.yaml:3:1 unknown key `terminal`",
        "hint: leave it out: how a feature ends follows from the steps under `deliver`",
    ]


@pytest.mark.parametrize("text", ["", "phases: 5", "phases: [5, {timeout: 5}, {timeout: {total: [1]}}]", "- a"])
def test_odd_forms_are_refused_by_form(text: str) -> None:
    with pytest.raises(MzError) as caught:
        PipelineSource(name="p.yaml", text=text).parse()
    assert {diagnostic.code for diagnostic in caught.value.diagnostics} <= {"MZ2006", "MZ2007"}


def test_lint_errors_stop_a_pipeline_that_is_to_be_run(tmp_path: Path) -> None:
    write(tmp_path, "pipelines/small.yaml", SMALL.replace("push, ", ""))
    assert load_pipeline("small", tmp_path)[1] == ()
    with pytest.raises(MzError, match="MZ3015"):
        load_pipeline("small", tmp_path, load_pipeline_files(tmp_path), configured())


def test_pins_of_a_pipeline_are_a_pipeline_file_again(tmp_path: Path) -> None:
    pipeline = load_pipeline("monozukuri", tmp_path)[0]
    pinned = msgspec.json.encode(pipeline, enc_hook=encode_quantity)
    assert msgspec.json.decode(pinned, type=Pipeline, dec_hook=decode_quantity) == pipeline
    assert PipelineSource(name="pins.json", text=pinned.decode()).parse()[0] == pipeline
