"""Pure: what several commands share, page by page: `mz help TOPIC` prints them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from textwrap import wrap

WIDTH = 88
INDENT = 2

VARIABLES = {
    "NO_COLOR": "Set to anything: no escape sequence is written, on any stream.",
    "FORCE_COLOR, CLICOLOR_FORCE": "Anything but 0: colours into pipes too. NO_COLOR wins over them.",
    "TERM": "dumb: no escape sequence, and no live picture of a run.",
    "COLUMNS": "How wide help is written; tables ask the terminal.",
    "MZ_NO_PROGRESS": "Set to anything: a run prints a line for each change, and no live picture.",
    "MZ_USER": "Who you are in answers and cancellations; otherwise git's user, otherwise your login.",
    "VISUAL, EDITOR": "What is opened where a text is asked for.",
    "MZ_DATA": "Where your own log lies, with imported sessions; otherwise the platform's directory for data.",
    "GEMINI_CLI_HOME": "Where Gemini CLI keeps its login and its sessions; looked into for them, and passed on.",
    "CODEX_HOME": "Where Codex keeps its login and its sessions; looked into for them, and passed on.",
    "CI": "Set to anything: nobody is asked.",
    "CLAUDE_CONFIG_DIR": "Where Claude Code keeps its login and its sessions; looked into for them, and passed on.",
    "MZ_KEY": "Set by mz, for agents and commands: the key of the call. Processes are found by it; leave it alone.",
}

ENVIRONMENT = (
    "Variables that mz reads. A flag wins over a variable, a variable over mz.yaml, that over the default; "
    "`mz config show --origin` says where each value comes from. An empty variable is none."
)

SEEN = "Agents and commands see no other variables than these, and those that `pass_environment` in mz.yaml names:"
INHERITED = (
    "PATH HOME USER LOGNAME SHELL TERM TZ TMPDIR LANG LANGUAGE LC_* LD_LIBRARY_PATH XDG_CONFIG_HOME XDG_DATA_HOME "
    "XDG_CACHE_HOME XDG_STATE_HOME XDG_RUNTIME_DIR HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy "
    "all_proxy no_proxy SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE CURL_CA_BUNDLE VIRTUAL_ENV "
    "JAVA_HOME GOPATH GOROOT CARGO_HOME RUSTUP_HOME NVM_DIR PYENV_ROOT"
)

FORMATTING = {
    "Streams": "The answer goes to stdout; progress, warnings, questions and hints go to stderr.",
    "Terminals": "Tables are fitted to the terminal; long cells are cut. Escape sequences of agents and of files are "
    "taken out.",
    "Pipes": "One line a row, its cells separated by tabs, the names of the columns first; nothing is cut, sizes are "
    "bytes, times are UTC. Columns may be added at the end.",
    "JSON": "--json prints one object, indented, that begins with its schema, such as mz.status/1. `mz log --json` "
    "prints JSON Lines, the first of which names the schema. Unknown is null, never 0. Money is a decimal string of "
    "US dollars, times are ISO 8601 in UTC, commits are whole.",
    "Errors": "With --json an error is one object on stderr, schema mz.error/1: code, message, hint, where, exit.",
    "Colours": "--color auto|always|never wins over NO_COLOR, that over FORCE_COLOR, that over what the terminal "
    "can. Nothing is told by colour alone.",
    "Questions": "Asked only where stdin and stderr are terminals; otherwise the command says which option answers.",
}


def exit_codes() -> str:
    from mz_engine.exits import MEANINGS, WORST_FIRST

    order = ", ".join(str(code.value) for code in WORST_FIRST if code)
    rows = {str(code.value): words for code, words in MEANINGS.items()}
    return "\n\n".join((
        paragraph("What the exit status of mz says. The codes are stable: scripts may rely on them."),
        table(rows),
        paragraph(f"When several apply, the first of these wins: {order}."),
        paragraph("`mz explain 21` says more about one, `mz explain MZ2005` about an error."),
    ))  # fmt: skip


def environment() -> str:
    from mz_engine.agents import anthropic_api, codex
    from mz_engine.agents.claude_code import PASSED, SETTINGS
    from mz_engine.configure import settings

    names = {each.variable: f"The setting `{each.name}`." for each in settings() if each.scalar}
    return "\n\n".join((
        paragraph(ENVIRONMENT),
        table({**VARIABLES, **names}),
        paragraph(SEEN),
        table({
            "all": f"{INHERITED}; and MZ_KEY, which mz sets.",
            "anthropic": f"{' '.join(anthropic_api.PASSED)}.",
            "claude-code": f"{' '.join(PASSED)}; and {' '.join(SETTINGS)}, which mz sets.",
            "codex": f"{' '.join(codex.PASSED)}.",
        }),
    ))  # fmt: skip


def formatting() -> str:
    return table(FORMATTING)


TOPICS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "exit-codes": ("What the exit status says.", exit_codes),
    "environment": ("Which variables mz reads, and which agents see.", environment),
    "formatting": ("What goes to stdout and stderr, in which form.", formatting),
}
"""Name, summary, text."""


def paragraph(text: str) -> str:
    return "\n".join(wrap(text, WIDTH, break_on_hyphens=False, break_long_words=False))


def table(rows: Mapping[str, str]) -> str:
    """Words on the left, what they mean beside them; long words have a line of their own."""
    room = max((len(each) for each in rows if len(each) <= WIDTH // 3), default=0)
    lines = []
    for name, words in rows.items():
        told = wrap(words, WIDTH - INDENT - room - 2, break_on_hyphens=False, break_long_words=False)
        head = f"{' ' * INDENT}{name:<{room}}"
        if len(name) > room:
            lines.append(head)
            head = " " * (INDENT + room)
        lines.append(f"{head}  {told[0]}")
        lines += [f"{' ' * (INDENT + room)}  {each}" for each in told[1:]]
    return "\n".join(lines)
