"""The memory of a repository, and what of it is offered to other projects."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_engine.errors.diagnostics import MzError
from mz_engine.memory.select import screened
from mz_engine.paths import BLOBS_FOLDER, LOG_FILE, MZ_FOLDER, READ_MODELS_FILE, user_data_directory, worktree_folder
from mz_engine.run.memory import UserMemory
from mz_engine.run.settings import MEMORY_FILE, load_config, read_memory_rules
from mz_engine.secrets import project_secrets
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.memory import CapturedLearning, LearningArchived, LearningOffered
from mz_events.names import USER_STREAM, Digest
from mz_events.redaction.redactor import Secrets
from mz_events.store import Append, BlobMissing
from mz_projections.memory.evidence import MEMORY, FeatureMemory
from mz_projections.memory.learnings import Learning, MemoryRules, learning_text, learnings
from mz_projections.read_models.store import ReadModelStore
from mz_recordings.cassette.placeholders import scrub
from mz_recordings.replay.commands import machine_values

from mz_cli.app.context import ProjectLog, find_root, open_log


class ProjectMemory:
    """The memory of one repository as its log and its rules have it now."""

    def __init__(self, log: ProjectLog, rows: tuple[FeatureMemory, ...], rules: MemoryRules, user: UserMemory) -> None:
        self.log, self.rows, self.rules, self.now_us = log, rows, rules, time.time_ns() // 1000
        self._user = user
        self._secrets = Secrets(project_secrets(log.root, os.environ))
        self.learnings = tuple(map(self._with_text, learnings(rows, rules, self.now_us)))

    def _with_text(self, learning: Learning) -> Learning:
        try:
            text = learning_text(learning, self.load_text)
        except msgspec.DecodeError:  # The report was erased, and the reason took its place.
            text = ""
        return screened(replace(learning, text=self._secrets.redact(text)), text)

    def load_text(self, digest: Digest) -> str:
        """Return a text of the project's or the user's log; empty if it is missing."""
        text = self.log.load_text(digest)
        with suppress(BlobMissing):
            return text or self._user.load_text(digest)
        return ""

    def find(self, prefix: str) -> Learning:
        """Return the learning with this id or unique prefix. Raises MzError (MZ5016)."""
        matching = [learning for learning in self.learnings if learning.id.startswith(prefix)]
        if len(matching) == 1:
            return matching[0]
        problem = (
            f"{len(matching)} learnings begin with {prefix[:80]!r}" if matching else f"no learning {prefix[:80]!r}"
        )
        raise MzError("MZ5016", problem, hint="`mz memory list` lists all")


@contextmanager
def open_memory(*, with_shared: bool | None = None) -> Iterator[ProjectMemory]:
    """Open the memory of this repository; with shared learnings, if its prompts show them. Raises MzError."""
    rules = read_memory_rules(find_root(Path.cwd()) / MEMORY_FILE)
    user = UserMemory(user_data_directory(os.environ))
    with open_log() as log, ReadModelStore(log.root / MZ_FOLDER / READ_MODELS_FILE, log.store, (MEMORY,)) as views:
        views.refresh()
        is_shared = takes_shared(log.root) if with_shared is None else with_shared
        yield ProjectMemory(log, views.rows(MEMORY) + (user.rows() if is_shared else ()), rules, user)


def takes_shared(root: Path) -> bool:
    """Return True if prompts of the project show shared learnings. Raises MzError."""
    return load_config(root, os.environ, {}).config.memory.shared


def for_others(opened: ProjectMemory, chosen: Learning) -> tuple[CapturedLearning, Digest]:
    """Return a learning of this project as others may see it, and the project; the texts go to the user's blobs."""
    runs = {tuple(item.event_ref.partition("@")[0].split("/")[1:]) for item in chosen.evidence}
    values = [machine_values(str(worktree_folder(opened.log.root, *run)), os.environ) for run in sorted(runs)]
    blobs = FileBlobs(user_data_directory(os.environ) / BLOBS_FOLDER)
    text, project = blobs.put(scrub(chosen.text.encode(), values)), blobs.put(opened.log.root.name.encode())
    item = CapturedLearning(kind=chosen.kind, key=chosen.key, text=text, tags=chosen.tags, phases=chosen.phases)
    return item, project


def offer_learnings() -> None:
    """Offer the project layer to other projects: what is new in it, and was never withdrawn from all of them. Raises
    MzError, StoreUnusable and OSError."""
    with open_memory(with_shared=False) as opened:
        chosen = [item for item in opened.learnings if (item.layer, item.status) == ("project", "active") and item.text]
        if not chosen:
            return
        with SqliteStore(user_data_directory(os.environ) / LOG_FILE) as store:
            earlier = [recorded.event for recorded in store.read(USER_STREAM)]
            withdrawn = {event.id for event in earlier if isinstance(event, LearningArchived)}
            prepared = (for_others(opened, learning) for learning in chosen if learning.id not in withdrawn)
            offers = (LearningOffered(learning=item, project=project) for item, project in prepared)
            new = tuple(offer for offer in offers if offer not in earlier)
            store.append([Append(USER_STREAM, None, new)], opened.now_us)
