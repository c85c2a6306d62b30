"""Pure: the policy for Gemini CLI that gives a call the tools that its phase may use, and no others.

The CLI takes rules from a file (`--policy`): the one with the highest priority that fits a tool decides, and a tool
that is denied is not even offered to the model. Rules here are of the user's tier, so an administrator's stand above.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from mz_engine.pipelines.definition import Tool

TOOLS: Mapping[Tool, tuple[str, ...]] = {
    "read": ("glob", "grep_search", "list_directory", "read_file", "read_many_files"),
    "write": ("replace", "write_file"),
    "shell": ("run_shell_command",),
}
"""What a phase may use, in the names of this CLI. Files are open to it within the worktree only."""

OTHERS = (
    "activate_skill",
    "ask_user",
    "enter_plan_mode",
    "exit_plan_mode",
    "get_internal_docs",
    "google_web_search",
    "invoke_agent",
    "list_background_processes",
    "list_mcp_resources",
    "read_background_output",
    "read_mcp_resource",
    "update_topic",
    "web_fetch",
    "write_todos",
)
"""What else the CLI offers by itself (0.61)."""

LAST, LOW, FIRST = 0, 1, 999
DIGEST_DIGITS = 8


def policy(tools: Iterable[Tool]) -> str:
    """The text of the policy, in TOML.

    What is known and not asked for is denied above all that the user's own policies may say. What is asked for is
    allowed below them, so that their prohibitions (of a command, say) still hold. Anything else, such as a tool of a
    later version, is denied unless a policy of the user's own allows it.
    """
    asked = frozenset(tools)
    allowed = sorted(name for tool in asked for name in TOOLS[tool])
    denied = sorted({*OTHERS, *(name for names in TOOLS.values() for name in names)} - set(allowed))
    rules = [_rule(["*"], "deny", LAST), _rule(denied, "deny", FIRST)]
    if allowed:
        rules.append(_rule(allowed, "allow", LOW) + "allowRedirection = true\n")
    return "\n".join(rules)


def policy_name(text: str) -> str:
    """A file name for a policy: another text gets another name."""
    return f"{hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]}.toml"


def _rule(names: list[str], decision: str, priority: int) -> str:
    return f'[[rule]]\ntoolName = {json.dumps(names)}\ndecision = "{decision}"\npriority = {priority}\n'
