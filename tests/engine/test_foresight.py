"""What is said before anything is paid: tools that an agent lacks, and models whose calls no budget can reserve for."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.agents.registry import built_in_adapters
from mz_engine.decoding.quantity import Usd
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.agent_description import AgentDescription, EndConditions, ToolArguments
from mz_engine.model.config import Budget, Config, Models, Route, RouteChoice
from mz_engine.model.pipeline import AgentReview, AgentUse, Phase, Pipeline
from mz_engine.pricing.table import GenaiPrices
from mz_engine.processes import supervise
from mz_engine.processes.guard import LANDLOCK, LEVELS, MOUNTING
from mz_engine.run import plan
from mz_engine.run.plan import (
    check_isolation,
    missing_tools,
    price_lookup,
    unknown_models,
    unpriced_models,
    weak_isolation,
)

PIPELINE = Pipeline(
    pipeline="p",
    version=1,
    phases=(
        Phase(phase="plan", agent=AgentUse(tier="premium", tools=("read",))),
        Phase(phase="code", agent=AgentUse(tools=("read", "write", "shell"))),
        Phase(
            phase="test",
            agent=AgentUse(tools=("write",)),
            agent_review=AgentReview(role="d", tier="cheap", tools=("read", "shell"), output="v", prompt="p"),
        ),
        Phase(phase="deliver"),
    ),
)
LIMITED = Budget(run_nanousd=Usd(10**9))
NOW = 1_790_000_000_000_000


def missing(config: Config) -> list[tuple[str, str, str]]:
    return [
        (diagnostic.code, diagnostic.severity, diagnostic.message) for diagnostic in missing_tools(PIPELINE, config)
    ]


def unpriced(config: Config) -> list[str]:
    return [diagnostic.message for diagnostic in unpriced_models(PIPELINE, config, {"known"}.__contains__)]


def test_what_routing_chooses_is_looked_at_where_it_is_called() -> None:
    """An agent that works in one phase has its tools alone, and a routed tier the price of its model."""
    review = Route(agent_review=RouteChoice(agent="aider", tier="premium"))
    elsewhere = {"plan": Route(agent="aider"), "test": Route(agent="aider")}
    assert missing(Config(agent="claude-code", routing=elsewhere)) == []
    ((_, _, message),) = missing(Config(agent="claude-code", routing={"test": review}))
    assert message == "the phase `test` asks for the tool `shell`, which the agent aider does not have"
    models = Models(cheap="known", mid="known", premium="dear")
    config = Config(agent="claude-code", budget=LIMITED, models=models)
    routed = replace(config, routing={"plan": Route(tier="mid"), "test": Route(agent_review=RouteChoice(tier="cheap"))})
    assert [("dear" in text) for text in unpriced(config)] == [True]
    assert unpriced(routed) == []


def test_every_phase_with_a_tool_that_the_agent_lacks_is_named() -> None:
    output = "the phases `code`, `test` ask for the tool `shell`, which the agent aider does not have"
    assert missing(Config(agent="aider")) == [("MZ3019", "warning", output)]
    assert missing(Config(agent="claude-code")) == []


def test_an_agent_that_may_take_over_is_looked_at_too() -> None:
    assert len(missing(Config(agent="claude-code", failover=("aider",)))) == 1


def test_an_agent_that_says_nothing_of_tools_may_have_all() -> None:
    silent = AgentDescription(command=("x",), ends=EndConditions(exits=(0,)))
    writes = AgentDescription(command=("x",), ends=EndConditions(exits=(0,)), allowed=ToolArguments(write=("--edit",)))
    assert missing(Config(agent="own", agents={"own": silent})) == []
    actual = [lack[-1] for lack in missing(Config(agent="own", agents={"own": writes}))]
    assert actual == ["the phases `code`, `test` ask for the tool `shell`, which the agent own does not have"]


def test_an_agent_that_nobody_knows_is_told_of_elsewhere() -> None:
    nobody = Config(agent="abacus", budget=LIMITED)
    assert (missing(nobody), unpriced(nobody)) == ([], [])


def test_models_without_a_price_are_named_where_money_is_limited() -> None:
    models = Models(cheap="known", mid="new-1", premium="new-2")
    assert unpriced(Config(models=models)) == []
    for budget in (LIMITED, Budget(feature_nanousd=Usd(1))):
        assert unpriced(Config(models=models, budget=budget)) == [
            "a budget is set, but these models have no price: new-2, new-1; no money is reserved for calls"
        ]
    assert unpriced(Config(models=Models(cheap="known", mid="known", premium="known"), budget=LIMITED)) == []


def test_models_of_an_agent_that_may_take_over_are_its_own() -> None:
    expected = Models(cheap="known", mid="known", premium="known")
    (output,) = unpriced(Config(models=expected, failover=("codex",), budget=LIMITED))
    assert all(name in output for name in built_in_adapters()["codex"].capabilities().models.values())


def test_the_models_that_agents_choose_have_prices() -> None:
    """Kiro's are names of its own, and say what a plan includes."""
    prices = GenaiPrices()
    for name in built_in_adapters().keys() - {"kiro"}:
        diagnostics = unpriced_models(
            PIPELINE, Config(agent=name, budget=LIMITED), lambda model: prices.estimate(model, 1, 1, NOW) is not None
        )
        assert not list(diagnostics), name


@pytest.mark.parametrize(
    ("config", "messages"),
    [
        (Config(), []),
        (Config(models=Models(mid="claude-sonnet-4-6", cheap="haiku")), []),
        (
            Config(models=Models(mid="claude-sonet-4-6")),
            ["`models.mid` is claude-sonet-4-6, which the price table does not know; similar ones: claude-sonnet-4-6"],
        ),
        (Config(models=Models(premium="x")), ["`models.premium` is x, which the price table does not know; known: "]),
        (
            Config(agent="codex", models=Models(mid="gpt-5.1-codx")),
            ["similar ones: gpt-5.3-codex, gpt-5.1-codex-mini, "],
        ),
        (Config(agent="abacus", models=Models(mid="x")), []),
    ],
)
def test_an_unknown_model_is_a_warning_with_known_ones(config: Config, messages: list[str]) -> None:
    diagnostics = list(unknown_models(config, price_lookup(config, {})))
    assert [(entry.code, entry.severity) for entry in diagnostics] == [("MZ2020", "warning")] * len(messages)
    for diagnostic, message in zip(diagnostics, messages, strict=True):
        assert message in diagnostic.message


@pytest.mark.parametrize("level", LEVELS)
def test_less_isolation_than_required_is_refused(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "best_level", lambda: level)
    monkeypatch.setattr(plan, "best_level", lambda: level)
    has_mounts = level in MOUNTING
    assert [warning.code for warning in weak_isolation()] == ([] if has_mounts else ["MZ1012"])
    check_isolation(Path(), Config(), {})
    if has_mounts or level == LANDLOCK:
        check_isolation(Path(), Config(isolation="landlock"), {})
    else:
        with pytest.raises(MzError, match=f"`isolation: landlock` is required, .* only has the level {level}"):
            check_isolation(Path(), Config(isolation="landlock"), {})
    if has_mounts:
        check_isolation(Path(), Config(isolation="mounts"), {})
    else:
        with pytest.raises(MzError, match=f"only has the level {level}"):
            check_isolation(Path(), Config(isolation="mounts"), {})
