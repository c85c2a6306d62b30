"""Pending actions of a run with the commands that resolve them, and the location of each feature's work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
from mz_engine.ports import TEMPLATE_BROKEN
from mz_events.catalog.run import Hold
from mz_events.names import Digest
from mz_projections.queue import Letter
from mz_projections.views import FeatureView, RunView

from mz_cli.render.text import counted, line, shorten

Words = Callable[[Digest | None], str]
"""Blob digest -> text; empty for None and for an erased blob."""
Place = Callable[[str, str], str | None]
"""Run and feature -> an existing path, or None."""
DETAIL_MAX = 300
LISTED_MAX = 40
"""Features listed on a terminal; of more, only the started ones are listed and the others counted."""
OVER = ("delivered", "merged", "tagged", "cancelled", "skipped", "failed")
GOES_ON = ("held", "stopped", "paused")
REVIEW = {
    "approve": "mz review approve {}",
    "retry": "mz review answer {} TEXT",
    "reject": "mz review reject {} --note WHY",
}
"""Verdict -> command."""
LEFT = {
    "answer": "answered; pending until the run continues",
    "cancel": "cancellation requested; pending until the run continues",
    "retry": "retry requested; pending until the run continues",
}


def nowhere(run: str, feature: str) -> None:
    """Return None, for callers that need no paths."""


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """Data about a run that is not in its events: files beside the log, and inbox messages."""

    tree: Place = nowhere
    text: Place = nowhere
    """The text of a pull request that a person has to open."""
    letters: tuple[Letter, ...] = ()
    """All messages in the run's inbox."""
    near: Callable[[str], str] = str
    """Shorten a path for display."""

    def letter(self, view: FeatureView) -> Letter | None:
        """Return the first message for the feature that the run has not read yet."""
        asked = int(view.waiting.place.rpartition("@")[2]) if view.waiting else None
        for each in self.letters:
            to_it = each.feature == view.feature or (each.feature is None and view.status not in OVER)
            if each.fate == "waits" and each.kind in LEFT and to_it and each.question in (None, asked):
                return each
        return None


def standing(view: FeatureView) -> str:
    """Return the status, with its explanation in brackets."""
    hold = view.code if view.hold is Hold.FATAL else (view.hold.value if view.hold else "")
    why = (hold, view.waiting.ask.value if view.waiting else "", view.code)
    shown = next((word for word in why if word), "") if view.status in ("held", "waiting", "failed") else ""
    if view.status == "held" and view.because:
        shown = f"{shown} {view.because}".strip()
    return f"{view.status} ({shown})" if shown else view.status


# commands -------------------------------------------------------------------------------------------------------------
def answers(view: FeatureView) -> tuple[str, ...]:
    """Return the possible verdicts, the likeliest first."""
    asked = view.waiting
    first = "approve" if asked is not None and asked.ask.value in ("approval", "repository") else "retry"
    return (first, *(answer for answer in REVIEW if answer != first))


def review_commands(view: FeatureView) -> tuple[str, ...]:
    """Return the command that shows the question, then those that answer it, the likeliest first."""
    return (f"mz review show {view.feature}", *(REVIEW[answer].format(view.feature) for answer in answers(view)))


def resume_command(run: str, view: FeatureView, around: Around) -> str | None:
    """Return the command that continues a feature; None if none is needed, or only one for its dependency."""
    if around.letter(view) is not None:
        return f"mz resume {run}"
    if view.waiting is not None and view.status == "waiting":
        return f"mz resume {run} --feature {view.feature} --answer {answers(view)[0]}"
    if view.status == "held" and view.hold is Hold.FATAL and view.code == TEMPLATE_BROKEN:
        return f"mz cancel {run}"
    return f"mz resume {run}" if view.status in GOES_ON and not _lost(view) else None


def _lost(view: FeatureView) -> bool:
    """Return True if its dependency was not delivered, so that continuing the run does not help."""
    return view.status == "held" and view.hold is None and bool(view.because)


def waits(view: RunView, held: bool, words: Words, around: Around) -> tuple[tuple[str, str], ...]:
    """Return pairs of the reason why a person is needed and the command to use.

    `process_running`: a process drives the run, and reads its inbox by itself."""
    questions: list[tuple[str, str]] = []
    going: list[str] = []
    lost: dict[str, list[str]] = {}
    unpaid: list[str] = []
    broken: list[str] = []
    if view.status == "running" and not held:
        going.append("no process is running this run; it was interrupted")
    for feature in view.features:
        letter = around.letter(feature)
        if letter is not None:
            going += [] if held else [f"{feature.feature}: {standing(feature)}: {LEFT[letter.kind]}"]
        elif feature.status == "waiting" and feature.waiting is not None:
            questions.append((_why(feature, words), _answering(feature)))
        elif _lost(feature):
            lost.setdefault(_root(view, feature), []).append(f"{feature.feature}: {standing(feature)}")
        elif feature.hold is Hold.FATAL and feature.code == TEMPLATE_BROKEN:
            broken.append(f"{feature.feature}: {standing(feature)}{what_is_broken(feature, words)}")
        elif feature.hold is Hold.BUDGET:
            unpaid.append(f"{feature.feature}: {standing(feature)}")
        elif feature.status in GOES_ON:
            going.append(f"{feature.feature}: {standing(feature)}{_told(feature, words)}")
    going_on = f"mz resume {view.run}"
    held_up = [(why, f"mz retry {because}") for because, why in lost.items()]
    held_up += [(broken, _anew(view))] if broken else []
    held_up += [(unpaid, f"raise budget in mz.yaml, then: {going_on}")] if unpaid else []
    held_up += [(going, going_on)] if going else []
    return (*questions, *(("\n".join(few([line(each) for each in why])), helps) for why, helps in held_up))


