"""The command as a user runs it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

JOURNAL = """\
# two months
2026-03-02  food      12.40  market
2026-03-05  travel    49.00  train to Lyon
2026-04-01  food       8.15
"""
REPORT = """\
food             20.55
travel           49.00
total            69.55
"""


def tally(*arguments: str, journal: str = JOURNAL) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one run over this journal."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "journal.txt").write_text(journal, "utf-8")
        command = [sys.executable, "-m", "tally", *arguments, str(Path(folder, "journal.txt"))]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout, ran.stderr.replace(folder, "")


class Command(unittest.TestCase):
    def test_the_whole_journal(self) -> None:
        self.assertEqual(tally(), (0, REPORT, ""))

    def test_a_bad_line_stops_the_report(self) -> None:
        code, out, error = tally(journal="2026-03-02 food 12,40\n")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("journal.txt:1: '12,40' is not an amount", error)
