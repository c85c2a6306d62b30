"""Names of a model in price tables, derived from the names that agents, gateways and clouds use.

A name for "the current best model" has no price: it gives no candidates, and the call stays unpriced."""

from __future__ import annotations

import re
from typing import NamedTuple

ALIASES = frozenset(
    {
        "", "auto", "best", "codex-auto-review", "default", "fable", "flash", "flash-lite", "haiku", "inherit", "none",
        "opus", "opusplan", "pro", "sonnet", "unknown",
    }
)  # fmt: skip
"""Names that agents resolve themselves, differently over time."""
AUTOMATIC = ("<", "auto-")
"""Prefixes of such names: `<synthetic>`, `auto-gemini-3`."""

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
"""Prefix before a slash -> the provider's name in the table. Any other prefix is a private gateway with unknown
prices."""
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
    """Return the name in lower case, without the mark of a long context window: `[1m]`."""
    return _MARK.sub("", model.strip()).lower()


def candidates(model: str) -> tuple[Name, ...]:
    """Return names to look up, the most exact first: the cloud's own, then without provider prefixes, last without the
    snapshot's date, which does not affect the price. Empty: the name means no specific model."""
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
    """Return the names that the cloud or the vendor uses."""
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
