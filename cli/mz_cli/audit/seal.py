"""Command `mz seal`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from mz_engine.git.files import write_bytes
from mz_engine.run.seals import sign, signing_key, take_seal
from mz_engine.run.settings import load_config

from mz_cli.app.context import open_log
from mz_cli.app.help import command
from mz_cli.terminal.console import print_note, write_text
from mz_cli.terminal.text import count_noun

UNSIGNED = "not signed: it proves nothing unless you keep a copy where nobody who changes the log can write"


@command(
    "seal",
    examples=(
        ("mz seal --out seal.txt", "of the complete log, into a file to keep elsewhere"),
        ("mz seal r4f1 --sign ~/.ssh/id_ed25519", "of one run, signed"),
    ),
    next_command="`mz audit --verify --against seal.txt` checks that the log is still the one that was sealed.",
)
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--sign", "key", metavar="KEY", help="SSH key that signs. [default: seal_key of mz.yaml, or git's]")
@click.option("--out", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
def seal(run: str | None, key: str | None, out: Path | None) -> None:
    """Print a seal of the log: the end of every stream, and one root over all.

    With a copy of it, or of its root, `mz audit --verify --against` finds whatever was changed, dropped, cut or made
    anew since, hash chains included; the log may grow. Without a signature a seal proves nothing unless a copy is where
    nobody who changes the log can write. Pull requests name the root of a seal, and git notes of what was delivered
    (refs/notes/mz-seal) have the seal itself. RUN is a run's id or its beginning (default: the complete log).
    """
    with open_log() as log:
        made = take_seal(log.store, None if run is None else log.find_run(run))
        configured = str(Path.cwd() / key) if key else load_config(log.root, os.environ, {}).config.seal_key
        key = signing_key(log.root, os.environ, configured)
    made = sign(made, key, os.environ) if key else made
    write_text(sys.stdout, made.text) if out is None else write_bytes(out, made.text.encode())
    print_note(f"{count_noun(len(made.heads), 'stream')} sealed, {f'signed with {key}' if key else UNSIGNED}")
