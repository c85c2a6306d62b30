"""Makes the stored transcripts of Claude Code anew, by driving the real program against a scripted model.

    python -m tests.support.make_transcripts [NAME...]

The installed CLI (`make clis`) makes those of its own version; the others need theirs: `npm install --prefix DIR
@anthropic-ai/claude-code@VERSION`, then `--cli DIR/node_modules/.bin/claude`. What is expected stands in the `.yaml`
beside each file, and is written by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.agent_cases import NOWHERE, works
from tests.support.claude_cli import CLIS
from tests.support.dialects.messages import Messages, block_events, event
from tests.support.endpoint import Answer, Counts, Endpoint, Refusal, Reply, Request, Script, Use
from tests.support.tree import ROOT

STORED = ROOT / "tests/cases/transcripts/claude-code"
SESSION = "11111111-2222-4333-8444-555555555555"
MODELS = {"1": "claude-sonnet-4-20250514", "2": "claude-sonnet-4-5"}
"""By the first number of the version: one that it has the prices of. The API answers with a dated name."""
SETTINGS = {
    "ANTHROPIC_API_KEY": "unused",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "LANG": "C.UTF-8",
}
NEWEST = "the session of the call before"
LONG, LONG_TEXT, LONG_LIST = 1500, 120, 6
FILLER = "These words fill the window of the model. " * 40


@dataclass(frozen=True)
class Call:
    """One start of the program."""

    prompt: str
    options: tuple[str, ...] = ()
    output: str = "stream-json"


@dataclass(frozen=True)
class Scene:
    """Calls one after the other in one HOME; `keeps` says which files are stored: `stream` (all calls' output, one
    after the other), `session`, `agents` (the sub-agents' logs)."""

    script: Script
    calls: tuple[Call, ...]
    keeps: tuple[str, ...] = ("stream",)
    thinks: bool = False
    """The model thinks aloud before each reply."""
    reachable: bool = True


class AsIn2025(Messages):
    """The end of a message told its output alone; versions of that time add up both ends. Ids are as long as real
    ones."""

    def reply(self, request: Request, reply: Reply, counts: Counts, number: int) -> tuple[str, Iterable[bytes]]:
        kind, parts = super().reply(request, reply, counts, number)
        return kind, [self._brief(part.replace(b'"msg_%04d"' % number, b'"msg_01%022d"' % number)) for part in parts]

    def _brief(self, part: bytes) -> bytes:
        if b'"message_delta"' not in part:
            return part
        return re.sub(rb'"usage": \{.*?("output_tokens": \d+).*\}(?=\})', rb'"usage": {\1}', part)


class Aloud(AsIn2025):
    """Each reply begins with thoughts."""

    def reply(self, request: Request, reply: Reply, counts: Counts, number: int) -> tuple[str, Iterable[bytes]]:
        kind, parts = super().reply(request, reply, counts, number)
        start, *others = parts
        signature = event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "c2ln"})
        thoughts = {"type": "thinking_delta", "thinking": "I think about it. " * 20}
        begun, thought, end = block_events(0, {"type": "thinking", "thinking": "", "signature": ""}, thoughts)
        later = (
            re.sub(rb'"index": (\d+)', lambda match: b'"index": %d' % (int(match[1]) + 1), part) for part in others
        )
        return kind, [start, begun, thought, signature, end, *later]


def quietly(script: Script) -> Script:
    """Side calls (titles, topics) offer no tools; they get a word."""
    return lambda request: script(request) if request.tools or "summary" in request.prompt else Reply("Note")


def delegates(request: Request) -> Answer:
    """Hands the work to a sub-agent, which reads a file."""
    if "Look for the note" in request.prompt and "Delegate" not in "\n".join(request.user_texts()):
        return Reply("There is no note.") if request.results() else Reply("I look.", (request.run("ls"),))
    if request.results():
        return Reply("The sub-agent found no note.")
    tool = "Agent" if "Agent" in request.tools else "Task"
    order = {"description": "Find the note", "prompt": "Look for the note.", "subagent_type": "general-purpose"}
    return Reply("I delegate.", (Use(tool, order),))


def remembers(request: Request) -> Answer:
    return Reply("Seven.") if "Which number" in request.prompt else Reply("I keep it in mind.")


def talks(request: Request) -> Answer:
    """Long answers, and a summary when one is asked for."""
    return Reply("A summary of what was said.") if "summary" in request.prompt.lower() else Reply(FILLER)


def refuses(_: Request) -> Answer:
    return Refusal(401, "authentication_error", "invalid x-api-key")


