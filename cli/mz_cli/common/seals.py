"""Find seals of the log, and compare the log with them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mz_engine.errors.diagnostics import MzError
from mz_engine.git.objects import ObjectReader
from mz_engine.git.repository import open_repository
from mz_engine.ports import RepositoryUnusable
from mz_engine.run.seals import NOTES_REF, SignatureState, check_signature
from mz_events.names import StreamId
from mz_events.seal import TRAILER, InvalidSeal, Seal, differences, parse_seals

from mz_cli.terminal.console import print_note
from mz_cli.terminal.text import count_noun

SIGNATURE_TEXTS: dict[SignatureState, str] = {
    "none": "not signed: it proves nothing unless a copy is where nobody who changes the log can write",
    "valid": "signed by",
    "unknown-key": "signed by a key that no allowed signer has:",
    "invalid": "its signature is not of this text",
}


def read_seals(root: Path, sources: Sequence[str], run: str | None = None) -> tuple[Seal, ...]:
    """Return the seals in files, in notes and messages of commits, or with a root; and with `run` those of the run in
    notes, the newest last. Raises MzError (MZ5013)."""
    seals, noted = list[Seal](), sorted(_noted_seals(root), key=_count_events)
    for source in sources:
        try:
            named, roots = parse_seals(_source_text(root, source))
        except InvalidSeal as error:
            raise MzError("MZ5013", f"{source}: {error}", hint="do not trust it; see `mz help MZ5013`") from None
        seals += named
        if missing := {*roots} - {seal.root for seal in named}:
            by_root = {seal.root: seal for seal in noted}
            if lost := missing - by_root.keys():
                raise MzError("MZ5013", f"{source}: no git note has the seal with the root {min(lost)}")
            seals += (by_root[name] for name in missing)
        elif not named:
            raise MzError("MZ5013", f"{source} has no seal")
    seals += (seal for seal in noted if run is not None and seal.run == run)
    return tuple(dict.fromkeys(seals))


def _noted_seals(root: Path) -> Iterator[Seal]:
    """Yield the seals in notes, and say which notes cannot be read: anyone who pushes can write one."""
    with suppress(RepositoryUnusable):
        reader = ObjectReader(git := open_repository(root, os.environ))
        for note, commit in map(str.split, git.run("notes", f"--ref={NOTES_REF}", "list").text.splitlines()):
            try:
                yield from parse_seals(reader.read(note, b"blob").decode("utf-8", "replace"))[0]
            except (InvalidSeal, RepositoryUnusable) as error:
                print_note(f"the git note of {commit[:12]} was left out: {error}")


def _source_text(root: Path, source: str) -> str:
    if Path(source).is_file():
        return Path(source).read_text("utf-8", "replace")
    if re.fullmatch("[0-9a-f]{64}", source):
        return f"{TRAILER}: {source}"
    flags = ("--max-count=1", "--no-show-signature", "--no-mailmap", f"--notes={NOTES_REF}", "--format=%N%n%B")
    try:
        return open_repository(root, os.environ).run("log", *flags, "--end-of-options", source, "--").text
    except RepositoryUnusable:
        raise MzError("MZ5013", f"{source[:200]} is neither a file nor a commit nor a root") from None


def _count_events(seal: Seal) -> int:
    return sum(head.version for head in seal.heads.values())


def check_seal(
    seal: Seal, links: Mapping[StreamId, Mapping[int, bytes]], run: str | None, signers: Path | None
) -> tuple[str, list[tuple[str, str]]]:
    """Return what the seal is, and event ref and message of each difference. `links`: as in `differences`; `signers`:
    file of allowed signers, one of whom must have signed. Raises MzError (MZ5014)."""
    state, signer = check_signature(seal, signers, os.environ)
    signature, findings = f"{SIGNATURE_TEXTS[state]} {signer}".rstrip(), list(differences(seal, links))
    if None not in (run, seal.run) and seal.run != run:
        findings.append(("log", f"it is of run {seal.run}, not of {run}"))
    if state == "invalid" or (signers and state != "valid"):
        findings.append(("log", signature))
    events, name = count_noun(_count_events(seal), "event"), f"seal {seal.root[:12]}"
    return f"{name} of {events}, {signature}", [(event_ref, f"{name}: {message}") for event_ref, message in findings]
