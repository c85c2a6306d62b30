"""Plays the model for the trial pipeline's project, after `tests/cases/trial/script.yaml`.

It works from the request alone: the first line of the prompt below a persona says what is to be done, the working
directory whose work it is. Raises `Unexpected` where a prompt holds a note or a rework that the script does not
know of.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec
from mz_engine.decoding.yaml import load_yaml
from mz_engine.ports import SCOPED_PREFIX

from tests.support.endpoint import Answer, Request, Unexpected
from tests.support.script_demo import Step, answer
from tests.support.tree import ROOT

CASES = ROOT / "tests" / "cases" / "trial"
TASK = re.compile(r"(Plan|Build (?P<built>\w+)|Review (?P<reviewed>\w+)|Look|Ship|Learn)\b", re.MULTILINE)
MARKS = ("NOTE", "MEND")


class Take(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way in which a task is done."""

    steps: tuple[Step, ...]
    when: tuple[str, ...] = ()
    """What the prompt must hold."""


Play = dict[str, tuple[Take, ...]]


@cache
def plays() -> dict[str, Play]:
    return msgspec.convert(load_yaml((CASES / "script.yaml").read_text("utf-8")), dict[str, Play])


def trial(request: Request) -> Answer:
    """The script: an answer to any request of the trial."""
    feature, prompt = Path(request.cwd).name.removeprefix(SCOPED_PREFIX), request.prompt
    named = TASK.search(prompt)
    task = named[0].lower() if named else prompt[:100]
    takes = plays().get(feature, {}).get(task)
    if takes is None:
        raise Unexpected(f"there is no script for {task!r} of {feature!r}")
    fitting = [take for take in takes if all(word in prompt for word in take.when)]
    if not fitting:
        raise Unexpected(f"{feature}: no take of {task!r} fits the prompt: {prompt}")
    for mark in MARKS:
        if re.search(rf"^{mark} ", prompt, re.MULTILINE) and not any(mark in word for word in fitting[-1].when):
            raise Unexpected(f"{feature}: {task!r} was not to hold a {mark}: {prompt}")
    return answer(request, fitting[-1].steps, f"{feature}: {task}")
