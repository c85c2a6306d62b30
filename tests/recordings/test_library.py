"""Cassettes on disk: what is written is read, and what was tampered with is named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml
from mz_engine.decoding.yaml import load_yaml
from mz_engine.errors.diagnostics import MzError
from mz_recordings.cassette.files import (
    CassetteExists,
    CassetteUnreadable,
    NewerFormat,
    list_cassettes,
    load,
    load_summary,
    parse_manifest_text,
    save,
)
from mz_recordings.cassette.model import Identity

from tests.support.tapes import cassette, recording

TREE = "1" * 40


def test_there_and_back(tmp_path: Path) -> None:
    made = cassette(recording(TREE))
    save(made, tmp_path / "small")
    assert load(tmp_path / "small") == made
    assert list_cassettes(tmp_path) == (tmp_path / "small",)


def test_the_manifest_can_be_reviewed(tmp_path: Path) -> None:
    save(cassette(), tmp_path / "small")
    text = (tmp_path / "small" / "cassette.yaml").read_text()
    assert "provenance: scripted-model\n" in text
    assert "    prd.md.j2: |\n      Write the note.\n      In good English.\n" in text


def test_texts_that_look_like_numbers_stay_texts(tmp_path: Path) -> None:
    made = cassette()
    for text in ("1e5", "089", "012", "no", "0o17", "1:30", "2026-01-01", "~", "<<", "a\nb"):
        named = made._replace(manifest=msgspec.structs.replace(made.manifest, mz=text, evidence={text: text}))
        save(named, tmp_path / "small", replace=True)
        assert load(tmp_path / "small") == named


@pytest.mark.parametrize(
    "line", ["zz: !!timestamp x", "zz: !!bool maybe", "zz: !!int ''", "zz: !!float ''", "? [a]\n: b", "a: 1\na: 2"]
)
def test_what_other_loaders_of_yaml_would_construct_is_rejected(line: str) -> None:
    with pytest.raises(MzError, match=r"MZ200[46].* cassette\.yaml:"):
        parse_manifest_text(f"{line}\nformat: 3\n", "cassette.yaml")


def test_numbers_of_base_sixty_are_text() -> None:
    assert parse_manifest_text("a: 1:1.5\nb: 1:30\nc: 12\nd: -0.5\ne: 1.0e+16\n", "") == {
        "a": "1:1.5", "b": "1:30", "c": 12, "d": -0.5, "e": 1e16,
    }  # fmt: skip


def test_saving_again_replaces_all_but_never_silently(tmp_path: Path) -> None:
    save(cassette(recording(TREE)), tmp_path / "small")
    with pytest.raises(CassetteExists, match="already exists"):
        save(cassette(), tmp_path / "small")
    save(cassette(), tmp_path / "small", replace=True)
    assert [path.name for path in sorted((tmp_path / "small").iterdir())] == ["SHA256SUMS", "cassette.yaml"]


def test_something_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CassetteUnreadable, match="neither empty nor a cassette"):
        save(cassette(), tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    save(cassette(recording(TREE)), tmp_path / "small")
    (tmp_path / "small" / "f" / "prd.patch").write_text("other")
    with pytest.raises(CassetteUnreadable, match=r"prd\.patch: was changed since it was recorded"):
        load(tmp_path / "small")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    save(cassette(recording(TREE)), tmp_path / "small")
    (tmp_path / "small" / "f" / "prd.prompt.md").unlink()
    with pytest.raises(CassetteUnreadable, match=r"prd\.prompt\.md: is named by prd\.json and is missing"):
        load(tmp_path / "small")


def test_a_renamed_recording_is_named(tmp_path: Path) -> None:
    save(cassette(recording(TREE)), tmp_path / "small")
    (tmp_path / "small" / "f" / "prd.json").rename(tmp_path / "small" / "f" / "prd.a2.json")
    with pytest.raises(CassetteUnreadable, match="contains the recording f/prd; the names must agree"):
        load(tmp_path / "small")


def test_a_newer_format_is_no_difference(tmp_path: Path) -> None:
    save(cassette(), tmp_path / "small")
    manifest = tmp_path / "small" / "cassette.yaml"
    content = load_yaml(manifest.read_text())
    manifest.write_text(yaml.safe_dump({**content, "format": 99, "new_key": 1}))
    with pytest.raises(NewerFormat, match="use a newer mz"):
        load(tmp_path / "small")


@pytest.mark.parametrize("text", ["", "[]", "format: x", "format: 1", "{", "\0"])
def test_a_manifest_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "cassette.yaml").write_text(text)
    with pytest.raises(CassetteUnreadable, match=r"cassette\.yaml"):
        load_summary(tmp_path)


def test_names() -> None:
    def name(**more: object) -> str:
        return Identity(pipeline="p", feature="f", phase="code", **more).name  # type: ignore[arg-type]

    assert name() == "code"
    assert name(unit="T1") == "code.T1"
    assert name(iteration=2, attempt=3) == "code.i2.a3"
    assert name(unit="T1", role="reviewer") == "code.T1.reviewer"
    assert name(unit="i2") != name(iteration=2)
