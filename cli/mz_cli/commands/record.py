"""Adapter: `mz record`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click
from mz_recordings.cassette import Provenance

from mz_cli.context import reading
from mz_cli.help import command
from mz_cli.recording import newest, tell
from mz_cli.recording import record as make
from mz_cli.render.console import answer, note
from mz_cli.render.document import show_document


@command(
    "record",
    examples=(
        ("mz record", "the newest run, into recordings/PIPELINE-AGENT"),
        ("mz record r4f1 --to recordings/rollback", "a run and a place of your choice"),
        ("mz record --replace --max-age 90", "in place of the old answers; these are believed for 90 days"),
    ),
    following="`mz replay` plays it, for nothing; then commit it.",
)
@click.argument("run", required=False)
@click.option("--to", metavar="DIR", type=click.Path(path_type=Path), help="The folder of the cassette.")
@click.option("--replace", is_flag=True, help="Replace the cassette that is there.")
@click.option("--max-age", metavar="DAYS", type=click.IntRange(min=1), help="How long its answers are believed.")
@click.option(
    "--provenance",
    type=click.Choice(get_args(Provenance)),
    default="live",
    show_default=True,
    help="What the answers are worth: whether the agent and its model gave them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.record/1.")
def record(
    run: str | None, to: Path | None, replace: bool, max_age: int | None, provenance: Provenance, as_json: bool
) -> None:
    """Make a cassette of a past run, from its log alone.

    Takes up every call of every feature that has come to rest, and the world that they happened in: the repository's
    content, the backlog, what people answered. Nothing is called. Secrets are taken out of what agents said; one in a
    prompt, a patch or an artifact stops the recording. What you have committed goes into it as it is: a secret there is
    named with its file, and `mz recordings lint` refuses it. RUN is a run's id or the beginning of one; without it, the
    newest run that is no fork is meant.
    """
    with reading() as log:
        result = make(log, log.find_run(run or newest(log)), to, replace, provenance, max_age)
    if as_json:
        show_document("record", result)
    else:
        tell(result, answer, note)
