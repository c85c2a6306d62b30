"""Pure: what a person can do about a run: what it waits for and which command helps, and where the work is."""

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
"""The text of a blob; empty for None, and for a blob that was erased."""
Place = Callable[[str, str], str | None]
"""Run and feature -> a place on the disk, as long as it is there."""
DETAIL_MAX = 300
LISTED_MAX = 40
"""Features that are listed on a terminal; of more, those that matter are, and the others counted."""
OVER = ("delivered", "merged", "tagged", "cancelled", "skipped", "failed")
GOES_ON = ("held", "stopped", "paused")
REVIEW = {
    "approve": "mz review approve {}",
    "retry": "mz review answer {} TEXT",
    "reject": "mz review reject {} --note WHY",
}
"""What a person may say, and the command that says it."""
LEFT = {
    "answer": "its answer is left, and waits for the run",
    "cancel": "it is given up, and that waits for the run",
    "retry": "it is to be done once more, and that waits for the run",
}


def nowhere(run: str, feature: str) -> None:
    """For who does not look for places."""


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What the fold of a run does not say: files beside its log, and what was left for it."""

    tree: Place = nowhere
    """The worktree of a feature."""
    text: Place = nowhere
    """The text of a pull request that a person is to open."""
    letters: tuple[Letter, ...] = ()
    """Left in the inbox of the run."""
    near: Callable[[str], str] = str
    """A place as people read it where they are."""

    def letter(self, view: FeatureView) -> Letter | None:
        """The first of what was left for the feature that the run has not taken."""
        asked = int(view.waiting.place.rpartition("@")[2]) if view.waiting else None
        for each in self.letters:
            to_it = each.feature == view.feature or (each.feature is None and view.status not in OVER)
            if each.fate == "waits" and each.kind in LEFT and to_it and each.question in (None, asked):
                return each
        return None


def standing(view: FeatureView) -> str:
    """The status, and in brackets what explains it."""
    hold = view.code if view.hold is Hold.FATAL else (view.hold.value if view.hold else "")
    why = (hold, view.waiting.ask.value if view.waiting else "", view.code)
    shown = next((word for word in why if word), "") if view.status in ("held", "waiting", "failed") else ""
    if view.status == "held" and view.because:
        shown = f"{shown} {view.because}".strip()
    return f"{view.status} ({shown})" if shown else view.status


# what helps -----------------------------------------------------------------------------------------------------------
def answers(view: FeatureView) -> tuple[str, ...]:
    """What a person may say, the likeliest first."""
    asked = view.waiting
    first = "approve" if asked is not None and asked.ask.value in ("approval", "repository") else "retry"
    return (first, *(answer for answer in REVIEW if answer != first))


def review_commands(view: FeatureView) -> tuple[str, ...]:
    """To look at what is asked, then to answer it, the likeliest answer first."""
    return (f"mz review show {view.feature}", *(REVIEW[answer].format(view.feature) for answer in answers(view)))


def resume_command(run: str, view: FeatureView, around: Around) -> str | None:
    """The exact command that helps a feature on; None where nothing has to be done, or only for what it builds on."""
    if around.letter(view) is not None:
        return f"mz resume {run}"
    if view.waiting is not None and view.status == "waiting":
        return f"mz resume {run} --feature {view.feature} --answer {answers(view)[0]}"
    if view.status == "held" and view.hold is Hold.FATAL and view.code == TEMPLATE_BROKEN:
        return f"mz cancel {run}"
    return f"mz resume {run}" if view.status in GOES_ON and not _lost(view) else None


def _lost(view: FeatureView) -> bool:
    """What it builds on was not delivered: to go on with the run alone would not help."""
    return view.status == "held" and view.hold is None and bool(view.because)


def waits(view: RunView, held: bool, words: Words, around: Around) -> tuple[tuple[str, str], ...]:
    """What needs somebody: lines that say why, and what helps. `held`: a process works on the run, and takes by itself
    what is left for it."""
    questions: list[tuple[str, str]] = []
    going: list[str] = []
    lost: dict[str, list[str]] = {}
    unpaid: list[str] = []
    broken: list[str] = []
    if view.status == "running" and not held:
        going.append("no process works on this run: it was killed, or the machine went down")
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
    """How a run that can come no further makes room for another one. A branch that holds work is named, and never in
    what is to be pasted."""
    left = [each for each in run.features if each.branch and each.status not in OVER]
    bare = [each.branch for each in left if not each.commits]
    work = [each.branch for each in left if each.commits]
    room = f"mz cancel {run.run} && mz resume {run.run} && mz clean --yes {run.run}"
    room += f" && git branch -D {' '.join(bare)}" if bare else ""
    keep = f"; keep what you need of {', '.join(work)}, then: git branch -D {' '.join(work)}" if work else ""
    return (
        "mend the template below pipelines/templates: `mz gate --layer 1` tries all of them. This run keeps the one "
        f"that it began with: {room}{keep}, then: mz run"
    )


def _root(run: RunView, feature: FeatureView) -> str:
    """What was not delivered, at the end of those that are held by one another."""
    below = run.find(feature.because)
    return _root(run, below) if below is not None and _lost(below) else feature.because


def _why(feature: FeatureView, words: Words) -> str:
    asked = feature.waiting
    place = f" in {asked.phase}{'/' if asked.unit else ''}{asked.unit}" if asked and asked.phase else ""
    detail = shorten(line(words(asked.detail)), DETAIL_MAX) if asked else ""
    return f"{feature.feature}: {standing(feature)}{place}{': ' if detail else ''}{detail}"


def _told(feature: FeatureView, words: Words) -> str:
    """What the agent said of the problem that the feature is held for, to be put behind other words; empty where
    nothing is known of it."""
    last = feature.calls[-1] if feature.calls else None
    if feature.hold is not Hold.FATAL or last is None or last.problem != feature.code:
        return ""
    detail = shorten(line(words(last.detail)), DETAIL_MAX)
    return f": {detail}" if detail else ""


def what_is_broken(feature: FeatureView, words: Words) -> str:
    """Where in which template, and what is wrong there, to be put behind other words; empty where it is no template."""
    found = feature.broken
    detail = shorten(line(words(found.detail)), DETAIL_MAX) if found else ""
    return f" in {found.place}{': ' if detail else ''}{detail}" if found else ""


def _answering(feature: FeatureView) -> str:
    show, first, *others = review_commands(feature)
    return "\n  ".join((show, f"{first}   (or {', or '.join(others)})"))


def few(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines, or the first of them and a count of the others."""
    more = len(lines) - LISTED_MAX
    return tuple(lines) if more <= 0 else (*lines[:LISTED_MAX], f"and {more:,} more")


