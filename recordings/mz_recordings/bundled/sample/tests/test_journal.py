"""The journal: lines to entries."""

from __future__ import annotations

import unittest
from datetime import date

from tally import journal
from tally.journal import Entry


class Read(unittest.TestCase):
    def test_entries_in_their_order(self) -> None:
        lines = ["2026-03-02  food  12.40  market", "2026-03-05  travel  49.00"]
        expected = [Entry(date(2026, 3, 2), "food", 1240, "market"), Entry(date(2026, 3, 5), "travel", 4900)]
        self.assertEqual(list(journal.read(lines)), expected)

    def test_blank_lines_and_comments_are_skipped(self) -> None:
        self.assertEqual(list(journal.read(["", "   ", "# a comment"])), [])

    def test_a_note_may_have_several_words(self) -> None:
        [entry] = journal.read(["2026-03-05 travel 49.00 train to Lyon"])
        self.assertEqual(entry.note, "train to Lyon")

    def test_a_bad_line_is_named(self) -> None:
        for line, why in (
            ("2026-03-02 food", "is not an entry"),
            ("2026-02-30 food 1.00", "is not a day"),
            ("2026-03-02 food 12,40", "is not an amount"),
        ):
            with self.subTest(line), self.assertRaisesRegex(journal.BadLine, f"^j.txt:2: .*{why}"):
                list(journal.read(["", line], "j.txt"))
