"""Data sources for recording a run of this repository."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mz_engine.agents.registry import all_adapters
from mz_engine.git.repository import repository_error, run_git_as_user
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.secrets import project_secrets
from mz_events.names import Commit
from mz_events.redaction.redactor import Secrets
from mz_events.store import Blobs, Store

from mz_recordings.cassette.repository import create_bundle
from mz_recordings.record.recorder import RecordSources


def record_sources(
    root: Path, environment: Mapping[str, str], log: Store, blobs: Blobs, project: Path | None = None
) -> RecordSources:
    """Return the sources. `environment`: that of the run's agents. `project`: the repository whose secrets are removed,
    if `root` is a scratch one. Raises RepositoryUnusable."""

    def tree_id(commit: Commit) -> str:
        done = run_git_as_user(
            root, environment, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{commit}^{{tree}}"
        )
        if done.exit_code:
            raise repository_error(root, done)
        return done.text

    home = environment.get("HOME", "")
    return RecordSources(
        log=log,
        blobs=blobs,
        workspace=GitWorkspace(root, WorkspaceSettings(), environment),
        tree_id=tree_id,
        bundle=lambda base, heads: create_bundle(root, environment, base, heads),
        adapters=all_adapters,
        secrets=Secrets(project_secrets(project or root, environment)),
        root=str(root.resolve()),
        home=home,
        user=environment.get("USER") or Path(home).name,
        resolved_home=os.path.realpath(home) if home else "",
    )
