"""Makes the stored transcripts of Codex anew, by driving the real program against a scripted model.

    python -m tests.support.make_codex_transcripts [NAME...]

The installed CLI (`make clis`) makes those of its own version; the others need theirs: `npm install --prefix DIR
@openai/codex@VERSION`, then `--cli DIR/node_modules/.bin/codex`. What is expected stands in the `.yaml` beside each
file, and is written by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import codex_cli
from tests.support.agent_cases import SESSION, refuses, works
from tests.support.claude_cli import CLIS
from tests.support.endpoint import Answer, Endpoint, Reply, Request, Script, Use
from tests.support.make_transcripts import cut
from tests.support.tree import ROOT

STORED = ROOT / "tests/cases/transcripts/codex"
OLD = "gpt-5.1-codex"
"""For versions that do not know the newer models."""
EXEC = ("exec", "--json", "--skip-git-repo-check", "-s", "workspace-write")
LINE_BYTES_MAX, TEXT_MAX, LIST_MAX = 2500, 200, 4


@dataclass(frozen=True)
class Scene:
    """Calls one after the other in one HOME, each with further words of the command line."""

    script: Script
    calls: tuple[tuple[str, ...], ...] = ((),)
    """`THREAD` stands for the thread of the call before."""
    prompts: tuple[str, ...] = ("Please write a note.",)
    since: tuple[int, ...] = (0, 40)
    """The first version that can do this."""


def delegates(request: Request) -> Answer:
    """Has a sub-agent look around."""
    if '"agent_name":"/root",' not in request.headers.get("x-codex-turn-metadata", ""):
        return Reply("There is no note.", thoughts=7)
    match len(request.results()):
        case 0:
            order = {"task_name": "look_around", "message": "Look for the note.", "fork_turns": "none"}
            return Reply("I delegate.", (Use("spawn_agent", order),))
        case 1:
            return Reply("", (Use("wait_agent", {"timeout_ms": 20000}),))
        case _:
            return Reply("The sub-agent found no note.")


def thinks(request: Request) -> Answer:
    answered = works(request)
    return Reply(answered.text, answered.uses, thoughts=25) if isinstance(answered, Reply) else answered


SCENES = {
    "works": Scene(thinks),
    "resumed": Scene(thinks, ((), ("resume", "THREAD")), ("Please write a note.", "Write it again."), (0, 46)),
    "forked": Scene(thinks, ((), ("fork", "THREAD")), ("Please write a note.", "Write it again."), (0, 169)),
    "sub-agent": Scene(delegates, prompts=("Delegate the search.",), since=(0, 169)),
    "refused": Scene(refuses(401, "invalid_api_key", "Incorrect API key provided.")),
}


def drive(scene: Scene, cli: Path, folder: Path, model: str) -> Iterator[tuple[str, bytes]]:
    """Suffix of the scene's name, and content: the last call's stream, and all session files, the oldest first."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    out, thread = b"", ""
    with Endpoint(scene.script) as endpoint:
        env = codex_cli.environment(home, endpoint.url) | {"PATH": f"{cli.parent}:{os.environ['PATH']}"}
        for args, prompt in zip(scene.calls, scene.prompts, strict=True):
            argv = [str(cli), *EXEC, "-m", model, *(thread if word == "THREAD" else word for word in args), "-"]
            done = subprocess.run(argv, cwd=work, env=env, input=prompt.encode(), capture_output=True, check=False)
            sys.stderr.write(done.stderr.decode("utf-8", "replace")[-500:])
            out = done.stdout
            match = re.search(rb'"(?:thread_id|session_id)":"([0-9a-f-]+)"', out)
            thread = match.group(1).decode() if match else ""
        if endpoint.complaints:
            raise SystemExit(f"the script was surprised: {endpoint.complaints}")
    logs = sorted((home / ".codex/sessions").rglob("*.jsonl"), key=_began)
    first = re.search(rb'"id":"([0-9a-f-]+)"', logs[0].read_bytes())
    yield "stream", _clean(out, folder, first.group(1) if first else b"-")
    for number, log in enumerate(logs):
        suffix = "rollout" if number == 0 else f"rollout-{number + 1}"
        yield suffix, _clean(log.read_bytes(), folder, first.group(1) if first else b"-")


def _began(log: Path) -> str:
    return str(json.loads(log.read_bytes().split(b"\n")[0])["timestamp"])


def _clean(data: bytes, folder: Path, first: bytes) -> bytes:
    """Without what tells of this machine; what the program shows to its model alone is cut where it is long."""
    data = b"".join(_shortened(line) for line in data.splitlines(keepends=True))
    data = data.replace(str(folder).encode(), b"/home/somebody").replace(first, SESSION.encode())
    return re.sub(rb"127\.0\.0\.1:\d+", b"127.0.0.1:8000", data)


def _shortened(line: bytes) -> bytes:
    if len(line) < LINE_BYTES_MAX:
        return line
    return (
        json.dumps(cut(json.loads(line), TEXT_MAX, LIST_MAX), separators=(",", ":"), ensure_ascii=False).encode()
        + b"\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cli", type=Path, default=CLIS / "codex")
    parser.add_argument("--out", type=Path, default=STORED)
    args = parser.parse_args()
    output = subprocess.run([args.cli, "--version"], capture_output=True, text=True, check=True).stdout
    version = output.split()[-1]
    numbers = tuple(int(number) for number in version.split(".")[:2])
    model = codex_cli.MODEL if numbers >= (0, 169) else OLD
    for name in args.names or [name for name, scene in SCENES.items() if numbers >= scene.since]:
        with tempfile.TemporaryDirectory(prefix="transcript") as directory:
            for kind, data in drive(SCENES[name], args.cli.absolute(), Path(directory), model):
                path = args.out / f"{name}-{kind}-{version}.jsonl"
                path.write_bytes(data)
                sys.stderr.write(f"{path.name}: {len(data)} bytes\n")


if __name__ == "__main__":
    main()