def _anew(run: RunView) -> str:
    """Return how to replace a run that cannot continue. A branch with commits is never deleted by the command that is
    to be pasted."""
    left = [each for each in run.features if each.branch and each.status not in OVER]
    bare = [each.branch for each in left if not each.commits]
    work = [each.branch for each in left if each.commits]
    room = f"mz cancel {run.run} && mz resume {run.run} && mz clean --yes {run.run}"
    room += f" && git branch -D {' '.join(bare)}" if bare else ""
    keep = f"; keep what you need of {', '.join(work)}, then: git branch -D {' '.join(work)}" if work else ""
    return (
        "fix the template below pipelines/templates; `mz gate --layer 1` checks all of them. This run keeps the "
        f"template that it started with, so replace the run: {room}{keep}, then: mz run"
    )


def _root(run: RunView, feature: FeatureView) -> str:
    """Return the dependency that was not delivered, at the end of a chain of held features."""
    below = run.find(feature.because)
    return _root(run, below) if below is not None and _lost(below) else feature.because


def _why(feature: FeatureView, words: Words) -> str:
    asked = feature.waiting
    place = f" in {asked.phase}{'/' if asked.unit else ''}{asked.unit}" if asked and asked.phase else ""
    detail = shorten(line(words(asked.detail)), DETAIL_MAX) if asked else ""
    return f"{feature.feature}: {standing(feature)}{place}{': ' if detail else ''}{detail}"


def _told(feature: FeatureView, words: Words) -> str:
    """Return the agent's text on the fatal problem as a suffix; empty if there is none."""
    last = feature.calls[-1] if feature.calls else None
    if feature.hold is not Hold.FATAL or last is None or last.problem != feature.code:
        return ""
    detail = shorten(line(words(last.detail)), DETAIL_MAX)
    return f": {detail}" if detail else ""


def what_is_broken(feature: FeatureView, words: Words) -> str:
    """Return template, line and error as a suffix; empty if no template is broken."""
    found = feature.broken
    detail = shorten(line(words(found.detail)), DETAIL_MAX) if found else ""
    return f" in {found.place}{': ' if detail else ''}{detail}" if found else ""


def _answering(feature: FeatureView) -> str:
    show, first, *others = review_commands(feature)
    return "\n  ".join((show, f"{first}   (or {', or '.join(others)})"))


def few(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the first lines, and a count of the others."""
    more = len(lines) - LISTED_MAX
    return tuple(lines) if more <= 0 else (*lines[:LISTED_MAX], f"and {more:,} more")


# location of the work -------------------------------------------------------------------------------------------------
def places(view: RunView, around: Around) -> tuple[str, ...]:
    """Return for each feature its pull request, else its branch and the text for one, else its worktree."""
    return tuple(f"{each.feature}: {where}" for each in view.features if (where := _where(view, each, around)))


def _where(view: RunView, feature: FeatureView, around: Around) -> str:
    base = builds_on(view, feature)
    stacked = f", which builds on {base}" if base else ""
    if feature.pull_request:
        green, red, pending = feature.checks or (0, 0, 0)
        checks = f" ({green} checks passed, {red} failed, {pending} pending)" if feature.checks else ""
        return f"{feature.pull_request}{checks}{stacked}"
    if feature.status in ("delivered", "tagged"):
        text = around.text(view.run, feature.feature)
        return f"{feature.branch}{stacked}" + (f"; text for a pull request: {around.near(text)}" if text else "")
    return around.tree(view.run, feature.feature) or ""


def builds_on(view: RunView, feature: FeatureView) -> str:
    """Return the branch of the feature that this one is stacked on; empty if it is on the run's base."""
    return feature.target if feature.target != view.base else ""


def next_look(view: RunView, around: Around) -> str:
    """Return how to review what was delivered without a pull request; empty if nothing was."""
    found = [each for each in view.features if each.status == "delivered" and each.branch and not each.pull_request]
    if not found:
        return ""
    first = found[0]
    look = f"`git diff {first.target}...{first.branch}`"
    if len(found) > 1:
        return f"next: review what was delivered, for example with {look}"
    text = around.text(view.run, first.feature)
    told = f"; the text for a pull request is in {around.near(text)}" if text else ""
    return f"next: review it with {look}{told}"


# many features --------------------------------------------------------------------------------------------------------
def listed(features: Sequence[FeatureView]) -> tuple[tuple[FeatureView, ...], str]:
    """Return the features to list on a terminal (of many, the started ones), and a count of the others by status."""
    if len(features) <= LISTED_MAX:
        return tuple(features), ""
    shown = tuple(each for each in features if each.started_us is not None)
    rest = Counter(each.status for each in features if each.started_us is None)
    kinds = ", ".join(f"{number:,} {status}" for status, number in rest.items())
    return shown, f"and {counted(sum(rest.values()), 'other feature')}: {kinds}" if rest else ""
