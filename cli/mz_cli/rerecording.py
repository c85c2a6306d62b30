"""`mz rerecord`: ask before anything is paid, show the differences, write what was accepted."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from threading import Thread
from types import FrameType
from typing import NamedTuple

import click
from msgspec.structs import replace
from mz_engine.configfile import load_config
from mz_engine.errors import MzError
from mz_engine.estimate import Estimate
from mz_engine.exits import Exit, worst
from mz_engine.session import UNWRITABLE
from mz_recordings.cassette import Cassette, Provenance
from mz_recordings.drift.drift import Described, compare_cassettes
from mz_recordings.files.library import CassetteChanged, CassetteUnusable, load, renew, seal_of
from mz_recordings.findings import Finding, FindingKind
from mz_recordings.playing.fleet import environment_of, find
from mz_recordings.recording.record import SecretInRecording
from mz_recordings.recording.scratch import WorldMissing
from mz_recordings.rerecord.drive import Ended, Reins
from mz_recordings.rerecord.keep import classes
from mz_recordings.rerecord.place import Workplace, drop_waiting, is_waiting, leave, waiting_for, workplace
from mz_recordings.rerecord.plan import Wish
from mz_recordings.rerecord.rerecord import Order, Outcome, Prepared, carry_out, check, prepare

from mz_cli.asking import ask_line, may_ask
from mz_cli.recording import library_of, shown
from mz_cli.render.console import is_terminal, note, put_lines
from mz_cli.render.draw import show
from mz_cli.render.text import line
from mz_cli.rerecordpage import differences, differing, nothing, shape, summing, table, total, words_of
from mz_cli.shapes.rerecord import RerecordedCassette
from mz_cli.summary import exit_of_code

ALL = "ALL"
CHANGED_MEANWHILE = "cassette changed meanwhile"
PATIENCE = "stopping after the current call; Ctrl-C again ends the agent now. Paid replies are kept"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPS = {"budget": Exit.LIMIT, "interrupted": Exit.STOPPED}
NO = ("", "0", "false")
BUILD_SERVERS = ("GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "TEAMCITY_VERSION", "JENKINS_URL", "TF_BUILD")
"""Variables set by build servers, some of which do not set `CI`."""
IN_THE_WAY = UNWRITABLE | {errno.EEXIST, errno.ENOTDIR, errno.EPERM}


class Asked(NamedTuple):
    """Options of the command line."""

    wish: Wish
    agent: str
    provenance: Provenance
    prune: bool
    budget_nanousd: int | None
    accept: frozenset[str]
    yes: bool
    in_ci: bool


class Work(NamedTuple):
    """One cassette prepared for re-recording."""

    path: Path
    order: Order
    place: Workplace
    prepared: Prepared


# cassettes ------------------------------------------------------------------------------------------------------------
def record_again(home: Path, paths: Sequence[Path], asked: Asked) -> tuple[RerecordedCassette, ...]:
    """Re-record the selected calls of each cassette, one cassette after the other; a stop ends all. Raises MzError."""
    environment = environment_of(os.environ)
    refuse_ci(os.environ, asked)
    with ExitStack() as held:
        works = [_prepared(held, home, path, environment, asked) for path in paths]
        check_names(works, asked.wish)
        for work in works:
            if not _has_work(work):
                note(line(nothing(shown(work.path), work.prepared)))
        todo = [work for work in works if _has_work(work)]
        paid = [work for work in todo if work.prepared.planned]
        if paid:
            consent(paid, asked)
        return _carried_out(todo, asked)


def _prepared(held: ExitStack, home: Path, path: Path, environment: dict[str, str], asked: Asked) -> Work:
    if is_waiting(path):
        take = f"accept it: mz rerecord {quote(shown(path))} --take; or delete it: rm -r "
        message = f"{shown(waiting_for(path))}: a new cassette is waiting for your decision"
        raise MzError("MZ6002", message, hint=take + quote(shown(waiting_for(path))))
    order = Order(
        path=str(path.resolve()),
        project=str(home.resolve()),
        environment=environment,
        today=datetime.now(UTC),
        wish=asked.wish,
        agent=asked.agent,
        provenance=asked.provenance,
        prune=asked.prune,
    )
    with usable(path), writable(path):
        place = held.enter_context(workplace(home.resolve(), path))
        return Work(path, order, place, prepare(order, place))


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Turn errors of an unreadable cassette into MzError MZ6005, and of a secret into MZ6004."""
    try:
        yield
    except (CassetteUnusable, WorldMissing) as error:
        raise MzError("MZ6005", str(error), hint=f"git restore {quote(shown(path))}, or record it anew") from error
    except SecretInRecording as error:
        hint = "remove the secret and rotate it. The cassette is unchanged"
        raise MzError("MZ6004", str(error), hint=hint) from error


