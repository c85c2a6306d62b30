"""Find seals of the log, and compare the log with them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from mz_engine.errors.diagnostics import MzError
from mz_engine.git.repository import open_repository
from mz_engine.ports import RepositoryUnusable
from mz_engine.run.seals import SignatureState, all_notes, check_signature, note_and_message
from mz_events.seal import TRAILER, InvalidSeal, Seal, differences, parse_seals

from mz_cli.app.context import ProjectLog
from mz_cli.terminal.json import Shape
from mz_cli.terminal.text import count_noun

FILE_BYTES_MAX = 16_000_000
SIGNATURE_TEXTS: dict[SignatureState, str] = {
    "none": "not signed: it proves nothing unless a copy is where nobody who changes the log can write",
    "valid": "signed by",
    "unknown-key": "signed by a key that no allowed signer has:",
    "invalid": "its signature is not of this text",
}


class SealCheck(Shape, frozen=True, kw_only=True):
    """A seal with which the log was compared."""

    root: str
    run: str | None
    """Null: the whole log."""
    events: int
    """Number of events that were sealed."""
    signature: SignatureState
    signer: str
    """Name of an allowed signer and fingerprint of the key; the latter alone of another key; empty without one."""

    @property
    def text(self) -> str:
        signature = f"{SIGNATURE_TEXTS[self.signature]} {self.signer}".rstrip()
        return f"{self.root[:12]} of {count_noun(self.events, 'event')}, {signature}"


def read_seals(root: Path, sources: Sequence[str]) -> tuple[Seal | str, ...]:
    """Return the seals in files, in notes and messages of commits, or with a root; a text says what is none. Raises
    MzError (MZ5013)."""
    results: dict[Seal | str, None] = {}
    for source in sources:
        try:
            seals, roots = parse_seals(_source_text(root, source))
            by_root = {seal.root: seal for seal in (*(_noted_seals(root) if roots else ()), *seals)}
        except InvalidSeal as error:
            results[f"{source}: {error}"] = None
            continue
        if not (seals or roots):
            raise MzError("MZ5013", f"{source} has no seal", hint="`mz seal` writes one; see `mz help MZ5013`")
        missing = "no note has the seal with the root"
        results |= dict.fromkeys((*seals, *(by_root.get(name, f"{source}: {missing} {name}") for name in roots)))
    return tuple(results)


def _source_text(root: Path, source: str) -> str:
    if Path(source).is_file():
        with open(source, "rb") as file:
            return file.read(FILE_BYTES_MAX).decode("utf-8", "replace")
    if re.fullmatch("[0-9a-f]{64}", source):
        return f"{TRAILER}: {source}"
    try:
        return note_and_message(open_repository(root, os.environ), source)
    except RepositoryUnusable:
        hint = "see `mz help MZ5013`"
        raise MzError("MZ5013", f"{source[:200]} is neither a file nor a commit nor a root", hint=hint) from None


def _noted_seals(root: Path) -> tuple[Seal, ...]:
    """Raises InvalidSeal."""
    with suppress(RepositoryUnusable):
        return parse_seals(all_notes(open_repository(root, os.environ)))[0]
    return ()


def noted_seals(root: Path, run: str) -> tuple[Seal | str, ...]:
    """Return the seals of a run in git notes; a text says what is none."""
    try:
        return tuple(dict.fromkeys(seal for seal in _noted_seals(root) if seal.run == run))
    except InvalidSeal as error:
        return (f"git notes: {error}",)


def check_seal(
    log: ProjectLog, seal: Seal, run: str | None, damaged: Collection[str], signers: Path | None
) -> Iterator[SealCheck | tuple[str, str]]:
    """Yield the check of a seal, then event ref and message of each difference. `damaged`: streams whose chain is
    broken; `signers`: file of allowed signers, one of whom must have signed. Raises MzError (MZ5014)."""
    state, signer = check_signature(seal, signers, os.environ)
    events = sum(head.version for head in seal.heads.values())
    yield SealCheck(root=seal.root, run=seal.run, events=events, signature=state, signer=signer)
    damages = differences(seal, log.store.heads(), log.store.stream_link, damaged)
    differing = [(damage.event_ref, damage.message) for damage in damages]
    if None not in (run, seal.run) and seal.run != run:
        differing.append(("log", f"it is of run {seal.run}, not of {run}"))
    if state == "invalid" or (signers and state != "valid"):
        differing.append(("log", f"{SIGNATURE_TEXTS[state]} {signer}".rstrip()))
    yield from ((event_ref, f"seal {seal.root[:12]}: {message}") for event_ref, message in differing)
