"""Totals by category, and how they are shown."""

from __future__ import annotations

import unittest
from datetime import date

from tally import report
from tally.journal import Entry

DAY = date(2026, 3, 2)
REPORT = """\
food             20.55
travel           49.00
total            69.55
"""


class Totals(unittest.TestCase):
    def test_categories_are_added_up_in_alphabetical_order(self) -> None:
        entries = [Entry(DAY, "travel", 4900), Entry(DAY, "food", 1240), Entry(DAY, "food", 815)]
        self.assertEqual(list(report.totals(entries).items()), [("food", 2055), ("travel", 4900)])

    def test_nothing_was_spent(self) -> None:
        self.assertEqual(report.totals([]), {})


class Render(unittest.TestCase):
    def test_amounts_stand_below_each_other(self) -> None:
        self.assertEqual(report.render({"food": 2055, "travel": 4900}), REPORT)

    def test_an_empty_report_has_a_total(self) -> None:
        self.assertEqual(report.render({}), "total             0.00\n")