def _has_work(work: Work) -> bool:
    return bool(work.prepared.planned) or work.prepared.cassette is not work.prepared.old


def _carried_out(todo: Sequence[Work], asked: Asked) -> tuple[RerecordedCassette, ...]:
    done: list[RerecordedCassette] = []
    left, reins = asked.budget_nanousd, Reins()
    for work in todo:
        outcome = Outcome(Ended("", 0))
        if work.prepared.planned:
            with usable(work.path), writable(work.path), minding(reins):
                outcome = carry_out(
                    work.order, work.prepared, work.place, left, lambda told: note(words_of(told)), reins
                )
            left = None if left is None else max(0, left - outcome.ended.spent_nanousd)
        for key in outcome.denied:
            note(f"{key}: a command tried to use the network, which is cut off while recording")
        done.append(_finished(work, outcome, asked))
        if outcome.ended.stopped:
            break
    return tuple(done)


# before anything is paid ----------------------------------------------------------------------------------------------
def refuse_ci(environment: Mapping[str, str], asked: Asked) -> None:
    """Raise MzError (MZ1002) on a build server unless both options are given."""
    if in_ci(environment) and not (asked.in_ci and asked.budget_nanousd is not None):
        message = "in CI the real agent is called only with --in-ci and --budget"
        raise MzError("MZ1002", message, hint="record on your machine, or: mz rerecord --in-ci --budget 5.00")


def in_ci(environment: Mapping[str, str]) -> bool:
    """Return True on a build server: `CI` decides if it is set, even if empty; else each server's own variable."""
    if "CI" in environment:
        return environment["CI"].lower() not in NO
    return any(environment.get(name, "").lower() not in NO for name in BUILD_SERVERS)


def check_names(works: Sequence[Work], wish: Wish) -> None:
    """Raise MzError for a feature (MZ4010) or phase (MZ1002) that no cassette has."""
    features = {item.feature: None for work in works for item in work.prepared.old.manifest.world.items}
    phases = {one.recording.identity.phase: None for work in works for one in work.prepared.old.taken}
    phases |= {phase.phase: None for work in works for phase in work.prepared.pins.pipeline.phases}
    for code, what, known, given in (("MZ4010", "feature", features, wish.features), ("MZ1002", "phase", phases,
                                                                                      wish.phases)):  # fmt: skip
        for name in given:
            if name not in known:
                raise MzError(code, f"no cassette has the {what} {name!r}", hint=f"valid: {', '.join(known)}")


def consent(works: Sequence[Work], asked: Asked) -> None:
    """Show the planned calls with their cost, and ask once. Raises MzError, and click.Abort for a no."""
    for work in works:
        check(work.order, work.prepared)
    shown_works = [(shown(work.path), work.prepared) for work in works]
    show(table(shown_works, whole=not is_terminal(sys.stderr)), sys.stderr)
    for words in summing(shown_works, asked.budget_nanousd):
        note(words)
    check_prices(total(shown_works), asked.budget_nanousd)
    if asked.yes or in_ci(os.environ):
        return
    if not may_ask(os.environ):
        hint = "check the table above, then repeat the command with --yes and --budget"
        raise MzError("MZ1002", "calling the real agent costs money and needs your consent", hint=hint)
    if not agrees("Call the real agent?"):
        raise click.Abort


def check_prices(estimate: Estimate, budget_nanousd: int | None) -> None:
    """Raise MzError (MZ1002) for calls without a price if a budget is given."""
    if budget_nanousd is not None and estimate.nanousd is None:
        message = "a call has no price, so a budget cannot limit it"
        hint = "use a model with a price in mz.yaml, or leave out --budget (not in CI)"
        raise MzError("MZ1002", message, hint=hint)


def agrees(question: str) -> bool:
    return ask_line(f"{question} [y/N]", "").lower() in ("y", "yes")


@contextmanager
def minding(reins: Reins) -> Iterator[None]:
    """Stop the run after the current call on the first Ctrl-C; end agents at once on a second one, SIGTERM or
    SIGHUP."""
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        # The handler interrupts the thread that reads the scheduler's queue, whose lock it must not wait for.
        asked.append(number)
        at_once = len(asked) > 1 or number != signal.SIGINT
        Thread(target=end, args=(at_once,), name="stop", daemon=True).start()

    def end(at_once: bool) -> None:
        if at_once:
            reins.kill()
        else:
            reins.stop()
            note(PATIENCE)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# after ----------------------------------------------------------------------------------------------------------------
