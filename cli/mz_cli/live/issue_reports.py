"""What `mz run` and `mz resume` write on issues: comments on those that a backlog consists of, one per run, and the
issues of the tracker. It decides nothing: a failure is only told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from mz_engine.ports import RemoteError
from mz_events.catalog.base import Event
from mz_events.catalog.delivery import PullRequestOpened
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.run import FeatureStopped, ItemRequeued, ItemsAdded, RetryAccepted, RunClosing, RunResumed
from mz_events.names import feature_stream
from mz_events.store import Recorded
from mz_projections.views.model import FeatureView, RunView

from mz_cli.app.context import ProjectLog
from mz_cli.common.advice import status_label

if TYPE_CHECKING:
    from mz_cli.live.tracker import Tracker

END_SECONDS = 60
"""How long the end of a run waits for what is to be written."""
QUIET_SECONDS = 2
Job = tuple[str, str | None] | None
"""Run, and the feature whose issue gets a comment: None: all of the run, empty: none. None: the end."""
OF_FEATURES = FeatureStarted | FeatureStopped | PullRequestOpened | ItemsAdded | ItemRequeued | RetryAccepted
REPORTED = OF_FEATURES | RunResumed | RunClosing


class IssueReports:
    """Comments on the issue of a feature when it starts or stops, when its pull request was opened, and when its run
    continues or is ended, and keeps the tracker, if there is one; in its own thread, since `gh` is slow. A fork, which
    serves for comparison, tells nothing."""

    tracker: Tracker | None = None

    def __init__(self, log: ProjectLog, environment: Mapping[str, str], show_text: Callable[[str], object]) -> None:
        self._log, self._environment, self._show_text = log, environment, show_text
        self._jobs = SimpleQueue[Job]()
        self._written: dict[str, str] = {}
        self._thread = Thread(target=self._work, name="issue reports", daemon=True)
        self._thread.start()

    def on_event(self, recorded: Recorded[Event]) -> None:
        """Never raises, never waits."""
        if isinstance(event := recorded.event, REPORTED):
            _, run, *feature = recorded.stream.split("/")
            self._jobs.put((run, getattr(event, "feature", None) or next(iter(feature), None)))

    def close(self) -> None:
        """Wait a while for what is to be written."""
        self._jobs.put(None)
        self._thread.join(QUIET_SECONDS)
        if self._thread.is_alive():
            self._show_text("writing on issues")
            self._thread.join(END_SECONDS)

    def _work(self) -> None:
        run = ""
        is_last = False
        while not is_last:
            job = self._jobs.get()
            is_last, (run, name) = job is None, job or (run, "")
            try:
                for feature in self._log.features(run) if name is None else (name,):
                    self._comment(run, feature)
                if self.tracker and run and self._jobs.empty():  # What several events have changed is shown once.
                    self.tracker.update(run, is_last)
            except Exception as error:  # Whatever it is, the run and later comments do not depend on it.
                self._show_text(f"not written on issues: {error}")

    def _comment(self, run: str, name: str) -> None:
        """Comment on the issue of a feature that has started and has one."""
        first = next(iter(self._log.store.read(feature_stream(run, name))), None)
        if first is None or first.is_forked_copy or not isinstance(first.event, FeatureStarted):
            return
        issue, view = first.event.issue, self._log.view(run) if first.event.issue else RunView(run=run)
        feature = view.find_feature(name)
        if feature is None or self._written.get(issue) == (text := comment_text(view, feature)):
            return
        from mz_engine.forge.github import GhForge  # Runs without issues start faster without it.

        repository, _, number = issue.partition("#")
        try:
            forge = GhForge(self._log.root, "", self._environment, repository)
            forge.report(int(number), f"<!-- mz {run}/{name} -->", text)
            self._written[issue] = text
        except RemoteError as error:
            self._show_text(f"no comment on {issue}: {error}")


def comment_text(run: RunView, feature: FeatureView) -> str:
    """Return the comment: state, pull request, tests. Not what agents or people wrote: an issue may be public."""
    state = "abandoned" if run.closing == "cancel" else status_label(feature)
    phase = f" (`{feature.phase}`)" if feature.status == "working" and feature.phase else ""
    lines = [f"**mz**: {state}{phase}"]
    if feature.pull_request:
        lines.append(f"Pull request: {feature.pull_request}")
    if feature.delivery:
        lines.append(f"{feature.delivery[0].upper()}{feature.delivery[1:]}")
    if feature.tests:
        lines.append(f"Tests: {feature.tests[0]} passed, {feature.tests[1]} failed")
    lines.append(f"Run `{run.run}`; more: `mz show {feature.feature}`")
    return "\n\n".join(lines)
