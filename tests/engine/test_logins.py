"""A login that an agent refreshed is written into the user's file, which other calls and processes use meanwhile."""

from __future__ import annotations

import fcntl
import io
import json
import os
import threading
from pathlib import Path
from typing import IO, cast

import pytest
from mz_engine.agents.process import take_login


def test_a_shorter_login_is_a_valid_object_before_the_end_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, login, read = tmp_path / "upper", tmp_path / "login.json", list[object]()
    folder.mkdir()
    login.write_text('{"token": "a long old one"}')
    os.utime(login, (1, 1))
    (folder / "login.json").write_text('{"token": "new"}')

    class Observed(io.FileIO):
        def truncate(self, size: int | None = None) -> int:
            read.append(json.loads(login.read_bytes()))
            return super().truncate(size)

    def opened(path: Path | int, mode: str, **options: int) -> IO[bytes]:
        return cast(IO[bytes], Observed(path, "r+") if mode == "r+b" else open(path, mode))

    monkeypatch.setattr("mz_engine.agents.process.open", opened, raising=False)
    take_login(folder, Path("login.json"), login, None)
    assert (read, login.read_text()) == ([{"token": "new"}], '{"token": "new"}')


def test_a_login_is_taken_once_no_other_process_takes_it(tmp_path: Path) -> None:
    folder, login = tmp_path / "upper", tmp_path / "login.json"
    folder.mkdir()
    login.write_text('{"token": "old"}')
    os.utime(login, (1, 1))
    (folder / "login.json").write_text('{"token": "new"}')
    taking = threading.Thread(target=take_login, args=(folder, Path("login.json"), login, None))
    with open(login) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        taking.start()
        taking.join(0.1)
        assert (taking.is_alive(), login.read_text()) == (True, '{"token": "old"}')
    taking.join()
    assert login.read_text() == '{"token": "new"}'
