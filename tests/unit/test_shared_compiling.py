"""The workers of a run share the work of rewriting its tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import shared_compiling

FILES = [Path(f"test_{number}.py") for number in range(7)]


@pytest.mark.parametrize("workers", [2, 3, 9])
def test_each_worker_begins_at_another_place_and_comes_to_every_file(workers: int) -> None:
    orders = [shared_compiling.beginning_at(FILES, worker, workers) for worker in range(workers)]
    assert all(sorted(order) == FILES for order in orders)
    assert len({order[0] for order in orders}) == min(workers, len(FILES))


def test_a_file_that_can_not_be_imported_is_left_to_the_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "some_shared_tests"
    folder.mkdir()
    texts = {
        "test_broken": "import nothing_of_this_name",
        "test_left_out": "import pytest; pytest.skip('not here', allow_module_level=True)",
        "test_warning": "import warnings; warnings.warn('at the import', DeprecationWarning)",
        "test_good": "",
    }
    files = [folder / f"{name}.py" for name in texts]
    for file, text in zip(files, texts.values(), strict=True):
        file.write_text(text)
    shared_compiling.import_files(files, tmp_path)
    imported = [name for name in list(sys.modules) if name.startswith("some_shared_tests.")]
    for name in imported:
        monkeypatch.delitem(sys.modules, name)
    assert imported == ["some_shared_tests.test_good"]


def test_a_run_says_how_far_its_workers_are_with_collecting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    said: list[str] = []
    files = [tmp_path / f"test_{number}.py" for number in range(3)]
    collecting = shared_compiling.Collecting(files, 2, said.append)
    collecting.begin()
    cache = tmp_path / "__pycache__"
    cache.mkdir()
    (cache / f"test_1.{sys.implementation.cache_tag}-pytest-8.4.2.pyc").touch()
    (cache / f"test_2.{sys.implementation.cache_tag}.pyc").touch()  # Python itself imported and compiled this
    collecting.collected()
    collecting.tell()
    collecting.collected()
    assert collecting._over.is_set()
    assert said[0] == "2 workers collect 3 files of tests"
    assert said[-1].endswith(" s: 1 of 3 files are compiled, 1 of 2 workers have collected their tests")
