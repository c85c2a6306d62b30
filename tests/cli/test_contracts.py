"""What holds for every command: how it introduces itself, how it refuses, what it prints for programs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import jsonschema
import msgspec
import pytest
from mz_cli.app.command_table import COMMANDS, SECTIONS
from mz_cli.app.help import CommandFamily, CommandPage
from mz_cli.app.topics import TOPICS
from mz_cli.inspect.log import LogEntry, LogHeader
from mz_cli.main import choose_color, move_color_option_first
from mz_cli.main import mz as root_command
from mz_engine.agents.claude_code.adapter import ClaudeCode
from mz_engine.processes.environment import INHERITED_NAMES
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, on_terminal
from tests.cli.stored_run import RUN, StoredRun
from tests.support.tree import ROOT
from tools.docs.commands import command_pages
from tools.docs.documents import JSON_DOCUMENTS
from tools.docs.json_documents import WRITTEN, document_type
from tools.docs.json_documents import markdown_page as json_page

PAGES = dict(command_pages())
COMMAND_PAGES = {title: page for title, page in PAGES.items() if not isinstance(page, click.Group)}
PLAIN = {"mz completion", "mz schema", "mz seal", "mz erase", "mz pipelines prompt", "mz pipelines contract"}
"""They print a text or a file for a program of its own, so there is no `--json`."""
LINES = {"mz log"}
"""Their JSON is lines."""
CALLED = re.compile(r"`mz ([a-z]+)(?: ([a-z]+))?[ `]")
OUTSIDE = re.compile(r"\bjq\b|^#")


# pages ----------------------------------------------------------------------------------------------------------------
def test_every_command_stands_in_one_section_of_the_help() -> None:
    named = [name for names in SECTIONS.values() for name in names if name in COMMANDS]
    assert sorted(named) == sorted(COMMANDS)


@pytest.mark.parametrize("title", [title for title in PAGES if title != "mz"])
def test_a_page_is_complete(title: str) -> None:
    page = PAGES[title]
    assert isinstance(page, CommandPage)
    assert page.examples
    assert page.next_command
    assert re.fullmatch(r"[A-Z].*\.", (page.help or "").splitlines()[0])
    assert not [param for param in page.params if isinstance(param, click.Option) and not (param.help or param.hidden)]
    text = " ".join([page.help or "", page.next_command, *(purpose for _, purpose in page.examples)])
    for name, below in CALLED.findall(f"{text} "):
        assert name in COMMANDS or name == "COMMAND", f"{title} speaks of `mz {name}`"
        family = PAGES.get(f"mz {name}")
        assert not (below and isinstance(family, CommandFamily)) or below in family.commands, f"`mz {name} {below}`"


@pytest.mark.parametrize("title", [title for title in PAGES if title != "mz"])
def test_examples_are_of_this_command_and_understood(title: str) -> None:
    page = PAGES[title]
    assert isinstance(page, CommandPage)
    for line, _ in page.examples:
        called = list(calls(line))
        assert called, line
        for args in called:
            understood(args)
    assert any(line.startswith(title) or f"{title} " in line for line, _ in page.examples), title


def calls(line: str) -> Iterator[list[str]]:
    """The words after each `mz` of a shell's line."""
    args = shlex.split(line.replace('"$(', " ").replace(')"', " "), comments=True)
    while "mz" in args:
        args = args[args.index("mz") + 1 :]
        end = next((at for at, word in enumerate(args) if word in ("|", "&&", "<", ">", ">>", ";")), len(args))
        yield args[:end]


def understood(arguments: list[str]) -> None:
    """Raises UsageError for a word that no command takes."""
    with root_command.make_context("mz", move_color_option_first(arguments)) as context:
        texts, here = [*context._protected_args, *context.args], context
        while isinstance(here.command, click.Group) and texts:
            name, result, texts = here.command.resolve_command(here, texts)
            assert result is not None, arguments
            here = result.make_context(name, texts, parent=here)
            texts = [*here._protected_args, *here.args] if isinstance(result, click.Group) else []


@pytest.mark.parametrize("title", COMMAND_PAGES)
def test_wrong_words_are_refused_with_a_hint(title: str, mz: Mz) -> None:
    args = title.split()[1:]
    answer = mz(*args, "--no-such-option")
    assert (answer.exit, answer.out) == (2, "")
    assert answer.err.startswith("error[MZ1002] no such option --no-such-option")
    assert f"hint: see `{title} --help`" in answer.err


