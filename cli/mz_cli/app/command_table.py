"""Table of the commands: name, summary, group, module."""

from __future__ import annotations

_TABLE: dict[str, dict[str, tuple[str, str]]] = {
    "Begin": {
        "demo": ("start.demo", "Watch a complete run with recorded agents, offline and free."),
        "init": ("start.init", "Write mz.yaml and a starter backlog."),
        "doctor": ("start.doctor", "Check that everything a run needs is installed."),
    },
    "Work": {
        "run": ("deliver.run", "Deliver the backlog, feature by feature."),
        "resume": ("deliver.run", "Continue a run."),
        "finish": ("deliver.run", "End a run whose pipeline has an end that people decide on."),
        "pause": ("deliver.messages", "Pause a run; its process stays alive."),
        "cancel": ("deliver.messages", "Cancel features, or the rest of a run."),
        "retry": ("deliver.messages", "Retry a failed, cancelled, waiting or held feature."),
        "revise": ("deliver.messages", "Take delivered work up again, on its branch."),
        "review": ("review.command", "List and answer open questions."),
        "fork": ("deliver.run", "Start a new run from an event of a past run, with something changed."),
    },
    "Look": {
        "status": ("inspect.status", "Show a run: progress, cost and open questions."),
        "runs": ("inspect.status", "List the runs of this repository, the newest first."),
        "show": ("inspect.show", "Show one feature: its phases, attempts and results."),
        "log": ("inspect.log", "Print the event log, one line per event."),
        "cost": ("cost.command", "Show what the agents cost: estimated, reported, computed."),
        "memory": ("project.memory", "Show what earlier work taught, and decide about it."),
        "health": ("assess.metrics", "Show what is wrong now."),
        "metrics": ("assess.metrics", "Show what goes wrong most, over the last 50 features."),
        "rewards": ("assess.rewards", "Show how well each feature of a run went, and why."),
        "diff": ("inspect.diff", "Compare two runs."),
        "compare": ("inspect.compare", "Run two versions of the code on the same cases, and compare what they do."),
        "stats": ("inspect.stats", "Count lines of code and tests, and words of prose."),
        "transcript": ("usage.transcript", "Summarise an agent's output file."),
        "import": ("usage.import_", "Import agents' own session files."),
        "export": ("export.command", "Write a run as files of another system."),
    },
    "Prove": {
        "record": ("recordings.record", "Make a cassette of a past run, from its log alone."),
        "replay": ("replay.command", "Replay recordings through the current pipeline, offline and free."),
        "drift": ("check.drift", "Compare recordings with the current code, or with newer recordings."),
        "rerecord": ("recordings.rerecord", "Re-record calls with the real agent and review the differences."),
        "recordings": ("recordings.library", "List and check the library of recordings."),
        "check": ("check.command", "Check everything that needs no agent, offline and free."),
        "audit": ("audit.command", "Report what a run did, with evidence."),
        "seal": ("audit.command", "Print a seal of the log: the end of every stream, and one root over all."),
    },
    "Adjust": {
        "pipelines": ("project.pipelines", "List, show, check and create pipelines."),
        "cards": ("project.cards", "List, check and choose cards of roles."),
        "skills": ("project.skills", "List, install and check skills."),
        "routing": ("assess.routing", "Show which agent and tier do each phase, and why."),
        "config": ("project.config", "Show and check the settings."),
        "calibrate": ("cost.calibrate", "Improve estimates from past calls."),
        "schema": ("project.schema", "Print a JSON Schema, for editors and for programs."),
    },
    "Tidy": {
        "clean": ("housekeeping.clean", "Remove leftovers of ended runs, or unused files."),
        "erase": ("housekeeping.clean", "Erase a text that the log cites, and record that."),
    },
    "Learn": {
        "help": ("help.help_", "Explain a topic, a command, an error code, an exit code or a problem."),
        "completion": ("help.help_", "Print a shell completion script."),
    },
}
"""Section -> command -> module and summary. The module defines the command under its own name (`help_` and `import_`
where Python uses the name)."""

COMMANDS = {name: summary for section in _TABLE.values() for name, (_, summary) in section.items()}
MODULES = {name: f"mz_cli.{module}" for section in _TABLE.values() for name, (module, _) in section.items()}
SECTIONS = {title: tuple(section) for title, section in _TABLE.items()}
"""Groups of all commands, as `mz help all` lists them."""

SHORT_FORMS = {"verify": ("audit", "--verify")}
"""Commands that are not shown, with what they stand for."""

FIRST = ("demo", "init", "doctor", "run", "status", "review", "resume", "show", "log", "audit", "cost", "replay")
"""Commands that `mz --help` lists: what a run needs from its beginning to its pull requests."""

COMPLETION_VARIABLE = "_MZ_COMPLETE"
"""Environment variable with which a shell requests suggestions."""
