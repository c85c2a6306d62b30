"""All JSON documents that `mz` prints, by the name in their schema, `mz.<name>/1`."""

from __future__ import annotations

from collections.abc import Mapping

from mz_cli.shapes.audit import AuditReport, VerifyResult
from mz_cli.shapes.base import Shape
from mz_cli.shapes.calibrate import CalibrateResult
from mz_cli.shapes.cost import CostGate, CostReport
from mz_cli.shapes.diff import DiffReport
from mz_cli.shapes.drift import DriftResult
from mz_cli.shapes.gate import GateReport
from mz_cli.shapes.history import PastRun, RecheckResult
from mz_cli.shapes.housekeeping import CleanResult, GcResult
from mz_cli.shapes.imported import ImportedAudit, ImportedCostReport, ImportResult
from mz_cli.shapes.lines import ErrorDocument
from mz_cli.shapes.people import MessageResult, ReviewDetail, ReviewList
from mz_cli.shapes.pipelines import LintResult, NewPipeline, PipelineList, PipelineShown
from mz_cli.shapes.plan import PlanShape
from mz_cli.shapes.project import ConfigShape, ConfigValidShape, DoctorShape, ExplainAllShape, ExplainShape, InitShape
from mz_cli.shapes.recordings import CassetteList, RecordingsLint
from mz_cli.shapes.replay import RecordResult, ReplayReport
from mz_cli.shapes.rerecord import RerecordResult
from mz_cli.shapes.run import ArtifactText, CancelResult, DemoResult, FeatureDetail, RunList, RunStatus
from mz_cli.shapes.sessions import SessionsReport
from mz_cli.shapes.state import StateAt
from mz_cli.shapes.transcript import TranscriptReport
from mz_cli.shapes.whatif import InjectResult, VariantsResult

JSON_DOCUMENTS: Mapping[str, type[Shape]] = {
    "artifact": ArtifactText,
    "audit": AuditReport,
    "audit-imported": ImportedAudit,
    "calibrate": CalibrateResult,
    "cancel": CancelResult,
    "clean": CleanResult,
    "config-show": ConfigShape,
    "config-validate": ConfigValidShape,
    "cost": CostReport,
    "cost-gate": CostGate,
    "cost-sessions": SessionsReport,
    "cost-imported": ImportedCostReport,
    "demo": DemoResult,
    "diff": DiffReport,
    "doctor": DoctorShape,
    "drift": DriftResult,
    "error": ErrorDocument,
    "explain": ExplainShape,
    "explain-all": ExplainAllShape,
    "fork": RunStatus,
    "gate": GateReport,
    "gc": GcResult,
    "import": ImportResult,
    "init": InitShape,
    "judge": RecheckResult,
    "pause": MessageResult,
    "pipelines-lint": LintResult,
    "pipelines-list": PipelineList,
    "pipelines-new": NewPipeline,
    "pipelines-show": PipelineShown,
    "plan": PlanShape,
    "record": RecordResult,
    "recordings-lint": RecordingsLint,
    "recordings-list": CassetteList,
    "replay": ReplayReport,
    "replay-inject": InjectResult,
    "replay-variants": VariantsResult,
    "replay-run": PastRun,
    "rerecord": RerecordResult,
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
    "transcript": TranscriptReport,
    "verify": VerifyResult,
}
