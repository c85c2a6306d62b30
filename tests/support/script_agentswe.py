"""Plays the model after `tests/cases/FOLDER/FEATURE.yaml`: for the pipeline of eight phases, and for generations.

The file says by phase, or phase and unit, in which ways the task is done; the last one whose words the prompt holds is
taken. It works from the request alone, and raises `Unexpected` where a prompt is about something else.
"""

from __future__ import annotations

import re
import threading
from functools import cache
from pathlib import Path

import msgspec
from mz_engine.decoding.yaml import load_yaml

from tests.support.endpoint import Answer, Hang, Request, Unexpected
from tests.support.script_demo import FEATURE, PHASE, Take, answer, named
from tests.support.tree import ROOT

CASES = ROOT / "tests" / "cases"
UNIT = re.compile(r"^You work on the feature `[\w-]+`, unit `([\w-]+)`", re.MULTILINE)
BEGUN_AGAIN = "## Notes"
"""The prompt of a task that failed before says why."""
WAIT_SECONDS = 100.0


@cache
def plays(folder: Path, feature: str) -> dict[str, tuple[Take, ...]]:
    text = (folder / f"{feature}.yaml").read_text("utf-8")
    return msgspec.convert(load_yaml(text), dict[str, tuple[Take, ...]])


def eight_phases(request: Request) -> Answer:
    """The script: an answer to any request of the feature."""
    return play(request, CASES / "agentswe_demo")


class Generation:
    """The script: an answer to any request of the generation, but one: the second of the task that is begun again. The
    second task is done when the third one has begun, so that it is in conflict with the first, which that one needs."""

    def __init__(self) -> None:
        self.hangs = threading.Event()
        """Set when the request without an answer is there."""
        self._third_began = threading.Event()

    def __call__(self, request: Request) -> Answer:
        feature, results = named(FEATURE, request.prompt, "feature"), request.results()
        if feature == "t3":
            self._third_began.set()
        if feature == "t2" and not self._third_began.wait(WAIT_SECONDS):
            raise Unexpected("the first task was not merged")
        if feature == "t3" and BEGUN_AGAIN in request.prompt and results and not self.hangs.is_set():
            self.hangs.set()
            return Hang()
        return play(request, CASES / "generation_demo")


def play(request: Request, folder: Path) -> Answer:
    feature, phase = named(FEATURE, request.prompt, "feature"), named(PHASE, request.prompt, "phase")
    unit = UNIT.search(request.prompt)
    task = f"{phase}/{unit[1]}" if unit else phase
    fitting = [take for take in plays(folder, feature)[task] if all(word in request.prompt for word in take.expects)]
    if not fitting:
        raise Unexpected(f"no way to do {task} fits the prompt: {request.prompt[-1500:]}")
    return answer(request, fitting[-1].steps, task)
