"""Names of a model in price tables, derived from the names that agents, gateways and clouds use, and prices that
those tables lack.

A name for "the current best model" has no price: it gives no candidates, and the call stays unpriced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace
from mz_events.catalog.call import Usage

AGENT_ALIASES = frozenset(
    {
        "", "auto", "best", "codex-auto-review", "default", "fable", "flash", "flash-lite", "haiku", "inherit", "none",
        "opus", "opusplan", "pro", "sonnet", "unknown",
    }
)  # fmt: skip
"""Names that agents resolve themselves, differently over time."""
AGENT_ALIAS_PREFIXES = ("<", "auto-")
"""Prefixes of such names: `<synthetic>`, `auto-gemini-3`."""

PREFIXES_BY_PROVIDER = {
    "anthropic": "anthropic",
    "aws": "amazon-bedrock bedrock converse",
    "azure": "azure azure_ai",
    "deepseek": "deepseek",
    "fireworks": "fireworks_ai",
    "google": "gemini google models vertex vertex_ai",
    "groq": "groq",
    "mistral": "mistral",
    "moonshotai": "moonshot",
    "openai": "openai",
    "openrouter": "openrouter",
    "together": "together_ai",
    "x-ai": "x-ai xai",
}
PROVIDER_PREFIXES = {
    prefix: provider for provider, prefixes in PREFIXES_BY_PROVIDER.items() for prefix in prefixes.split()
}
"""Prefix before a slash -> the provider's name in the table. Any other prefix is a private gateway with unknown
prices."""
PROVIDERS_WITH_SLASHES = frozenset({"openrouter"})
"""Providers whose own names have slashes."""

_MEANING = re.compile(r"(.*) \(([^() ]+)\)\Z")
"""`NAME (MODEL)`: a name that does not tell its model itself."""
_CONTEXT_MARK = re.compile(r"\[[0-9a-z]+\]\Z", re.IGNORECASE)
_BEDROCK = re.compile(r"(?:(?:us|us-gov|eu|apac|au|ca|jp|global)\.)?([a-z0-9]+)\.([a-z0-9].*)\Z")
_BEDROCK_VENDORS = frozenset({"ai21", "amazon", "anthropic", "cohere", "deepseek", "meta", "mistral", "openai", "qwen"})
_REVISION = re.compile(r"-v[0-9]+(?::[0-9]+)?\Z")
_VERTEX = re.compile(r"@(?:default|latest|([0-9]{8}))\Z")
_DATE = re.compile(r"-(?:20[0-9]{6}|20[0-9]{2}-[0-9]{2}-[0-9]{2}|latest)\Z")
CACHED_NAMES_MAX = 4096
"""Cache size; the same few names repeat."""


class PriceTableName(NamedTuple):
    provider: str | None
    """None: the table finds it by the model."""
    model: str


def base_name(model: str) -> str:
    """Return the name in lower case, without the mark of a long context window, `[1m]`, and what it means."""
    meant = _MEANING.match(model)
    return _CONTEXT_MARK.sub("", (meant[1] if meant else model).strip()).lower()


def candidate_names(model: str) -> tuple[PriceTableName, ...]:
    """Return names to look up, the most exact first: the cloud's own, then without provider prefixes, last without the
    snapshot's date, or `latest`, which does not affect the price. Empty: the name means no specific model."""
    if meant := _MEANING.match(model):
        return tuple(dict.fromkeys((*candidate_names(meant[1]), *candidate_names(meant[2]))))
    name = base_name(model)
    if name.startswith("arn:"):
        name = f"bedrock/{name.rpartition('/')[2]}"
    provider = None
    while "/" in name:
        prefix, _, suffix = name.partition("/")
        if prefix == "publishers":
            provider, name = "google", name.rpartition("/")[2]
            break
        if prefix not in PROVIDER_PREFIXES:
            return ()
        provider, name = PROVIDER_PREFIXES[prefix], suffix
        if provider in PROVIDERS_WITH_SLASHES:
            return (PriceTableName(provider, name),)
    if name in AGENT_ALIASES or name.startswith(AGENT_ALIAS_PREFIXES):
        return ()
    return tuple(dict.fromkeys((*_exact_names(provider, name), *_undated_names(provider, name))))


def _exact_names(provider: str | None, name: str) -> tuple[PriceTableName, ...]:
    """Return the names that the cloud or the vendor uses."""
    match = _BEDROCK.match(name)
    if match is not None and match[1] in _BEDROCK_VENDORS:
        base = _REVISION.sub("", match[2])
        return (PriceTableName("aws", name), PriceTableName(None, base), *_undated_names(None, base))
    if provider == "aws":
        return (PriceTableName("aws", name), PriceTableName(None, _REVISION.sub("", name)))
    return (PriceTableName(provider, name),)


def _undated_names(provider: str | None, name: str) -> tuple[PriceTableName, ...]:
    match = _VERTEX.search(name)
    if match is not None:
        base = name[: match.start()]
        return (*((PriceTableName(None, f"{base}-{match[1]}"),) if match[1] else ()), PriceTableName(None, base))
    return (PriceTableName(provider, _DATE.sub("", name)),)


# equal models --------------------------------------------------------------------------------------------------------
def is_same_model(name: str, other: str) -> bool:
    """Return True if two names mean the same model, whatever the cloud, the gateway, or the snapshot's date."""
    return not _plain_names(name).isdisjoint(_plain_names(other))


@lru_cache(CACHED_NAMES_MAX)
def _plain_names(model: str) -> frozenset[str]:
    candidates = candidate_names(model) or candidate_names(model.rpartition("/")[2])
    names = {base_name(model), *(candidate.model.rpartition("/")[2] for candidate in candidates)}
    return frozenset(name.replace(".", "-") for name in names)


def common_names(shown: Mapping[str, Usage], totals: Mapping[str, Usage]) -> dict[str, str]:
    """Return for each model name one name of that model, from the requests `shown` if it is there. `totals` may name
    models as they were asked for, where the API answered with other names. A gateway's names may resemble nothing: a
    model of the requests that no total names is that of the smallest other total that includes it."""
    common: dict[str, str] = {}
    for name in sorted(filter(None, (*shown, *totals)), key=lambda name: not _MEANING.match(name)):
        common[name] = next((row for other, row in common.items() if is_same_model(other, name)), name)
    named = {common[name] for name in totals if name}
    others = [name for name in totals if name and common[name] not in {common[name] for name in shown if name}]
    for name in shown:
        fits = [total for total in others if shown[name].input and _includes(totals[total], shown[name])]
        if name and common[name] not in named and fits:
            closest = min(fits, key=lambda total: totals[total].input)
            others.remove(closest)
            common[closest] = common[name]
    return common


def _includes(total: Usage, part: Usage) -> bool:
    return total.input >= part.input and total.output >= part.output and total.cache_read >= part.cache_read


def rename_models(usages: Iterable[Usage], names: Mapping[str, str]) -> Iterator[Usage]:
    """Yield the usages with these names of their models."""
    return (replace(usage, model=names.get(usage.model, usage.model)) for usage in usages)


AGENT_PRICES: Mapping[str, Mapping[str, str]] = {
    # The introductory price became permanent; Claude Code 2.1.198 to 2.1.206 reports costs by this one.
    "claude-sonnet-5": {
        "input": "3",
        "output": "15",
        "cache_read": "0.30",
        "cache_write_5m": "3.75",
        "cache_write_1h": "6",
    }
}
"""By the table's name of the model: another price that agents use, in US dollars per million tokens."""
