"""The tools of `mz-anthropic`: what they do, what they refuse, and that nothing outside the directory is open."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.agents.anthropic_api.tools import (
    FILE_BYTES_MAX,
    FORMS,
    MATCHES_MAX,
    OUTPUT_BYTES_MAX,
    SHOWN_CHARS_MAX,
    Sandbox,
    Toolbox,
    ToolError,
)
from mz_engine.model.pipeline import Tool

ALL: tuple[Tool, ...] = ("read", "write", "shell")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository beside a file that is none of the model's business."""
    (tmp_path / "secret.txt").write_text("secret")
    work = tmp_path / "work"
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    return work


@pytest.fixture
def toolbox(root: Path) -> Toolbox:
    return Toolbox(Sandbox(root), ALL, {"PATH": os.environ["PATH"], "ANTHROPIC_API_KEY": "k"}, lambda: None)


def use(toolbox: Toolbox, tool: str, **document: object) -> str:
    text, failed = toolbox.use(tool, document)
    assert not failed, text
    return text


def refused(toolbox: Toolbox, tool: str, **document: object) -> str:
    text, failed = toolbox.use(tool, document)
    assert failed, text
    return text


# where ----------------------------------------------------------------------------------------------------------------
OUTER = ("../secret.txt", "/etc/hostname", "a/../../secret.txt", "link.txt", "folder/secret.txt", "..", "loop", "a\0b")


