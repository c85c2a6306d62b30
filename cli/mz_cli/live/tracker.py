"""The tracker: items that a plan created, shown as issues of a forge. The log counts; nothing is read from issues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from secrets import token_hex
from time import monotonic

from mz_engine.backlog.listed import Issue
from mz_engine.decide.items import may_begin_again
from mz_engine.forge.github import GhForge, inert
from mz_engine.model.config import Config
from mz_engine.model.pins import Pins
from mz_engine.ports import RemoteError
from mz_engine.secrets import project_secrets
from mz_events.catalog.delivery import IssueOpened, IssueRequested
from mz_events.catalog.run import ItemAdded
from mz_events.names import FeatureId, run_stream, tracker_stream
from mz_events.redaction.redactor import Secrets
from mz_projections.run.fold import FeatureTrack, RunState, fold_run
from mz_projections.views.model import RunView

from mz_cli.app.context import ProjectLog
from mz_cli.live.issue_reports import comment_text
from mz_cli.terminal.text import single_line, strip_escapes

TRACKER_LABEL, READY, IN_PROGRESS = "mz", "mz:ready", "mz:in-progress"
FAILED, ABANDONED, MERGED = "mz:failed", "mz:abandoned", ""
"""Labels of states; MERGED has none."""
STATE_LABELS = frozenset({READY, IN_PROGRESS, FAILED, ABANDONED})
TITLE_CHARS_MAX, BODY_CHARS_MAX = 250, 60_000
"""GitHub's are 256 and 65,536."""
PAUSE_SECONDS = 60
"""How long nothing is written after a failure."""
LISTED_WITHIN = timedelta(seconds=GhForge.timeout_seconds + 30)
"""So long after a request `gh` may work on it, also if `mz` was killed, and GitHub take to list the issue."""
CLOCKS_DIFFER = timedelta(days=1)
"""By no more than this differ ours and GitHub's."""
Request = tuple[datetime, str]
"""When an issue was requested, and the random part of its line."""


