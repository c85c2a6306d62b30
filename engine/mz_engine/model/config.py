"""The settings of one repository: `mz.yaml` as it is written and, with a correction of estimates, as a run pins it.

Descriptions are shown by editors and docs.
"""

from __future__ import annotations

import re
from calendar import monthrange
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta
from mz_events.names import InvalidName, parse_name

from mz_engine.decoding.quantity import Duration, Usd, UsdPerMillion, default_duration
from mz_engine.model.agent_description import (
    AgentDescription,
    NonEmpty,
    Pattern,
    RepositoryPath,
    Variable,
    doc,
    matching,
    parse_non_empty,
    parsed_by,
)
from mz_engine.model.pipeline import Autonomy, Edit, Limit, Tier
from mz_engine.ref_names import parse_ref_name

FILE_NAME = "mz.yaml"
WRONG_NAMES = ("mz.yml", ".mz.yaml", ".mz.yml")
"""Likely wrong names of the file."""
PARALLEL_MAX = 64
SCHEMA_PATH = ".mz/schema/mz.yaml.json"
"""The JSON Schema that `mz init` writes and the first lines of a starter file name."""

_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})\Z")


def _parse_outside_path(text: str) -> str:
    top, *names = parse_non_empty(text).split("/")
    if text != "~" and (top not in ("", "~") or not set(names) - {"", "."} or ".." in names):
        raise InvalidName(f"{text[:80]!r} is no absolute path of a file or a folder")
    return text


def _parse_day(text: str) -> str:
    match = _DAY.match(text)
    if match:
        year, month, day = map(int, match.groups())
        if 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]:
            return text
    raise InvalidName(f"{text[:40]!r} is not a date")


OutsidePath = Annotated[str, parsed_by(_parse_outside_path, "write a path such as /srv/cache or ~/.cache")]
Name = Annotated[str, parsed_by(parse_name)]
Branch = Annotated[str, parsed_by(parse_ref_name)]
ModelGlob = Annotated[str, matching(r"\S+", "the name of a model", "write it as `mz cost --by model` shows it")]
Tracker = Annotated[
    str, matching(r"github(:[\w.-]+(/[\w.-]+){1,2})?", "a tracker", "write github, or github:OWNER/REPO")
]
Day = Annotated[str, parsed_by(_parse_day, "write it as YYYY-MM-DD")]


class SettingsBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the settings; an unknown key in `mz.yaml` is an error."""


class Command(SettingsBase, frozen=True, kw_only=True):
    """A command line of the user, run in the worktree with `sh -c`; written as a text or with a timeout."""

    SHORT_FORM: ClassVar = "run"

    run: Annotated[NonEmpty, doc("A command line for `sh -c`, run in the worktree.")]
    timeout: Annotated[Duration, doc("How long it may take; then its whole process tree is killed.")] = (
        default_duration("10m")
    )


class Gates(SettingsBase, frozen=True, kw_only=True):
    baseline: Annotated[
        Literal["no-new-failures", "strict"],
        doc(
            "Whether a command that fails on the base already passes as a gate if no other tests fail than there and "
            "no fewer pass, or must succeed."
        ),
    ] = "no-new-failures"


class MemorySettings(SettingsBase, frozen=True, kw_only=True):
    """What runs learn from earlier work; `memory.yaml` has the rules."""

    holdout: Annotated[
        float,
        doc(
            "Share of the learnings of each call that are left out, so that `mz memory effect` can compare.", ge=0, le=1
        ),
    ] = 0.0
    shared: Annotated[bool, doc("Whether prompts show learnings that were shared with all projects.")] = False
    share: Annotated[
        bool,
        doc(
            "Whether a run that has finished offers what its project learned to your other projects; what two projects "
            "offer is shared with all."
        ),
    ] = False


class WorkspaceSettings(SettingsBase, frozen=True, kw_only=True):
    setup: Annotated[
        tuple[NonEmpty, ...],
        doc("Commands run once in each new worktree or checkout, which has neither dependencies nor build results."),
    ] = ()
    inputs: Annotated[
        tuple[Pattern, ...],
        doc("Further files whose content the set-up depends on, such as `deps/**`; patterns as in .gitignore."),
    ] = ()
    copy: Annotated[
        tuple[RepositoryPath, ...], doc("Ignored files of the main checkout that each worktree gets a copy of.")
    ] = ()
    keep_ignored: Annotated[
        tuple[RepositoryPath, ...],
        doc("Ignored paths that are kept when a worktree is restored; in checkouts, until another tree is tested."),
    ] = ("node_modules", ".venv")


class SandboxSettings(SettingsBase, frozen=True, kw_only=True):
    """What agents and commands may do outside their worktrees, on Linux with mount namespaces."""

    write: Annotated[
        tuple[OutsidePath, ...],
        doc("Further existing folders that they may change, such as a cache; `~` is the home directory."),
    ] = ()
    read: Annotated[
        tuple[OutsidePath, ...],
        doc(
            "Further files and folders of the home directory and of folders for temporary files that they may read, "
            "and sockets there or in `/run` that they may use; `~` alone: all of HOME. Without it they see tools, "
            "their caches, and what an agent has there itself."
        ),
    ] = ()
    offline: Annotated[
        tuple[Literal["commands", "setup"], ...],
        doc("What has no network but its own loopback: the commands of gates and preparations, or the set-up."),
    ] = ()
    online_in_replays: Annotated[
        tuple[Literal["setup"], ...],
        doc(
            "What has a network in replays too: a set-up that downloads, as those of pip and npm do. Replays take kept "
            "results (`mz record`, `mz replay --keep`) where they can, and then need no network."
        ),
    ] = ()
    memory_mb: Annotated[
        int, doc("Memory of a call or command with all its processes; 0: three quarters of the machine's.", ge=0)
    ] = 0
    processes: Annotated[int, doc("How many processes and threads a call or command may have.", ge=16)] = 4000
    file_size_mb: Annotated[int, doc("Largest file that may be written.", ge=1)] = 4000
    output_mb: Annotated[int, doc("Most that a call may print; more ends it (`output-limit`).", ge=1)] = 200
    cpu: Annotated[Duration | None, doc("CPU time that each process may use; absent: only its time limit.")] = None


class ContainerSettings(SettingsBase, frozen=True, kw_only=True):
    """Where agents run instead of the sandbox; commands do not."""

    engine: Annotated[
        Literal["podman", "docker"] | None, doc("The program that runs each call in a new container.")
    ] = None
    image: Annotated[NonEmpty | None, doc("The image, with the agent's program; `mz` does not pull it.")] = None
    arguments: Annotated[tuple[NonEmpty, ...], doc("Further arguments of the engine's `run`, before the image.")] = ()
    mounts: Annotated[
        tuple[OutsidePath, ...],
        doc("Files and folders that agents see at the same path and may change; `~` is the home directory."),
    ] = ()


class PullRequests(SettingsBase, frozen=True, kw_only=True):
    strategy: Annotated[
        Literal["none", "draft", "ready"],
        doc("Whether pull requests are opened, and how; none writes the text to a file for a person."),
    ] = "none"
    remote: Annotated[Branch, doc("The git remote that branches are pushed to.")] = "origin"
    checks_wait: Annotated[Duration, doc("How long checks may be pending before a person is asked.")] = (
        default_duration("1h")
    )
    checks_poll: Annotated[Duration, doc("How often the forge is asked about checks.")] = default_duration("30s")
    checks_settle: Annotated[
        Duration, doc("How long after a push checks may still appear; then the list counts as complete.")
    ] = default_duration("1m")
    flaky: Annotated[
        tuple[NonEmpty, ...],
        doc(
            "Checks that are known to fail at random, by job (`e2e*`) or by workflow and job (`CI / e2e*`); "
            "they are started again."
        ),
    ] = ()
    reruns_max: Annotated[int, doc("How often flaky checks are started again.", ge=0)] = 2


TokenCount = Annotated[int, Meta(ge=0)]
"""Not negative: a negative reservation would enlarge the budget."""


class Budget(SettingsBase, frozen=True, kw_only=True, rename=lambda name: name.removesuffix("_nanousd")):
    call_nanousd: Annotated[Usd | None, doc("Most that one call may spend; each call reserves it.")] = None
    feature_nanousd: Annotated[Usd | None, doc("Most that one feature may spend.")] = None
    run_nanousd: Annotated[Usd | None, doc("Most that one run may spend.")] = None
    day_nanousd: Annotated[Usd | None, doc("Most that all your runs, of all repositories, spend in 24 hours.")] = None
    call_tokens: Annotated[TokenCount | None, doc("As `call`, in tokens of input and output.")] = None
    feature_tokens: Annotated[TokenCount | None, doc("As `feature`, in tokens.")] = None
    run_tokens: Annotated[TokenCount | None, doc("As `run`, in tokens.")] = None
    day_tokens: Annotated[TokenCount | None, doc("As `day`, in tokens.")] = None


class Models(SettingsBase, frozen=True, kw_only=True):
    """Models of the configured agent by tier."""

    cheap: Annotated[str | None, doc("Model of the cheap tier; absent: the agent's own.")] = None
    mid: Annotated[str | None, doc("Model of the mid tier; absent: the agent's own.")] = None
    premium: Annotated[str | None, doc("Model of the premium tier; absent: the agent's own.")] = None


class Limits(SettingsBase, frozen=True, kw_only=True):
    """Numbers that rules and prompts share."""

    techspec_files_max: Annotated[int, doc("Most files that a technical specification lists.", ge=1)] = 8
    feature_criteria_max: Annotated[int, doc("More acceptance criteria: a person is asked.", ge=1)] = 15
    feature_tasks_max: Annotated[int, doc("More tasks in a feature: a person is asked.", ge=1)] = 20
    task_files_max: Annotated[int, doc("Most files that one task may touch.", ge=1)] = 5
    feature_files_max: Annotated[int, doc("More files in a feature: a person is asked.", ge=1)] = 80
    wait_max: Annotated[
        Duration,
        doc("How long a call or delivery waits in all for limits, overload or a connection; then a person is asked."),
    ] = default_duration("1h")
    failover_wait: Annotated[
        Duration, doc("How long it waits in all before the next agent of `failover` takes over.")
    ] = default_duration("5m")

    items_max: Annotated[int, doc("Most items that one output may create.", ge=0)] = 10
    item_parallel_max: Annotated[
        int, doc("How many items into one branch are worked on at the same time, within `parallel_max`.", ge=1)
    ] = 1
    item_attempts_max: Annotated[int, doc("How often an item that fails is begun in all, in later cycles.", ge=1)] = 3
    cycles_max: Annotated[int, doc("Most cycles of a run.", ge=1)] = 10
    unchanged_cycles_max: Annotated[
        int, doc("So many cycles in a row in which nothing was delivered are the last.", ge=1)
    ] = 3
    item_lines_min: Annotated[int, doc("Fewest lines of code that a planned item should have.", ge=1)] = 250
    item_lines_max: Annotated[int, doc("Most lines of code that a planned item should have.", ge=1)] = 350

    def resolve(self, limit: Limit) -> int:
        """Return a literal limit, or the setting that it names. Raises AttributeError for an unknown name."""
        return limit if isinstance(limit, int) else int(getattr(self, limit))


class RouteChoice(SettingsBase, frozen=True, kw_only=True, omit_defaults=True):
    """Who works on something."""

    agent: Annotated[Name | None, doc("Agent that is called; absent: that of `agent`.")] = None
    tier: Annotated[Tier | None, doc("Tier of the model; absent: that of the pipeline.")] = None


class Route(RouteChoice, frozen=True, kw_only=True):
    """Who works on a phase."""

    units: Annotated[
        dict[str, dict[str, RouteChoice]],
        doc("Other choices for units whose field has a value, by field and value: `{type: {auth: {tier: premium}}}`."),
    ] = {}
    agent_review: Annotated[RouteChoice, doc("Who reviews the phase.")] = RouteChoice()

    @property
    def choices(self) -> tuple[RouteChoice, ...]:
        """Return who works on the phase, without its reviewer."""
        return (self, *(choice for values in self.units.values() for choice in values.values()))


Routing = dict[str, Route]
"""By phase."""
NotificationSubject = Literal["question", "failed", "halted", "idle", "finished"]


class Notifications(SettingsBase, frozen=True, kw_only=True):
    """How a person is told what happens in a run; the terminal's bell rings for the same."""

    command: Annotated[
        NonEmpty | None,
        doc("A command line for `sh -c`, run in the repository; MZ_EVENT, MZ_RUN, MZ_FEATURE and MZ_TEXT say what."),
    ] = None
    on: Annotated[
        tuple[NotificationSubject, ...],
        doc("What a person is told: a question, a failed feature, a halt, that nothing can continue, the end."),
    ] = ("question", "halted", "idle", "finished")


