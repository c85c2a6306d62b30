"""Drive a run for `mz run` and `mz resume`: show its progress, handle signals, print the result."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import FrameType

from mz_engine.home import BLOBS, HOME, SPOOL
from mz_engine.ports import TEMPLATE_BROKEN
from mz_engine.session import Session
from mz_events.adapters.blobs import FileBlobs
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_projections.views import RunView

from mz_cli.advice import Around, Words, few, listed, next_look, places, waits
from mz_cli.context import Reading, reading
from mz_cli.render.console import answer, is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.painter import restore
from mz_cli.render.progress import Progress, progress
from mz_cli.render.spool import Spools
from mz_cli.render.text import line
from mz_cli.summary import closing_table, exit_of, heading, run_status
from mz_cli.viewing import wished
from mz_cli.words import words_of
from mz_cli.worktrees import around

Begin = Callable[[Session, Callable[[str], None]], object]
"""Start or resume a run; the second argument prints a line for the user."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS_MAX = 3
PAUSE, GO_ON = signal.SIGUSR1, signal.SIGUSR2
FOOTER = "Ctrl-C: finish current calls, then stop. Twice: stop now"
PATIENCE = "stopping after the current calls; Ctrl-C again ends agents and commands now"


class NothingToDo(Exception):
    """There is neither a run to start nor one to continue; the message says why."""


def drive(home: Path, begin: Begin, command: str, as_json: bool) -> int:
    """Start or resume a run with `start_run`, drive it until it stops, and print it; return the exit code.

    Raises MzError if it cannot start, and any exception of a worker thread."""
    words = words_of(FileBlobs(home / HOME / BLOBS))
    try:
        view = carry_out(home, os.environ, begin)
    except NothingToDo as nothing:
        note(str(nothing))
        if as_json:
            with reading(home) as log:
                newest = log.view(log.find_run(None))
            show_document(command, run_status(newest, str(home), False, words, around(home)))
        return 0
    if as_json:
        show_document(command, run_status(view, str(home), False, words, around(home)))
    else:
        show_ending(view, words, around(home))
    return int(exit_of(view))


def carry_out(home: Path, environment: Mapping[str, str], begin: Begin) -> RunView:
    """Drive the run, showing it on stderr, and return its final state."""

    def history(run: str) -> Iterator[Recorded[Event]]:
        return Reading(home, session.store).events(run)

    words, said = words_of(FileBlobs(home / HOME / BLOBS)), Spools(home / HOME / SPOOL).last_words
    shown = progress(words, history, said, footer=FOOTER, wish=wished())
    with Session(home, environment, shown.on_event) as session, shown:
        begin(session, shown.say)
        with minding_signals(session, shown):
            state = session.drive()
        assert state.started is not None
        return Reading(home, session.store).view(state.started.run)


def show_ending(view: RunView, words: Words, beside: Around) -> None:
    """Print results, cost, locations and the next commands; a pipe gets only the table on stdout."""
    terminal = is_terminal(sys.stdout)
    say = answer if terminal else note
    if terminal:
        answer(heading(view, held=False) + "\n")
    show(closing_table(view.features, whole=not terminal))
    if terminal and (rest := listed(view.features)[1]):
        say(rest)
    if found := places(view, beside):
        say("\n" + "\n".join(map(line, few(found))))
    going, goes_on = f"mz resume {view.run}", view.status in ("stopped", "halted")
    for why, helps in waits(view, False, words, beside):
        say(f"\n{why}" if helps == going else f"\n{why}\n  {helps}")
        goes_on |= helps == going
    if goes_on and view.code != TEMPLATE_BROKEN:
        say(f"\nTo continue: {going}")
    if look := next_look(view, beside):
        say(f"\n{look}")


@contextmanager
def minding_signals(session: Session, shown: Progress) -> Iterator[None]:
    """Handle signals while the run works.

    The first Ctrl-C stops the run after the current calls; the second, and the first SIGTERM or SIGHUP, ends agents and
    commands at once; the third ends this process, which loses only the open calls. SIGUSR1 pauses the run and SIGUSR2
    continues it; the process stays."""
    asked: list[int] = []

    def end(at_once: bool) -> None:
        session.stop()
        if at_once:
            session.kill()
        else:
            shown.say(PATIENCE)

    def handle(number: int, frame: FrameType | None) -> None:
        # The handler interrupts the thread that reads the scheduler's queue, whose lock it must not wait for.
        asked.append(number)
        if len(asked) >= SIGNALS_MAX:
            if shown.painting:
                restore(sys.stderr)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        at_once = len(asked) > 1 or number != signal.SIGINT
        Thread(target=end, args=(at_once,), name="stop", daemon=True).start()

    def pause_or_resume(number: int, frame: FrameType | None) -> None:
        Thread(target=session.pause if number == PAUSE else session.unpause, name="pause", daemon=True).start()

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    before |= {number: signal.signal(number, pause_or_resume) for number in (PAUSE, GO_ON)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
