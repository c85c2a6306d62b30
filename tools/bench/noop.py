"""Puts an agent that does no work on PATH, as `claude`: compiled from C where there is a compiler, since then
it costs next to nothing; a shell script otherwise, which costs a little, for the engine and for its reference alike."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files as resources
from pathlib import Path
from typing import Literal

from tools.bench.answers import PHASES, VERSION, as_records, as_script, files, stream

Kind = Literal["C", "sh"]
COMPILE_SECONDS = 60
SCRIPT = """#!/bin/sh
if [ "$1" = --version ]; then echo '{version} (Claude Code)'; exit; fi
cat > /dev/null
key=${{MZ_KEY#*/}}
feature=${{key%%/*}}
phase=${{key#*/}}
. '{answers}'/"$feature.${{phase%%/*}}"
"""


def install(directory: Path, features: tuple[str, ...], compiler: str | None) -> Kind:
    """Makes `directory/claude`, which answers for these features; says what it was made from.

    `compiler`: name or path of a C compiler, None for a script. Raises CalledProcessError, OSError.
    """
    answers = directory / "answers"
    answers.mkdir(parents=True)
    render = as_script if compiler is None else as_records
    for feature in features:
        for phase in PHASES:
            (answers / f"{feature}.{phase}").write_bytes(render(files(feature, phase), stream(feature, phase)))
    program = directory / "claude"
    if compiler is None:
        program.write_text(SCRIPT.format(version=VERSION, answers=answers))
        program.chmod(0o755)
        return "sh"
    _compile(compiler, program, answers)
    return "C"


def find_compiler() -> str | None:
    """`cc`, `gcc` or `clang`, whichever is on PATH."""
    return next((text for name in ("cc", "gcc", "clang") if (text := shutil.which(name))), None)


def _compile(compiler: str, program: Path, answers: Path) -> None:
    source = program.with_suffix(".c")
    source.write_bytes((resources("tools.bench") / "noop.c").read_bytes())
    flags = ("-O2", "-Wall", f'-DANSWERS="{answers}"', "-o")
    subprocess.run([compiler, *flags, program, source], check=True, capture_output=True, timeout=COMPILE_SECONDS)