class Sources(SettingsBase, frozen=True, kw_only=True):
    """What `mz stats` counts."""

    code: Annotated[
        tuple[Pattern, ...],
        doc("Files of code, as in .gitignore; absent: of all programming languages, without `vendor` and the like."),
    ] = ()
    tests: Annotated[
        tuple[Pattern, ...],
        doc("Files of tests, which are not code then; absent: by convention, such as `tests/` and `*_test.go`."),
    ] = ()
    prose: Annotated[
        dict[Name, tuple[Pattern, ...]],
        doc("Files of prose by a name of yours, such as `{specs: [specs/**]}`; absent: Markdown and the like."),
    ] = {}


class SpecDocuments(SettingsBase, frozen=True, kw_only=True):
    """One kind of specification documents, and how they cite others; expressions are RE2, applied line by line."""

    files: Annotated[tuple[Pattern, ...], doc("The documents; patterns as in .gitignore.")]
    ids: Annotated[
        NonEmpty | None,
        doc("Its first group is an id that the line defines; absent: each document defines its name without ending."),
    ] = None
    local: Annotated[bool, doc("Others cite FILE and id, with two groups; FILE is the name without ending.")] = False
    cites: Annotated[
        dict[Name, NonEmpty], doc("By cited kind an expression whose first group is the cited id, which must exist.")
    ] = {}
    cited_by: Annotated[tuple[Name, ...], doc("Kinds that must cite each id.")] = ()
    cited_once_by: Annotated[tuple[Name, ...], doc("Kinds that must cite each id exactly once.")] = ()
    rules: Annotated[Name | None, doc("Rule set that each document must fulfil.")] = None


