"""Cassettes that somebody has changed by hand, damaged, or made to do harm: refused by name, never a traceback, never a
pass, never a wait, and nothing is written outside of the scratch directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_recordings.cassette.files import (
    SUMS,
    CassetteChanged,
    CassetteUnreadable,
    digest,
    digest_of,
    load,
    overwrite,
    save,
)
from mz_recordings.cassette.model import Cassette, RecordedCall
from mz_recordings.replay.replay import run_replay

from tests.cli.drive import spawn
from tests.support.examples import examples, first_of_each
from tests.support.gitrepo import GitRepo
from tests.support.tapes import git
from tests.support.workshop import Copy, clone

GIGABYTE = 1 << 30


# any byte -------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def victim(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cassette; a test that changes it puts it back."""
    return clone(recorded, tmp_path_factory.mktemp("victim") / "clone").folder


CHANGES: dict[str, Callable[[bytes, int, int], bytes]] = {
    "flip": lambda data, at, bit: data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :],
    "delete": lambda data, at, bit: data[:at] + data[at + 1 :],
    "insert": lambda data, at, bit: data[:at] + bytes([bit + 0x20]) + data[at:],
    "cut": lambda data, at, bit: data[:at],
}


@examples(120)
@given(data=st.data())
@pytest.mark.slow
def test_any_byte_of_any_file(victim: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(path for path in victim.rglob("*") if path.is_file())))
    change = data.draw(st.sampled_from(sorted(CHANGES)))
    content = path.read_bytes()
    at, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
    path.write_bytes(CHANGES[change](content, at, bit))
    try:
        with pytest.raises(CassetteUnreadable):
            load(victim)
    finally:
        path.write_bytes(content)


@pytest.mark.slow
def test_any_file_that_is_gone(victim: Path) -> None:
    for path in [path for path in victim.rglob("*") if path.is_file()]:
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(CassetteUnreadable):
            load(victim)
        path.write_bytes(data)
    load(victim)