def _finished(work: Work, outcome: Outcome, asked: Asked) -> RerecordedCassette:
    path, prepared = work.path, work.prepared
    done = shape(shown(path), prepared, outcome)
    if outcome.ended.stopped:
        if outcome.safe:
            note(paid_words(outcome.safe))
        return replace(done, helps=continuing(path, asked, outcome.ended.stopped))
    pruned = prepared.cassette if prepared.cassette is not prepared.old else None
    new = outcome.cassette or pruned
    with usable(path), writable(path):
        if new is not None:
            done = settle(path, prepared.old, new, prepared.pins.config.agents, asked, done)
        if left := work.place.use_up(outcome.used_up):
            note(paid_words(left))
    return done


def paid_words(answers: int) -> str:
    kept = "1 paid reply is kept" if answers == 1 else f"{answers} paid replies are kept"
    return f"{kept}; the next attempt repeats only the other calls"


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn write errors into MzError MZ1006; paid replies are kept."""
    try:
        yield
    except OSError as error:
        if error.errno not in IN_THE_WAY:
            raise
        message = f"{error.filename or shown(path)} cannot be written: {error.strerror}"
        hint = "make it writable, or free disk space; the same command then continues without paying anything twice"
        raise MzError("MZ1006", message, hint=hint) from error


def settle(
    path: Path, old: Cassette, new: Cassette, described: Described, asked: Asked, done: RerecordedCassette
) -> RerecordedCassette:
    """Show the differences, and write the new cassette if all are accepted; else keep it for a later decision."""
    seal = seal_of(path)
    same, findings = load(path) == old, compare_cassettes(old, new, described)
    refused: tuple[str, ...] = review(findings, asked)
    backup: Path | None = None
    try:
        if not refused and same:
            backup = renew(new, path.resolve(), seal)
    except CassetteChanged:
        same = False
    if not refused and not same:
        refused = (CHANGED_MEANWHILE,)
    done = replace(done, differences=differences(findings), refused=refused)
    if refused:
        leave(new, path)
        helps = f"mz rerecord {quote(shown(path))} --take"
        helps += "".join(f" --accept {kind}" for kind in classes(findings))
        return replace(done, waits=shown(waiting_for(path)), helps=helps)
    drop_waiting(path)
    return replace(done, written=True, backup=shown(backup) if backup else None)


def review(findings: Sequence[Finding], asked: Asked) -> tuple[FindingKind, ...]:
    """Return the classes of differences that are not accepted; on a terminal, ask for each class."""
    refused: list[FindingKind] = []
    for kind in classes(findings):
        put_lines(sys.stderr, differing(kind, findings))
        known = ALL in asked.accept or kind in asked.accept or (asked.prune and kind == "UNUSED")
        if not known and not (may_ask(os.environ) and agrees(f"Accept {kind}?")):
            refused.append(kind)
    return tuple(refused)


def continuing(path: Path, asked: Asked, stopped: str) -> str:
    """Return the command that continues after a stop."""
    wish = asked.wish
    words = ["mz", "rerecord", quote(shown(path)), *(["--agent", quote(asked.agent)] if asked.agent else [])]
    for option, values in (("--feature", wish.features), ("--phase", wish.phases)):
        words += [word for value in values for word in (option, quote(value))]
    flags = {"changed": wish.changed, "expired": wish.expired, "new": wish.new, "all": wish.everything}
    words += [f"--{name}" for name, given in {**flags, "prune": asked.prune}.items() if given]
    words += ["--budget", "MORE"] if stopped == "budget" else []
    return " ".join(words)


def take_waiting(home: Path, paths: Sequence[Path], asked: Asked) -> tuple[RerecordedCassette, ...]:
    """Replace cassettes by their waiting new ones, as far as the differences are accepted now. Raises MzError (MZ6001)
    if none is waiting."""
    found = [path for path in paths if is_waiting(path)]
    if not found:
        message = f"no new cassette is waiting in {', '.join(shown(path) for path in paths)}"
        raise MzError("MZ6001", message, hint="`mz rerecord` makes one")
    done, described = [], load_config(home, os.environ, {}).config.agents
    for path in found:
        with usable(path), workplace(home.resolve(), path), writable(path):
            old, new = load(path), load(waiting_for(path))
            done.append(settle(path, old, new, described, asked, shape(shown(path), None, None)))
    return tuple(done)


def cassettes_at(home: Path, paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return all cassettes at these paths, by default the library. Raises MzError (MZ6001) for a path without any."""
    places = tuple(paths) or (library_of(home),)
    for place in places:
        if not find((place,)):
            message = f"there is no cassette in {shown(place)}"
            raise MzError("MZ6001", message, hint="record a run first: mz run && mz record")
    return find(places)


def exit_of(done: Sequence[RerecordedCassette]) -> Exit:
    """Return the exit code of the command."""
    found: list[Exit] = []
    for one in done:
        if one.stopped:
            found.append(STOPS.get(one.stopped) or exit_of_code(one.stopped))
        if one.dropped:
            found.append(Exit.VERDICT)
        if one.refused:
            found.append(Exit.DRIFT)
    return worst(found)
