"""Command `mz record`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click
from mz_recordings.cassette.model import Provenance

from mz_cli.app.context import open_log
from mz_cli.app.help import command
from mz_cli.common.recording import newest_run, print_result
from mz_cli.common.recording import record as make
from mz_cli.terminal.console import print_line
from mz_cli.terminal.json import print_document


@command(
    "record",
    examples=(
        ("mz record", "the newest run, into recordings/PIPELINE-AGENT"),
        ("mz record r4f1 --to recordings/rollback", "a run and a folder of your choice"),
        ("mz record --replace --max-age 90", "replace the old recordings; these expire after 90 days"),
    ),
    next_command="`mz replay` replays it, offline and free; then commit it.",
)
@click.argument("run", required=False)
@click.option("--to", metavar="DIR", type=click.Path(path_type=Path), help="The folder of the cassette.")
@click.option("--replace", is_flag=True, help="Replace an existing cassette.")
@click.option("--max-age", metavar="DAYS", type=click.IntRange(min=1), help="Days until its replies expire.")
@click.option(
    "--provenance",
    type=click.Choice(get_args(Provenance)),
    help="Origin of the replies: the real agent and model, or a substitute. [default: what the run noted]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.record/1.")
def record(
    run: str | None, to: Path | None, replace: bool, max_age: int | None, provenance: Provenance | None, as_json: bool
) -> None:
    """Make a cassette of a past run, from its log alone.

    Records every call of every stopped feature, with the fixture that a replay needs: the repository's content, the
    backlog, people's decisions. No agent is called. Secrets are removed from agents' output; a secret in a prompt, a
    patch or an artifact stops the recording. Committed files are included unchanged. Before the cassette is written it
    is searched as by `mz recordings lint`: a secret in any file stops the recording. RUN is a run's id or its
    beginning (default: the newest run that is not a fork).
    """
    with open_log() as log:
        result = make(log, log.find_run(run or newest_run(log)), to, replace, provenance, max_age)
    if as_json:
        print_document("record", result)
    else:
        print_result(result, print_line)