class Rates(SettingsBase, frozen=True, kw_only=True):
    input: Annotated[UsdPerMillion, doc("Input without any cache.")]
    output: Annotated[UsdPerMillion, doc("Output, reasoning included.")]
    cache_read: Annotated[UsdPerMillion | None, doc("Input read from a cache; absent: as other input.")] = None
    cache_write_5m: Annotated[
        UsdPerMillion | None, doc("Input kept in a cache for five minutes; absent: as other input.")
    ] = None
    cache_write_1h: Annotated[
        UsdPerMillion | None, doc("Input kept in a cache for an hour; absent: as for five minutes.")
    ] = None


class LongRequestRates(Rates, frozen=True, kw_only=True):
    tokens: Annotated[int, doc("These prices apply to all of a request with more input than this.", ge=1)]


class TierRates(SettingsBase, frozen=True, kw_only=True):
    batch: Annotated[Rates | None, doc("Requests that may take hours.")] = None
    flex: Annotated[Rates | None, doc("Requests that may wait.")] = None
    priority: Annotated[Rates | None, doc("Requests that go before others.")] = None
    fast: Annotated[Rates | None, doc("Requests that are answered faster.")] = None


class PriceRow(Rates, frozen=True, kw_only=True):
    """The user's prices of a model from a date on; they come before the built-in table."""

    model: Annotated[ModelGlob, doc("The model as the agent names it; `*` stands for anything.")]
    since: Annotated[Day | None, doc("First day of these prices, YYYY-MM-DD in UTC; absent: always.")] = msgspec.field(
        name="from", default=None
    )
    above: Annotated[LongRequestRates | None, doc("Prices of long requests.")] = None
    tiers: Annotated[TierRates, doc("Prices by service tier; without one there is none.")] = TierRates()


