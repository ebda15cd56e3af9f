"""Which of the slow tests a run draws."""

from __future__ import annotations

import pytest

MODULE = """
import pytest

@pytest.mark.one_run_in(3)
@pytest.mark.parametrize("number", range(7))
def test_long(number): ...

def test_short(): ...
"""
PLUGINS = ("-p", "tests.support.drawn", "-p", "no:asyncio", "-p", "no:cacheprovider", "-v")


def drawn(pytester: pytest.Pytester, *options: str) -> list[str]:
    result = pytester.runpytest_inprocess(*PLUGINS, *options)
    return sorted(
        line.split()[0].partition("::")[2] for line in result.outlines if " PASSED" in line and "::" in line
    )


def test_a_run_plays_a_fraction_drawn_by_its_seed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MODULE)
    runs = [drawn(pytester, f"--randomly-seed={seed}") for seed in (1, 1, *range(2, 9))]
    assert all(len(run) == 4 and "test_short" in run for run in runs)
    assert runs[0] == runs[1]
    assert {name for run in runs for name in run} == {"test_short", *(f"test_long[{n}]" for n in range(7))}


@pytest.mark.parametrize("options", [("-k", "long or short"), ()])
def test_all_are_played_if_asked_for(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(MODULE)
    if not options:
        monkeypatch.setattr("tests.support.drawn.EVERY_ONE", True)
    assert len(drawn(pytester, *options)) == 8
