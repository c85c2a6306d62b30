"""The YAML border: what becomes of text, where its values stood, and how what is wrong with it is said."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.decoding import yaml as yaml_module
from mz_engine.decoding.structs import decode_value
from mz_engine.decoding.text_file import decode_text, read_text
from mz_engine.decoding.yaml import decode_yaml, parse_yaml
from mz_engine.errors.diagnostics import MzError, SourceLocation

from tests.support.tree import ROOT


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    run: str
    seconds: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str | None = None
    level: Literal["low", "high"] = "low"
    share: float = 0.5
    on: bool = True
    steps: tuple[Step, ...] = ()
    commands: dict[str, str | Step] = {}
    sections: dict[str, int] = {}


CASES: dict[str, dict[str, str]] = msgspec.convert(
    parse_yaml((Path(__file__).parents[1] / "cases" / "yaml" / "refused.yaml").read_text(), "refused.yaml").value,
    dict[str, dict[str, str]],
)


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_said_with_its_place(name: str) -> None:
    with pytest.raises(MzError) as caught:
        decode_yaml(CASES[name]["text"], "f.yaml", Form)
    assert str(caught.value) == CASES[name]["errors"].rstrip("\n")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("012", 12),
        ("0o14", 12),
        ("0x1F", 31),
        ("-7", -7),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        (".inf", ".inf"),
        ("2020-01-01", "2020-01-01"),
        ("=", "="),
        ("'12'", "12"),
        ("!!str 12", "12"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(written: str, value: object) -> None:
    assert parse_yaml(f"key: {written}\n", "f.yaml").value == {"key": value}


def test_values_remember_their_places_through_aliases() -> None:
    document = parse_yaml("a: &x\n  b: [1, two]\nc: *x\n", "f.yaml")
    assert document.value == {"a": {"b": [1, "two"]}, "c": {"b": [1, "two"]}}
    assert document.location("a", "b", 1) == SourceLocation("f.yaml", 2, 10)
    assert document.location("c", "b", 1) == SourceLocation("f.yaml", 2, 10)
    assert document.key_location("c") == SourceLocation("f.yaml", 3, 1)
    assert document.location("c", "nothing", 7) == SourceLocation("f.yaml", 1, 4), "the nearest that is there"
    assert document.location() == SourceLocation("f.yaml", 1, 1)


def test_a_merge_key_is_a_key_like_any_other() -> None:
    assert parse_yaml("a: &x {b: 1}\nc:\n  <<: *x\n", "f.yaml").value == {"a": {"b": 1}, "c": {"<<": {"b": 1}}}


def test_an_empty_document_is_an_empty_mapping() -> None:
    for text in ("", "# nothing yet\n", "---\n"):
        assert decode_yaml(text, "f.yaml", Form) == Form()


def test_a_key_without_a_value_counts_as_not_written() -> None:
    assert decode_yaml("name:\nlevel:\nsteps:\ncommands:\n  # test: later\n", "f.yaml", Form) == Form()


BILLION = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{item}: &{item} [{', '.join([f'*{before}'] * 10)}]\n" for before, item in pairwise("abcdefghi")
)
BOMBS = {
    "deep": "[" * 500_000,
    "deep keys": "? " * 100_000,
    "aliases of aliases": BILLION,
    "long": "- 1\n" * 300_000,
    "itself in a list": "a: &a [*a]",
    "itself in a mapping": "a: &a {b: *a}",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
@pytest.mark.slow
def test_bombs_are_refused(text: str) -> None:
    with pytest.raises(MzError) as caught:
        decode_yaml(text, "f.yaml", Form)
    assert caught.value.code == "MZ2008"


def test_no_tag_makes_an_object() -> None:
    for text in (
        "!!python/object/apply:os.system [ls]", "a: !!set {b}", "a: !!binary aGk=", "!local x",
        "a: !!int ''", "a: !!bool maybe",
    ):  # fmt: skip
        with pytest.raises(MzError) as caught:
            parse_yaml(text, "f.yaml")
        assert caught.value.code == "MZ2006"


def converts_or_is_refused(text: str) -> bool:
    """No other exception than ours ever leaves the border."""
    try:
        decode_yaml(text, "f.yaml", Form)
    except MzError as error:
        return all(diagnostic.code.startswith("MZ20") and diagnostic.location for diagnostic in error.diagnostics)
    return True


@given(st.text())
def test_any_text_converts_or_is_refused(text: str) -> None:
    assert converts_or_is_refused(text)


@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@`?, \n\t01.~<", max_size=60))
def test_any_text_that_looks_like_yaml_converts_or_is_refused(text: str) -> None:
    assert converts_or_is_refused(text)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.floats(0, 1) | st.sampled_from(["low", "high", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*Form.__struct_fields__, *Step.__struct_fields__, "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_the_explanation_agrees_with_the_decision(value: Any) -> None:
    """msgspec decides; whenever it refuses there is something to say, and never when it accepts."""
    decoded, decode_errors = decode_value(value, msgspec.inspect.type_info(Form))
    try:
        msgspec.convert(decoded, Form)
    except msgspec.ValidationError:
        assert decode_errors
    else:
        assert decode_errors == []


def test_files_that_are_not_text_are_refused(tmp_path: Path) -> None:
    def refused(data: bytes) -> str:
        (tmp_path / "f").write_bytes(data)
        with pytest.raises(MzError) as caught:
            read_text(tmp_path / "f", "f.yaml", bytes_max=100)
        return f"{caught.value.code} {caught.value.location}: {caught.value.message}"

    assert refused(b"a: 1\nb: \xff") == "MZ2002 f.yaml:2:4: byte 0xff is not UTF-8 text"
    assert refused("ü: \0".encode()) == "MZ2002 f.yaml:1:4: byte 0x00 is not UTF-8 text"
    assert refused("a: 1".encode("utf-16")) == "MZ2002 f.yaml:1:1: f.yaml is UTF-16, not UTF-8"
    assert refused(b"x" * 101) == "MZ2008 f.yaml: it has more than 100 bytes"


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for name, why in (("none", "no such file or directory"), (".", "is not a file")):
        with pytest.raises(MzError, match=why) as caught:
            read_text(tmp_path / name, "f.yaml")
        assert caught.value.code == "MZ2001"


def test_a_byte_order_mark_is_no_text() -> None:
    assert decode_text(b"\xef\xbb\xbfa: 1\n", "f.yaml") == "a: 1\n"


@pytest.mark.parametrize("path", sorted((ROOT / "engine" / "mz_engine").rglob("*.yaml")), ids=lambda path: path.name)
def test_both_readers_compose_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text("utf-8")
    by_libyaml = parse_yaml(text, path.name)
    monkeypatch.setattr(yaml_module, "_Loader", yaml_module._ExplainingLoader)
    assert parse_yaml(text, path.name) == by_libyaml
