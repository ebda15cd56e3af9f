"""Where tests have their temporary folders, and for how long."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.support.temporary_folders import keep_in_memory, make_folder, room_bytes


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/else/where")
    monkeypatch.delenv("TMPDIR", raising=False)


def test_temporary_folders_go_where_there_is_room(tmp_path: Path) -> None:
    keep_in_memory(str(tmp_path), needed_bytes=room_bytes(str(tmp_path)) // 2)
    assert tempfile.gettempdir() == str(tmp_path)


def test_temporary_folders_stay_where_they_are_if_there_is_too_little_room(tmp_path: Path) -> None:
    keep_in_memory(str(tmp_path), needed_bytes=1 << 62)
    assert tempfile.gettempdir() == "/else/where"


def test_a_machine_without_such_a_file_system_has_no_room_there(tmp_path: Path) -> None:
    assert room_bytes(str(tmp_path / "none")) == 0


def test_a_place_that_was_named_is_heeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/named")
    keep_in_memory(str(tmp_path), needed_bytes=0)
    assert tempfile.gettempdir() == "/else/where"


def test_no_two_tests_have_a_folder_of_one_name(tmp_path: Path) -> None:
    first = make_folder(tmp_path, "test_a[b/c]")
    first.rmdir()
    assert make_folder(tmp_path, "test_a[b/c]") != first
