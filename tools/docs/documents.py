"""All JSON documents that `mz` prints, by the name in their schema, `mz.<name>/1`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from mz_cli.assess.metrics import HealthReport, MetricsReport
from mz_cli.assess.rewards import RewardReport
from mz_cli.assess.routing import RoutingAppliedShape, RoutingReport, RoutingSuggestions
from mz_cli.audit.query import AuditReport
from mz_cli.check.command import CheckReport
from mz_cli.check.drift import DriftResult
from mz_cli.common.feature_query import FeatureDetail
from mz_cli.common.recording import RecordResult
from mz_cli.common.run_text import RunStatus
from mz_cli.common.verification import VerifyResult
from mz_cli.cost.calibrate import CalibrateResult
from mz_cli.cost.gate import CostGate
from mz_cli.cost.report import CostReport
from mz_cli.cost.sessions import SessionsReport
from mz_cli.deliver.messages import CancelResult
from mz_cli.deliver.plan import PlanShape
from mz_cli.export.command import ExportResult
from mz_cli.help.help_ import ExplainAllShape, ExplainShape
from mz_cli.housekeeping.clean import CleanResult
from mz_cli.inspect.compare import ComparisonReport
from mz_cli.inspect.diff import DiffReport
from mz_cli.inspect.show import ArtifactText, ContextDocument
from mz_cli.inspect.state_at import StateAt
from mz_cli.inspect.stats import StatsReport
from mz_cli.inspect.status import RunList
from mz_cli.people.inbox import MessageResult
from mz_cli.project.cards import CardList, CardRoute
from mz_cli.project.config import ConfigShape, ConfigValidShape
from mz_cli.project.memory import MemoryDecision, MemoryEffect, MemoryList, MemoryRulesShape, MemoryWhy
from mz_cli.project.pipelines import LintResult, NewPipeline, PipelineList, PipelineShown
from mz_cli.project.skills import ChangedSkills, SkillList, SkillsStatus
from mz_cli.recordings.library import CassetteList, RecordingsLint
from mz_cli.recordings.rerecord_text import RerecordReport
from mz_cli.replay.command import ReplayReport
from mz_cli.replay.faults import InjectResult, VariantsResult
from mz_cli.replay.past_runs import PastRun, RecheckResult
from mz_cli.review.text import ReviewDetail, ReviewList
from mz_cli.start.demo import DemoResult
from mz_cli.start.doctor import DoctorShape
from mz_cli.start.init import InitShape
from mz_cli.usage.audit import ImportedAudit
from mz_cli.usage.costs import ImportedCostReport
from mz_cli.usage.import_ import HistoryResult
from mz_cli.usage.transcript import TranscriptReport
from mz_engine.errors.diagnostics import Diagnostic
from mz_engine.housekeeping.garbage import CollectedGarbage
from mz_projections.rewards.reward import Reward
from mz_recordings.importing.importer import ImportResult


class ErrorDocument(Diagnostic, frozen=True, kw_only=True):
    """Errors of a failed command: one line on stderr, when `--json` is given. The fields beside `errors` are those of
    the first error."""

    exit: int
    """Exit code."""
    errors: tuple[Diagnostic, ...]
    """All errors, in reading order."""


JSON_DOCUMENTS: Mapping[str, type[Struct]] = {
    "audit": AuditReport,
    "audit-imported": ImportedAudit,
    "audit-verify": VerifyResult,
    "calibrate": CalibrateResult,
    "cancel": CancelResult,
    "cards-list": CardList,
    "cards-route": CardRoute,
    "cards-validate": LintResult,
    "check": CheckReport,
    "clean": CleanResult,
    "clean-blobs": CollectedGarbage,
    "config-show": ConfigShape,
    "config-validate": ConfigValidShape,
    "cost": CostReport,
    "cost-gate": CostGate,
    "cost-imported": ImportedCostReport,
    "cost-sessions": SessionsReport,
    "demo": DemoResult,
    "compare": ComparisonReport,
    "diff": DiffReport,
    "doctor": DoctorShape,
    "doctor-self-test": CheckReport,
    "drift": DriftResult,
    "error": ErrorDocument,
    "export": ExportResult,
    "fork": RunStatus,
    "help-code": ExplainShape,
    "help-codes": ExplainAllShape,
    "import": ImportResult,
    "import-history": HistoryResult,
    "init": InitShape,
    "log-state": StateAt,
    "pause": MessageResult,
    "memory-decision": MemoryDecision,
    "memory-effect": MemoryEffect,
    "memory-list": MemoryList,
    "memory-rules": MemoryRulesShape,
    "memory-why": MemoryWhy,
    "pipelines-lint": LintResult,
    "pipelines-list": PipelineList,
    "pipelines-copy": NewPipeline,
    "pipelines-new": NewPipeline,
    "pipelines-show": PipelineShown,
    "record": RecordResult,
    "recordings-lint": RecordingsLint,
    "recordings-list": CassetteList,
    "replay": ReplayReport,
    "replay-inject": InjectResult,
    "replay-recheck": RecheckResult,
    "replay-run": PastRun,
    "replay-variants": VariantsResult,
    "rerecord": RerecordReport,
    "resume": RunStatus,
    "retry": MessageResult,
    "revise": MessageResult,
    "review-answer": MessageResult,
    "review-list": ReviewList,
    "review-show": ReviewDetail,
    "run": RunStatus,
    "run-plan": PlanShape,
    "runs": RunList,
    "show": FeatureDetail,
    "show-artifact": ArtifactText,
    "show-context": ContextDocument,
    "show-reward": Reward,
    "rewards": RewardReport,
    "metrics": MetricsReport,
    "routing-apply": RoutingAppliedShape,
    "routing-show": RoutingReport,
    "routing-suggest": RoutingSuggestions,
    "health": HealthReport,
    "stats": StatsReport,
    "status": RunStatus,
    "skills-install": ChangedSkills,
    "skills-list": SkillList,
    "skills-status": SkillsStatus,
    "skills-uninstall": ChangedSkills,
    "transcript": TranscriptReport,
}
