"""The last words of an agent at work, whatever it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_cli.live.progress import TAIL_BYTES, SpoolReader
from mz_engine.agents.process import spool_directory

KEY = "r1/login/code/-/1/1/agent.builder"


def text(value: str) -> dict[str, object]:
    return {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": value}]}}


def tool(name: str, **used: str) -> dict[str, object]:
    return {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": name, "input": used}]}}


def stream(*events: object) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


@pytest.mark.parametrize(
    ("output", "texts"),
    [
        (b"", ()),
        (b"plain words\nmore\n", ("plain words", "more")),
        (stream(text("I begin."), tool("Edit", file_path="src/a.py", old_string="x")), ("I begin.", "Edit src/a.py")),
        (stream(tool("Bash", command="pytest -q", description="tests")), ("Bash pytest -q",)),
        (stream(tool("Read", file_path="/home/u/p/.mz/worktrees/r1/login/src/a.py")), ("Read src/a.py",)),
        (stream({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "no"}]}}), ()),
        (stream({"type": "user", "message": {"content": [{"type": "tool_result", "content": "no"}]}}), ()),
        (stream({"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}}), ("Done.",)),
        (stream({"type": "item.started", "item": {"type": "command_execution", "command": "make"}}), ("make",)),
        (stream({"type": "message", "role": "assistant", "content": "I look."}), ("I look.",)),
        (stream({"type": "tool_use", "tool_name": "shell", "parameters": {"command": "ls"}}), ("shell ls",)),
        (stream(text("one\n\ntwo\nthree\nfour")), ("two", "three", "four")),
        (stream(text("all is well"))[5:] + stream(text("whole")), ("whole",)),
        (b'{"type": "assistant", "message": {"con', ()),
        (stream(text("\x1b[31mred\x1b[0m \u202e\tend")), ("red end",)),
        (stream(["a", 1, None], {"content": {"content": {}}}), ()),
    ],
)
def test_what_is_said(output: bytes, texts: tuple[str, ...]) -> None:
    assert SpoolReader(Path("/home")).last_lines(output) == texts


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("/tmp/my own project/.mz/worktrees/r1/login/tasks/a b.md", "Write tasks/a b.md"),
        (r"/tmp/my\ own\ project/.mz/worktrees/r1/login/src/a.py", "Write src/a.py"),
        ("/elsewhere/.mz/worktrees/r1/login/src/a.py", "Write src/a.py"),
        ("/tmp/my own project/src/a.py", "Write /tmp/my own project/src/a.py"),
    ],
)
def test_a_worktree_is_left_out_whole(written: str, message: str) -> None:
    """Blanks in the name of the repository too, plain and as a shell escapes them."""
    output = stream(tool("Write", file_path=written))
    assert SpoolReader(Path("/tmp/my own project")).last_lines(output) == (message,)


def test_spools_know_their_repository(tmp_path: Path) -> None:
    home = tmp_path / "my own project"
    path = spool_directory(home / ".mz" / "spool", KEY)
    path.mkdir(parents=True)
    file = home / ".mz" / "worktrees" / "r1" / "login" / "a.py"
    (path / "stdout").write_bytes(stream(tool("Write", file_path=str(file))))
    assert SpoolReader(home).recent_output(KEY) == ("Write a.py",)


@given(
    st.binary(max_size=300)
    | st.recursive(
        st.text() | st.integers() | st.none(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "text", "content", "message", "name", "input", "role"]), inner, max_size=4
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_output_is_too_odd(output: bytes) -> None:
    for args in SpoolReader(Path("/home")).last_lines(output):
        assert args
        assert not set(args) & set("\x1b\n\r\x07")


def test_the_spool_is_read_again_when_it_has_grown(tmp_path: Path) -> None:
    spools, path = SpoolReader(tmp_path), spool_directory(tmp_path / ".mz" / "spool", KEY)
    assert spools.recent_output(KEY) == ()
    path.mkdir(parents=True)
    (path / "stdout").write_bytes(stream(text("first")))
    assert spools.recent_output(KEY) == ("first",)
    with open(path / "stdout", "ab") as file:
        file.write(b"x" * TAIL_BYTES + b'"\n' + stream(text("last")))
    assert spools.recent_output(KEY) == ("last",)


def test_only_the_end_of_a_huge_output_is_read(tmp_path: Path) -> None:
    path = spool_directory(tmp_path / ".mz" / "spool", KEY)
    path.mkdir(parents=True)
    with open(path / "stdout", "wb") as file:
        file.truncate(5 * TAIL_BYTES)
        file.seek(0, 2)
        file.write(b"\n" + stream(text("the end")))
    assert SpoolReader(tmp_path).recent_output(KEY)[-1] == "the end"
