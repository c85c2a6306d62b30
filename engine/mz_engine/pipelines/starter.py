"""Commented first text of a new pipeline, accepted by the lint."""

from __future__ import annotations

import re
from collections.abc import Collection

_NAME_LINE = re.compile(r"\A(?:#.*\n|\s*\n)*pipeline:.*$", re.MULTILINE)
"""The key, with the comment that introduces the file."""

_STARTER = """\
# A pipeline of this repository. docs/pipelines.md of mz explains every key; `mz pipelines lint {name}` checks it.
# `pipeline: {name}` in mz.yaml chooses it. A run keeps the text that it started with.
pipeline: {name}
version: 1

# stacked: a feature starts from the delivered commit of what it depends on; merged: once that is merged.
dependencies: stacked
# After more rollbacks of one feature than this, a person decides.
rollbacks_max: 6

# Every feature goes through these phases, in this order.
phases:
- phase: design
  # The agent. tier: cheap, mid or premium; `models:` in mz.yaml maps it to models.
  agent: {{tier: mid, tools: [read, write]}}
  # Limits of one call: in total, and without output.
  timeout: {{total: 20m, idle: 5m}}
  # The prompt: a template of mz, or one of your own in pipelines/templates/.
  prompt: techspec.md.j2
  # Files of the repository that go into the prompt, up to so many tokens.
  context: {{include: [README.md, CONTRIBUTING.md], token_budget: 2000}}
  # Artifacts that the phase must produce, and their rules. Nothing else may change in this phase.
  outputs: [{{artifact: techspec, path: "tasks/{{feature}}/techspec.md", rules: techspec}}]
  # Asks a person under `autonomy: supervised`. Without this entry nobody is asked.
  ask_person: [{{autonomy: [supervised]}}]
  commit: "docs({{feature}}): design"

- phase: code
  agent: {{tier: mid, tools: [read, write, shell]}}
  timeout: {{total: 60m, idle: 10m}}
  prompt: code.md.j2
  inputs: [{{artifact: techspec}}]
  # Files that the design lists are claimed: a feature that needs one of them waits.
  claim: {{artifact: techspec}}
{prepare}  outputs: [{{artifact: code, path: "tasks/{{feature}}/code.md", rules: code}}]
  # Other allowed changes, as in .gitignore: everything except outputs of other phases.
  writable: ["**", "!tasks/**"]
{gates}  # Replies that may be rejected, and calls that may fail, before the phase is blocked.
  attempts: 3
  retries: 3
{routes}  commit: "feat({{feature}}): {{title}}"

- phase: pr
  agent: {{tier: cheap, tools: [read, write]}}
  timeout: {{total: 15m, idle: 5m}}
  prompt: pr.md.j2
  inputs: [{{artifact: techspec}}, {{artifact: code}}]
  outputs: [{{artifact: pr, path: "tasks/{{feature}}/pr.md", rules: pr}}]
  commit: "docs({{feature}}): pull request"
  # Merges new commits of the base, pushes the branch, opens the pull request, and waits for its checks.
  deliver: [merge_base, push, open_pr, await_checks]
  # After a conflict or failed checks: retry from `code` on the current tree; the second time a person decides.
  on_block:
  - {{cause: base, to: code, scope: tree, max_times: 1}}
  - {{cause: checks, to: code, scope: tree, max_times: 1}}
"""

_NO_PREPARE = """\
  # Run before the agent call; the agent sees the result. Commands are those of mz.yaml, which has no `test` yet.
  # prepare: [{run: test, result: baseline}]
"""
_PREPARE = """\
  # Run before the agent call; the agent sees the result. Commands are those of mz.yaml.
  prepare: [{run: test, result: baseline}]
"""
_NO_GATES = """\
  # Run on the agent's work; it gets the failures back. mz.yaml has no commands yet.
  # gates: [{run: test, cause: code}]
"""
_GATES = """\
  # Run on the agent's work; it gets the failures back.
  gates: [%s]
"""
_ROUTES = """\
  # Where the work goes when attempts are used up, by cause. Other causes wait for a person.
  on_block: [{cause: code, to: design}]
"""
GATE_COMMANDS = ("build", "lint", "test")


def starter_pipeline(name: str, commands: Collection[str]) -> str:
    """Return the text of a pipeline that uses only `commands`, those of mz.yaml. `name` is valid for `parse_name`."""
    gates = [
        f"{{run: {command}{', cause: code' if command == 'test' else ''}}}"
        for command in GATE_COMMANDS
        if command in commands
    ]
    return _STARTER.format(
        name=name,
        prepare=_PREPARE if "test" in commands else _NO_PREPARE,
        gates=_GATES % ", ".join(gates) if gates else _NO_GATES,
        routes=_ROUTES if "test" in commands else "",
    )


def rename_pipeline(text: str, name: str, origin: str, left_out: Collection[str] = ()) -> str:
    """Return the text of a pipeline under another name, with a new first comment.

    `left_out`: commands that mz.yaml lacks. A built-in pipeline skips their steps with a warning; in the repository's
    own they would be errors, so the copy omits them, and says so."""
    comment = f"# Copied from {origin}. `mz pipelines lint {name}` checks it.\n"
    if left_out:
        comment += f"# Without the steps of {origin} that run {', '.join(left_out)}: mz.yaml has no such command.\n"
    text = _NAME_LINE.sub(f"{comment}pipeline: {name}", text, 1)
    for command in left_out:
        text = re.sub(rf"(?:, )?\{{run: {re.escape(command)}(?:,[^{{}}]*)?\}}", "", text)
    return text.replace("[, ", "[")
