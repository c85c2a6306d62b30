"""Facts: every JSON document that `mz` prints: the name in its schema, `mz.<name>/1`, and its shape."""

from __future__ import annotations

from collections.abc import Mapping

from mz_cli.shapes.audit import AuditReport, VerifyResult
from mz_cli.shapes.base import Shape
from mz_cli.shapes.cost import CostReport
from mz_cli.shapes.diff import DiffReport
from mz_cli.shapes.housekeeping import CleanResult, GcResult
from mz_cli.shapes.lines import ErrorDocument
from mz_cli.shapes.people import MessageResult, ReviewDetail, ReviewList
from mz_cli.shapes.pipelines import LintResult, NewPipeline, PipelineList, PipelineShown
from mz_cli.shapes.plan import PlanShape
from mz_cli.shapes.project import ConfigShape, DoctorShape, ExplainAllShape, ExplainShape, InitShape, ValidShape
from mz_cli.shapes.replay import RecordResult, ReplayResult
from mz_cli.shapes.run import ArtifactText, CancelResult, DemoResult, FeatureDetail, RunList, RunStatus
from mz_cli.shapes.state import StateAt

DOCUMENTS: Mapping[str, type[Shape]] = {
    "artifact": ArtifactText,
    "audit": AuditReport,
    "cancel": CancelResult,
    "clean": CleanResult,
    "config-show": ConfigShape,
    "config-validate": ValidShape,
    "cost": CostReport,
    "demo": DemoResult,
    "diff": DiffReport,
    "doctor": DoctorShape,
    "error": ErrorDocument,
    "explain": ExplainShape,
    "explain-all": ExplainAllShape,
    "fork": RunStatus,
    "gc": GcResult,
    "init": InitShape,
    "pause": MessageResult,
    "pipelines-lint": LintResult,
    "pipelines-list": PipelineList,
    "pipelines-new": NewPipeline,
    "pipelines-show": PipelineShown,
    "plan": PlanShape,
    "record": RecordResult,
    "replay": ReplayResult,
    "resume": RunStatus,
    "retry": MessageResult,
    "review-answer": MessageResult,
    "review-list": ReviewList,
    "review-show": ReviewDetail,
    "run": RunStatus,
    "runs": RunList,
    "show": FeatureDetail,
    "state": StateAt,
    "status": RunStatus,
    "verify": VerifyResult,
}
