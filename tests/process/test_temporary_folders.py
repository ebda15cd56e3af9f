"""A test's folder stays until everything that used it has ended. The folder of a failed test is kept."""

from __future__ import annotations

import pytest

TESTS = """
import pytest

folders = []

@pytest.fixture(autouse=True)
def ends_after_all_others():
    yield
    assert all(folder.is_dir() for folder in folders[-1:])

@pytest.mark.parametrize("passes", [True, False])
def test_one(tmp_path, passes):
    folders.append(tmp_path)
    assert passes

def test_what_is_left():
    assert [folder.is_dir() for folder in folders] == [False, True]
"""


@pytest.fixture
def of_one_process(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setattr("tempfile.tempdir", None)
    pytester.makepyfile(TESTS)
    return pytester


def test_a_passed_tests_folder_goes_when_its_fixtures_have_ended(of_one_process: pytest.Pytester) -> None:
    without = ("-p", "no:randomly", "-p", "no:asyncio")
    outcome = of_one_process.runpytest("-p", "tests.support.temporary_folders", *without)
    outcome.assert_outcomes(passed=2, failed=1)