class Tracker:
    """Makes the issues of a run equal to its log. Not thread-safe."""

    def __init__(
        self, log: ProjectLog, config: Config, environment: Mapping[str, str], show_text: Callable[[str], object]
    ) -> None:
        self._log, self._config, self._environment, self._show_text = log, config, environment, show_text
        self._secrets = Secrets(project_secrets(log.root, environment))
        self._shown: dict[FeatureId, tuple[str, int]] = {}
        """What the issue of an item shows: its label, and how often it was begun."""
        self._failed = set[FeatureId]()
        """Items whose issue could not be written; they come last, so that they keep no other from it."""
        self._messages = set[str]()
        self._paused_until = 0.0

    def update(self, run: str, is_last: bool = False) -> None:
        """Write what differs. After a failure nothing is written for a while, unless this is the last time; it is told
        once. A fork shows nothing."""
        state = fold_run(self._log.store.read(run_stream(run)))
        pins = self._log.load_pins(state.started.pins) if state.started else None
        if pins is None or state.fork is not None or (monotonic() < self._paused_until and not is_last):
            return
        wanted = {
            track.item.feature: (state_label(track, state, pins), track.attempts)
            for track in state.tracks.values()
            if track.item.made_by is not None
        }
        changed = [feature for feature in wanted if self._shown.get(feature) != wanted[feature]]
        view = self._log.view(run) if changed else RunView(run=run)
        try:
            for feature in sorted(changed, key=lambda feature: feature in self._failed):
                self._failed.add(feature)
                if self._show(view, state.tracks[feature].item, wanted[feature][0]):
                    self._failed.discard(feature)
                    self._shown[feature] = wanted[feature]
        except RemoteError as error:
            self._paused_until = monotonic() + PAUSE_SECONDS
            self._tell(f"the issues of the tracker {self._config.tracker} are not up to date: {error}")

    @cached_property
    def _forge(self) -> GhForge:
        return GhForge.of_tracker(self._log.root, self._config, self._environment)

    @cached_property
    def _listed(self) -> dict[int, Issue]:
        """The issues of the tracker, by number."""
        return {issue.number: issue for issue in self._forge.issues(TRACKER_LABEL)}

    def _issues(self, run: str) -> tuple[dict[FeatureId, int], dict[FeatureId, Request]]:
        """Return the numbers of the issues in this repository that the run has opened, and its requests."""
        numbers, requests, name = dict[FeatureId, int](), dict[FeatureId, Request](), self._forge.repository or ""
        for recorded in self._log.store.read(tracker_stream(run)):
            event = recorded.event
            if isinstance(event, IssueOpened) and event.issue.lower().startswith(f"{name.lower()}#"):
                numbers[event.feature] = int(event.issue.rpartition("#")[2])
            elif isinstance(event, IssueRequested) and event.repository.lower() == name.lower():
                requests[event.feature] = datetime.fromtimestamp(recorded.recorded_at_us / 1e6, UTC), event.token
        return numbers, requests

    def _show(self, view: RunView, item: ItemAdded, label: str) -> bool:
        """Write an item's issue. Return False as long as nobody can tell whether there is one."""
        listed = self._listed  # First: who cannot read issues requests none.
        feature, (numbers, requests) = item.feature, self._issues(view.run)
        if (number := numbers.get(feature)) is None:
            issue = self._find_or_open(view.run, item, label, numbers, requests.get(feature))
            if issue is None:
                return False
            number = issue.number
        else:
            issue = listed.get(number)
            if issue is None or label_changes(issue, label):
                issue = self._forge.change_issue(number)  # People may have changed it since.
        if issue and (changes := label_changes(issue, label)):
            if (shown := view.find_feature(feature)) and label in (FAILED, ABANDONED, MERGED):
                self._forge.report(number, f"<!-- mz {view.run}/{feature} -->", comment_text(view, shown))
            issue = self._forge.change_issue(number, changes)
        if issue:
            listed[number] = issue
        else:
            name = f"{self._forge.repository}#{number}"
            self._tell(f"{name}, the issue of {feature}, was deleted or moved; it is not opened again")
        return True

    def _find_or_open(
        self, run: str, item: ItemAdded, label: str, numbers: Mapping[FeatureId, int], request: Request | None
    ) -> Issue | None:
        """Return the issue that an earlier request has opened, else a new one; None: there may be one that is not yet
        listed."""
        feature, stream, repository = item.feature, tracker_stream(run), self._forge.repository or ""
        requested, token = request or (None, token_hex(8))
        mark = f"<!-- mz {f'{run}/{feature} {token}'.strip()} -->"
        issue = self._forge.find_issue(mark, requested - CLOCKS_DIFFER) if requested else None
        if requested and issue is None and datetime.now(UTC) < requested + LISTED_WITHIN:
            self._tell(f"the issue of {feature} may be open already; it is looked up again before one is opened")
            return None
        if issue is None:
            needs = [f"{name} (#{numbers[name]})" if name in numbers else name for name in item.depends_on]
            body = "\n\n".join((
                self._inert(strip_escapes(self._log.load_text(item.body))),
                *([f"Depends on: {', '.join(needs)}"] if needs else []),
                f"Proposed by `{item.made_by}` in the run `{run}`; more: `mz show {feature}`",
            ))  # fmt: skip
            title = self._inert(single_line(self._log.load_text(item.title)))[:TITLE_CHARS_MAX]
            labels = sorted({TRACKER_LABEL, label} - {MERGED})
            self._log.append(IssueRequested(feature=feature, repository=repository, token=token), stream)
            issue = self._forge.open_issue(title, f"{body[:BODY_CHARS_MAX]}\n\n{mark}", labels)
        self._log.append(IssueOpened(feature=feature, issue=f"{repository}#{issue.number}"), stream)
        return issue

    def _inert(self, text: str) -> str:
        """Return a text of an agent without secrets, and without what notifies people or refers to issues."""
        return inert(self._secrets.redact(text))

    def _tell(self, message: str) -> None:
        if message not in self._messages:
            self._messages.add(message)
            self._show_text(message)


def state_label(track: FeatureTrack, state: RunState, pins: Pins) -> str:
    """Return the label of an item's state."""
    if state.closing is not None and state.closing.how == "cancel":
        return ABANDONED
    if track.is_delivered:
        return MERGED
    if track.has_ended:
        return READY if may_begin_again(track, pins) and state.closing is None else FAILED
    return IN_PROGRESS if track.admitted else READY


def label_changes(issue: Issue, label: str) -> dict[str, object]:
    """Return the fields of an issue that are to change so that it shows a state. One that a person closed stays closed.
    Labels are the same in any case."""
    names = {name.name.lower(): name.name for name in issue.labels}
    wanted = names.keys() - STATE_LABELS | {TRACKER_LABEL, label} - {MERGED}
    labels = sorted(names.get(name, name) for name in wanted)
    changes: dict[str, object] = {"labels": labels} if wanted != names.keys() else {}
    return {**changes, "state": "closed"} if issue.is_open and label in (ABANDONED, MERGED) else changes
