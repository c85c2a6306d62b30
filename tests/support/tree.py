"""The project's own files, as tests about the project see them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AGENT_STATE = Path(".agent-state")
"""Folder of HOME where agents of tests keep what tests read: no test sees what they change in their own folders."""
STATE_SETTINGS = f"sandbox: {{write: [~/{AGENT_STATE}]}}\n"
CLAUDE_SESSIONS = ".mz/worktree-notes/*/*/agent/*.claude+projects"
"""Pattern of the folders with conversations of Claude Code, below a repository."""
PACKAGES = ("events", "projections", "engine", "recordings", "qa", "cli")


@cache
def kept_files() -> tuple[Path, ...]:
    """Files that git keeps or would keep, relative to the root, sorted."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(sorted(Path(name) for name in set(names.split("\0")) - {""} if (ROOT / name).is_file()))


def modules(*tops: str) -> Iterator[Path]:
    """Python files below these top-level folders that hold anything, relative to the root."""
    for path in kept_files():
        if path.suffix == ".py" and path.parts[0] in tops and (ROOT / path).stat().st_size:
            yield path
