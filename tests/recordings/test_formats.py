"""Cassettes of other formats, and hostile ones, are refused by name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.decoding.yaml import load_yaml
from mz_recordings.cassette.files import (
    CassetteUnreadable,
    NewerFormat,
    _Dumper,
    is_cassette,
    list_cassettes,
    load,
    load_without_traces,
    overwrite,
    save,
    write_yaml,
)
from mz_recordings.cassette.model import FORMAT, Cassette, Item

from tests.support.tapes import cassette, recording
from tests.support.tree import ROOT

OLD = ROOT / "tests/cases/cassettes/format-3/small"
TREE = "1" * 40
NEXT = FORMAT + 1


@pytest.fixture
def small(tmp_path: Path) -> Path:
    save(cassette(recording(TREE)), tmp_path / "small")
    return tmp_path / "small"


@pytest.mark.parametrize("number", [1, 2])
def test_formats_that_were_never_released_are_refused(small: Path, number: int) -> None:
    path = small / "cassette.yaml"
    path.write_text(path.read_text().replace(f"format: {FORMAT}\n", f"format: {number}\n"))
    with pytest.raises(CassetteUnreadable, match=f"has format {number}, from before the first release"):
        load(small)


def test_the_current_format_is_read_and_written_alike(tmp_path: Path) -> None:
    stored = load(OLD)
    save(stored, tmp_path / OLD.name)
    assert load(tmp_path / OLD.name) == stored


def test_a_recording_of_a_newer_format(small: Path) -> None:
    path = small / "f" / "prd.json"
    path.write_text(path.read_text().replace(f'"format": {FORMAT}', f'"format": {NEXT}'))
    with pytest.raises(NewerFormat, match=f"has format {NEXT}; this mz reads up to {FORMAT}"):
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
    content = load_yaml(path.read_text())
    content["fixture"][key] = value
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(CassetteUnreadable, match=r"cassette\.yaml"):
        load(small)


def test_a_change_by_hand_shows_in_the_sums(small: Path) -> None:
    path = small / "cassette.yaml"
    path.write_text(path.read_text().replace("name: small", "name: large"))
    with pytest.raises(CassetteUnreadable, match="SHA256SUMS has another digest"):
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
    with pytest.raises(CassetteUnreadable, match="names no trace of f"):
        overwrite(untold(), small)
    assert load(small) == before


# what is left of one --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lost", [("cassette.yaml",), ("cassette.yaml", "SHA256SUMS")])
def test_without_its_manifest_it_is_missed(tmp_path: Path, lost: tuple[str, ...]) -> None:
    shutil.copytree(OLD, tmp_path / "small")
    for name in lost:
        (tmp_path / "small" / name).unlink()
    (tmp_path / "data" / "more").mkdir(parents=True)
    (tmp_path / "data" / "more" / "x.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    assert list_cassettes(tmp_path) == (tmp_path / "small",)
    assert not is_cassette(tmp_path)
    with pytest.raises(CassetteUnreadable, match=r"cassette\.yaml"):
        load(tmp_path / "small")


TEXTS = st.text(st.one_of(st.sampled_from("\n\u2028\x85😀\\ ULx:#-'\"|"), st.characters(codec="utf-8")), min_size=1)
KEYS = st.text("aé1/.:#- ", min_size=1)
"""Of one line: libyaml writes `? ` before others."""


@given(st.dictionaries(KEYS, TEXTS | st.lists(TEXTS | st.booleans() | st.integers())))
def test_with_libyaml_and_without_the_same_is_written(content: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mz_recordings.cassette.files._FastDumper", _Dumper)
        expected = write_yaml(content)
    assert write_yaml(content) == expected
    assert load_yaml(expected) == content


def test_cassettes_are_written_where_libyaml_is_missing() -> None:
    program = "import yaml; yaml.__with_libyaml__ = False\nfrom mz_recordings.cassette.files import write_yaml"
    subprocess.run([sys.executable, "-c", f"{program}\nassert write_yaml({{'a': 'b'}}) == 'a: b\\n'"], check=True)
