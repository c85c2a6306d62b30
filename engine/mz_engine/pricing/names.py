"""Pure: what a model is called in price tables, from what agents, gateways and clouds call it.

A name that means "whatever is best today" means no price: it gives no candidates, and the call stays unpriced.
"""

from __future__ import annotations

import re
from typing import NamedTuple

ALIASES = frozenset(
    {
        "", "auto", "best", "codex-auto-review", "default", "fable", "flash", "flash-lite", "haiku", "inherit", "none",
        "opus", "opusplan", "pro", "sonnet", "unknown",
    }
)  # fmt: skip
"""Names that agents resolve by themselves, each at its own time."""
AUTOMATIC = ("<", "auto-")
"""What such names begin with: `<synthetic>`, `auto-gemini-3`."""

PROVIDERS = {
    "amazon-bedrock": "aws",
    "anthropic": "anthropic",
    "azure": "azure",
    "azure_ai": "azure",
    "bedrock": "aws",
    "converse": "aws",
    "deepseek": "deepseek",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "google": "google",
    "groq": "groq",
    "mistral": "mistral",
    "models": "google",
    "moonshot": "moonshotai",
    "openai": "openai",
    "openrouter": "openrouter",
    "together_ai": "together",
    "vertex": "google",
    "vertex_ai": "google",
    "x-ai": "x-ai",
    "xai": "x-ai",
}
"""What stands before a slash -> the provider's name in the table. Any other prefix is somebody's own gateway, whose
prices nobody else knows."""
WHOLE = frozenset({"openrouter"})
"""Providers whose own names have slashes."""

_MARK = re.compile(r"\[[0-9a-z]+\]\Z", re.IGNORECASE)
_BEDROCK = re.compile(r"(?:(?:us|us-gov|eu|apac|au|ca|jp|global)\.)?([a-z0-9]+)\.([a-z0-9].*)\Z")
_BEDROCK_VENDORS = frozenset({"ai21", "amazon", "anthropic", "cohere", "deepseek", "meta", "mistral", "openai", "qwen"})
_REVISION = re.compile(r"-v[0-9]+(?::[0-9]+)?\Z")
_VERTEX = re.compile(r"@(?:default|latest|([0-9]{8}))\Z")
_DATE = re.compile(r"-(?:20[0-9]{6}|20[0-9]{2}-[0-9]{2}-[0-9]{2})\Z")


class Name(NamedTuple):
    provider: str | None
    """None: the table finds it by the model."""
    model: str


def bare(model: str) -> str:
    """In small letters and without the mark of a long context window, which is no part of the name: `[1m]`."""
    return _MARK.sub("", model.strip()).lower()


def candidates(model: str) -> tuple[Name, ...]:
    """Names to look up, the most exact first: a cloud's own, with provider prefixes taken off, and last without the
    date of a snapshot, which costs what its model costs. Empty: the name stands for no certain model."""
    name = bare(model)
    if name.startswith("arn:"):
        name = f"bedrock/{name.rpartition('/')[2]}"
    provider = None
    while "/" in name:
        before, _, rest = name.partition("/")
        if before == "publishers":
            provider, name = "google", name.rpartition("/")[2]
            break
        if before not in PROVIDERS:
            return ()
        provider, name = PROVIDERS[before], rest
        if provider in WHOLE:
            return (Name(provider, name),)
    if name in ALIASES or name.startswith(AUTOMATIC):
        return ()
    return tuple(dict.fromkeys((*_own(provider, name), *_undated(provider, name))))


def _own(provider: str | None, name: str) -> tuple[Name, ...]:
    """As the cloud or the maker calls it."""
    found = _BEDROCK.match(name)
    if found is not None and found[1] in _BEDROCK_VENDORS:
        plain = _REVISION.sub("", found[2])
        return (Name("aws", name), Name(None, plain), *_undated(None, plain))
    if provider == "aws":
        return (Name("aws", name), Name(None, _REVISION.sub("", name)))
    return (Name(provider, name),)


def _undated(provider: str | None, name: str) -> tuple[Name, ...]:
    at = _VERTEX.search(name)
    if at is not None:
        plain = name[: at.start()]
        return (*((Name(None, f"{plain}-{at[1]}"),) if at[1] else ()), Name(None, plain))
    return (Name(provider, _DATE.sub("", name)),)
