"""What `mz recordings lint` finds in cassettes: secrets in any spelling and in every file, never shown; what is
personal; what is damaged or foreign."""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from mz_events.names import run_stream
from mz_events.redaction.redactor import Secrets
from mz_events.seal import seal_of
from mz_events.store import Head
from mz_recordings.cassette.files import digest, load, save
from mz_recordings.cassette.model import FORMAT, Cassette, RecordedCall
from mz_recordings.cassette.repository import create_bundle
from mz_recordings.findings.lint import Leak, Linter, LintResult, find_leaks

from tests.support.big_library import big_library
from tests.support.gitrepo import GitRepo
from tests.support.tapes import PROMPT, cassette, recording

TREE = "1" * 40
VALUE = "correct horse/battery?staple"
SECRETS = {"SHOP_TOKEN": VALUE}
KEY = "ghp_" + "aB3dE6gH9j" * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(cassette(recording(TREE)), tmp_path / "small")
    return tmp_path / "small"


def linted(folder: Path, environment: dict[str, str] | None = None) -> LintResult:
    return Linter(Secrets(SECRETS), environment or dict(os.environ)).lint(folder, "lib/small")


def holding(folder: Path, kind: str, data: bytes) -> None:
    """The file of that kind holds the data, and everything says so."""

    def changed(call: RecordedCall) -> RecordedCall:
        file = next(file for file in call.recording.files if file.kind == kind)
        files = tuple(
            msgspec.structs.replace(item, sha256=digest(data)) if item is file else item
            for item in call.recording.files
        )
        return RecordedCall(msgspec.structs.replace(call.recording, files=files), {**call.contents, file.name: data})

    result = load(folder)
    save(result._replace(calls=tuple(changed(call) for call in result.calls)), folder, replace=True)


# in bytes -------------------------------------------------------------------------------------------------------------
SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": lambda value: json.dumps({"a": json.dumps(value)}),
    "url": lambda value: quote(value, safe=""),
    "base64": lambda value: b64encode(b"x: " + value.encode() + b"...").decode(),
    "base64, shifted": lambda value: b64encode(b"xy: " + value.encode() + b"...").decode(),
    "escaped": lambda value: "".join(f"\\u{ord(letter):04x}" for letter in value),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(("value", "named"), [(VALUE, "SHOP_TOKEN"), (KEY, "github-token")])
def test_secrets_in_any_spelling(spelling: str, value: str, named: str) -> None:
    data = f"first\nhere: {SPELLINGS[spelling](value)}\n".encode()
    leaks = [leak for leak in find_leaks(data, Secrets(SECRETS)) if leak.is_secret]
    assert leaks
    assert {leak.line for leak in leaks} == {2}
    assert all(named in leak.description and value not in leak.description for leak in leaks)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("cd /home/annegret/shop", "a home directory"),
        ("C:\\Users\\Annegret\\shop", "a home directory"),
        (r'{"cwd": "C:\\Users\\Annegret"}', "a home directory"),
        (r'{"cwd": "\/Users\/annegret"}', "a home directory"),
        ("?at=%2Fhome%2Fannegret%2Fx", "a home directory"),
        ("/root/.claude/projects/-home-annegret-shop", "a home directory"),
        ("write to annegret@shop.de now", "an e-mail address"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVPmB92K27u", "what looks like a secret (jwt)"),
        ("aws = wJalrXUtnFEMI7K4MDENGbPxRfiCYzQ9pLmVtBs", "a word that may be a key (high entropy)"),
    ],
)
def test_what_is_only_warned_of(text: str, what: str) -> None:
    assert [(leak.is_secret, leak.description) for leak in find_leaks(text.encode(), Secrets({}))] == [(False, what)]


