"""Notifications of a run: the terminal's bell and the user's own command. A failing command never affects the run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread

from mz_engine.git.process import run_program
from mz_engine.model.config import Notifications, NotificationSubject
from mz_events.catalog.base import Event
from mz_events.catalog.feature import FeatureFailed, HumanRequested
from mz_events.catalog.run import RunFinished, RunHalted, RunIdle
from mz_events.envelope import Recorded

from mz_cli.live.milestones import live_text
from mz_cli.terminal.text import single_line

SUBJECTS: Mapping[type[Event], NotificationSubject] = {
    HumanRequested: "question",
    FeatureFailed: "failed",
    RunHalted: "halted",
    RunIdle: "idle",
    RunFinished: "finished",
}
TIMEOUT_SECONDS = 30


class Notifier:
    """Notifies a person of the recorded events that the settings name."""

    def __init__(
        self, root: Path, settings: Notifications, environment: Mapping[str, str], ring: Callable[[], object],
        show_text: Callable[[str], object],
    ) -> None:  # fmt: skip
        """`show_text` prints a line about a command that failed."""
        self._root, self._settings, self._environment = root, settings, environment
        self._ring, self._show_text = ring, show_text
        self._threads: list[Thread] = []

    def on_event(self, recorded: Recorded[Event]) -> None:
        """Notify of the event if it is one of those. Never raises, never waits."""
        subject = SUBJECTS.get(type(recorded.event))
        if subject not in self._settings.on or recorded.is_forked_copy:
            return
        self._ring()
        if self._settings.command is not None:
            _, run, *feature = recorded.stream.split("/")
            text = single_line(live_text(recorded))
            about = {"MZ_EVENT": subject, "MZ_RUN": run, "MZ_FEATURE": "".join(feature), "MZ_TEXT": text}
            thread = Thread(target=self._run, args=(self._settings.command, about), name="notification", daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Wait for the commands that still run."""
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)

    def _run(self, command: str, about: Mapping[str, str]) -> None:
        try:
            with open(os.devnull, "wb") as stdout:
                variables = {**self._environment, **about}
                result = run_program(("sh", "-c", command), self._root, variables, TIMEOUT_SECONDS, stdout=stdout)
            failure = f"exit {result.exit_code}" if result.exit_code else ""
        except subprocess.TimeoutExpired:
            failure = f"it took more than {TIMEOUT_SECONDS} seconds"
        except OSError as error:
            failure = str(error)
        if failure:
            self._show_text(f"the command of `notify` failed: {failure}")
