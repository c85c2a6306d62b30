"""The command: `python3 -m tally JOURNAL`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import journal, report


def main(arguments: list[str]) -> int:
    """Writes the report and returns 0; a journal that cannot be read is named on stderr, and 1 is returned."""
    options = parser().parse_args(arguments)
    try:
        lines = Path(options.journal).read_text("utf-8").splitlines()
        entries = list(journal.read(lines, options.journal))
    except (OSError, journal.BadLine) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(report.render(report.totals(entries)))
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="tally", description="Adds up what was spent.")
    made.add_argument("journal", help="a text file with one entry a line")
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