@pytest.mark.parametrize("title", COMMAND_PAGES)
def test_what_reads_can_print_json(title: str) -> None:
    """Its help names the schema, and docs/json.md describes it."""
    options = {name: param for param in COMMAND_PAGES[title].params for name in param.opts}
    if title in PLAIN:
        assert "--json" not in options
        return
    option = options["--json"]
    assert isinstance(option, click.Option)
    names = re.findall(r"mz\.([a-z-]+)/1", option.help or "")
    assert names or title in LINES, f"{title} --json should name its schema"
    assert set(names) <= set(JSON_DOCUMENTS), "describe it in tools.docs.documents"


@pytest.mark.parametrize("args", [("statsu",), ("pipelines", "lnit"), ("help", "exit-cods"), ("run", "--dry-rum")])
def test_a_slip_is_met_with_a_suggestion(args: tuple[str, ...], mz: Mz) -> None:
    answer = mz(*args)
    assert answer.exit == 2
    assert "did you mean" in answer.err.lower() or "possible options" in answer.err.lower(), answer.err


def test_nobody_is_asked_where_nobody_can_answer() -> None:
    """Whoever puts a question looks first whether there is a terminal."""
    asks = re.compile(r"click\.(confirm|prompt|edit|pause|getchar)\(|\binput\(")
    files = [file for file in (ROOT / "cli" / "mz_cli").rglob("*.py") if asks.search(file.read_text("utf-8"))]
    assert files
    assert not [file.name for file in files if not re.search(r"may_ask|is_terminal", file.read_text("utf-8"))]


# topics ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("topic", TOPICS)
def test_topics(topic: str, mz: Mz) -> None:
    answer = mz("help", topic)
    assert answer.exit == 0
    assert max(len(line) for line in answer.out.splitlines()) <= 90
    assert topic in mz("help", "help").out
    assert topic in mz("--help").out


def test_every_variable_that_is_read_is_in_the_topic() -> None:
    text = TOPICS["environment"][1]()
    read = re.compile(r"""environ(?:ment)?(?:\.get\(|\[)"([A-Z_]+)\"""")
    names = {name for package in ("cli", "engine") for file in (ROOT / package).rglob("*.py") for name in
             read.findall(file.read_text("utf-8"))}  # fmt: skip
    ordinary = {"PATH", "HOME", "TMPDIR"}
    assert {name for name in names - ordinary if name not in text} == set()


def test_every_variable_that_agents_see_is_in_the_topic_and_in_the_docs() -> None:
    text, page = TOPICS["environment"][1](), (ROOT / "docs" / "configuration.md").read_text("utf-8")
    texts = [*INHERITED_NAMES.split(), *ClaudeCode.passed_variables, *ClaudeCode.set_variables]
    assert [name for name in texts if name not in text or f"`{name.upper()}`" not in page] == []


def test_help_of_a_command_is_its_page(mz: Mz) -> None:
    assert mz("help", "pipelines", "new").out.strip() == mz("pipelines", "new", "-h").out.strip()
    assert mz("help").out.strip() == mz("--help").out.strip()


# JSON -----------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_page_of_json_is_what_the_code_says() -> None:
    assert (ROOT / "docs" / "json.md").read_text("utf-8") == json_page(), (
        "write it anew: python -m tools.docs.json_documents docs/json.md"
    )


@pytest.mark.parametrize("name", JSON_DOCUMENTS)
@pytest.mark.slow
def test_the_schema_of_each_document(name: str, snapshot: SnapshotAssertion) -> None:
    """A change here is a change for everybody's scripts: additions keep the number, anything else raises it."""
    schema = msgspec.json.schema(WRITTEN[name])
    jsonschema.Draft202012Validator.check_schema(schema)
    assert msgspec.json.format(msgspec.json.encode(schema), indent=1).decode() == snapshot


READING = (
    "status", f"status {RUN}", "runs", "show login", "cost", "audit --verify", "audit", "clean --blobs --dry-run",
    "review list",
    "review show audit", "pipelines list", "pipelines show monozukuri", "pipelines lint monozukuri",
    f"log --at {RUN}@1",
)  # fmt: skip
REFUSED = ("status nope", "show nope", "pipelines show nope", "clean", "log --at nope")
TABLES = ("status", "runs", "cost", "clean --blobs", "review list", "pipelines list", "pipelines show monozukuri")


@pytest.mark.slow
def test_one_object_of_the_schema_that_is_documented(stored_run: StoredRun, mz: Mz) -> None:
    for text in READING:
        answer = mz(*text.split(), "--json")
        assert answer.err == "", text
        summary = msgspec.json.decode(answer.out)
        name = re.fullmatch(r"mz\.([a-z-]+)/1", summary.pop("schema"))
        assert name is not None, text
        shape = WRITTEN[name[1]]
        assert set(summary) == {field.encode_name for field in msgspec.structs.fields(shape)}, text
        jsonschema.validate(summary, msgspec.json.schema(shape))


