"""Plays a model that nothing goes smoothly with, on the sample project's feature `month-filter`.

Two scripts: `questions` makes work for people, `troubles` for the engine. What is right at last is taken from the
demo's script. Both tell from the prompt what was tried before; `Troubles` also remembers which phase it refused.
"""

from __future__ import annotations

import threading

from tests.support.endpoint import Answer, Cut, Refusal, Reply, Request, Unexpected, Use
from tests.support.script_demo import FEATURE, PHASE, REWORK, Action, Step, answer, named, play

FEATURE_NAME = "month-filter"
LEFT = "mkfifo queue && git -c user.name=a -c user.email=a@localhost commit -q --allow-empty -m 'by myself'"
UNFINISHED = (
    Step(
        use=(
            Action(write="tests/test_period.py", text="from tally import period\n"),
            Action(write=f"tasks/{FEATURE_NAME}/code.md", text="# Show one month only\n\nThe tests come first.\n"),
            Action(run=LEFT),
        )
    ),
    Step(say="The test is there; the module is not."),
)


def questions(request: Request) -> Answer:
    """Asks before it begins, writes what a person rejects once, and in the end hands over no list of tasks."""
    phase = _phase(request)
    if phase == "prd" and "## Notes" not in request.prompt:
        return Reply("I read the request.\n\nBlocker - need: what does a month without entries show?")
    if phase == "tasks":
        if REWORK in request.prompt:
            return Reply("I would not know how to write it otherwise.")
        written = Action(write=f"tasks/{FEATURE_NAME}/tasks.json", text='{"tasks": "all of them"}\n')
        return answer(request, (Step(use=(written,)), Step(say="One task will do.")), phase)
    return _right(request, phase)


class Troubles:
    """The first call of a phase meets a limit, a connection that breaks, a key that is refused; later a tool is denied,
    a file that may not be there is left, and the tests never pass."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: dict[str, str] = {}

    def __call__(self, request: Request) -> Answer:
        phase = _phase(request)
        with self._lock:
            first = self._first.setdefault(phase, request.session) == request.session
        match phase:
            case "prd" if first:
                return Refusal(429, "rate_limit_error", "slow down", {"retry-after": "2"})
            case "prd" if len(request.results()) == 1:
                return Reply("I look around.", (Use("Read", {"file_path": "/etc/hostname"}),))
            case "prd" if request.results():
                return Reply("The requirements are written. I could not look around.")
            case "techspec" if first:
                return Cut(Reply("I read the code that the option"))
            case "tasks" if first:
                return Refusal(401, "authentication_error", "invalid x-api-key")
            case "code" if REWORK not in request.prompt:
                return answer(request, UNFINISHED, phase)
            case "code":
                return Reply("I found nothing that I could mend.")
        return _right(request, phase)


def _phase(request: Request) -> str:
    prompt = request.prompt
    if (feature := named(FEATURE, prompt, "feature")) != FEATURE_NAME:
        raise Unexpected(f"there is no script for the feature {feature!r}")
    return named(PHASE, prompt, "phase")


def _right(request: Request, phase: str) -> Answer:
    """What the demo does; it need not look at files first."""
    steps = play(FEATURE_NAME)[phase][0].steps
    written = tuple(action for step in steps for action in step.use if action.write)
    return answer(request, (Step(use=written), steps[-1]), phase)