@pytest.mark.parametrize("path", OUTER)
@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file"])
def test_nothing_outside_is_open(tool: str, path: str, root: Path, toolbox: Toolbox) -> None:
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    (root / "folder").symlink_to(root.parent)
    (root / "loop").symlink_to(root / "loop")
    more = {"read_file": {}, "write_file": {"content": "x"}, "edit_file": {"old": "secret", "new": "x"}}[tool]
    refused(toolbox, tool, path=path, **more)
    assert (root.parent / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize("path", [".git/config", ".GIT/config", "sub/.git/hooks/pre-commit", ".git"])
def test_what_is_gits_is_not_open(path: str, toolbox: Toolbox) -> None:
    assert "belongs to git" in refused(toolbox, "write_file", path=path, content="x")
    assert "belongs to git" in refused(toolbox, "read_file", path=path)


def test_new_files_come_to_be_inside_only(root: Path, toolbox: Toolbox) -> None:
    (root / "folder").symlink_to(root.parent)
    refused(toolbox, "write_file", path="folder/new/deep.txt", content="x")
    refused(toolbox, "write_file", path="../new.txt", content="x")
    assert sorted(path.name for path in root.parent.iterdir()) == ["secret.txt", "work"]
    (root / "dangling").symlink_to(root.parent / "made.txt")
    refused(toolbox, "write_file", path="dangling", content="x")
    assert not (root.parent / "made.txt").exists()


def test_a_link_inside_leads_to_its_file(root: Path, toolbox: Toolbox) -> None:
    (root / "a.txt").write_text("one")
    (root / "b.txt").symlink_to("a.txt")
    use(toolbox, "edit_file", path="b.txt", old="one", new="two")
    assert (root / "a.txt").read_text() == "two"
    assert (root / "b.txt").is_symlink()
    assert use(toolbox, "read_file", path=str(root / "b.txt")) == "two"


def test_listing_and_searching_stay_inside(root: Path, toolbox: Toolbox) -> None:
    (root / "folder").symlink_to(root.parent)
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    assert "secret" not in use(toolbox, "search_files", expression="secret")
    for tool, more in (("list_files", {}), ("search_files", {"expression": "x"})):
        assert "outside" in refused(toolbox, tool, path="..", **more)


@given(path=st.text(alphabet=st.characters(codec="utf-8") | st.sampled_from(["/", ".", "\0"]), max_size=40))
def test_no_path_leads_out(path: str) -> None:
    sandbox = Sandbox(Path("/usr/lib"))
    try:
        folder = sandbox.resolve(path)
    except ToolError:
        return
    assert folder.is_relative_to(sandbox.root)


def test_a_fifo_is_not_waited_for(root: Path, toolbox: Toolbox) -> None:
    os.mkfifo(root / "pipe")
    assert "no regular file" in refused(toolbox, "read_file", path="pipe")
    refused(toolbox, "write_file", path="pipe", content="x")
    assert use(toolbox, "search_files", expression="x") == "[nothing found]"


# files ----------------------------------------------------------------------------------------------------------------
def test_reading(root: Path, toolbox: Toolbox) -> None:
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    assert use(toolbox, "read_file", path="a.txt") == "one\ntwo\nthree\n"
    assert use(toolbox, "read_file", path="a.txt", offset=2, limit=1) == "two\n\n[lines 2 to 2 of 3]"
    assert "has 3 lines" in refused(toolbox, "read_file", path="a.txt", offset=9)
    assert "No such file" in refused(toolbox, "read_file", path="b.txt")
    (root / "empty").touch()
    assert use(toolbox, "read_file", path="empty") == ""


def test_reading_what_is_long_or_no_text(root: Path, toolbox: Toolbox) -> None:
    (root / "long").write_text("line\n" * 5000)
    assert use(toolbox, "read_file", path="long").endswith("\n[lines 1 to 2000 of 5000]")
    (root / "wide").write_text("x" * 500_000 + "\nend\n")
    assert len(use(toolbox, "read_file", path="wide")) < SHOWN_CHARS_MAX + 100
    (root / "one line").write_text("x" * 100_000)
    assert use(toolbox, "read_file", path="one line").endswith("x\n[40000 characters of line 1 left out]")
    (root / "wider").write_text(("y" * 50_000 + "\n") * 3)
    assert use(toolbox, "read_file", path="wider").endswith("[lines 1 to 1 of 3]")
    (root / "binary").write_bytes(b"\x7fELF\0\0")
    assert "is no text: it holds 6 bytes" in refused(toolbox, "read_file", path="binary")
    (root / "latin").write_bytes(b"caf\xe9\n")
    assert use(toolbox, "read_file", path="latin") == "caf\ufffd\n"
    with (root / "huge").open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    assert "are the most" in refused(toolbox, "read_file", path="huge")


def test_writing_makes_directories_and_keeps_the_mode(root: Path, toolbox: Toolbox) -> None:
    assert use(toolbox, "write_file", path="a/b/c.sh", content="é\n") == "wrote 3 bytes to a/b/c.sh"
    (root / "a/b/c.sh").chmod(0o755)
    use(toolbox, "write_file", path="a/b/c.sh", content="x")
    assert (root / "a/b/c.sh").read_text() == "x"
    assert (root / "a/b/c.sh").stat().st_mode & 0o777 == 0o755
    assert "directory" in refused(toolbox, "write_file", path="a/b", content="x")
    assert refused(toolbox, "write_file", path="a/b/c.sh/d", content="x")
    assert "UTF-8" in refused(toolbox, "write_file", path="d", content="\ud800")


def test_replacing_is_exact(root: Path, toolbox: Toolbox) -> None:
    (root / "a").write_bytes(b"one two one caf\xe9")
    assert "2 times" in refused(toolbox, "edit_file", path="a", old="one", new="1")
    assert "does not hold" in refused(toolbox, "edit_file", path="a", old="One", new="1")
    assert "empty" in refused(toolbox, "edit_file", path="a", old="", new="1")
    assert use(toolbox, "edit_file", path="a", old="two", new="2") == "replaced 1 place in a"
    assert use(toolbox, "edit_file", path="a", old="one", new="1", all=True) == "replaced 2 places in a"
    assert (root / "a").read_bytes() == b"1 2 1 caf\xe9"


def test_replacing_makes_no_file_too_large(root: Path, toolbox: Toolbox) -> None:
    (root / "a").write_text("a" * 100_000)
    output = refused(toolbox, "edit_file", path="a", old="a", new="b" * 1000, all=True)
    assert output == "a would have 100000000 bytes; 10000000 are the most"
    assert (root / "a").read_text() == "a" * 100_000


def test_line_ends_of_windows_stay(root: Path, toolbox: Toolbox) -> None:
    (root / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    use(toolbox, "edit_file", path="a", old="one\ntwo\n", new="1\n2\n")
    assert (root / "a").read_bytes() == b"1\r\n2\r\nthree\r\n"
    use(toolbox, "edit_file", path="a", old="three", new="3\n4")
    assert (root / "a").read_bytes() == b"1\r\n2\r\n3\r\n4\r\n"
    (root / "mixed").write_bytes(b"one\r\ntwo\n")
    use(toolbox, "edit_file", path="mixed", old="two", new="2\n3")
    assert (root / "mixed").read_bytes() == b"one\r\n2\n3\n"


def test_listing_leaves_out_what_git_ignores(root: Path, toolbox: Toolbox) -> None:
    for name in ("a.py", "b.txt", "src/c.py", "src/deep/d.py", "node_modules/e.py"):
        use(toolbox, "write_file", path=name, content="needle\n")
    use(toolbox, "write_file", path=".gitignore", content="node_modules/\n")
    assert use(toolbox, "list_files").split("\n") == [".gitignore", "a.py", "b.txt", "src/c.py", "src/deep/d.py"]
    assert use(toolbox, "list_files", pattern="*.py", path="src").split("\n") == ["src/c.py", "src/deep/d.py"]
    assert use(toolbox, "list_files", pattern="*.rs") == "[no such file]"
    assert use(toolbox, "search_files", expression="nee+dle", pattern="src/*.py") == "src/c.py:1: needle"
    assert use(toolbox, "list_files", pattern="[[:alpha:]].py").split("\n") == ["a.py", "src/c.py", "src/deep/d.py"]
    assert "no pattern" in refused(toolbox, "list_files", pattern="[")
    assert "no directory" in refused(toolbox, "list_files", path="a.py")


def test_without_a_repository_nothing_is_listed(tmp_path: Path) -> None:
    text, failed = Toolbox(Sandbox(tmp_path), ("read",), {}, lambda: None).use("list_files", {})
    assert failed
    assert "cannot be listed" in text


def test_searching_is_bounded(root: Path, toolbox: Toolbox) -> None:
    (root / "many").write_text("x\n" * 1000)
    texts = use(toolbox, "search_files", expression="x").split("\n")
    assert len(texts) == MATCHES_MAX + 1
    assert "no regular expression" in refused(toolbox, "search_files", expression="(")
    (root / "nul").write_bytes(b"x\0")
    assert "nul" not in use(toolbox, "search_files", expression="x", pattern="nul")


def test_no_expression_searches_without_end(root: Path, toolbox: Toolbox) -> None:
    (root / "many").write_text("a" * 60 + "b")
    assert use(toolbox, "search_files", expression=r"(a+)+$") == "[nothing found]"
    assert "no regular expression" in refused(toolbox, "search_files", expression="(?=a)")


# commands -------------------------------------------------------------------------------------------------------------
def test_commands(root: Path, toolbox: Toolbox) -> None:
    assert use(toolbox, "run_command", command="pwd") == f"{root}\n"
    assert use(toolbox, "run_command", command="true") == "[no output]"
    assert refused(toolbox, "run_command", command="echo no >&2; exit 3") == "no\n\n[exit 3]"
    assert use(toolbox, "run_command", command="cat; echo ${ANTHROPIC_API_KEY-no key}") == "no key\n"
    assert "NUL" in refused(toolbox, "run_command", command="a\0b")
    assert "[exit -9]" in refused(toolbox, "run_command", command="kill -9 $$")


def test_output_of_any_size_is_bounded(toolbox: Toolbox) -> None:
    text = use(toolbox, "run_command", command="echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo last")
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "bytes left out]" in text
    assert len(text) < OUTPUT_BYTES_MAX + 100
    assert use(toolbox, "run_command", command="printf '\\377\\0x'") == "\ufffd\0x"


@pytest.mark.slow
def test_a_time_limit_ends_all_of_a_command(root: Path, toolbox: Toolbox) -> None:
    output = refused(
        toolbox, "run_command", command="sh -c 'sleep 661.5 & sleep 661.5' & echo on; wait", timeout_seconds=1
    )
    assert output == "on\n\n[ended after 1 s, its time limit]"
    assert not _running("661.5")


def test_what_a_command_leaves_running_is_ended_with_it(toolbox: Toolbox) -> None:
    assert use(toolbox, "run_command", command="sleep 662.5 & echo started") == "started\n"
    assert not _running("662.5")


def _running(seconds: str) -> bool:
    """Still, after what was killed had a moment to go."""
    for _ in range(50):
        if not any(f"sleep\0{seconds}\0" == line for line in _commands()):
            return False
        time.sleep(0.1)
    return True


def _commands() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes().decode("utf-8", "replace")


# offers ---------------------------------------------------------------------------------------------------------------
def test_only_what_was_offered_can_be_used(root: Path) -> None:
    reader = Toolbox(Sandbox(root), ("read",), {}, lambda: None)
    text, failed = reader.use("run_command", {"command": "touch x"})
    assert failed
    assert text == "there is no tool 'run_command'; there are: list_files, read_file, search_files"
    assert Toolbox(Sandbox(root), (), {}, lambda: None).use("read_file", {})[0].endswith("there are: none")
    assert not list(root.glob("x"))


def test_wrong_arguments_are_told(toolbox: Toolbox) -> None:
    assert "missing required field `path`" in refused(toolbox, "read_file")
    assert "Expected `str`" in refused(toolbox, "read_file", path=1)
    assert "unknown field" in refused(toolbox, "read_file", path="a", more=1)
    for wrong in (None, "x", [1], {"path": {"a": "b"}}):
        assert toolbox.use("read_file", wrong)[1]


@pytest.mark.parametrize("name", ["path", "pattern"])
@pytest.mark.parametrize("tool", ["list_files", "search_files"])
def test_an_unpaired_surrogate_ends_no_call(tool: str, name: str, toolbox: Toolbox) -> None:
    more = {"expression": "x"} if tool == "search_files" else {}
    assert refused(toolbox, tool, **{name: "\ud800"}, **more)


def test_the_offer_says_what_the_tools_take() -> None:
    """Each tool's own form takes just what its schema names."""
    box = Toolbox(Sandbox(Path()), ALL, {}, lambda: None)
    document = {tool["name"]: tool["input_schema"] for tool in box.definitions()}
    forms = {form.name: form for kind in FORMS.values() for form in kind}
    assert set(document) == set(forms)
    for name, form in forms.items():
        assert set(document[name]["properties"]) == set(form.__struct_fields__), name
        required = [field for field in form.__struct_fields__ if field not in _optional(form)]
        assert document[name].get("required", []) == required, name
        assert document[name]["additionalProperties"] is False
        assert not {"title", "$ref"} & document[name].keys()
    names = [tool["name"] for tool in Toolbox(Sandbox(Path()), ("write",), {}, lambda: None).definitions()]
    assert names == ["write_file", "edit_file"]
    assert Toolbox(Sandbox(Path()), (), {}, lambda: None).definitions() == []


def _optional(form: type) -> set[str]:
    return {field.name for field in msgspec.structs.fields(form) if not field.required}
