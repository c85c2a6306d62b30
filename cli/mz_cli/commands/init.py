"""Adapter: `mz init`: the first files of a repository. What is there already is never changed, only completed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click
import msgspec
from mz_engine.configform import FILE_NAME, SCHEMA_PATH
from mz_engine.configure import config_schema
from mz_engine.detect import detect
from mz_engine.errors import MzError
from mz_engine.starter import Detected, starter_backlog, starter_config

from mz_cli.context import HOME, find_home
from mz_cli.help import command
from mz_cli.render.console import answer, note

BACKLOG = "features.md"
IGNORE = ".gitignore"
IGNORED = tuple(line.encode() for line in (HOME, f"{HOME}/", f"/{HOME}", f"/{HOME}/"))


class Step(msgspec.Struct, frozen=True):
    """One file, and what becomes of it."""

    does: Literal["keep", "make", "add to", "renew"]
    path: str
    about: str
    data: bytes = b""


DONE = {"keep": "kept", "make": "made", "add to": "added to", "renew": "renewed"}
MODES = {"make": "xb", "add to": "ab", "renew": "wb"}


@command(
    "init",
    examples=(("mz init --dry-run", "what would be written"), ("mz init", "write it")),
    following="describe a feature in features.md, then `mz run --dry-run` shows the plan.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
def init(dry_run: bool) -> None:
    """Write mz.yaml and a starter backlog.

    Looks how the repository is tested and which branch is checked out, writes mz.yaml with that, a features.md with
    one example, and keeps .mz/ out of git. Files that are there stay as they are.
    """
    root = find_home(Path.cwd())
    detected = detect(root)
    for step in tuple(steps(root, detected)):
        if step.does == "keep":
            answer(f"kept {step.path}: {step.about}")
        elif dry_run:
            answer(f"would {step.does} {step.path}: {step.about}")
        else:
            write(root, step)
            answer(f"{DONE[step.does]} {step.path}: {step.about}")
    if "test" not in detected.commands:
        note(f"hint: how this repository is tested was not recognised; say it under `commands:` in {FILE_NAME}")


def steps(root: Path, detected: Detected) -> Iterator[Step]:
    """What is missing, file by file. Raises MzError (MZ1003)."""
    yield _new(root, FILE_NAME, starter_config(detected), _recognised(detected))
    yield _new(root, BACKLOG, starter_backlog(), "one example feature")
    yield _ignore(root)
    yield _schema(root)


def _new(root: Path, name: str, text: str, about: str) -> Step:
    if os.path.lexists(root / name):
        return Step("keep", name, "it is there already")
    return Step("make", name, about, text.encode())


def _recognised(detected: Detected) -> str:
    found = [f"{name} is `{line}`" for name, line in detected.commands.items()]
    found += [f"base is {detected.base}"] if detected.base else []
    return ", ".join(found) or "nothing was recognised, all is as by default"


def _ignore(root: Path) -> Step:
    path = root / IGNORE
    try:
        before = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise refused(path, error) from error
    if any(line.strip() in IGNORED for line in before.splitlines()):
        return Step("keep", IGNORE, f"it has {HOME}/")
    end = b"\r\n" if b"\r\n" in before else b"\n"
    gap = end if before and not before.endswith(b"\n") else b""
    return Step("add to", IGNORE, f"{HOME}/, where runs are kept", gap + f"{HOME}/".encode() + end)


def _schema(root: Path) -> Step:
    """For editors. It is ours alone, so that it is renewed whenever it is old."""
    data = msgspec.json.format(msgspec.json.encode(config_schema()), indent=2) + b"\n"
    path = root / SCHEMA_PATH
    if path.is_file() and path.read_bytes() == data:
        return Step("keep", SCHEMA_PATH, "it is up to date")
    return Step("renew" if path.exists() else "make", SCHEMA_PATH, f"editors check {FILE_NAME} with it", data)


def write(root: Path, step: Step) -> None:
    """Raises MzError (MZ1003); a file that is to be made and has appeared meanwhile is not touched."""
    path = root / step.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, MODES[step.does]) as file:
            file.write(step.data)
    except OSError as error:
        raise refused(path, error) from error


def refused(path: Path, error: OSError) -> MzError:
    message = f"{path} cannot be used: {error.strerror or error}"
    return MzError("MZ1003", message, hint="make it writable, then run `mz init` again")
