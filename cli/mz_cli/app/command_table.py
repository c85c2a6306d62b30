"""Table of the commands: name, summary, group, module."""

from __future__ import annotations

COMMANDS: dict[str, str] = {
    "demo": "Watch a complete run with recorded agents, offline and free.",
    "init": "Write mz.yaml and a starter backlog.",
    "doctor": "Check that everything a run needs is installed.",
    "run": "Deliver the backlog, feature by feature.",
    "resume": "Continue a run.",
    "fork": "Start a new run from an event of a past run, with another agent, model or prompt.",
    "status": "Show a run: progress, cost and open questions.",
    "runs": "List the runs of this repository, the newest first.",
    "show": "Show one feature: its phases, attempts and results.",
    "log": "Print the event log, one line per event.",
    "diff": "Compare two runs.",
    "audit": "Report what a run did, with evidence.",
    "cost": "Show what the agents cost: estimated, reported, computed.",
    "calibrate": "Improve estimates from past calls.",
    "transcript": "Summarise an agent's output file.",
    "import": "Import agents' own session files.",
    "record": "Make a cassette of a past run, from its log alone.",
    "replay": "Replay recordings through the current pipeline, offline and free.",
    "drift": "Compare recordings with the current code, or with newer recordings.",
    "rerecord": "Re-record calls with the real agent and review the differences.",
    "recordings": "List and check the library of recordings.",
    "gate": "Check everything that needs no agent, offline and free.",
    "review": "List and answer open questions.",
    "retry": "Retry a failed, cancelled, waiting or held feature.",
    "pause": "Pause a run; its process stays alive.",
    "cancel": "Cancel features, or the rest of a run.",
    "clean": "Remove leftovers of ended runs, or unused files.",
    "completion": "Print a shell completion script.",
    "config": "Show and check the settings.",
    "schema": "Print a JSON Schema, for editors and for programs.",
    "pipelines": "List, show, check and create pipelines.",
    "help": "Explain a topic, a command, an error code or an exit code.",
}
"""Name and summary."""

FORMER_NAMES = {"explain": ("help", "codes"), "gc": ("clean", "--blobs"), "verify": ("audit", "--verify")}
"""Former names of commands, accepted for one more version and not shown, with what replaces them."""

SECTIONS = {
    "Begin": ("demo", "init", "doctor"),
    "Work": ("run", "resume", "pause", "cancel", "retry", "review", "fork"),
    "Look": ("status", "runs", "show", "log", "cost", "diff", "transcript", "import"),
    "Prove": ("record", "replay", "drift", "rerecord", "recordings", "gate", "audit"),
    "Adjust": ("pipelines", "config", "calibrate", "schema"),
    "Tidy": ("clean",),
    "Learn": ("help", "completion"),
}
"""Groups of all commands, as `mz help all` lists them."""
FIRST = ("demo", "init", "doctor", "run", "status", "review", "resume", "show", "log", "audit", "cost", "replay")
"""Commands that `mz --help` lists: what a run needs from its beginning to its pull requests."""

MODULES = {
    "demo": "mz_cli.start.demo",
    "init": "mz_cli.start.init",
    "doctor": "mz_cli.start.doctor",
    "run": "mz_cli.deliver.run",
    "resume": "mz_cli.deliver.resume",
    "fork": "mz_cli.deliver.fork",
    "status": "mz_cli.inspect.status",
    "runs": "mz_cli.inspect.runs",
    "show": "mz_cli.inspect.show",
    "log": "mz_cli.inspect.log",
    "diff": "mz_cli.inspect.diff",
    "audit": "mz_cli.audit.command",
    "cost": "mz_cli.cost.command",
    "calibrate": "mz_cli.cost.calibrate",
    "transcript": "mz_cli.usage.transcript",
    "import": "mz_cli.usage.import_",
    "record": "mz_cli.recordings.record",
    "replay": "mz_cli.replay.command",
    "drift": "mz_cli.check.drift_command",
    "rerecord": "mz_cli.recordings.rerecord",
    "recordings": "mz_cli.recordings.library",
    "gate": "mz_cli.check.command",
    "review": "mz_cli.review.command",
    "retry": "mz_cli.deliver.retry",
    "pause": "mz_cli.deliver.pause",
    "cancel": "mz_cli.deliver.cancel",
    "clean": "mz_cli.housekeeping.clean",
    "completion": "mz_cli.help.completion",
    "config": "mz_cli.project.config",
    "schema": "mz_cli.project.schema",
    "pipelines": "mz_cli.project.pipelines",
    "help": "mz_cli.help.help_",
}
"""Module of each command, which defines it under its own name (`help_` and `import_` where Python uses the name)."""

COMPLETION_VARIABLE = "_MZ_COMPLETE"
"""Environment variable with which a shell requests suggestions."""
