"""Notifications of a run: the terminal's bell and the user's own command. A failing command never affects the run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

from mz_engine.model.config import Notifications, NotificationSubject
from mz_engine.ports import OWN_PROBLEMS
from mz_events.catalog.base import Event
from mz_events.catalog.feature import FeatureFailed, HumanRequested
from mz_events.catalog.run import FeatureOutcome, FeatureStopped, Hold, RunFinished, RunHalted, RunIdle
from mz_events.store import Recorded

from mz_cli.app.context import TextLoader
from mz_cli.live.milestones import live_text
from mz_cli.terminal.text import shorten, single_line

SUBJECTS: Mapping[type[Event], NotificationSubject] = {
    HumanRequested: "question",
    FeatureFailed: "failed",
    RunHalted: "halted",
    RunIdle: "idle",
    RunFinished: "finished",
}
STOPS: Mapping[FeatureOutcome, NotificationSubject] = {FeatureOutcome.WAITING: "question", FeatureOutcome.HELD: "idle"}
"""What tells why a stopped feature does not continue; a fatal problem is told as `halted`."""
QUESTION_MAX = 300
TIMEOUT_SECONDS = 30
END_SECONDS = 3
"""How long the end of a run waits for commands."""
POLL_SECONDS = 0.05


class Notifier:
    """Notifies a person of the recorded events that the settings name."""

    def __init__(
        self, root: Path, settings: Notifications, environment: Mapping[str, str], ring: Callable[[], object],
        show_text: Callable[[str], object], load_text: TextLoader = lambda digest: "",
    ) -> None:  # fmt: skip
        """`show_text` prints a line about a command that failed."""
        self._root, self._settings, self._environment = root, settings, environment
        self._load_text = load_text
        self._ring, self._show_text = ring, show_text
        self._threads: list[Thread] = []
        self._stops: dict[str, NotificationSubject | None] = {}
        self._deadline = inf

    def on_event(self, recorded: Recorded[Event]) -> None:
        """Notify of the event if it is one of those, and its cause was not told before. Never raises, never waits."""
        event, subject = recorded.event, SUBJECTS.get(type(recorded.event))
        if isinstance(event, FeatureStopped):
            halts = event.hold is Hold.FATAL and event.code not in OWN_PROBLEMS
            self._stops[event.feature] = "halted" if halts else STOPS.get(event.status)
        causes = {*self._stops.values()} - {None}
        was_told = subject == "idle" and bool(causes) and causes <= {*self._settings.on} - {"idle"}
        if subject not in self._settings.on or recorded.is_forked_copy or was_told:
            return
        self._ring()
        if self._settings.command is not None:
            _, run, *feature = recorded.stream.split("/")
            text = single_line(live_text(recorded))
            if isinstance(event, HumanRequested) and (detail := self._load_text(event.detail)):
                text += f"; question: {shorten(single_line(detail), QUESTION_MAX)}"
            about = {"MZ_EVENT": subject, "MZ_RUN": run, "MZ_FEATURE": "".join(feature), "MZ_TEXT": text}
            thread = Thread(target=self._run, args=(self._settings.command, about), name="notification", daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Give the commands that still run a few seconds, then kill them."""
        self._deadline = monotonic() + END_SECONDS
        for thread in self._threads:
            thread.join()
        self._deadline = inf

    def _run(self, command: str, about: Mapping[str, str]) -> None:
        try:
            process = subprocess.Popen(
                ["sh", "-c", command], cwd=self._root, env={**self._environment, **about}, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            limit, failure = monotonic() + TIMEOUT_SECONDS, ""
            while process.poll() is None and not failure:
                sleep(POLL_SECONDS)
                if monotonic() > limit:
                    failure = f"it took more than {TIMEOUT_SECONDS} seconds"
                elif monotonic() > self._deadline:
                    failure = f"it still ran {END_SECONDS} seconds after the end of the run, and was killed"
            if failure:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            failure = failure or (f"exit {code}" if code else "")
        except OSError as error:
            failure = str(error)
        if failure:
            self._show_text(f"the command of `notify` failed: {failure}")
