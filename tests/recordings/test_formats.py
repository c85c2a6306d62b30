"""Cassettes of older formats are read, and copied before they are written anew; hostile ones are refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from mz_recordings.files.library import CassetteUnusable, NewerFormat, cassettes, load, load_manifest, renew, save

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
    assert found.manifest.stories == {}
    assert found.manifest.world.run == "replayed"
    assert found.taken == cassette(recording(TREE)).taken


def test_the_first_change_keeps_a_copy_of_what_it_was(tmp_path: Path) -> None:
    place = tmp_path / "small"
    shutil.copytree(OLD, place)
    kept = renew(load(place), place)
    assert kept == tmp_path / ".backup" / "small.format-1"
    assert (kept / "cassette.yaml").read_bytes() == (OLD / "cassette.yaml").read_bytes()
    assert load_manifest(place).format == 2
    assert renew(load(place), place) is None
    assert cassettes(tmp_path) == (place,)


def test_an_earlier_copy_is_never_replaced(tmp_path: Path) -> None:
    for name in ("small.format-1", "small.format-1.2"):
        place = tmp_path / "small"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(OLD, place)
        assert renew(load(place), place) == tmp_path / ".backup" / name


def test_a_recording_of_a_newer_format(small: Path) -> None:
    path = small / "f" / "prd.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(NewerFormat, match="has format 3; this mz knows 2"):
        load(small)


def test_a_link_is_no_file_of_a_cassette(small: Path, tmp_path: Path) -> None:
    path = small / "f" / "prd.patch"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CassetteUnusable, match=r"prd\.patch: is no plain file"):
        load(small)


def test_a_file_that_lies_elsewhere(small: Path) -> None:
    path = small / "f" / "prd.json"
    path.write_text(path.read_text().replace('"prd.patch"', '"../../etc"'))
    with pytest.raises(CassetteUnusable, match="which does not lie beside it"):
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
    with pytest.raises(CassetteUnusable, match=r"cassette\.yaml"):
        load(small)
