"""Facts: the table of all error codes. A code is never used again for something else, even when it is retired.

The first digit is the border at which the error was met: 1 the command and the machine, 2 files and settings,
3 pipelines, 4 the backlog, 5 runs, 6 recordings.
"""

from __future__ import annotations

from mz_engine.errorcode import ErrorCode
from mz_engine.exits import Exit
from mz_engine.recordingcodes import RECORDINGS

__all__ = ["CODES", "ErrorCode"]

_TABLE = (
    # 1: the command and the machine
    ErrorCode(
        "MZ1001",
        Exit.BUG,
        "bug in mz",
        "Something happened that the code of mz holds to be impossible. The run's log is complete up to that "
        "moment, so `mz resume` is safe. Please report it with the file that the message names.",
    ),
    ErrorCode(
        "MZ1002",
        Exit.USAGE,
        "wrong use of a command",
        "An option or argument is unknown, missing or has an impossible value. Nothing was done. `mz COMMAND "
        "--help` shows what the command takes.",
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
        "A program that this needs (git, the agent's command line) is not on PATH or too old. Install it, or "
        "choose another agent with `agent:` in mz.yaml.",
    ),
    ErrorCode(
        "MZ1005",
        Exit.PREREQUISITE,
        "the agent has no login",
        "The agent's command line is there but nobody is logged in, or its key is not in the environment. The "
        "hint names the ways to log in; mz never stores or prints keys.",
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
        "The directory of a report, or of another file that was asked for, is not there, is read-only or full. Reports "
        "are tried before any work, so that a long one is not done for nothing; the message names the file.",
    ),
    # 2: files and settings
    ErrorCode(
        "MZ2001",
        Exit.INVALID,
        "a file cannot be read",
        "A file that the settings or the command line name is not there, is not a file, or may not be read.",
    ),
    ErrorCode(
        "MZ2002",
        Exit.INVALID,
        "a file is not text",
        "Files that mz reads are UTF-8 text without NUL bytes. The place is the first byte that is neither. "
        "Save the file as UTF-8.",
    ),
    ErrorCode(
        "MZ2003",
        Exit.INVALID,
        "YAML syntax",
        "The file is not YAML. Usual causes: a tab in the indentation, a missing space after `:`, a text with "
        "`: ` or ` #` in it that needs quotes, brackets that are not closed.",
    ),
    ErrorCode(
        "MZ2004",
        Exit.INVALID,
        "duplicate key",
        "The same key stands twice in one mapping. YAML readers differ in which one wins, so mz refuses both.",
    ),
    ErrorCode(
        "MZ2005",
        Exit.INVALID,
        "unknown key",
        "The file has a key that means nothing there. A misspelt setting would otherwise be ignored in "
        "silence. The hint names the nearest known key.",
    ),
    ErrorCode(
        "MZ2006",
        Exit.INVALID,
        "wrong value",
        "A value has the wrong type, is outside its bounds, or is not one of the words that are allowed "
        "there. Note that as in YAML 1.2 only `true` and `false` are booleans; `yes`, `no`, `on` and `off` "
        "are text.",
    ),
    ErrorCode(
        "MZ2007",
        Exit.INVALID,
        "missing key",
        "A key that has no default is not there.",
    ),
    ErrorCode(
        "MZ2008",
        Exit.INVALID,
        "a file is too big",
        "Files that people write are small. One that is bigger than the limit, nested too deep, or that grows "
        "beyond the limit when its aliases are expanded, is refused before it is read.",
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
        "would pass through binary floating point.",
    ),
    ErrorCode(
        "MZ2011",
        Exit.INVALID,
        "bad setting from the environment or a flag",
        "A variable `MZ_<SETTING>` or a flag has a value that the setting cannot take. Variables are named "
        "after settings: `budget.run` is `MZ_BUDGET_RUN`. Lists and commands can only be set in mz.yaml.",
    ),
    ErrorCode(
        "MZ2012",
        Exit.INVALID,
        "unknown setting in the environment",
        "A variable is named nearly like a setting, but not quite, and has no effect. This is a warning; the command "
        "goes on.",
        warns=True,
    ),
    ErrorCode(
        "MZ2013",
        Exit.INVALID,
        "bad name, path or pattern",
        "Names become branches, files and trailers, so they are made of letters, digits, `_` and `-`. Paths "
        "are relative to the repository and stay inside it. Patterns are written as in .gitignore. An agent is one "
        "that mz knows; the base is a branch or another name of a commit. In `prices` a model is a name without "
        "blanks, a day is written YYYY-MM-DD, and no model has two rows of one day. In `agents` a command begins with "
        "a program on PATH and holds no prompt, values are found by keys joined by dots, words by regular "
        "expressions as RE2 knows them (there is no look-around and no back-reference), and something says what a "
        "success is; docs/agents.md explains each part.",
    ),
    ErrorCode(
        "MZ2014",
        Exit.INVALID,
        "settings in a file of another name",
        "Settings are read from `mz.yaml` and nothing else. A file `mz.yml` or `.mz.yaml` beside it, or in its "
        "place, would be ignored in silence, so it is refused.",
    ),
    ErrorCode(
        "MZ2015",
        Exit.INVALID,
        "the file is there already",
        "mz was asked to make a file that is there. What a person wrote is never overwritten: choose another "
        "name, or move the file away.",
    ),
    ErrorCode(
        "MZ2016",
        Exit.INVALID,
        "a budget without a price",
        "`budget:` limits money, and the price table does not know a model that the run will ask. For its calls "
        "nothing can be reserved, and only what the agent itself reports is counted afterwards, so the limit may "
        "be passed. Write the model's prices under `prices:` in mz.yaml. This is a warning; the run goes on.",
        warns=True,
    ),
    # 3: pipelines
    ErrorCode(
        "MZ3001",
        Exit.INVALID,
        "no such pipeline",
        "`pipeline:` names a file `pipelines/NAME.yaml` of the repository or a pipeline that comes with mz, "
        "or is the path of a file. The hint lists the pipelines that are there.",
    ),
    ErrorCode(
        "MZ3002",
        Exit.INVALID,
        "duplicate name in a pipeline",
        "Phases, artifacts and the results of prepared commands are found by name; each name can stand for one only.",
    ),
    ErrorCode(
        "MZ3003",
        Exit.INVALID,
        "unknown artifact",
        "An artifact is named that no phase of the pipeline hands over.",
    ),
    ErrorCode(
        "MZ3004",
        Exit.INVALID,
        "artifact used before it is there",
        "Phases run in the order of the file. A phase can only use what phases before it hand over.",
    ),
    ErrorCode(
        "MZ3005",
        Exit.INVALID,
        "cycle among inputs",
        "Phases need each other's artifacts in a circle, so none of them could ever start, in whatever order.",
    ),
    ErrorCode(
        "MZ3006",
        Exit.INVALID,
        "unreachable phase",
        "No run can ever come to this phase: a phase before it can never start, or the feature is already "
        "done when it has been delivered.",
    ),
    ErrorCode(
        "MZ3007",
        Exit.INVALID,
        "unknown rule",
        "A rule set (`rules:`) or a rule (`rule:`) is named that this version of mz does not have.",
    ),
    ErrorCode(
        "MZ3008",
        Exit.INVALID,
        "unknown template",
        "`prompt:` names a template that is not there.",
    ),
    ErrorCode(
        "MZ3009",
        Exit.INVALID,
        "unknown command",
        "`run:` names a command that `commands:` in mz.yaml does not define. In a built-in pipeline it is a "
        "warning and the step is left out, since not every project has a linter or a build.",
    ),
    ErrorCode(
        "MZ3010",
        Exit.INVALID,
        "a phase may write another's outputs",
        "The `mutations` or outputs of one phase cover a file that another phase hands over. An artifact that "
        "was checked could then be changed behind the back of its checks. Take it back with a pattern such as "
        "`!tasks/**`.",
    ),
    ErrorCode(
        "MZ3011",
        Exit.INVALID,
        "reviewer is not independent",
        "A review is worth something only when it does not share the builder's role, session or context.",
    ),
    ErrorCode(
        "MZ3012",
        Exit.INVALID,
        "a block leads nowhere",
        "`on_block` sends work back: to the phase itself or to an earlier one, one route for a cause, to a "
        "unit only where the phase has units.",
    ),
    ErrorCode(
        "MZ3013",
        Exit.INVALID,
        "gate or question is not well formed",
        "A gate has either a command (`run`) or a rule (`rule`). A question to a person names an artifact "
        "with a field and the values to ask for, or a rule, or nothing of these, which means always.",
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
        "phase is not complete",
        "A phase with an agent has a prompt, and the other way round; outputs and reviews need an agent; a "
        "phase does something; the pipeline has phases and one of them delivers: it has `open_pr` under `deliver`, "
        "and `push` before it. Deliveries go in order, each step once: `merge_base`, `push`, `open_pr`, "
        "`await_checks`.",
    ),
    ErrorCode(
        "MZ3016",
        Exit.INVALID,
        "unknown placeholder",
        "Paths and patterns may hold `{feature}` and, in a phase with `for_each`, `{unit}`; `mutations` also "
        "`{unit.files}`; a commit's subject also `{title}` and `{phase}`.",
    ),
    ErrorCode(
        "MZ3017",
        Exit.INVALID,
        "template cannot be used",
        "A file below `pipelines/templates/` is not a jinja2 template, or shows something that a prompt does not "
        "have, or includes a template that is not there, or lacks a block that the one which it extends requires.",
    ),
    ErrorCode(
        "MZ3018",
        Exit.INVALID,
        "rule set cannot be used",
        "A file below `pipelines/rules/` is not a set of rules: a kind, a key or a shared rule that does not "
        "exist, an id that is not the set's own, a pattern that is no regular expression, a limit that "
        "mz.yaml does not know.",
    ),
    ErrorCode(
        "MZ3019",
        Exit.INVALID,
        "a tool that the agent does not have",
        "A phase gives its agent a tool that this agent, or one that may take over, does not have: aider, say, "
        "runs no commands. The call is made without it, and may fail for that. Choose another agent, or take the "
        "tool from `tools:` of the phase. This is a warning; the run goes on.",
        warns=True,
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
        "A line looks like the beginning of a feature but is not one; as plain text it would silently join "
        "the feature above. The form is `## [FEAT] an-id: A title`, with FEAT, WIP, DONE or BLOCKED in the "
        "brackets.",
    ),
    ErrorCode(
        "MZ4003",
        Exit.INVALID,
        "illegal feature id",
        "Ids become branch and directory names: letters, digits, `_` and `-`, at most 64, beginning with a "
        "letter or digit.",
    ),
    ErrorCode(
        "MZ4004",
        Exit.INVALID,
        "duplicate feature id",
        "Two features have the same id, or ids that differ in upper and lower case only and would share a "
        "branch on some file systems.",
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
        "Features wait for each other in a circle, so none of them could ever start. Take one `depends on` out.",
    ),
    ErrorCode(
        "MZ4009",
        Exit.INVALID,
        "fence or comment is never closed",
        "A code fence or an HTML comment that is not closed would swallow all features after it.",
    ),
    ErrorCode(
        "MZ4010",
        Exit.INVALID,
        "no such feature",
        "A feature was asked for by an id that the backlog or the run does not have.",
    ),
    # 5: runs
    ErrorCode(
        "MZ5001",
        Exit.USAGE,
        "no such run",
        "There is no run, or none whose id begins so, or several. `mz status` shows the newest.",
    ),
    ErrorCode(
        "MZ5002",
        Exit.BUSY,
        "the run is held by another process",
        "One process at a time drives a run. Wait for it, stop it, or leave an answer for it: `mz resume` "
        "with an answer and `mz cancel` only leave a message.",
    ),
    ErrorCode(
        "MZ5003",
        Exit.BUSY,
        "an unfinished run of another shape waits",
        "A run that is not finished used another pipeline or base branch. Finish it with `mz resume ID`, or "
        "give it up with `mz cancel ID`, before another one begins.",
    ),
    ErrorCode(
        "MZ5004",
        Exit.USAGE,
        "the question is gone",
        "The feature waits for no answer: somebody answered before, it was given up, or it never asked. "
        "Nothing was left for the run. `mz review list` shows what is asked now, `mz review show FEATURE` who "
        "answered what.",
    ),
    ErrorCode(
        "MZ5005",
        Exit.USAGE,
        "no process works on the run",
        "Only a run that a process works on can be paused. One without a process stands still already; `mz "
        "resume` goes on with it.",
    ),
    ErrorCode(
        "MZ5006",
        Exit.USAGE,
        "the feature cannot be done once more",
        "Only what has come to rest can be done once more: failed, given up, waiting or held; and only from a "
        "phase that it had begun. Nothing was left for the run.",
    ),
    ErrorCode(
        "MZ5007",
        Exit.USAGE,
        "no such place in the log",
        "A place is written STREAM@VERSION, as `mz log` prints it at every event: `run/RUN@4`, "
        "`run/RUN/FEATURE@12`, or shorter `RUN@4`, `FEATURE@12`. Versions count from 1. The stream is not there, "
        "is not that long, or is an inbox, which holds messages and has no state.",
    ),
    ErrorCode(
        "MZ5008",
        Exit.USAGE,
        "nothing can go on from there",
        "A fork begins where a feature was at work: after it had begun, and before it was delivered, failed or given "
        "up. Name an earlier version of its stream, or a phase that it came to.",
    ),
    ErrorCode(
        "MZ5010",
        Exit.USAGE,
        "no such imported session",
        "A session is named by its id, by `<agent>/<id>`, or by the beginning of one that no other has. `mz cost "
        "--imported --by session` lists all of them.",
    ),
    ErrorCode(
        "MZ5011",
        Exit.USAGE,
        "nothing was imported yet",
        "Sessions of agents go into a log of your own, outside of any repository, when `mz import` reads them. There "
        "is none yet where it is looked for: `$MZ_DATA`, or the platform's directory for data.",
    ),
    ErrorCode(
        "MZ5012",
        Exit.BUSY,
        "another import is at work",
        "One process at a time imports into a log, so that each request counts once. Wait for it to end, or end it "
        "with Ctrl-C: nothing is lost, and the next import goes on where it stopped.",
    ),
    *RECORDINGS,
)

CODES = {each.code: each for each in _TABLE}