class Settings(SettingsBase, frozen=True, kw_only=True):
    """The content of `mz.yaml`."""

    pipeline: Annotated[
        NonEmpty, doc("Name of pipelines/NAME.yaml or of a built-in pipeline, or the path of a pipeline file.")
    ] = "monozukuri"
    agent: Annotated[Name, doc("Which agent is called.")] = "claude-code"
    agents: Annotated[
        dict[Name, AgentDescription],
        doc("Programs of your own as agents, by name: how they are called, and how their output is read."),
    ] = {}
    failover: Annotated[
        tuple[Name, ...],
        doc(
            "Agents to switch to, in this order, when the one before has no login, no program, no credit, "
            "a long rate limit or no retries left."
        ),
    ] = ()
    routing: Annotated[dict[str, Route], doc("Which agent and tier do a phase, by phase; before `routing.yaml`.")] = {}
    independence: Annotated[
        Literal["session", "agent"],
        doc(
            "What a call with `not_as: PHASE` does not share with the builder of that phase: its session, or its agent "
            "too, which needs an agent in `failover`."
        ),
    ] = "session"
    skills: Annotated[
        Literal["text", "native"],
        doc(
            "How an agent gets skills: in the prompt, or as files that its program loads, where it can (Claude Code, "
            "Codex, Gemini CLI)."
        ),
    ] = "text"
    sessions: Annotated[
        Literal["fresh", "continue"],
        doc(
            "Whether the calls of a feature continue one session of the agent or start new ones; phases "
            "can override it. Agents without sessions always start anew."
        ),
    ] = "fresh"
    base: Annotated[
        Branch | None, doc("Branch that features start from and pull requests target; absent: the current one.")
    ] = None
    backlog: Annotated[
        RepositoryPath, doc("The features: a file, Markdown or JSON Lines (*.jsonl), or github:[OWNER/NAME#]LABEL.")
    ] = "features.md"
    tracker: Annotated[
        Tracker | None,
        doc(
            "Where items that a plan created are shown as issues: github, the repository of `pull_requests.remote`, or "
            "github:[HOST/]OWNER/REPO; absent: nowhere."
        ),
    ] = None
    integration: Annotated[
        Branch | None, doc("Branch of a run into which its items are merged, where the pipeline has one.")
    ] = None
    request: Annotated[
        str, doc("What items that a cycle adds are to plan; `@FILE`: the text of a file of the repository.")
    ] = ""
    scope: Annotated[
        RepositoryPath | None,
        doc("The folder in which features may change files; absent: the whole repository. Artifacts are excepted."),
    ] = None
    branch_prefix: Annotated[Branch, doc("Features get branches PREFIX/ID.")] = "feat"
    autonomy: Annotated[
        Autonomy, doc("How often a person is asked: after planning too (supervised), at gates, or never.")
    ] = "checkpoint"
    parallel_max: Annotated[int, doc("How many features are worked on at the same time.", ge=1, le=PARALLEL_MAX)] = 2
    injection_screen: Annotated[
        Literal["strict", "relaxed", "off"], doc("What happens to backlog text that tries to give orders to the agent.")
    ] = "strict"
    models: Models = Models()
    commands: Annotated[
        dict[Name, Command],
        doc("Commands by name, such as test, lint and build; pipelines run them before and after an agent."),
    ] = {}
    edits: Annotated[
        dict[Name, Edit], doc("Changes of files by name, of phases with `edit`, before they call an agent.")
    ] = {}
    gates: Gates = Gates()
    memory: MemorySettings = MemorySettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    sandbox: SandboxSettings = SandboxSettings()
    container: ContainerSettings = ContainerSettings()
    isolation: Annotated[
        Literal["mounts", "landlock", "any"],
        doc(
            "What a run needs: mount namespaces, with which agents and commands can change nothing outside their "
            "worktrees; at least Landlock, with which they reach sockets of yours; or nothing."
        ),
    ] = "any"
    pull_requests: PullRequests = msgspec.field(default_factory=PullRequests)
    papers: Annotated[
        Literal["branch", "log"] | None,
        doc(
            "Whether the branch gets the papers of the pipeline (artifacts that are not part of the work), or only the "
            "log; absent: log with pull requests, branch without."
        ),
    ] = None
    commits: Annotated[
        Literal["phases", "squash"], doc("Whether each phase is a commit of its own, or all that is delivered is one.")
    ] = "phases"
    usage_in_commits: Annotated[
        bool, doc("Whether messages of commits and merges state tokens, cost and duration of the calls.")
    ] = True
    seal: Annotated[
        Literal["local", "push"],
        doc("Whether the seals of runs (refs/notes/mz-seal) stay here or are pushed to `pull_requests.remote`."),
    ] = "local"
    seal_key: Annotated[
        NonEmpty | None,
        doc(
            "SSH key that signs seals; absent: git's `user.signingKey` if `gpg.format` is ssh. Agents must not see it."
        ),
    ] = None
    sources: Sources = Sources()
    specs: Annotated[
        dict[Name, SpecDocuments], doc("Kinds of specification documents, by a name of yours, for `mz check`.")
    ] = {}
    budget: Budget = Budget()
    limits: Limits = msgspec.field(default_factory=Limits)
    notify: Notifications = Notifications()
    denied_paths: Annotated[
        tuple[Pattern, ...],
        doc("Paths that no agent may change, whatever the phase allows; patterns as in .gitignore."),
    ] = (".github/**", ".env", ".env.*", "*.pem", "*.p12", "*.pfx", "*.key", "mz.yaml", ".mz/**")
    denied_commands: Annotated[
        tuple[NonEmpty, ...],
        doc("Commands, such as `git push`, that no agent may run: a person decides; `*` stands for anything."),
    ] = ()
    pass_environment: Annotated[
        tuple[Variable, ...], doc("Further environment variables that agents and commands may see.")
    ] = ()
    recordings: Annotated[RepositoryPath, doc("The folder of the library of recorded agent calls.")] = "recordings"
    prices: Annotated[tuple[PriceRow, ...], doc("Your own prices of models; they come before the price table.")] = ()


