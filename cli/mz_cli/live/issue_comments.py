"""Comments of `mz run` and `mz resume` on the issues that a backlog consists of: what happens with each, in one comment
per run. They decide nothing, and a failure of the forge is only told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from mz_engine.backlog.listed import issue_of
from mz_engine.ports import RemoteError
from mz_engine.run.settings import load_config
from mz_events.catalog.base import Event
from mz_events.catalog.delivery import PullRequestOpened
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.run import FeatureStopped
from mz_events.store import Recorded
from mz_projections.views.model import FeatureView, RunView

from mz_cli.common.advice import status_label

END_SECONDS = 60
"""How long the end of a run waits for comments."""
Job = tuple[str, str] | None


class IssueComments:
    """Comments on the issue of a feature when it starts or stops, and when its pull request was opened."""

    def __init__(
        self,
        root: Path,
        environment: Mapping[str, str],
        view: Callable[[str], RunView],
        show_text: Callable[[str], object],
    ) -> None:
        """`view` returns a run as it is now."""
        self._root, self._environment = root, environment
        self._view, self._show_text = view, show_text
        self._jobs = SimpleQueue[Job]()
        self._written: dict[str, str] = {}
        self._thread: Thread | None = None

    def on_event(self, recorded: Recorded[Event]) -> None:
        """Never raises, never waits."""
        if isinstance(event := recorded.event, FeatureStarted | FeatureStopped | PullRequestOpened):
            _, run, *feature = recorded.stream.split("/")
            self._jobs.put((run, event.feature if isinstance(event, FeatureStopped) else feature[0]))
            if self._thread is None:
                self._thread = Thread(target=self._work, name="issue comments", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Wait a while for what is to be written."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(END_SECONDS)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            run, name = job
            feature = next((feature for feature in self._view(run).features if feature.feature == name), None)
            if feature is not None and (issue := issue_of(feature.source)):
                try:
                    self._write(run, feature, issue)
                except RemoteError as error:
                    self._show_text(f"no comment on {issue}: {error}")

    def _write(self, run: str, feature: FeatureView, issue: str) -> None:
        from mz_engine.forge.github import GhForge

        text = comment_text(run, feature)
        if self._written.get(issue) != text:
            repository, _, number = issue.partition("#")
            remote = load_config(self._root, self._environment, {}).config.pull_requests.remote
            forge = GhForge(self._root, remote, self._environment, repository)
            forge.report(int(number), f"<!-- mz {run}/{feature.feature} -->", text)
            self._written[issue] = text


def comment_text(run: str, feature: FeatureView) -> str:
    """Return the comment: state, pull request, tests. Not what agents or people wrote: an issue may be public."""
    lines = [f"**mz**: {status_label(feature)}" + (f" (`{feature.phase}`)" if feature.status == "working" else "")]
    if feature.pull_request:
        lines.append(f"Pull request: {feature.pull_request}")
    if feature.tests:
        lines.append(f"Tests: {feature.tests[0]} passed, {feature.tests[1]} failed")
    lines.append(f"Run `{run}`; more: `mz show {feature.feature}`")
    return "\n\n".join(lines)
