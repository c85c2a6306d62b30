"""A backlog, and what an agent that does no work answers in each phase of the built-in pipeline: the smallest
artifacts that its rules accept, and one small file of code and one of tests for each feature."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from textwrap import dedent

VERSION = "2.1.197"
MODEL = "claude-sonnet-4-6"
SESSION = "00000000-0000-4000-8000-000000000000"
"""Stands in the output where the session belongs that the call was given; both have 36 characters."""
PHASES = ("prd", "techspec", "tasks", "code", "tests", "pr")
README = "# A project\n\nIt is worked on by an agent that does nothing.\n"
SETTINGS = "autonomy: full_auto\ncommands:\n  test:\n    run: 'true'\nsandbox: {write: [~/entries]}\n"
"""The command stands for the project's own tests, which take no part in the measurement. There is a folder `~/entries`
only where calls are written down."""

TEXTS = {
    "prd": """
        # {feature}

        ## Problem
        The file of {feature} is missing.

        ## Solution
        The file is there.

        ## Success criteria
        - the file of {feature} exists

        ## Functional requirements
        ### FR-001: The file
        - Acceptance: Given the repository, when it is listed, then the file is there.
        """,
    "techspec": """
        # {feature}: technical specification

        ## Approach
        FR-001: one new file, and one test of it.

        ## File change map
        - `src/{feature}.txt`: new
        - `tests/{feature}.txt`: new
        """,
    "code": """
        # {feature}: implementation

        ## Tasks completed
        - T1: the file is there

        ## Tasks skipped
        None
        """,
    "tests": """
        # {feature}: tests

        ## Results
        One test ran, and passed.

        ## Tests added
        - `tests/{feature}.txt` (FR-001)

        ## Skipped or flaky
        None
        """,
    "pr": """
        # Add the file of {feature}

        ## Summary
        The file of {feature} was missing.

        ## Changes
        - `src/{feature}.txt` is new

        ## Testing
        One test was added, and passes.
        """,
}


def feature_names(count: int) -> tuple[str, ...]:
    return tuple(f"feature-{number:03}" for number in range(1, count + 1))


def backlog(features: tuple[str, ...]) -> str:
    """The features as a Markdown backlog; none depends on another."""
    entries = (f"## [FEAT] {name}: Add the file of {name}\n\nThe file of {name} is missing.\n" for name in features)
    return "# Backlog\n\n" + "\n".join(entries)


def repository(features: tuple[str, ...]) -> dict[str, str]:
    """The files of the project, by path."""
    return {"README.md": README, "mz.yaml": SETTINGS, "features.md": backlog(features), "src/app.txt": "nothing yet\n"}


def files(feature: str, phase: str) -> dict[str, str]:
    """What the agent leaves in the tree, by path."""
    own = f"tasks/{feature}"
    if phase == "tasks":
        return {f"{own}/tasks.json": json.dumps([_task(feature)], indent=2) + "\n"}
    texts = {f"{own}/{phase}.md": dedent(TEXTS[phase]).lstrip().format(feature=feature)}
    if phase == "code":
        summary = [{"task_id": "T1", "files_changed": [f"src/{feature}.txt"], "summary": "Adds the missing file"}]
        texts |= {f"{own}/commit-summary.json": json.dumps(summary) + "\n", f"src/{feature}.txt": f"{feature}\n" * 20}
    if phase == "tests":
        texts[f"tests/{feature}.txt"] = f"a test of {feature}\n" * 10
    return texts


def _task(feature: str) -> dict[str, object]:
    return {
        "id": "T1",
        "title": f"Add the file of {feature}",
        "description": "FR-001: add the file and a test of it.",
        "files_touched": [f"src/{feature}.txt", f"tests/{feature}.txt"],
        "acceptance_criteria": ["FR-001: the file exists"],
    }


def stream(feature: str, phase: str) -> str:
    """What the agent writes to standard output: JSON lines as `claude -p --output-format stream-json` writes them."""
    text = f"The phase {phase} of {feature} is done."
    message = {"id": "msg_1", "model": MODEL, "role": "assistant", "content": [{"type": "text", "text": text}]}
    tokens = {"inputTokens": 1200, "outputTokens": 300, "cacheReadInputTokens": 800, "cacheCreationInputTokens": 0}
    lines: list[dict[str, object]] = [
        {"type": "system", "subtype": "init", "model": MODEL, "claude_code_version": VERSION},
        {"type": "assistant", "message": {**message, "usage": {"input_tokens": 1200, "output_tokens": 300}}},
        {
            "type": "result", "subtype": "success", "is_error": False, "result": text, "total_cost_usd": 0.01,
            "modelUsage": {MODEL: tokens}, "usage": {"input_tokens": 1200, "output_tokens": 300},
        },
    ]  # fmt: skip
    return "".join(json.dumps({**line, "session_id": SESSION}) + "\n" for line in lines)


def as_records(mapping: Mapping[str, str], out: str) -> bytes:
    """For the compiled agent: `PATH\\nBYTES\\n` and so many bytes, for each file; directories end with `/`, and `-` is
    standard output."""
    parts = [f"{folder}/\n0\n".encode() for folder in _folders(mapping)]
    for path, text in (*mapping.items(), ("-", out)):
        data = text.encode()
        parts.append(f"{path}\n{len(data)}\n".encode() + data)
    return b"".join(parts)


def as_script(mapping: Mapping[str, str], out: str) -> bytes:
    """For the agent that is a shell script: the same as commands for `sh`."""
    lines = [f"mkdir -p {' '.join(map(shlex.quote, _folders(mapping)))}"]
    lines += [f"printf %s {shlex.quote(text)} > {shlex.quote(path)}" for path, text in mapping.items()]
    lines += [f"printf %s {shlex.quote(out)}"]
    return ("\n".join(lines) + "\n").encode()


def _folders(mapping: Mapping[str, str]) -> Iterator[str]:
    """Those of the files, each after the ones that it lies in."""
    observed: dict[str, None] = {}
    for path in mapping:
        parts = path.split("/")[:-1]
        observed |= {"/".join(parts[:depth]): None for depth in range(1, len(parts) + 1)}
    yield from observed
