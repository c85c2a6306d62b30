"""What views hold, with defaults: an agent call, and a question to a person."""

from __future__ import annotations

from msgspec.structs import replace
from mz_events.catalog.feature import QuestionKind
from mz_events.names import Digest
from mz_projections.views.model import CallView, Question

CALL = CallView(
    key="k", run="r1", feature="login", event_ref="p@1", phase="code", unit="", iteration=1, attempt=1,
    role="builder", agent="a", model="m", prompt=Digest("d"), requested_at_us=1, estimated_tokens=0,
    estimated_nanousd=None,
)  # fmt: skip
APPROVAL = Question(
    question_kind=QuestionKind.APPROVAL, code="", phase="", unit="", detail=None, since_us=0, event_ref="run/r1/b@1"
)


def question(kind: QuestionKind, code: str, phase: str = "", **more: object) -> Question:
    return replace(APPROVAL, question_kind=kind, code=code, phase=phase, **more)
