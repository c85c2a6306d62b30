"""Amounts: text to cents and back."""

from __future__ import annotations

import unittest

from tally import money


class Read(unittest.TestCase):
    def test_amounts(self) -> None:
        self.assertEqual(money.read("12.40"), 1240)
        self.assertEqual(money.read("-0.05"), -5)

    def test_what_is_no_amount_is_refused(self) -> None:
        for text in ("", "12", "12,40", "12.4", "1.234", "twelve"):
            with self.subTest(text), self.assertRaisesRegex(ValueError, "is not an amount"):
                money.read(text)


class Show(unittest.TestCase):
    def test_two_decimals(self) -> None:
        self.assertEqual(money.show(1240), "12.40")
        self.assertEqual(money.show(5), "0.05")
        self.assertEqual(money.show(-5), "-0.05")

    def test_what_is_shown_can_be_read_again(self) -> None:
        for cents in (0, 1, -1, 99999, -99999, 123456, 123456789):
            with self.subTest(cents):
                self.assertEqual(money.read(money.show(cents)), cents)
