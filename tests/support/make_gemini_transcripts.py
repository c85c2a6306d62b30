"""Makes the stored transcripts of Gemini CLI anew, by driving the real program against a scripted model.

    python -m tests.support.make_gemini_transcripts [--cli PATH --version NUMBER]

The installed CLI (`make clis`) makes those of its own version; the others need theirs: `npm install --prefix DIR
@google/gemini-cli@VERSION`, then `--cli DIR/node_modules/.bin/gemini`. What is expected stands in the `.yaml` beside
each file, and is written by hand.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support import gemini_cli
from tests.support.agent_cases import SESSION
from tests.support.claude_cli import CLIS
from tests.support.endpoint import Answer, Endpoint, Reply, Request, Script, Use
from tests.support.tree import ROOT

STORED = ROOT / "tests/cases/transcripts/gemini"
INSTALLED = "0.61.0"
STREAMS_SINCE = (0, 11)
SECONDS = 60
OLD_NAMES = {"selectedAuthType": "gemini-api-key", "usageStatisticsEnabled": False}
"""Settings as they were called before 0.9."""


def writes_in(work: Path) -> Script:
    """Writes a file, runs a command, says so; the file's place is said, as early versions name it otherwise."""

    def works(request: Request) -> Answer:
        match len(request.results()):
            case 0:
                note = Use("write_file", {"file_path": f"{work}/note.md", "content": "# Hi\n"})
                return Reply("I write the note.", (note,), thoughts=11)
            case 1:
                return Reply("", (request.run("cat note.md"),))
            case _:
                return Reply("Done: note.md is there.", thoughts=7)

    return works


def delegates(request: Request) -> Answer:
    """Hands the work to a sub-agent, which looks for a file and reports."""
    if "invoke_agent" in request.tools:
        order = {"agent_name": "codebase_investigator", "prompt": "Look for the note."}
        uses = (Use("invoke_agent", order),)
        return Reply("The sub-agent found none.") if request.results() else Reply("I delegate.", uses, thoughts=9)
    report = {"SummaryOfFindings": "none", "ExplorationTrace": [], "RelevantLocations": []}
    if request.results():
        return Reply("", (Use("complete_task", {"report": report}),))
    return Reply("I look.", (Use("glob", {"pattern": "*.md"}),), thoughts=5)


def call(
    cli: str, version: str, output: str, directory: Path, prompts: tuple[str, ...], script: Script | None = None
) -> bytes:
    """What the program printed for the prompts, one after the other in one session. Its logs are below `directory`."""
    home, work = directory / "home", directory / "work"
    home.mkdir()
    work.mkdir()
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    printed = b""
    with Endpoint(script or writes_in(work)) as endpoint:
        old = OLD_NAMES if numbers(version) < (0, 9) else {}
        outside = gemini_cli.environment(home, endpoint.url, {**gemini_cli.SETTINGS, **old})
        outside |= {"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        for prompt in prompts:
            argv = [cli, "-o", output, "-m", "gemini-2.5-pro", "--yolo", *(["--resume", "latest"] if printed else [])]
            done = subprocess.run(
                argv, input=prompt.encode(), env=outside, cwd=work, capture_output=True, check=True, timeout=SECONDS
            )
            printed += done.stdout
        assert not endpoint.complaints, endpoint.complaints
    return printed


def files(cli: str, version: str, directory: Path) -> Iterator[tuple[str, bytes]]:
    """By name: a document, and where the version has streams, a stream, with the session's log of either."""
    outputs = ["json"] if numbers(version) < STREAMS_SINCE else ["json", "stream-json"]
    for output in outputs:
        path = directory / output
        path.mkdir()
        prompts = ("Please write a note.", "Write it again.") if version == INSTALLED else ("Please write a note.",)
        printed = call(cli, version, output, path, prompts if output == "stream-json" else prompts[:1])
        name = "json" if output == "json" else "stream"
        ending = "json" if output == "json" else "jsonl"
        yield f"{name}-{version}.{ending}", general(printed, path)
        if output == outputs[-1]:
            (log,) = (path / "home/.gemini/tmp").glob("*/chats/session-*")
            yield f"session-{version}{log.suffix}", general(log.read_bytes(), path)


def delegated(cli: str, version: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    """A stream in which a sub-agent was called, and the logs of both."""
    folder.mkdir()
    yield (
        f"delegating-stream-{version}.jsonl",
        general(call(cli, version, "stream-json", folder, ("Find the note.",), delegates), folder),
    )
    chats = folder / "home/.gemini/tmp"
    for name, (log,) in (("delegating", chats.glob("*/chats/*.jsonl")), ("sub-agent", chats.glob("*/chats/*/*.jsonl"))):
        yield f"{name}-session-{version}.jsonl", general(log.read_bytes(), folder)


def general(data: bytes, directory: Path) -> bytes:
    """Without what is particular to this machine."""
    data = data.replace(str(directory).encode(), b"/home/somebody")
    for line in data.splitlines():
        for name in (b'"session_id": "', b'"session_id":"', b'"sessionId": "', b'"sessionId":"'):
            if name in line:
                session = line.split(name)[1][: len(SESSION)]
                return data.replace(session, SESSION.encode())
    return data


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def main(args: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cli", default=str(CLIS / "gemini"))
    parser.add_argument("--version", default=INSTALLED)
    options = parser.parse_args(args)
    STORED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        made = list(files(options.cli, options.version, Path(directory)))
        if options.version == INSTALLED:
            made += delegated(options.cli, options.version, Path(directory) / "delegated")
        for name, data in made:
            (STORED / name).write_bytes(data)
            sys.stderr.write(f"{name}: {len(data)} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1:])
