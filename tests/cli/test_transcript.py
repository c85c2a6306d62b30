"""`mz transcript`: what is in a file of an agent's, for people and for programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jsonschema
import msgspec
import pytest
from mz_cli.usage.transcript import TranscriptReport
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import MZ, Mz, on_terminal, spawn
from tests.support.tree import ROOT
from tools.docs.json_documents import document_type

CASES = ROOT / "tests/cases/transcripts/claude-code"
FIELDS = ["schema", "agent", "version", "session_id", "status", "models", "usage", "reported_usd", "computed_usd",
          "unpriced", "final_text", "undecodable_lines", "notes"]  # fmt: skip
TOKENS = ["input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning"]


def test_json_is_one_object_of_the_documented_shape(mz: Mz) -> None:
    answer = mz("transcript", str(CASES / "works-stream-2.1.197.jsonl"), "--json")
    assert (answer.exit, answer.err) == (0, "")
    plain = msgspec.json.decode(answer.out)
    assert list(plain) == FIELDS
    assert list(plain["usage"]) == TOKENS
    assert plain["schema"] == "mz.transcript/1"
    assert plain["reported_usd"] == plain["computed_usd"] == "0.09869925"
    jsonschema.validate(
        {name: plain[name] for name in FIELDS[1:]}, msgspec.json.schema(document_type(TranscriptReport))
    )


@pytest.mark.parametrize("name", ["works-stream-2.1.197", "refused-stream-2.1.197", "sub-agent-session-1.0.3"])
def test_a_table_says_it_to_people(name: str, mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("transcript", str(CASES / f"{name}.jsonl"))
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == snapshot


@pytest.mark.slow
def test_a_terminal_gets_it_within_its_width(snapshot: SnapshotAssertion) -> None:
    shown = on_terminal(CASES, "transcript", "sub-agent-stream-2.1.197.jsonl", columns=80)
    assert all(len(line) <= 80 for line in shown.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines())
    assert shown == snapshot


@pytest.mark.slow
def test_the_readme_shows_what_a_terminal_gets() -> None:
    """What it leaves out, it marks."""
    shown = on_terminal(CASES, "transcript", "sub-agent-stream-2.1.197.jsonl", env={"NO_COLOR": "1"})
    real = "\n".join(line.rstrip() for line in shown.splitlines())
    sample = (ROOT / "README.md").read_text("utf-8").partition("$ mz transcript run.jsonl\n")[2].partition("\n```")[0]
    assert "\n...\n" in sample
    for part in sample.removesuffix("\n...").split("\n...\n"):
        before, text, real = real.partition(f"{part}\n")
        assert text, part
        assert bool(before) == (not part.startswith("property ")), part


@pytest.mark.slow
def test_escape_sequences_of_an_agent_never_reach_a_terminal(tmp_path: Path) -> None:
    data = (CASES / "works-stream-2.1.197.jsonl").read_bytes()
    evil = data.replace(b"Done: note.md", b"Done\\u001b]0;owned\\u0007\\u202e: note.md")
    (tmp_path / "evil.jsonl").write_bytes(evil)
    shown = on_terminal(tmp_path, "transcript", "evil.jsonl", env={"NO_COLOR": "1"})
    assert "owned" not in shown
    assert "\x1b" not in shown
    assert "Done" in shown


@pytest.mark.slow
def test_standard_input_is_read_as_it_comes() -> None:
    stream = CASES / "works-stream-2.1.197.jsonl"
    with subprocess.Popen(["cat", stream], stdout=subprocess.PIPE) as source:
        done = subprocess.run([*MZ, "transcript", "-", "--json"], stdin=source.stdout, capture_output=True, check=True)
    assert msgspec.json.decode(done.stdout)["status"] == "success"


@pytest.mark.slow
def test_no_repository_is_needed_and_nothing_is_written(tmp_path: Path) -> None:
    done = spawn(tmp_path, "transcript", str(CASES / "works-stream-2.1.197.jsonl"))
    assert (done.exit, done.err) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "args", "code", "exit_code"),
    [
        (None, (), "error[MZ2001] {file}: cannot be read: no such file", 10),
        (b"", (), "error[MZ6030] {file}: is empty", 10),
        (b"\0" * 4096, (), "error[MZ6030] {file}: contains only blanks and zero bytes", 10),
        (b"[]", (), "error[MZ6030] {file}: has neither a JSON object nor text of a known format", 10),
        (b"{}", (), "error[MZ6030] {file}: is JSON of an unknown format; its first object has no keys;", 10),
        (b"# Notes\n", (), "error[MZ6030] {file}: has neither a JSON object nor text of a known format", 10),
        (b'{"type":"x"}\n', ("--agent", "nobody"), "error[MZ1002]", 2),
    ],
)
def test_what_cannot_be_read_is_refused(
    content: bytes | None, args: tuple[str, ...], code: str, exit_code: int, tmp_path: Path, mz: Mz
) -> None:
    file = tmp_path / "x.jsonl"
    if content is not None:
        file.write_bytes(content)
    answer = mz("transcript", str(file), *args)
    assert (answer.exit, answer.out) == (exit_code, "")
    assert answer.err.startswith(code.format(file=file)), answer.err
    assert "hint: " in answer.err


def test_a_file_without_permission_is_named(tmp_path: Path, mz: Mz) -> None:
    """As anybody else than root a mode would do; a directory cannot be read by anybody."""
    answer = mz("transcript", str(tmp_path))
    assert answer.exit == 10
    assert ": cannot be read: is a directory" in answer.err


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "link"])
def test_a_device_has_no_end_and_is_refused(device: str, tmp_path: Path, mz: Mz) -> None:
    (tmp_path / "link").symlink_to("/dev/zero")
    answer = mz("transcript", str(tmp_path / device))
    assert answer.exit == 10
    assert "cannot be read: is a device" in answer.err


@pytest.mark.parametrize(
    ("agent", "folder", "file", "kept", "tokens"),
    [
        ("qwen", "qwen", "works-stream-0.24.4.jsonl", b'"type":', 7903),
        ("claude-code", "claude-code", "works-session-2.1.330.jsonl", b'"type":"assistant"', 45_069),
        ("aider", "aider", "history-0.47.2.md", b"> Tokens:", 5244),
    ],
)
def test_a_named_agent_is_believed_where_no_line_is_conclusive(
    mz: Mz, tmp_path: Path, agent: str, folder: str, file: str, kept: bytes, tokens: int
) -> None:
    """Parts of files: without the first line, without ids, or a single line."""
    lines = (CASES.parent / folder / file).read_bytes().splitlines(keepends=True)[1:]
    (tmp_path / "part").write_bytes(b"".join(line.replace(b'"uuid"', b'"u"') for line in lines if kept in line))
    shown = mz("transcript", str(tmp_path / "part"), "--agent", agent, "--json")
    assert shown.exit == 0, shown.err
    report = msgspec.json.decode(shown.out)
    assert (report["agent"], report["usage"]["input"]) == (agent, tokens)
    wrong = mz("transcript", str(tmp_path / "part"), "--agent", "codex")
    assert (wrong.exit, "MZ6030" in wrong.err) == (10, True)


def test_an_agent_limits_what_is_taken(mz: Mz) -> None:
    file = str(CASES / "works-stream-2.1.197.jsonl")
    assert mz("transcript", file, "--agent", "claude-code").exit == 0
    answer = mz("transcript", file, "--agent", "codex")
    assert answer.exit == 10
    assert ": is claude-stream, which claude-code writes\nhint: leave --agent out" in answer.err
