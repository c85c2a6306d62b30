"""A small cassette in a real repository, for tests of what reads it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from mz_engine.agents.claude_code.adapter import ClaudeCode
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import AgentRegistry, load_patterns
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import CallResult, CallSpec, FeatureWorktree
from mz_engine.processes.environment import INHERITED_VARIABLES, private_repository, worktree_path
from mz_events.names import Commit
from mz_events.redaction.redactor import Secrets
from mz_recordings.cassette.files import save
from mz_recordings.cassette.model import (
    FORMAT,
    Cassette,
    Fixture,
    Identity,
    Kind,
    Manifest,
    RecordedCall,
    Recording,
    StoredFile,
)
from mz_recordings.replay.stand_in import install

from tests.support.claude_cli import spec

invocation = ClaudeCode(load_patterns()).invocation

SESSION = "11111111-2222-4333-8444-555555555555"
OTHER_SESSION = "77777777-2222-4333-8444-555555555555"
PROMPT = "Write the note.\nIn good English.\n"
STDOUT = (
    '{"type":"system","subtype":"init","cwd":"<WORKTREE>","session_id":"<SESSION>","claude_code_version":"2.1.197"}\n'
    '{"type":"result","subtype":"success","is_error":false,"result":"wrote <WORKTREE>/note.md",'
    '"session_id":"<SESSION>","total_cost_usd":0.5,"modelUsage":{"claude-sonnet-4-6":{"inputTokens":3,'
    '"outputTokens":4,"cacheReadInputTokens":0,"cacheCreationInputTokens":0}}}\n'
)
PATCH = """\
diff --git a/note.md b/note.md
new file mode 100644
index 0000000..980a0d5
--- /dev/null
+++ b/note.md
@@ -0,0 +1 @@
+Hello World!
"""
NOTE = "Hello World!\n"


def git(directory: Path, *arguments: str) -> str:
    quiet = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@localhost"}
    quiet |= {"GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@localhost"}
    if directory.parts[-4:-2] == (".mz", "worktrees"):
        run, feature = directory.parts[-2:]
        private = private_repository(directory.parents[3], FeatureWorktree(run=run, feature=feature, branch=""))
        quiet |= {"GIT_DIR": str(private), "GIT_WORK_TREE": str(directory)}
    done = subprocess.run(
        ["git", *arguments], cwd=directory, env={**os.environ, **quiet}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def repository(root: Path) -> Path:
    """A repository with one commit, and the worktree of the feature `f` of the run `r`."""
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "README.md").write_text("# A project\n")
    (root / ".gitignore").write_text(".mz/\n*.log\n")
    (root / "tool.sh").write_text("#!/bin/sh\n")
    (root / "tool.sh").chmod(0o755)
    (root / "docs").mkdir()
    (root / "docs" / "link").symlink_to("../README.md")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    worktree = FeatureWorktree(run="r", feature="f", branch="feat/f")
    GitWorkspace(root, WorkspaceSettings()).open(worktree, (Commit(git(root, "rev-parse", "HEAD")),))
    return worktree_path(root, worktree)


def recording(tree: str, **more: object) -> RecordedCall:
    """One call that wrote `note.md`."""
    files: list[tuple[Kind, str, str]] = [
        ("prompt", "prd.prompt.md", PROMPT),
        ("stdout", "prd.stream-json", STDOUT),
        ("patch", "prd.patch", PATCH),
    ]
    call = spec(PROMPT, SESSION, tools=("read", "write"))
    started = invocation(call, {})
    fields: dict[str, object] = {
        "format": FORMAT,
        "identity": Identity(pipeline="monozukuri", feature="f", phase="prd"),
        "agent": "claude-code",
        "version": "2.1.197",
        "model": call.model,
        "argv": tuple("<SESSION>" if word == SESSION else word for word in started.argv),
        "environment": (*sorted(started.env), "ANTHROPIC_API_KEY"),
        "tree_before": tree,
        "tree_after": tree,
        "outcome": "replied",
        "exit": 0,
        "recorded_at": "2026-06-01T10:00:00Z",
        "duration_ms": 100,
        "files": tuple(StoredFile(kind=kind, name=name, sha256=_digest(text)) for kind, name, text in files),
    }
    contents = {name: text.encode() for _, name, text in files}
    return RecordedCall(Recording(**{**fields, **more}), contents)  # type: ignore[arg-type]


def cassette(*calls: RecordedCall) -> Cassette:
    world = Fixture(
        run="r", template="", base="main", base_commit="0" * 40, base_tree="0" * 40, clock_start="2026-06-01T10:00:00Z",
        items=(), config={},
    )  # fmt: skip
    manifest = Manifest(
        format=FORMAT,
        name="small", pipeline="monozukuri", agent="claude-code", provenance="scripted-model", mz="0.1.0",
        traces={}, fixture=world,
        evidence={"templates": {"prd.md.j2": "Write the note.\nIn good English.\n"}},
    )  # fmt: skip
    return Cassette(manifest, calls)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Stage:
    """A repository whose agents are stand-ins, called through the real adapter and the real processes."""

    def __init__(self, directory: Path, **more: object) -> None:
        self.root = directory / "repository"
        self.worktree = repository(self.root)
        self.library = directory / "library" / "small"
        self.library.parent.mkdir()
        (directory / "home").mkdir()
        self.tree = git(self.root, "rev-parse", "HEAD^{tree}")
        save(cassette(recording(self.tree, **more)), self.library)
        install(directory / "bin", self.library, ("claude",), INHERITED_VARIABLES.pattern)
        self.outside = {
            "ANTHROPIC_API_KEY": "recorded",
            "HOME": str(directory / "home"),
            "LANG": "C.UTF-8",
            "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
        }

    def door(self, *passed: str) -> AgentRegistry:
        processes = AgentProcesses(self.root, self.outside, Secrets({}), passed=passed)
        return AgentRegistry(processes, self.outside)

    def call(self, *passed: str, **more: object) -> CallResult:
        return self.door(*passed).call(self.spec(**more))

    def spec(self, **more: object) -> CallSpec:
        return spec(str(more.pop("prompt", PROMPT)), OTHER_SESSION, **{"tools": ("read", "write"), **more})