@pytest.mark.parametrize(
    "text",
    [
        "/home/<USER>/x /Users/runner/work /home/user C:\\Users\\Public",
        "git@github.com:a/b.git ann@example.com noreply@shop.de 12+ann@users.noreply.github.com https://x@y.de",
        f"index {'ab12' * 10} sha256-{'0f' * 32} 11111111-2222-4333-8444-555555555555",
        "toolu_01A09q90qw90lq917835lq9 src/some_module/another_one/test_of_that_module.py",
        "the quick brown fox jumps over the lazy dog " * 20,
        "AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_what_is_nothing(text: str) -> None:
    assert find_leaks(text.encode(), Secrets({})) == ()


def test_places_count_characters() -> None:
    assert find_leaks(f"é\nüü {KEY}".encode(), Secrets({}))[0] == Leak(
        True, "what looks like a secret (github-token)", 2, 4
    )


# in cassettes ---------------------------------------------------------------------------------------------------------
def test_a_clean_one(folder: Path) -> None:
    lint_result = linted(folder)
    assert (lint_result.findings, lint_result.format, lint_result.recordings, lint_result.files) == ((), FORMAT, 1, 6)
    assert lint_result.notices == ()


def test_the_seal_of_its_run(folder: Path) -> None:
    """Absent: recorded before there were seals."""
    made = load(folder)
    run = made.manifest.fixture.run
    for seal, expected in (
        (seal_of({run_stream(run): Head(1, bytes(32))}, "ab12", run).text, []),
        (seal_of({run_stream("r2"): Head(1, bytes(32))}, "ab12", "r2").text, ["UNREADABLE"]),
        (seal_of({run_stream(run): Head(1, bytes(32))}, "ab12", run).text.replace(" 1 ", " 2 "), ["UNREADABLE"]),
        ("nothing", ["UNREADABLE"]),
    ):
        save(made._replace(manifest=msgspec.structs.replace(made.manifest, seal=seal)), folder, replace=True)
        result = linted(folder)
        assert ([finding.kind for finding in result.findings], result.notices) == (expected, ())


@pytest.mark.parametrize("kind", ["prompt", "stdout", "patch"])
def test_a_secret_in_any_file(folder: Path, kind: str) -> None:
    holding(folder, kind, f"line\n  {VALUE}\n{KEY}\n".encode())
    result = linted(folder).findings
    names = {"prompt": "prd.prompt.md", "stdout": "prd.stream-json", "patch": "prd.patch"}
    assert [(finding.kind, finding.file, finding.line) for finding in result] == [
        ("SECRET", f"lib/small/f/{names[kind]}", 2), ("SECRET", f"lib/small/f/{names[kind]}", 3)
    ]  # fmt: skip
    assert result[0].message == "the file contains the value of SHOP_TOKEN"
    assert VALUE not in repr(linted(folder))
    assert KEY not in repr(linted(folder))


def test_a_secret_in_the_manifest_and_in_the_settings_of_a_call(folder: Path) -> None:
    made = load(folder)
    (call,) = made.calls
    argv = (*call.recording.argv, f"--token={VALUE}")
    manifest = msgspec.structs.replace(made.manifest, evidence={"config": {"key": VALUE}})
    recorded = (RecordedCall(msgspec.structs.replace(call.recording, argv=argv), call.contents),)
    save(Cassette(manifest, recorded), folder, replace=True)
    assert [finding.file for finding in linted(folder).findings] == ["lib/small/cassette.yaml", "lib/small/f/prd.json"]


def test_a_secret_in_the_packed_repository(folder: Path, tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "shop")
    repository.commit({"src/settings.py": f"A = 1\nTOKEN = {VALUE!r}\n", "authors": "ann@shop.de /home/annegret"})
    head = repository.git("rev-parse", "HEAD")
    bundle = create_bundle(repository.root, os.environ, head, {})  # type: ignore[arg-type]
    made = load(folder)
    world = msgspec.structs.replace(made.manifest.fixture, bundle_sha256=digest(bundle))
    manifest = msgspec.structs.replace(made.manifest, fixture=world)
    save(made._replace(manifest=manifest, bundle=bundle), folder, replace=True)
    lint_result = linted(folder)
    assert [(finding.file, finding.line) for finding in lint_result.findings] == [
        ("lib/small/repository.bundle:src/settings.py", 2)
    ]
    assert lint_result.findings[0].fix.startswith("take it out of the project and commit, then: mz run && mz record")
    assert not [notice for notice in lint_result.notices if "bundle" in notice.file], (
        "names in one's own files are one's own"
    )


def test_the_same_thing_many_times_is_told_a_few_times(folder: Path) -> None:
    holding(folder, "stdout", f"{VALUE}\n".encode() * 100)
    result = linted(folder).findings
    assert [finding.line for finding in result] == [1, 2, 3, 4, 5]
    assert result[-1].message.endswith(", and in 95 more lines")


def test_what_is_damaged_is_looked_through_all_the_same(folder: Path) -> None:
    (folder / "f" / "prd.patch").write_text(f"{VALUE}\n")
    result = linted(folder).findings
    assert [(finding.kind, finding.file) for finding in result] == [
        ("UNREADABLE", "lib/small/f/prd.patch"), ("SECRET", "lib/small/f/prd.patch")
    ]  # fmt: skip
    assert result[0].message == "f/prd.patch was changed since it was recorded: prd.json has another digest"


def test_files_that_are_no_part_of_it(folder: Path) -> None:
    (folder / "notes.txt").write_text(VALUE)
    (folder / "f" / "old").mkdir()
    (folder / "f" / "old" / "x").write_text("")
    result = linted(folder).findings
    assert [(finding.kind, finding.message) for finding in result] == [
        ("SECRET", "the file contains the value of SHOP_TOKEN"),
        ("UNUSED", "f/old/x is not part of the cassette"),
        ("UNUSED", "notes.txt is not part of the cassette"),
    ]


@pytest.mark.slow
def test_one_that_is_damaged_spoils_no_other(folder: Path, tmp_path: Path) -> None:
    many = tmp_path / "many"
    copies = big_library(many, folder, 40)
    shutil.rmtree(copies[7] / "f")
    linter = Linter(Secrets(SECRETS), os.environ)
    results = [linter.lint(path, path.name) for path in copies]
    assert [lint_result.path for lint_result in results if lint_result.findings] == ["c0007"]
    assert len(results) == 40
    assert PROMPT.encode() in (copies[3] / "f" / "prd.prompt.md").read_bytes()