# where the work is ----------------------------------------------------------------------------------------------------
def places(view: RunView, around: Around) -> tuple[str, ...]:
    """Where the work of each feature is to be looked at: its pull request, or its branch and the text for one, or its
    worktree."""
    return tuple(f"{each.feature}: {where}" for each in view.features if (where := _where(view, each, around)))


def _where(view: RunView, feature: FeatureView, around: Around) -> str:
    base = builds_on(view, feature)
    stacked = f", which builds on {base}" if base else ""
    if feature.pull_request:
        green, red, pending = feature.checks or (0, 0, 0)
        checks = f" ({green} checks green, {red} red, {pending} pending)" if feature.checks else ""
        return f"{feature.pull_request}{checks}{stacked}"
    if feature.status in ("delivered", "tagged"):
        text = around.text(view.run, feature.feature)
        return f"{feature.branch}{stacked}" + (f"; text for a pull request: {around.near(text)}" if text else "")
    return around.tree(view.run, feature.feature) or ""


def builds_on(view: RunView, feature: FeatureView) -> str:
    """The branch of another feature that this one's was made on; empty: it was made on the base of the run."""
    return feature.target if feature.target != view.base else ""


def next_look(view: RunView, around: Around) -> str:
    """What to do with what was delivered and is in no pull request; empty where there is nothing such."""
    found = [each for each in view.features if each.status == "delivered" and each.branch and not each.pull_request]
    if not found:
        return ""
    first = found[0]
    look = f"`git diff {first.target}...{first.branch}`"
    if len(found) > 1:
        return f"next: look at what was delivered, such as with {look}"
    text = around.text(view.run, first.feature)
    told = f"; the text for a pull request is in {around.near(text)}" if text else ""
    return f"next: look at it with {look}{told}"


# many features --------------------------------------------------------------------------------------------------------
def listed(features: Sequence[FeatureView]) -> tuple[tuple[FeatureView, ...], str]:
    """The features that a terminal shows: all of some, of many those that were worked on; and a count of the rest, in
    words."""
    if len(features) <= LISTED_MAX:
        return tuple(features), ""
    shown = tuple(each for each in features if each.started_us is not None)
    rest = Counter(each.status for each in features if each.started_us is None)
    kinds = ", ".join(f"{number:,} {status}" for status, number in rest.items())
    return shown, f"and {counted(sum(rest.values()), 'other feature')}: {kinds}" if rest else ""
