"""The bare loop: makes the calls of a tape again, one after the other, and does nothing else. Run as a script.

    loop.py TAPE TEMPLATE REPORT

TAPE is a JSON file, a list of calls: argv, working directory, environment, stdin, exit code. A worktree that is not
there when it is first needed is made from TEMPLATE, for git leaves its files to the caller. REPORT is told, as JSON,
how many calls there were, which ended otherwise than on the tape, and the CPU seconds of each kind of call.
"""

from __future__ import annotations

import base64
import json
import resource
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

WORKTREES = "/.mz/worktrees/"


def main(tape: str, template: str, report: str) -> None:
    calls, seconds = Counter[str](), defaultdict[str, float](float)
    different = []
    with open(tape) as file:
        entries: list[dict[str, Any]] = json.load(file)
    for entry in entries:
        for path in (entry["cwd"], entry["env"].get("GIT_WORK_TREE", "")):
            if WORKTREES in path and not Path(path).exists():
                shutil.copytree(template, path)
        before = used()
        done = subprocess.run(
            entry["argv"], cwd=entry["cwd"], env=entry["env"], input=base64.b64decode(entry["stdin"]),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        calls[kind(entry["argv"])] += 1
        seconds[kind(entry["argv"])] += used() - before
        if done.returncode != entry["exit"]:
            different.append(f"{' '.join(entry['argv'])[-200:]}: {done.returncode}, not {entry['exit']}")
    Path(report).write_text(json.dumps({"calls": calls, "seconds": seconds, "different": different}))


def kind(argv: list[str]) -> str:
    """Of `git -c a=b -C d diff-tree -r`: `git diff-tree`; of any other program: its name."""
    texts = iter(argv[1:] if argv[0] == "git" else ())
    for word in texts:
        if word in ("-c", "-C"):
            next(texts, None)
        elif not word.startswith("-"):
            return f"git {word}"
    return argv[0]


def used() -> float:
    """CPU seconds of all children so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main(*sys.argv[1:])
