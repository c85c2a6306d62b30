"""Command `mz export`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import click
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.files import write_bytes
from mz_engine.git.sources import SourceReader
from mz_engine.run.settings import load_config
from mz_events.names import Commit, InvalidName, parse_path

from mz_cli.app.context import open_log
from mz_cli.app.help import command, format_options
from mz_cli.common.worktree_diff import patch
from mz_cli.export.agentswe import agentswe_files
from mz_cli.export.mage import mage_files
from mz_cli.export.model import ExportedFile, exported_run
from mz_cli.export.monozukuri import monozukuri_files
from mz_cli.terminal.json import Shape
from mz_cli.terminal.table import print_output
from mz_cli.terminal.text import count_noun

FORMATS = {"agentswe": agentswe_files, "mage": mage_files, "monozukuri": monozukuri_files}


class ExportResult(Shape, frozen=True, kw_only=True):
    """`mz export --json`."""

    run: str
    form: str
    folder: str
    files: tuple[str, ...]
    """Relative to the folder."""
    patches_missing: int
    """Patches that are left out, since their captures are no longer in the repository, or have too many files."""


@command(
    "export",
    examples=(
        ("mz export --as agentswe --to out", "the newest run, as task folders"),
        ("mz export r4f1 --as monozukuri --to out", "another run, as state files"),
        ("mz export --as mage --to out", "as issues with a record of each call, and statistics"),
    ),
    next_command="`mz log RUN --export FILE` writes a run with all its events, to import it elsewhere.",
)
@click.argument("run", required=False)
@click.option("--as", "form", type=click.Choice(sorted(FORMATS)), required=True, help="Whose files to write.")
@click.option("--to", "folder", metavar="DIR", type=click.Path(path_type=Path), required=True,
              help="A folder that does not exist, or is empty.")  # fmt: skip
@format_options("Print one object with the schema mz.export/1.")
def export(run: str | None, form: str, folder: Path, as_json: bool) -> None:
    """Write a run as files of another system.

    Everything comes from the log, patches from the captures in the repository; two exports of a run are equal. RUN is a
    run's id or its beginning (default: the newest run). The files are copies.
    """
    missing = 0

    def read_patch(before: Commit, after: Commit) -> str:
        nonlocal missing
        text = patch(log.root, before, after, excluded=papers)
        is_patch = text.startswith("diff ")  # Else a remark: the captures are gone, or it has too many files.
        missing += bool(text) and not is_patch
        return text if is_patch else ""

    with open_log() as log:
        run_id = log.find_run(run)
        events = tuple(log.events(run_id))
        counts_lines = form == "mage"
        sources = SourceReader(log.root, load_config(log.root, os.environ, {}).config.sources) if counts_lines else None
        exported = exported_run(run_id, events, log.load_pins, log.load_text, read_patch, sources)
        artifacts = (artifact for feature in exported.features for artifact in feature.view.artifacts)
        papers = frozenset(artifact.path for artifact in artifacts if artifact.path)
        files = dict(sorted(with_own_names(FORMATS[form](exported)).items()))
    write_folder(folder, files)
    result = ExportResult(run=run_id, form=form, folder=str(folder), files=tuple(files), patches_missing=missing)
    notes = []
    if missing:
        notes.append(f"patches left out: {missing}; their captures are gone, or they have too many files")
    if exported.pins is None:
        notes.append("contracts left out: the run's pins are missing, or another version of mz made them")
    print_output(as_json, "export", result, [f"{count_noun(len(files), 'file')} in {folder}"], notes)


def with_own_names(files: Iterable[ExportedFile]) -> dict[str, str]:
    """Return the files by path; a later one of the same path has a number in its name."""
    texts = dict[str, str]()
    for path, text in files:
        stem, dot, suffix = path.rpartition(".")
        names = (path, *(f"{stem}-{number}{dot}{suffix}" for number in range(2, len(texts) + 3)))
        texts[next(name for name in names if name not in texts)] = text
    return texts


def write_folder(folder: Path, files: dict[str, str]) -> None:
    """Write all files or none. Raises MzError (MZ1007, MZ2015)."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise MzError("MZ2015", f"{folder} is not an empty folder", hint="name another one with --to")
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            for path, text in files.items():
                parse_path(path)  # Names of an imported log are anybody's.
                write_bytes(new / path, text.encode("utf-8", "surrogateescape"))
            new.chmod(0o755)
            new.replace(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    except InvalidName as error:
        hint = "`mz audit --verify` checks the log; an imported run may have any names"
        raise MzError("MZ1007", f"a file of the export has no path below its folder: {error}", hint=hint) from None
    except OSError as error:
        raise MzError("MZ1007", f"{error.filename}: {error.strerror}", hint="make it writable") from None
