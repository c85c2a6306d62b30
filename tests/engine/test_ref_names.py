"""Names of branches and tags from templates."""

from __future__ import annotations

import pytest
from mz_engine.ref_names import fill, name_values, parse_ref_name
from mz_events.names import InvalidName


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Add a Login!", "add-a-login"),
        ("../../etc/passwd\n~^:", "etc-passwd"),
        ("v1..2.lock", "v1-2-lock"),
        ("\u65e5" * 300, "\u65e5" * 50),
        ("--", "f1"),
    ],
)
def test_a_title_becomes_a_part_of_a_name_that_git_takes(title: str, name: str) -> None:
    filled = fill("{title}/{date}", name_values("r1", "f1", title, "", 0))
    assert filled == f"{name}/1970-01-01"
    assert parse_ref_name(filled) == filled


@pytest.mark.parametrize("template", ["", "a b", "a\nb", "-x", "a..b", "a.lock", "{item}~1", "a/.b"])
def test_what_git_refuses_is_no_template(template: str) -> None:
    with pytest.raises(InvalidName):
        parse_ref_name(template)