Ratio = Annotated[float, Meta(ge=0, le=10**9)]


class Coefficients(SettingsBase, frozen=True, kw_only=True):
    """Used against estimated tokens for a group of calls; empty `model` or `phase`: any."""

    agent: str
    model: str = ""
    phase: str = ""
    calls: int
    input: Ratio
    """Used / estimated input; the estimate includes a continued session."""
    output: Ratio
    """Used / estimated output."""
    cache_read: Ratio = 0.0
    """Share of the input."""
    cache_write: Ratio = 0.0
    input_tokens: TokenCount
    """Tokens of a typical call, for estimates before its prompt is known."""
    output_tokens: TokenCount


class Config(Settings, frozen=True, kw_only=True):
    """The settings as a run pins them."""

    @property
    def agent_order(self) -> tuple[str, ...]:
        """Return the configured agent, then its successors."""
        return tuple(dict.fromkeys((self.agent, *self.failover)))

    @property
    def called_agents(self) -> tuple[str, ...]:
        """Return these and those that only routing names."""
        choices = [choice for route in self.routing.values() for choice in (*route.choices, route.agent_review)]
        return tuple(dict.fromkeys((*self.agent_order, *(choice.agent for choice in choices if choice.agent))))

    @property
    def place_of_papers(self) -> Literal["branch", "log"]:
        """Return the setting `papers`, or what it is without one."""
        return self.papers or ("branch" if self.pull_requests.strategy == "none" else "log")

    calibration: tuple[Coefficients, ...] = ()
    """From `calibration.yaml`; a call uses the coefficients of the narrowest group that it belongs to."""
