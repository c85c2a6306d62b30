"""Seals of a repository's log: taken, signed by `ssh-keygen`, and kept as git notes of what was delivered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Literal, NamedTuple

from msgspec.structs import replace
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.feature import FeatureStarted
from mz_events.names import feature_stream, is_of_run
from mz_events.seal import Seal, seal_of

from mz_engine.errors.diagnostics import MzError
from mz_engine.git.process import ProgramResult, run_program, safe_environment
from mz_engine.git.repository import fetch, open_repository, push_ref, retry_without_locks, run_git_as_user
from mz_engine.model.config import Config
from mz_engine.ports import RemoteError, RepositoryUnusable

NOTES_REF = "refs/notes/mz-seal"
AUTHOR = {f"GIT_{role}_{name}": "mz@localhost" for role in ("AUTHOR", "COMMITTER") for name in ("NAME", "EMAIL")}
NOTES_LOCK = Lock()  # Of two notes that are added at once git loses one: it does not compare the ref's old value.
TIMEOUT_SECONDS = 60.0
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
SignatureState = Literal["none", "valid", "unknown-key", "invalid"]
"""No signature; by a trusted key; by another key; not of this text."""


def take_seal(store: SqliteStore, run: str | None) -> Seal:
    """Return the seal of a run, or of the whole log, as it is now."""
    heads = {name: head for name, head in store.heads().items() if run is None or is_of_run(name, run)}
    return seal_of(heads, store.log_id, run)


def signing_key(root: Path, environment: Mapping[str, str], configured: str | None) -> str | None:
    """Return the configured key, else git's if that is an SSH key."""
    settings = run_git_as_user(root, environment, "config", "--get-regexp", r"^(gpg\.format|user\.signingkey)$").text
    values = dict(line.split(" ", 1) for line in settings.splitlines() if " " in line)
    key = configured or (values.get("user.signingkey") if values.get("gpg.format") == "ssh" else None)
    return key and str(root / Path(key).expanduser())


def sign(seal: Seal, key: str, environment: Mapping[str, str]) -> Seal:
    """Return the seal with a signature. Raises MzError (MZ5014)."""
    result = _ssh_keygen(environment, seal, "sign", "-f", key)
    if result.exit_code:
        raise MzError("MZ5014", f"{key} cannot sign: {' '.join(result.stderr.split())[:300]}", hint="`mz help MZ5014`")
    return replace(seal, signature=result.text + "\n")


def check_signature(seal: Seal, signers: Path | None, environment: Mapping[str, str]) -> tuple[SignatureState, str]:
    """Check the signature against an allowed signers file; return the signer's name, if trusted, and the key. Raises
    MzError (MZ5014)."""
    if not seal.signature:
        return "none", ""
    with TemporaryDirectory(prefix="mz-seal-") as folder:
        file = Path(folder, "signature")
        file.write_text(seal.signature, encoding="utf-8")
        checked = _ssh_keygen(environment, seal, "check-novalidate", "-s", str(file))
        key, flags = FINGERPRINT.search(checked.text), ("-s", str(file), "-f", str(signers))
        if checked.exit_code or key is None:
            return "invalid", ""
        for name in _ssh_keygen(environment, seal, "find-principals", *flags).text.splitlines() if signers else ():
            if _ssh_keygen(environment, seal, "verify", "-I", name, *flags).exit_code == 0:
                return "valid", f"{name} {key[0]}"
    return "unknown-key", key[0]


def _ssh_keygen(environment: Mapping[str, str], seal: Seal, action: str, *flags: str) -> ProgramResult:
    command = ("ssh-keygen", "-Y", action, "-n", "mz-seal", *flags)
    try:
        return run_program(command, Path("/"), safe_environment(environment), TIMEOUT_SECONDS, seal.statement.encode())
    except (OSError, TimeoutExpired) as error:
        raise MzError("MZ5014", f"`ssh-keygen` cannot be used: {error}", hint="install OpenSSH") from error


class Sealer(NamedTuple):
    """Notes seals of one repository's log while its runs go on. No failure of it is one of the run."""

    root: Path
    store: SqliteStore
    config: Config
    environment: Mapping[str, str]

    def note(self, run: str, commits: Iterable[str], push: bool = False) -> tuple[str | None, str]:
        """Add a seal of the run to the notes of the commits. Return its root, or None, and what failed."""
        seal, problem = take_seal(self.store, run), ""
        try:
            if key := signing_key(self.root, self.environment, self.config.seal_key):
                seal = sign(seal, key, self.environment)
        except MzError as error:
            problem = error.message
        try:
            git, notes = open_repository(self.root, self.environment), ("notes", f"--ref={NOTES_REF}")
            with NOTES_LOCK:
                for commit in dict.fromkeys(commits):
                    command, text = (*notes, "append", "-F", "-", commit), seal.text.encode()
                    retry_without_locks(git, [NOTES_REF], partial(git.run, *command, stdin=text, env=AUTHOR))
                if push and self.config.seal == "push":
                    remote = self.config.pull_requests.remote
                    if (others := fetch(git, remote, NOTES_REF)) is not None:
                        git.run(*notes, "merge", "--quiet", "--strategy=union", others, env=AUTHOR)
                    push_ref(git, remote, NOTES_REF, NOTES_REF)
        except (RepositoryUnusable, RemoteError) as error:
            return None, str(error)
        return seal.root, problem

    def note_delivery(self, key: str) -> str | None:
        """Seal the log while the pull request with this `Mz-Key` is opened; return the root, None if that failed."""
        run, feature, *_ = key.split("/")
        events = (recorded.event for recorded in self.store.read(feature_stream(run, feature)))
        branches = [event.branch for event in events if isinstance(event, FeatureStarted)]
        return self.note(run, [f"refs/heads/{branch}" for branch in branches])[0] if branches else None
