"""Cassettes of older formats are read, and copied before they are written anew; hostile ones are refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
import yaml
from mz_recordings.cassette.files import (
    CassetteUnreadable,
    NewerFormat,
    is_cassette,
    list_cassettes,
    load,
    load_manifest,
    load_without_traces,
    overwrite,
    save,
)
from mz_recordings.cassette.listing import summarize
from mz_recordings.cassette.model import Cassette, Item

from tests.support.tapes import cassette, recording
from tests.support.tree import ROOT

OLD = ROOT / "qa/mz_qa/fixtures/recordings/format-1/small"
TREE = "1" * 40


@pytest.fixture
def small(tmp_path: Path) -> Path:
    save(cassette(recording(TREE)), tmp_path / "small")
    return tmp_path / "small"


def test_format_1_is_read_as_todays() -> None:
    found = load(OLD)
    assert found.manifest.format == 2
    assert found.manifest.traces == {}
    assert found.manifest.fixture.run == "replayed"
    assert found.calls == cassette(recording(TREE)).calls


def test_the_first_change_keeps_a_copy_of_what_it_was(tmp_path: Path) -> None:
    place = tmp_path / "small"
    shutil.copytree(OLD, place)
    kept = overwrite(load(place), place)
    assert kept == tmp_path / ".backup" / "small.format-1"
    assert (kept / "cassette.yaml").read_bytes() == (OLD / "cassette.yaml").read_bytes()
    assert load_manifest(place).format == 2
    assert overwrite(load(place), place) is None
    assert list_cassettes(tmp_path) == (place,)


def test_an_earlier_copy_is_never_replaced(tmp_path: Path) -> None:
    for name in ("small.format-1", "small.format-1.2"):
        place = tmp_path / "small"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(OLD, place)
        assert overwrite(load(place), place) == tmp_path / ".backup" / name


def test_a_recording_of_a_newer_format(small: Path) -> None:
    path = small / "f" / "prd.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(NewerFormat, match="has format 3; this mz reads up to 2"):
        load(small)


def test_a_link_is_no_file_of_a_cassette(small: Path, tmp_path: Path) -> None:
    path = small / "f" / "prd.patch"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CassetteUnreadable, match=r"prd\.patch: is not a regular file"):
        load(small)


def test_a_file_that_lies_elsewhere(small: Path) -> None:
    path = small / "f" / "prd.json"
    path.write_text(path.read_text().replace('"prd.patch"', '"../../etc"'))
    with pytest.raises(CassetteUnreadable, match="which is not in the same folder"):
        load(small)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run", "../r"),
        ("clock_start", "yesterday"),
        ("items", [{"feature": "..", "title": "", "body": "", "priority": 1}]),
    ],
)
def test_a_world_that_leads_out_of_its_place(small: Path, key: str, value: object) -> None:
    path = small / "cassette.yaml"
    content = yaml.safe_load(path.read_text())
    content["world"][key] = value
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(CassetteUnreadable, match=r"cassette\.yaml"):
        load(small)


# an older format by hand ----------------------------------------------------------------------------------------------
def as_format_1(path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace('"format": 2', '"format": 1').replace("format: 2\n", "format: 1\n"))


def test_todays_manifest_that_says_it_is_older(small: Path) -> None:
    as_format_1(small / "cassette.yaml")
    with pytest.raises(CassetteUnreadable, match="names traces, which format 1 did not have"):
        load(small)


def test_sums_count_in_every_format(small: Path) -> None:
    for name in ("cassette.yaml", "f/prd.json"):
        as_format_1(small / name)
    path = small / "cassette.yaml"
    content = yaml.safe_load(path.read_text())
    del content["stories"]
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(CassetteUnreadable, match="SHA256SUMS has another digest"):
        load(small)
    (small / "f" / "prd.patch").unlink()
    assert summarize(small).problem.endswith("f/prd.patch is missing")


def test_a_newer_recording_in_an_older_cassette(small: Path) -> None:
    path = small / "cassette.yaml"
    content = yaml.safe_load(path.read_text())
    del content["stories"]
    path.write_text(yaml.safe_dump({**content, "format": 1}))
    (small / "SHA256SUMS").unlink()
    with pytest.raises(CassetteUnreadable, match=r"prd\.json: has format 2 in a cassette of format 1"):
        load(small)


# stories --------------------------------------------------------------------------------------------------------------
def untold() -> Cassette:
    made = cassette(recording(TREE))
    item = Item(feature="f", title="F", body="", priority=1, depends_on=())
    world = msgspec.structs.replace(made.manifest.fixture, items=(item,))
    return made._replace(manifest=msgspec.structs.replace(made.manifest, fixture=world))


def test_a_feature_without_its_story(tmp_path: Path) -> None:
    save(untold(), tmp_path / "untold")
    with pytest.raises(CassetteUnreadable, match="names no trace of f"):
        load(tmp_path / "untold")
    assert load_without_traces(tmp_path / "untold") == untold()


def test_what_has_no_story_is_not_written_over_what_is_there(small: Path) -> None:
    before = load(small)
    with pytest.raises(CassetteUnreadable, match=r"has no trace of f; add it with: mz replay .*--accept TRACE"):
        overwrite(untold(), small)
    assert load(small) == before


# what is left of one --------------------------------------------------------------------------------------------------
def test_without_its_manifest_it_is_missed(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "small")
    (tmp_path / "small" / "cassette.yaml").unlink()
    (tmp_path / "data" / "more").mkdir(parents=True)
    (tmp_path / "data" / "more" / "x.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    assert list_cassettes(tmp_path) == (tmp_path / "small",)
    assert not is_cassette(tmp_path)
    with pytest.raises(CassetteUnreadable, match=r"cassette\.yaml"):
        load(tmp_path / "small")
