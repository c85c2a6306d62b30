"""Drive a run for `mz run` and `mz resume`: show its progress, handle signals, print the result, notify the user by the
terminal's bell and a command of theirs, which never affects the run if it fails."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from math import inf
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from types import FrameType

from mz_engine.errors.diagnostics import MzError, format_diagnostic
from mz_engine.model.config import Config, Notifications, NotificationSubject
from mz_engine.ports import OWN_PROBLEMS
from mz_engine.run.process import RunProcess
from mz_engine.run.settings import load_config
from mz_events.catalog.base import Event
from mz_events.catalog.feature import FeatureFailed, HumanRequested
from mz_events.catalog.run import FeatureOutcome, FeatureStopped, Hold, RunFinished, RunHalted, RunIdle
from mz_events.store import Recorded, StoreUnusable
from mz_projections.views.model import RunView

from mz_cli.app.context import ProjectLog, TextLoader, open_log
from mz_cli.common.advice import run_context
from mz_cli.common.run_text import print_run, run_exit, run_status
from mz_cli.live.issue_reports import IssueReports
from mz_cli.live.milestones import live_text
from mz_cli.live.progress import Progress, make_progress
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import print_document
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


StartRun = Callable[[RunProcess, Callable[[str], None]], object]
"""Start or resume a run; the second argument prints a line for the user."""
SignalHandler = Callable[[int, FrameType | None], None]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS_MAX = 3
PAUSE_SIGNAL, RESUME_SIGNAL = signal.SIGUSR1, signal.SIGUSR2
FOOTER = "Ctrl-C: finish current calls, then stop. Twice: stop now"
STOPPING_NOTE = "stopping after the current calls; Ctrl-C again ends agents and commands now"


class NothingToDo(Exception):
    """There is neither a run to start nor one to continue; the message says why."""


def drive_run(root: Path, start_run: StartRun, command: str, as_json: bool) -> tuple[int, str | None]:
    """Start or resume a run with `start_run`, drive it until it stops, and print it; return the exit code and the run.

    Raises MzError if it cannot start, and any exception of a worker thread."""
    run = None
    try:
        run = execute(root, os.environ, start_run).run
    except NothingToDo as nothing:
        print_note(f"nothing to do: {nothing}")
        if not as_json:
            return 0, None
    with open_log(root) as log:
        view = log.view(log.find_run(run))
        context = run_context(log, view.run)
    if as_json:
        print_document(command, run_status(view, context))
    else:
        print_run(view, context)
    if cancelled := [feature.feature for feature in view.features if run and feature.status == "cancelled"]:
        print_note(f"cancelled, so not delivered: {', '.join(cancelled)}")
    return int(run_exit(view)) if run else 0, run


def execute(root: Path, environment: Mapping[str, str], start_run: StartRun) -> RunView:
    """Drive the run, showing it on stderr, and return its final state."""

    def observe(recorded: Recorded[Event]) -> None:
        view.on_event(recorded)
        notifier.on_event(recorded)
        reports.on_event(recorded)

    config = Config(notify=Notifications(on=()))
    with suppress(MzError):  # Those of now, not those of the run, which may be old.
        config = load_config(root, environment, {}).config
    with RunProcess(root, environment, observe) as process:
        log = ProjectLog(root, process.store)
        with make_progress(log, FOOTER) as view, closing(IssueReports(log, environment, view.show_text)) as reports:
            if config.tracker is not None:
                from mz_cli.live.tracker import Tracker  # Runs without one start faster without it.

                reports.tracker = Tracker(log, config, environment, view.show_text)
            notifier = Notifier(root, config.notify, environment, view.ring, view.show_text, log.load_text)
            start_run(process, view.show_text)
            with closing(notifier), handle_run_signals(process, view):
                state = process.drive(lambda warning: view.show_text(format_diagnostic(warning)))
            assert state.started is not None
            if config.memory.share and state.finished:
                from mz_cli.common.memory import offer_learnings  # A run starts faster without it.

                try:
                    offer_learnings()
                except (MzError, StoreUnusable, OSError) as error:
                    print_note(f"what was learned is not offered to other projects: {error}")
            return log.view(state.started.run)


def handle_run_signals(process: RunProcess, view: Progress) -> AbstractContextManager[None]:
    """Handle signals while the run works: those that end it, SIGUSR1, which pauses it, and SIGUSR2, which continues it;
    the process stays."""

    def end(at_once: bool) -> None:
        process.scheduler.stop()
        if at_once:
            process.kill()
        else:
            view.show_text(STOPPING_NOTE)

    def pause_or_resume(number: int, frame: FrameType | None) -> None:
        paused = number == PAUSE_SIGNAL
        Thread(target=process.scheduler.pause, args=(paused,), name="pause", daemon=True).start()

    others: dict[int, SignalHandler] = {PAUSE_SIGNAL: pause_or_resume, RESUME_SIGNAL: pause_or_resume}
    return handle_signals(end, view.restore_terminal, others)


@contextmanager
def handle_signals(
    end: Callable[[bool], None], leave: Callable[[], None] | None = None, others: Mapping[int, SignalHandler] = {}
) -> Iterator[None]:
    """Handle the signals that end the work, and `others`.

    The first Ctrl-C calls `end` with False, to stop after the current calls; the second, and the first SIGTERM or
    SIGHUP, with True, to end agents and commands at once. With `leave`, the third calls that and ends this process,
    which loses only the open calls. A SIGHUP that is ignored, as `nohup` has it, stays ignored."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        # The handler interrupts a thread that may hold the scheduler's lock, which a handler must not wait for.
        received.append(number)
        if leave is not None and len(received) >= SIGNALS_MAX:
            leave()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        at_once = len(received) > 1 or number != signal.SIGINT
        Thread(target=end, args=(at_once,), name="stop", daemon=True).start()

    signals = SIGNALS[:-1] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else SIGNALS
    handlers: dict[int, SignalHandler] = {**dict.fromkeys(signals, handle), **others}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
