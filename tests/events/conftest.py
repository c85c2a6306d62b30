"""Assertions of the conformance kit explain themselves like those of the tests."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.events.conformance")