# whole libraries ------------------------------------------------------------------------------------------------------
def replaced(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def linked(path: Path, target: str) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(target)


def foldered(path: Path) -> None:
    path.unlink()
    path.mkdir()


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


BOMB = "a: &a [1]\n" + "".join(f"{key}: &{key} [{', '.join([f'*{before}'] * 9)}]\n" for before, key in zip(
    "abcdefgh", "bcdefghi", strict=True))  # fmt: skip
HOSTILE: dict[str, Callable[[Path], object]] = {
    "newer": lambda folder: replaced(folder, "cassette.yaml", "format: 3", "format: 9"),
    "older": lambda position: replaced(position, "cassette.yaml", "format: 3", "format: 1"),
    "newer-recording": lambda folder: replaced(folder, "alpha/sign.json", '"format": 3', '"format": 9'),
    "no-manifest": lambda folder: (folder / "cassette.yaml").unlink(),
    "no-sums": lambda folder: (folder / SUMS).unlink(),
    "no-patch": lambda location: (location / "alpha/write.patch").unlink(),
    "other-patch": lambda folder: (folder / "alpha/write.patch").write_text("other"),
    "leads-out": lambda folder: replaced(folder, "alpha/write.json", '"write.patch"', '"../../../etc/passwd"'),
    "absolute": lambda folder: replaced(folder, "alpha/write.json", '"write.patch"', '"/etc/passwd"'),
    "nul": lambda folder: replaced(folder, "alpha/write.json", '"write.patch"', '"a\\u0000b"'),
    "feature-leads-out": lambda folder: replaced(folder, "cassette.yaml", "feature: alpha", "feature: ../alpha"),
    "link": lambda folder: linked(folder / "alpha/write.patch", "/etc/passwd"),
    "device": lambda folder: linked(folder / "alpha/write.patch", "/dev/zero"),
    "linked-folder": lambda folder: linked(folder / "beta", "../notes/beta"),
    "linked-manifest": lambda folder: linked(folder / "cassette.yaml", "/dev/zero"),
    "pipe": lambda folder: piped(folder / "alpha/write.patch"),
    "pipe-manifest": lambda folder: piped(folder / "cassette.yaml"),
    "pipe-sums": lambda folder: piped(folder / SUMS),
    "gigabyte": lambda folder: os.truncate(folder / "alpha/write.stream-json", GIGABYTE),
    "gigabyte-manifest": lambda folder: os.truncate(folder / "cassette.yaml", GIGABYTE),
    "gigabyte-recording": lambda folder: os.truncate(folder / "alpha/write.json", GIGABYTE),
    "gigabyte-sums": lambda folder: os.truncate(folder / SUMS, GIGABYTE),
    "bomb": lambda folder: (folder / "cassette.yaml").write_text(f"format: 3\n{BOMB}"),
    "deep": lambda folder: (folder / "cassette.yaml").write_text("format: 3\nx: " + "[" * 100_000),
    "deep-json": lambda folder: (folder / "alpha/write.json").write_text('{"format": ' + "[" * 100_000),
    "huge": lambda folder: (folder / "cassette.yaml").write_text("format: 3\nevidence:\n" + "- x\n" * 5_000_000),
    "case": lambda folder: shutil.copytree(folder / "alpha", folder / "Alpha"),
    "binary": lambda folder: (folder / "cassette.yaml").write_bytes(b"\xff\xfe\x00format: 3"),
    "never": lambda folder: replaced(folder, "cassette.yaml", "clock_start: '20", "clock_start: '00"),
    "folder": lambda folder: foldered(folder / "alpha/write.patch"),
    "loop": lambda folder: linked(folder, folder.name),
}  # fmt: skip


@pytest.fixture(scope="module")
def zoo(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose library holds one sound cassette, and everything that is wrong in a cassette of its own."""
    made = clone(recorded, tmp_path_factory.mktemp("zoo") / "clone")
    GitRepo(made.root).commit()
    for name, harm in HOSTILE.items():
        shutil.copytree(made.folder, made.folder.parent / name)
        harm(made.folder.parent / name)
    (made.folder.parent / "file").write_text("no cassette")
    return made.root


@pytest.mark.slow
@pytest.mark.parametrize("command", ["replay", "recordings lint"])
def test_each_is_refused_and_the_sound_one_is_not(zoo: Path, command: str) -> None:
    before = sorted(str(path) for path in zoo.rglob("*"))
    result = spawn(zoo, *command.split(), "--json")
    assert result.exit == 125, result.err
    assert "Traceback" not in result.out + result.err
    kinds = {
        Path(item["path"]).name: {entry["kind"] for entry in item["findings"]}
        for item in json.loads(result.out)["cassettes"]
    }
    assert kinds.pop("notes") == set()
    assert {name for name, actual in kinds.items() if "UNREADABLE" not in actual} == set()
    assert set(kinds) == set(HOSTILE)
    assert sorted(str(path) for path in zoo.rglob("*")) == before


@pytest.mark.slow
def test_what_can_be_told_of_them(zoo: Path) -> None:
    listed = spawn(zoo, "recordings", "list", "--json")
    assert (listed.exit, "Traceback" in listed.err) == (125, False)
    problems = {Path(entry["path"]).name: entry["problem"] for entry in json.loads(listed.out)["cassettes"]}
    assert problems.pop("notes") is None
    assert set(problems) == set(HOSTILE)
    summary = (
        "newer",
        "no-manifest",
        "no-sums",
        "no-patch",
        "pipe-manifest",
        "gigabyte-manifest",
        "bomb",
        "deep",
        "loop",
    )
    assert all(problems[name] for name in summary)
    doctor = json.loads(spawn(zoo, "doctor", "--json").out)["checks"]
    (check,) = [item for item in doctor if item["name"] == "recordings"]
    assert (check["status"], " unreadable: " in check["summary"]) == ("warn", True)
    single = spawn(zoo, "replay", "recordings/file")
    assert (single.exit, "MZ6001" in single.err) == (4, True)
    drift = spawn(zoo, "drift", "recordings/notes", "recordings/bomb")
    assert (drift.exit, "Traceback" in drift.out + drift.err) == (125, False)


# what a sealed cassette may still try ---------------------------------------------------------------------------------
def with_patch(cassette: Cassette, path: str, patch: str) -> Cassette:
    """The call leaves this patch."""

    def changed(call: RecordedCall) -> RecordedCall:
        file = call.recording.find("patch")
        if call.recording.identity.path != path or file is None:
            return call
        data = patch.encode()
        files = tuple(
            msgspec.structs.replace(item, sha256=digest(data)) if item is file else item
            for item in call.recording.files
        )
        return RecordedCall(msgspec.structs.replace(call.recording, files=files), {**call.contents, file.name: data})

    return cassette._replace(calls=tuple(changed(call) for call in cassette.calls))


def creating(path: str, mode: str = "100755", text: str = "touch /tmp/harm") -> str:
    return f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"


@pytest.mark.slow
@pytest.mark.parametrize("path", [".git/hooks/post-checkout", "../../../../harm", "through/harm"])
def test_a_patch_that_leaves_the_tree(copy: Copy, tmp_path: Path, path: str) -> None:
    link = creating("through", "120000", f"{tmp_path}\n\\ No newline at end of file")
    patch = (link if path.startswith("through") else "") + creating(path)
    save(with_patch(copy.cassette(), "alpha/write", patch), copy.folder, replace=True)
    before = sorted(tmp_path.iterdir())
    (finding,) = copy.settle().findings
    assert (finding.kind, finding.feature, finding.call) == ("FILES", "alpha", "write")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_a_program_that_is_no_agents(copy: Copy) -> None:
    """A stand-in for git would be called by the stand-ins, itself among them, without end."""

    def changed(call: RecordedCall) -> RecordedCall:
        argv = ("git", *call.recording.argv[1:])
        return call._replace(recording=msgspec.structs.replace(call.recording, argv=argv))

    cassette = copy.cassette()
    save(cassette._replace(calls=(changed(cassette.calls[0]), *cassette.calls[1:])), copy.folder, replace=True)
    played = copy.settle()
    assert [finding.kind for finding in played.findings] == ["UNREADABLE"]
    assert "calls 'git', which is not an agent's command" in played.findings[0].message


def with_world(cassette: Cassette, **more: object) -> Cassette:
    world = msgspec.structs.replace(cassette.manifest.fixture, **more)
    return cassette._replace(manifest=msgspec.structs.replace(cassette.manifest, fixture=world))


@pytest.mark.parametrize(
    "world",
    [
        {"config": {"workspace": {"copy": ["../../../../etc/passwd"]}}},
        {"config": {"workspace": {"keep_ignored": ["/etc"]}}},
        {"config": {"autonomy": "none at all"}},
        {"base": "-x"},
        {"base": "../../x"},
        {"template": "../../etc"},
        {"base_tree": "1" * 40},
        {"bundle_sha256": digest(b"no bundle")},
    ],
)
@pytest.mark.slow
def test_a_world_that_cannot_be(copy: Copy, world: dict[str, object]) -> None:
    made = with_world(copy.cassette(), **world)
    if "bundle_sha256" in world:
        made = made._replace(bundle=b"no bundle")
    save(made, copy.folder, replace=True)
    (finding,) = copy.settle().findings
    assert finding.kind == "UNREADABLE"


@pytest.mark.parametrize("name", first_of_each(["..", ".git", ".GIT"], lambda name: name == ".."))
@pytest.mark.slow
def test_a_repository_with_names_that_lead_out(copy: Copy, tmp_path: Path, name: str) -> None:
    """git refuses them as it unpacks the bundle, before anything is a file."""
    forge = tmp_path / "forge"
    forge.mkdir()
    git(forge, "init", "-q")
    (forge / "x").write_text("harm")
    blob = git(forge, "hash-object", "-w", "x")
    inner = raw_tree(forge, b"100644 harm\0" + bytes.fromhex(blob))
    outer = raw_tree(forge, f"40000 {name}\0".encode() + bytes.fromhex(inner))
    git(forge, "update-ref", "refs/heads/base", git(forge, "commit-tree", outer, "-m", "x"))
    git(forge, "bundle", "create", "-q", "b", "--branches")
    data = (forge / "b").read_bytes()
    made = with_world(copy.cassette(), base_tree=outer, bundle_sha256=digest(data))
    save(made._replace(bundle=data), copy.folder, replace=True)
    (finding,) = copy.settle().findings
    assert finding.kind == "UNREADABLE"
    assert "cannot be created" in finding.message
    linted = spawn(copy.root, "recordings", "lint", "recordings/notes")
    assert not (tmp_path / "harm").exists()
    assert linted.exit in (15, 125), linted.out + linted.err


def raw_tree(folder: Path, data: bytes) -> str:
    done = subprocess.run(
        ["git", "hash-object", "-t", "tree", "--literally", "-w", "--stdin"],
        cwd=folder, input=data, capture_output=True, check=True,
    )  # fmt: skip
    return done.stdout.decode().strip()


# at the same time -----------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_what_is_renewed_meanwhile_is_read_whole(victim: Path, tmp_path: Path) -> None:
    folder = tmp_path / "busy"
    shutil.copytree(victim, folder)
    cassette = load(folder)
    other = cassette._replace(manifest=msgspec.structs.replace(cassette.manifest, max_age_days=9))
    done = threading.Event()

    def write() -> None:
        for version in [other, cassette] * 4:
            overwrite(version, folder)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    numbers = set()
    while not done.is_set():
        numbers.add(load(folder).manifest.max_age_days)
    writer.join()
    assert numbers <= {None, 9}
    assert [path.name for path in tmp_path.iterdir()] == ["busy"]


@pytest.mark.slow
def test_what_was_changed_meanwhile_is_not_replaced(victim: Path, tmp_path: Path) -> None:
    path = tmp_path / "busy"
    shutil.copytree(victim, path)
    cassette, expected = load(path), digest_of(path)
    other = cassette._replace(manifest=msgspec.structs.replace(cassette.manifest, max_age_days=9))
    overwrite(other, path)
    with pytest.raises(CassetteChanged, match="was changed by another process in the meantime"):
        overwrite(cassette, path, expected)
    assert load(path) == other
    overwrite(cassette, path, digest_of(path))


@pytest.mark.slow
def test_a_cassette_that_vanishes_is_played_to_its_end(copy: Copy) -> None:
    cassette = copy.cassette()
    shutil.rmtree(copy.folder)
    assert len(run_replay(cassette, copy.job()).mismatches) == 8
    (finding,) = copy.settle().findings
    assert (finding.kind, "cannot be read" in finding.message) == ("UNREADABLE", True)
