"""A function that `barnabas.prove` runs is a program like any command: a process of its own, which can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.proving.program import Program, check, started


def says_what_it_finds(bootstrap: str) -> None:
    print(
        f"{bootstrap} {os.environ['BARNABAS_BOOTSTRAP']} {os.environ['BARNABAS_FOLDER']} {os.environ['OWN']}"
    )
    print("and more", file=sys.stderr)


def fails(bootstrap: str) -> None:
    raise RuntimeError("no more orders")


def ends_with(status: int, bootstrap: str) -> None:
    sys.exit(status)


def never_ends(bootstrap: str) -> None:
    """It has a child that doesn't end either. Both hold the pipe open."""
    with open(Path(os.environ["BARNABAS_FOLDER"], "pipe"), "w", buffering=1) as pipe:
        pipe.write("runs\n")
        subprocess.run(["sleep", "600"], pass_fds=[pipe.fileno()], check=False)


def over(program: Program) -> tuple[int | None, str]:
    """Wait for its end. Return its status and what it printed."""
    made: Any = program
    made._process.join(60)
    status = program.status
    return status, program.ended()


def test_it_gets_the_address_and_all_variables(tmp_path: Path) -> None:
    program = started(says_what_it_finds, "broker:9092", str(tmp_path), {"OWN": "mine"})
    status, printed = over(program)
    assert status == 0
    assert sorted(printed.splitlines()) == ["and more", f"broker:9092 broker:9092 {tmp_path} mine"]


def test_what_it_raises_is_its_status_and_in_its_output(tmp_path: Path) -> None:
    status, printed = over(started(fails, "", str(tmp_path), {}))
    assert status == 1
    assert "RuntimeError: no more orders" in printed
    assert over(started(partial(ends_with, 3), "", str(tmp_path), {})) == (3, "")


def test_it_is_killed_with_its_children(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = started(never_ends, "", str(tmp_path), {})
    with pipe.open() as writers:
        assert writers.readline() == "runs\n"
        assert program.status is None
        program.ended()
        assert writers.read() == ""  # nobody has it open for writing any more
    assert program.status == -9


def test_a_function_that_nobody_else_can_import_is_refused_in_one_line() -> None:
    def inside(bootstrap: str) -> None:
        """It isn't at the top level."""

    for function in (inside, lambda bootstrap: None):
        with pytest.raises(
            ValueError, match=r"^no other process can import <function .*: define it at"
        ) as error:
            barnabas.prove(function, outputs=["bills"])
        assert "\n" not in str(error.value)


def test_a_function_of_a_script_without_a_file_is_refused() -> None:
    code = "def f(bootstrap): pass\nimport barnabas\nbarnabas.prove(f, outputs=['bills'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ValueError: no other process can import <function f")


def test_a_function_of_a_script_is_imported_from_there(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from barnabas.proving.program import check, started\n"
        "def run(bootstrap): print('ran at', bootstrap)\n"
        "if __name__ == '__main__':\n"
        "    check(run)\n"
        "    program = started(run, 'broker:9092', '', {})\n"
        "    program._process.join()\n"
        "    print(program.ended(), end='')\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, str(script)], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "ran at broker:9092\n"


def test_one_program_is_proved_at_a_time() -> None:
    for given in ({}, {"run": ["true"], "command": ["true"]}):
        with pytest.raises(TypeError, match="prove takes one program"):
            barnabas.prove(**given, outputs=["bills"])
    check(["true"])
