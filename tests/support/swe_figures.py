"""The rewards and metrics of docs/rewards-metrics-routing.md, computed from lines of `mz log --json` by nothing of mz:
for runs of `agentswe` in which every feature was delivered or waits, and no command reports coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from math import ceil
from statistics import mean, median
from typing import Any

Line = dict[str, Any]
TIERS = {
    "requirements": "cheap", "architecture": "mid", "planning": "cheap", "implementation": "cheap",
    "verification": "mid", "security": "mid", "integration": "cheap", "retrospective": "mid",
}  # fmt: skip
"""As the page on the pipeline lists them."""
Figures = dict[tuple[str, str, str], tuple[float | None, int]]
"""Value and n, by metric, subject and statistic."""


def bodies(lines: Iterable[Line], kind: str) -> list[Line]:
    return [line["event"] for line in lines if line.get("type") == kind]


def scores(lines: list[Line]) -> dict[str, int | None]:
    """The dimensions of one feature, and their composite."""
    done = bool(bodies(lines, "feature.delivered"))
    ran = [run for run in bodies(lines, "command.ran") if run["phase"] in ("verification", "integration")]
    last = {(run["phase"], run["unit"], run["name"]): run for run in ran}.values()
    numbers = {item["artifact"]: item for item in bodies(lines, "artifact.parsed")}
    causes = Counter(block["cause"] for block in bodies(lines, "phase.blocked"))
    sent_back = sum(b["source"] in ("verification", "security") for b in bodies(lines, "phase.rolled-back"))
    offences = sum(len(check["forbidden_changes"]) for check in bodies(lines, "changes.checked"))
    overruns = sum(bool(prompt.get("over")) for prompt in bodies(lines, "context.composed"))
    overruns += sum(call.get("escalated_by") == "rolled_back" for call in bodies(lines, "agent.requested"))

    def by_count(count: int, zero_max: int) -> int | None:
        return None if not (count or done) else 1 if count == 0 else 0 if count <= zero_max else -1

    tests = sum((run["passed"] or 0) + (run["failed"] or 0) > 0 for run in last)
    dimensions = {
        "correctness": (-1 if any(run["exit"] for run in last) else 1 if tests else 0) if last else None,
        "spec_fidelity": None,
        "architectural_compliance": by_count(causes["design"], 1),
        "verification_cleanliness": by_count(sent_back, 1),
        "phase_discipline": by_count(offences, 2),
        "context_efficiency": by_count(overruns, 2),
        "rollback_stability": by_count(causes["regression"] + causes["checks"] + causes["base"], 1),
        "maintainability": None,
    }
    if "fidelity" in numbers:
        share = numbers["fidelity"]["counts"]["met"] / len(numbers["criteria"]["ids"])
        dimensions["spec_fidelity"] = 1 if share >= 1 else 0 if share >= 0.8 else -1
    certain = [score for score in dimensions.values() if score is not None]
    composite: int | None = None
    if len(certain) >= 5:
        is_bad = dimensions["correctness"] == -1 or certain.count(-1) > len(certain) / 2
        composite = -1 if is_bad else int(certain.count(1) > len(certain) / 2)
    return {**dimensions, "composite": composite}


def metrics(features: list[list[Line]]) -> Figures:
    """All metrics of features, the oldest first."""
    lines = [line for feature in features for line in feature]
    started = Counter(event["phase"] for event in bodies(lines, "phase.started"))
    rolled = bodies(lines, "phase.rolled-back")
    figures: Figures = {}

    def rate(name: str, subject: str, part: float, n: int, statistic: str = "rate") -> None:
        figures[name, subject, statistic] = (round(part / n, 4) if n else None, n)

    for phase in started:
        rate("phase_rollback_rate", phase, sum(event["to"] == phase for event in rolled), started[phase])
        counts = [sum(e["phase"] == phase for e in bodies(feature, "phase.started")) for feature in features]
        counts = [count for count in counts if count]
        figures["iterations_per_phase", phase, "median"] = median(counts), len(counts)
        figures["iterations_per_phase", phase, "worst"] = max(counts), len(counts)
    order = [*TIERS]
    pairs = (pair for feature in features for pair in pairwise(bodies(feature, "phase.rolled-back")))
    further = sum(b["source"] == a["to"] and order.index(b["to"]) < order.index(a["to"]) for a, b in pairs)
    rate("rollback_cascade_rate", "all", further, len(rolled))
    planned = ("approval", "withheld")
    questions = [any(q["question_kind"] not in planned for q in bodies(f, "human.requested")) for f in features]
    rate("human_escalation_rate", "all", sum(questions), len(features))
    blocks = bodies(lines, "phase.blocked")
    rate("spec_ambiguity_rate", "all", sum(block["phase"] == "requirements" for block in blocks), len(features))
    for cause, count in Counter(block["cause"] for block in blocks).items():
        rate("block_rate", cause, count, len(features))
    rate("finding_rate", "unknown", sum(block["check"].startswith("raised.") for block in blocks), len(features))
    lessons = {item["key"] for event in bodies(lines, "learnings.captured") for item in event["learnings"]}
    rate("pattern_promotion_rate", "all", 0, len(lessons))  # Three features would verify one.
    prompts, limits = dict[str, list[int]](), dict[str, int]()
    for prompt in bodies(lines, "context.composed"):
        phase = prompt["key"].split("/")[2]
        parts = [p for p in prompt["parts"] if p["source"] != "instructions" and not p.get("left_out")]
        prompts.setdefault(phase, []).append(sum(part["tokens"] for part in parts))
        limits[phase] = prompt["tokens_max"]
    for phase, sizes in prompts.items():
        figures["context_tokens_per_phase", phase, "median"] = median(sizes), len(sizes)
        nearest = sorted(sizes)[ceil(0.95 * len(sizes)) - 1]
        figures["context_tokens_per_phase", phase, "p95"] = nearest, len(sizes)
        figures["context_tokens_per_phase", phase, "ceiling"] = limits[phase], len(sizes)
    calls = [call for call in bodies(lines, "agent.requested") if call["ref"]["role"] == "builder"]
    phases = Counter(call["ref"]["phase"] for call in calls)
    tiers = Counter((call["ref"]["phase"], call.get("escalated_to") or TIERS[call["ref"]["phase"]]) for call in calls)
    for (phase, tier), count in tiers.items():
        rate("tier_share", f"{phase} {tier}", count, phases[phase], "share")
    composites = [score for score in (scores(feature)["composite"] for feature in features) if score is not None]
    subject = f"1 to {len(features)} back"
    figures["composite_trend", subject, "mean"] = mean(composites) if composites else None, len(composites)
    return figures