@pytest.mark.slow
def test_errors_are_documented_objects_too(stored_run: StoredRun, mz: Mz) -> None:
    for text in REFUSED:
        answer = mz(*text.split(), "--json")
        summary = msgspec.json.decode(answer.err)
        assert (answer.out, summary["exit"]) == ("", answer.exit), text
        assert summary.pop("schema") == "mz.error/1"
        assert set(summary) == {field.encode_name for field in msgspec.structs.fields(WRITTEN["error"])}
        jsonschema.validate(summary, msgspec.json.schema(WRITTEN["error"]))


@pytest.mark.slow
def test_a_pipe_gets_columns_apart_by_tabs(stored_run: StoredRun, mz: Mz) -> None:
    for text in TABLES:
        answer = mz(*text.split())
        lines = answer.out.splitlines()
        assert answer.exit == 0, text
        assert len(lines) > 1, text
        assert {line.count("\t") for line in lines} == {lines[0].count("\t")}, text
        assert lines[0].count("\t") >= 2, text
        assert "\x1b" not in answer.out, text


@pytest.mark.slow
def test_formats_of_tables(stored_run: StoredRun, mz: Mz) -> None:
    for line in TABLES:
        args = line.split()
        assert mz(*args, "--format", "json") == mz(*args, "--json"), line
        assert mz(*args, "--format=tsv") == mz(*args), line
        table = mz(*args, "--format", "table")
        assert (table.exit, "\t" in table.out, "\x1b" in table.out) == (0, False, False), line
    for option in (["--format", "json"], ["--format=json"]):
        assert msgspec.json.decode(mz("status", "nope", *option).err)["schema"] == "mz.error/1"
    assert "cannot be combined" in mz("status", "--json", "--format", "tsv").err


def test_what_drives_a_run_ends_with_a_table_in_a_pipe_too() -> None:
    defaults = {
        title.removeprefix("mz "): (option.help or "").partition("[default: ")[2]
        for title, page in COMMAND_PAGES.items()
        for option in page.params
        if isinstance(option, click.Option) and option.name == "output_format"
    }
    driving = {name for name, default in defaults.items() if default == "table]"}
    assert driving == {"run", "resume", "finish", "demo", "fork"}
    assert {default for name, default in defaults.items() if name not in driving} == {"table; tsv in a pipe]"}


def test_the_lines_of_the_log_are_documented(stored_run: StoredRun, mz: Mz) -> None:
    first, *others = [msgspec.json.decode(line) for line in mz("log", "--json").out.splitlines()]
    jsonschema.validate(first, msgspec.json.schema(LogHeader))
    entry = document_type(LogEntry)
    check = jsonschema.Draft202012Validator(msgspec.json.schema(entry))
    for other in others:
        check.validate(other)
        assert set(other) == {field.encode_name for field in msgspec.structs.fields(entry)}


# colours --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("args", "first"),
    [
        (("status", "--json"), ["status", "--json"]),
        (("status", "--color", "never", "--json"), ["--color", "never", "status", "--json"]),
        (("--color=always", "status"), ["--color=always", "status"]),
        (("status", "--color"), ["--color", "status"]),
        (("review", "answer", "--", "--color", "x"), ["review", "answer", "--", "--color", "x"]),
    ],
)
def test_the_flag_may_stand_after_the_command(args: tuple[str, ...], first: list[str]) -> None:
    assert move_color_option_first(args) == first


@pytest.mark.parametrize(
    ("when", "left"),
    [(None, {"NO_COLOR": "1"}), ("auto", {}), ("always", {"FORCE_COLOR": "1"}), ("never", {"NO_COLOR": "1"})],
)
def test_the_flag_wins_over_the_variables(
    monkeypatch: pytest.MonkeyPatch, when: str | None, left: dict[str, str]
) -> None:
    import os

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "")
    monkeypatch.delenv("FORCE_COLOR")
    choose_color(when)
    names = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE")
    assert {name: os.environ[name] for name in names if name in os.environ} == left


@pytest.mark.slow
def test_colours_on_a_terminal(stored_run: StoredRun) -> None:
    home: Path = stored_run.home
    assert "\x1b" in on_terminal(home, "status")
    assert "\x1b" not in on_terminal(home, "status", "--color", "never")
    assert "\x1b" in on_terminal(home, "status", "--color=always", env={"NO_COLOR": "1"})