SCENES: dict[str, Scene] = {
    "works": Scene(works, (Call("Please write a note."),), ("stream", "session")),
    "partial": Scene(works, (Call("Please write a note.", ("--include-partial-messages",)),)),
    "json": Scene(works, (Call("Please write a note.", output="json"),)),
    "sub-agent": Scene(delegates, (Call("Delegate the search."),), ("stream", "session", "agents")),
    "resumed": Scene(
        remembers, (Call("Remember seven."), Call("Which number?", ("--resume", NEWEST))), ("stream", "session")
    ),
    "forked": Scene(
        remembers,
        (Call("Remember seven."), Call("Which number?", ("--resume", NEWEST, "--fork-session"))),
        ("session",),
    ),
    "budget": Scene(works, (Call("Please write a note.", ("--max-budget-usd", "0.02")),)),
    "thinking": Scene(works, (Call("Please write a note."),), thinks=True),
    "unreachable": Scene(works, (Call("Please write a note."),), reachable=False),
    "turns": Scene(works, (Call("Please write a note.", ("--max-turns", "1")),)),
    "refused": Scene(refuses, (Call("Please write a note."),), ("stream", "session")),
    "compacted": Scene(
        talks,
        (Call("Tell me more."), Call("/compact", ("--resume", NEWEST)), Call("Go on.", ("--resume", NEWEST))),
        ("session",),
    ),
}


def drive(scene: Scene, cli: Path, folder: Path, model: str) -> dict[str, bytes]:
    """Name (a suffix of the scene's) -> content."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    outs: list[bytes] = []
    with Endpoint(quietly(scene.script), speaks=(Aloud() if scene.thinks else AsIn2025(),)) as endpoint:
        env = {
            **SETTINGS,
            "ANTHROPIC_BASE_URL": endpoint.url if scene.reachable else NOWHERE,
            "HOME": str(home),
            "PATH": f"{cli.parent}:{os.environ['PATH']}",
        }
        for call in scene.calls:
            options = [session_of(outs[-1]) if word == NEWEST else word for word in call.options]
            outs.append(run(call, options, cli, work, env, model))
        if endpoint.complaints:
            raise SystemExit(f"the script was surprised: {endpoint.complaints}")
    logs = sorted((home / ".claude/projects").rglob("*.jsonl"), key=lambda log: log.stat().st_mtime_ns)
    first = session_of(outs[0])
    return {name: clean(data, folder, first) for name, data in kept(scene, b"".join(outs), logs)}


def session_of(out: bytes) -> str:
    match = re.search(rb'"session_id":"([^"]+)"', out)
    return match.group(1).decode() if match else SESSION


def run(call: Call, options: Sequence[str], cli: Path, work: Path, env: dict[str, str], model: str) -> bytes:
    args = [str(cli), "-p", "--output-format", call.output, "--model", model]
    args += ["--verbose"] if call.output == "stream-json" else []
    args += [*options, call.prompt, "--allowedTools", "Write", "Bash", "Task", "Agent"]
    done = subprocess.run(args, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True)
    sys.stderr.write(done.stderr.decode("utf-8", "replace")[:500])
    return done.stdout + (b"" if done.stdout.endswith(b"\n") or not done.stdout else b"\n")


def kept(scene: Scene, out: bytes, logs: Sequence[Path]) -> Iterable[tuple[str, bytes]]:
    agents = [log for log in logs if log.name.startswith("agent-")]
    sessions = [log for log in logs if log not in agents]
    if "stream" in scene.keeps:
        yield "stream", out
    if "session" in scene.keeps and sessions:
        yield "session", sessions[-1].read_bytes()
    if "agents" in scene.keeps and agents:
        yield "agent", agents[-1].read_bytes()


def clean(data: bytes, folder: Path, session: str) -> bytes:
    """Without what tells of this machine; what the program shows to its model alone is cut where it is long."""
    data = b"".join(shortened(line) for line in data.splitlines(keepends=True))
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(folder))
    data = data.replace(str(folder).encode(), b"/home/somebody").replace(slug.encode(), b"-home-somebody")
    data = data.replace(session.encode(), SESSION.encode())
    return re.sub(rb"127\.0\.0\.1:\d+", b"127.0.0.1:8000", data)


def shortened(line: bytes) -> bytes:
    if len(line) < LONG or not line.startswith(b"{"):
        return line
    return (
        json.dumps(cut(json.loads(line), LONG_TEXT, LONG_LIST), separators=(",", ":"), ensure_ascii=False).encode()
        + b"\n"
    )


def cut(value: object, text_max: int, list_max: int) -> object:
    """The JSON value with its long texts and lists cut short."""
    if isinstance(value, str):
        return value if len(value) < text_max else f"{value[:40]}…"
    if isinstance(value, list):
        return [cut(item, text_max, list_max) for item in value[:list_max]]
    return {name: cut(entry, text_max, list_max) for name, entry in value.items()} if isinstance(value, dict) else value


def version_of(cli: Path) -> str:
    out = subprocess.run([cli, "--version"], capture_output=True, text=True, check=True).stdout
    return out.split()[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(SCENES))
    parser.add_argument("--cli", type=Path, default=CLIS / "claude")
    parser.add_argument("--out", type=Path, default=STORED)
    args = parser.parse_args()
    version = version_of(args.cli)
    for name in args.names or SCENES:
        with tempfile.TemporaryDirectory(prefix="transcript") as directory:
            for kind, data in drive(SCENES[name], args.cli.absolute(), Path(directory), MODELS[version[0]]).items():
                path = args.out / f"{name}-{kind}-{version}.jsonl"
                path.write_bytes(data)
                sys.stderr.write(f"{path.name}: {len(data)} bytes\n")


if __name__ == "__main__":
    main()
