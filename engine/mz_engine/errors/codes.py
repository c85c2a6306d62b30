"""The table of all error codes. A retired code is never reused.

The first digit is the area: 1 the command and the machine, 2 files and settings, 3 pipelines, 4 the backlog, 5 runs,
6 recordings.
"""

from __future__ import annotations

from mz_engine.errors.error_code import ErrorCode
from mz_engine.errors.exits import Exit
from mz_engine.errors.recording_codes import RECORDING_CODES

__all__ = ["CODES", "ErrorCode"]

_TABLE = (
    # 1: the command and the machine
    ErrorCode(
        "MZ1001",
        Exit.BUG,
        "bug in mz",
        "mz reached a state that should be impossible. The run's log is complete up to that moment, so `mz resume` is "
        "safe. Please report it with the file that the message names.",
    ),
    ErrorCode(
        "MZ1002",
        Exit.USAGE,
        "invalid use of a command",
        "An option or argument is unknown, missing or invalid. Nothing was done. See `mz COMMAND --help`.",
    ),
    ErrorCode(
        "MZ1003",
        Exit.REPOSITORY,
        "not a usable repository",
        "mz works in a git repository with at least one commit, in its main working tree: worktrees start "
        "from a commit. Run `git init` and commit once, or change into the repository.",
    ),
    ErrorCode(
        "MZ1004",
        Exit.PREREQUISITE,
        "a tool is missing",
        "A required program (git, the agent's command line) is not on PATH or too old. Install it, or choose another "
        "agent with `agent:` in mz.yaml.",
    ),
    ErrorCode(
        "MZ1005",
        Exit.PREREQUISITE,
        "the agent has no login",
        "The agent's command line is installed but not logged in, or its key is not in the environment. The hint names "
        "the ways to log in; mz never stores or prints keys.",
    ),
    ErrorCode(
        "MZ1006",
        Exit.PREREQUISITE,
        "the log cannot be used",
        "The database under `.mz/` cannot be opened, read or written: no permission, a full disk, a damaged "
        "file or a format that a newer mz wrote. Nothing was changed.",
    ),
    ErrorCode(
        "MZ1007",
        Exit.PREREQUISITE,
        "a report cannot be written",
        "The directory of a report or another output file is missing, read-only or full. mz checks this before any "
        "work, so that no work is lost; the message names the file.",
    ),
    # 2: files and settings
    ErrorCode(
        "MZ2001",
        Exit.INVALID,
        "a file cannot be read",
        "A file named by the settings or the command line is missing, is not a file, or is not readable.",
    ),
    ErrorCode(
        "MZ2002",
        Exit.INVALID,
        "a file is not text",
        "Files that mz reads are UTF-8 text without NUL bytes. The location is the first invalid byte. Save the file "
        "as UTF-8.",
    ),
    ErrorCode(
        "MZ2003",
        Exit.INVALID,
        "YAML syntax",
        "The file is not YAML. Usual causes: a tab in the indentation, a missing space after `:`, a text with `: ` or "
        "` #` without quotes, unclosed brackets.",
    ),
    ErrorCode(
        "MZ2004",
        Exit.INVALID,
        "duplicate key",
        "A mapping has the same key twice. YAML readers differ in which one wins, so mz accepts neither.",
    ),
    ErrorCode(
        "MZ2005",
        Exit.INVALID,
        "unknown key",
        "The file has a key that is not known at this location. A misspelt setting would otherwise be ignored "
        "silently. The hint names the most similar known key.",
    ),
    ErrorCode(
        "MZ2006",
        Exit.INVALID,
        "wrong value",
        "A value has the wrong type, is out of bounds, or is not one of the allowed values. As in YAML 1.2 only `true` "
        "and `false` are booleans; `yes`, `no`, `on` and `off` are text.",
    ),
    ErrorCode(
        "MZ2007",
        Exit.INVALID,
        "missing key",
        "A key without a default is missing.",
    ),
    ErrorCode(
        "MZ2008",
        Exit.INVALID,
        "a file is too big",
        "Files that people write are small. A file that is bigger than the limit, nested too deep, or too big after "
        "its aliases are expanded is rejected before it is read.",
    ),
    ErrorCode(
        "MZ2009",
        Exit.INVALID,
        "bad duration",
        "A duration is a whole number of seconds (`600`) or a text of numbers with units: `90s`, `30m`, `2h`, "
        "`1h30m`. It is at least one second and at most a week.",
    ),
    ErrorCode(
        "MZ2010",
        Exit.INVALID,
        "bad amount of money",
        'Amounts are US dollars as quoted decimal texts with at most nine decimals: `"5.00"`. A bare number '
        "would be rounded by binary floating point.",
    ),
    ErrorCode(
        "MZ2011",
        Exit.INVALID,
        "bad setting from the environment or a flag",
        "A variable `MZ_<SETTING>` or a flag has a value that is invalid for the setting. Variables are named after "
        "settings: `budget.run` is `MZ_BUDGET_RUN`. Lists and commands can only be set in mz.yaml.",
    ),
    ErrorCode(
        "MZ2012",
        Exit.INVALID,
        "unknown setting in the environment",
        "A variable has nearly the name of a setting, and no effect. This is a warning; the command continues.",
        is_warning=True,
    ),
    ErrorCode(
        "MZ2013",
        Exit.INVALID,
        "bad name, path or pattern",
        "Names become branches, files and trailers, so they consist of letters, digits, `_` and `-`. Paths are "
        "relative to the repository and stay inside it. Patterns are written as in .gitignore. `agent` is a known "
        "agent; `base` is a branch or another name of a commit. In `prices` a model is a name without spaces, a date "
        "is written YYYY-MM-DD, and a model has at most one row per date. In `agents` a command begins with a program "
        "on PATH and contains no prompt, values are located by keys joined by dots, text by RE2 regular expressions "
        "(no look-around, no back-references), and a rule defines success; docs/agents.md explains each part.",
    ),
    ErrorCode(
        "MZ2014",
        Exit.INVALID,
        "settings in a file of another name",
        "Settings are only read from `mz.yaml`. A file `mz.yml` or `.mz.yaml` would be ignored silently, so it is an "
        "error.",
    ),
    ErrorCode(
        "MZ2015",
        Exit.INVALID,
        "the file already exists",
        "mz never overwrites a file that a person wrote: choose another name, or move the file away.",
    ),
    ErrorCode(
        "MZ2016",
        Exit.INVALID,
        "a budget without a price",
        "`budget:` is set, and the price table has no price for a model of the run. mz cannot reserve money for its "
        "calls and only counts the cost that the agent reports, so the run may exceed the budget. Add the model's "
        "prices under `prices:` in mz.yaml. This is a warning; the run continues.",
        is_warning=True,
    ),
    # 3: pipelines
    ErrorCode(
        "MZ3001",
        Exit.INVALID,
        "no such pipeline",
        "`pipeline:` names a file `pipelines/NAME.yaml` of the repository or a built-in pipeline, or is the path of a "
        "file. The hint lists the available pipelines.",
    ),
    ErrorCode(
        "MZ3002",
        Exit.INVALID,
        "duplicate name in a pipeline",
        "Phases, artifacts and the results of prepared commands are found by name, so each name must be unique.",
    ),
    ErrorCode(
        "MZ3003",
        Exit.INVALID,
        "unknown artifact",
        "The pipeline names an artifact that none of its phases produces.",
    ),
    ErrorCode(
        "MZ3004",
        Exit.INVALID,
        "artifact used before it is produced",
        "Phases run in the order of the file. A phase can only use artifacts that earlier phases produce.",
    ),
    ErrorCode(
        "MZ3005",
        Exit.INVALID,
        "cycle among inputs",
        "Phases need each other's artifacts in a cycle, so none of them could ever start.",
    ),
    ErrorCode(
        "MZ3006",
        Exit.INVALID,
        "unreachable phase",
        "No run can reach this phase: an earlier phase can never start, or the feature is delivered before.",
    ),
    ErrorCode(
        "MZ3007",
        Exit.INVALID,
        "unknown rule",
        "The pipeline names a rule set (`rules:`) or a rule (`rule:`) that this version of mz does not have.",
    ),
    ErrorCode(
        "MZ3008",
        Exit.INVALID,
        "unknown template",
        "`prompt:` names a template that does not exist.",
    ),
    ErrorCode(
        "MZ3009",
        Exit.INVALID,
        "unknown command",
        "`run:` names a command that `commands:` in mz.yaml does not define. In a built-in pipeline it is a "
        "warning and the step is skipped, since not every project has a linter or a build.",
    ),
    ErrorCode(
        "MZ3010",
        Exit.INVALID,
        "a phase may write another's outputs",
        "The `writable` paths or outputs of one phase match a file that another phase produces. A checked artifact "
        "could then be changed after its checks. Exclude it with a pattern such as `!tasks/**`.",
    ),
    ErrorCode(
        "MZ3011",
        Exit.INVALID,
        "reviewer is not independent",
        "A review is only useful if it does not share the builder's role, session or context.",
    ),
    ErrorCode(
        "MZ3012",
        Exit.INVALID,
        "invalid `on_block` route",
        "`on_block` routes work back to the same or an earlier phase, with one route per cause; a route to a unit "
        "needs a phase with units.",
    ),
    ErrorCode(
        "MZ3013",
        Exit.INVALID,
        "invalid gate or question",
        "A gate has either a command (`run`) or a rule (`rule`). A question to a person has an artifact with a field "
        "and values, or a rule; without any of them it is always asked.",
    ),
    ErrorCode(
        "MZ3014",
        Exit.INVALID,
        "number out of bounds",
        "Limits of a pipeline are whole numbers: at least one attempt, no negative retries, rollbacks, "
        "budgets or times.",
    ),
    ErrorCode(
        "MZ3015",
        Exit.INVALID,
        "incomplete phase",
        "A phase with an agent has a prompt, and vice versa; outputs and reviews need an agent; no phase is empty. One "
        "phase of the pipeline delivers: it has `open_pr` under `deliver`, and `push` before it. Delivery steps are in "
        "this order, each at most once: `merge_base`, `push`, `open_pr`, `await_checks`.",
    ),
    ErrorCode(
        "MZ3016",
        Exit.INVALID,
        "unknown placeholder",
        "Paths and patterns may contain `{feature}` and, in a phase with `for_each`, `{unit}`; `writable` also "
        "`{unit.files}`; a commit's subject also `{title}` and `{phase}`.",
    ),
    ErrorCode(
        "MZ3017",
        Exit.INVALID,
        "template cannot be used",
        "A file in `pipelines/templates/` is not a jinja2 template, uses an unknown variable, includes a missing "
        "template, or lacks a block that the template which it extends requires.",
    ),
    ErrorCode(
        "MZ3018",
        Exit.INVALID,
        "rule set cannot be used",
        "A file in `pipelines/rules/` is not a valid rule set: an unknown kind, key or shared rule, an id that is not "
        "the set's own, an invalid regular expression, or a limit that mz.yaml does not have.",
    ),
    ErrorCode(
        "MZ3019",
        Exit.INVALID,
        "a tool that the agent does not have",
        "A phase gives its agent a tool that this agent or a `failover` agent does not have: for example, aider runs "
        "no commands. The call is made without the tool, and may fail because of that. Choose another agent, or remove "
        "the tool from `tools:` of the phase. This is a warning; the run continues.",
        is_warning=True,
    ),
    # 4: the backlog
    ErrorCode(
        "MZ4001",
        Exit.INVALID,
        "empty backlog",
        "The backlog has no feature. A feature begins with a heading of level 2: `## [FEAT] an-id: A title`.",
    ),
    ErrorCode(
        "MZ4002",
        Exit.INVALID,
        "malformed feature heading",
        "A line looks like the heading of a feature but is malformed; it would silently become text of the feature "
        "above. The form is `## [FEAT] an-id: A title`, with FEAT, WIP, DONE or BLOCKED in the brackets.",
    ),
    ErrorCode(
        "MZ4003",
        Exit.INVALID,
        "invalid feature id",
        "Ids become branch and directory names: letters, digits, `_` and `-`, at most 64, beginning with a "
        "letter or digit.",
    ),
    ErrorCode(
        "MZ4004",
        Exit.INVALID,
        "duplicate feature id",
        "Two features have the same id, or ids that differ only in case and would share a branch on some file systems.",
    ),
    ErrorCode(
        "MZ4005",
        Exit.INVALID,
        "unknown dependency",
        "`depends on` names an id that no feature of the backlog has.",
    ),
    ErrorCode(
        "MZ4006",
        Exit.INVALID,
        "unknown priority",
        "Priorities are high, medium, low and none.",
    ),
    ErrorCode(
        "MZ4007",
        Exit.INVALID,
        "feature depends on itself",
        "A feature that waits for itself would never start.",
    ),
    ErrorCode(
        "MZ4008",
        Exit.INVALID,
        "cycle of dependencies",
        "Features wait for each other in a cycle, so none of them could ever start. Remove one `depends on`.",
    ),
    ErrorCode(
        "MZ4009",
        Exit.INVALID,
        "unclosed fence or comment",
        "A code fence or an HTML comment that is not closed would swallow all features after it.",
    ),
    ErrorCode(
        "MZ4010",
        Exit.INVALID,
        "no such feature",
        "The command line names a feature id that the backlog or the run does not have.",
    ),
    # 5: runs
    ErrorCode(
        "MZ5001",
        Exit.USAGE,
        "no such run",
        "There is no run, no run whose id has this prefix, or more than one. `mz status` shows the newest.",
    ),
    ErrorCode(
        "MZ5002",
        Exit.BUSY,
        "another process drives the run",
        "Only one process at a time drives a run. Wait for it, or stop it. `mz review` and `mz cancel` work "
        "meanwhile: they only post a message.",
    ),
    ErrorCode(
        "MZ5003",
        Exit.BUSY,
        "an unfinished run with different settings exists",
        "An unfinished run has another pipeline or base branch. Before a new run can start, continue it with "
        "`mz resume ID` or cancel it with `mz cancel ID`.",
    ),
    ErrorCode(
        "MZ5004",
        Exit.USAGE,
        "the question is no longer open",
        "The feature waits for no answer: the question was answered, the feature was cancelled, or there was no "
        "question. Nothing was posted. `mz review list` shows open questions, `mz review show FEATURE` past answers.",
    ),
    ErrorCode(
        "MZ5005",
        Exit.USAGE,
        "no process is running the run",
        "Only a run with a process can be paused. A run without one is already stopped; `mz resume` continues it.",
    ),
    ErrorCode(
        "MZ5006",
        Exit.USAGE,
        "the feature cannot be retried",
        "Only a failed, cancelled, waiting or held feature can be retried, and only from a phase that it has started. "
        "Nothing was posted.",
    ),
    ErrorCode(
        "MZ5007",
        Exit.USAGE,
        "no such event",
        "An event is written STREAM@VERSION, as `mz log` prints it: `run/RUN@4`, `run/RUN/FEATURE@12`, or shorter "
        "`RUN@4`, `FEATURE@12`. Versions count from 1. The stream does not exist, is shorter, or is an inbox, which "
        "has no state.",
    ),
    ErrorCode(
        "MZ5008",
        Exit.USAGE,
        "cannot fork from this event",
        "A fork starts at an event after the feature started, and before it was delivered, failed or cancelled. Name "
        "an earlier version of its stream, or a phase that it reached.",
    ),
    ErrorCode(
        "MZ5010",
        Exit.USAGE,
        "no such imported session",
        "A session is named by its id, by `<agent>/<id>`, or by a unique prefix of its id. `mz cost --imported --by "
        "session` lists all of them.",
    ),
    ErrorCode(
        "MZ5011",
        Exit.USAGE,
        "nothing was imported yet",
        "`mz import` reads agent sessions into a log of your own, outside of any repository. There is no such log yet "
        "in `$MZ_DATA` or the platform's data directory.",
    ),
    ErrorCode(
        "MZ5012",
        Exit.BUSY,
        "another import is running",
        "Only one process at a time imports into a log, so that each request counts once. Wait for it, or stop it with "
        "Ctrl-C: nothing is lost, and the next import continues where it stopped.",
    ),
    *RECORDING_CODES,
)

CODES = {error_code.code: error_code for error_code in _TABLE}
