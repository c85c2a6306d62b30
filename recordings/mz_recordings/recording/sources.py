"""Data sources for recording a run of this repository."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mz_engine.adapters.git import GitWorkspace
from mz_engine.adapters.git_repository import ask, unusable
from mz_engine.adapters.known_secrets import known_secrets
from mz_engine.agents.registry import adapters
from mz_engine.config import WorkspaceSettings
from mz_events.names import Commit
from mz_events.redact import Secrets
from mz_events.store import Blobs, Store

from mz_recordings.recording.record import Sources
from mz_recordings.recording.scratch import bundle_of


def sources_of(
    root: Path, environment: Mapping[str, str], log: Store, blobs: Blobs, project: Path | None = None
) -> Sources:
    """Return the sources. `environment`: that of the run's agents. `project`: the repository whose secrets are removed,
    if `root` is a scratch one. Raises RepositoryUnusable."""

    def tree_id(commit: Commit) -> str:
        done = ask(root, environment, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{commit}^{{tree}}")
        if done.code:
            raise unusable(root, done)
        return done.text

    home = environment.get("HOME", "")
    return Sources(
        log=log,
        blobs=blobs,
        workspace=GitWorkspace(root, WorkspaceSettings(), environment),
        tree_id=tree_id,
        bundle=lambda base, heads: bundle_of(root, environment, base, heads),
        adapters=adapters,
        secrets=Secrets(known_secrets(project or root, environment)),
        root=str(root.resolve()),
        home=home,
        user=environment.get("USER") or Path(home).name,
        home_behind=os.path.realpath(home) if home else "",
    )
