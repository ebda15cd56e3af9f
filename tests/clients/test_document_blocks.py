"""README and docs/: blocks to copy are run unchanged, except for the port, or name the test that checks them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from tests.clients.test_security_document import PLUGIN, environment
from tests.support.apache_kafka import tool
from tests.support.document_blocks import ROOT, Block, blocks
from tests.support.requirements import need_apache_kafka, need_program

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka")

BLOCKS = list(blocks())
RUN = [block for block in BLOCKS if block.held == "run"]
PATIENCE_S = 120.0


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_each_block_names_its_check(block: Block) -> None:
    """An example is worth as much as the test that would notice that it broke."""
    kind = re.fullmatch(r"run|held by (?P<by>\S+)|not run: (?P<why>.+)", block.held)
    assert kind, f"{block.place}: say above it whether it runs: {block.text}"
    if kind["by"]:
        assert (ROOT / kind["by"]).exists()
    for path in re.findall(r"\btests/[\w/]+(?:\.py)?", kind["why"] or ""):
        assert (ROOT / path).exists()


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if each.language == "sh"], ids=lambda block: block.place
)
def test_each_option_of_barnabas_in_a_block_exists(block: Block) -> None:
    for line in re.sub(r"\\\n", " ", block.text).splitlines():
        for command in re.findall(r"(?:^|\| |; )(barnabas\b[^|;#]*)", line):
            words = shlex.split(command)
            named = words[1] if len(words) > 1 and words[1].isalpha() else ""
            told = help_of(named)
            for option in (word.partition("=")[0] for word in words if word.startswith("--")):
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", told), f"{block.place}: {option}"


_helps: dict[str, str] = {}


def help_of(command: str) -> str:
    """The help texts of a command and its subcommands."""
    if command not in _helps:
        words = [
            sys.executable,
            "-P",
            str(ROOT / "barnabas" / "launcher.py"),
            *([command] if command else []),
        ]
        told = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True).stdout
        for below in re.findall(r"^    (\w+)  ", told, re.MULTILINE) if command else ():
            done = subprocess.run([*words, below, "--help"], capture_output=True, text=True, check=False)
            told += done.stdout
        _helps[command] = told
    return _helps[command]


@pytest.fixture
def on_the_path(tmp_path: Path) -> dict[str, str]:
    """An environment in which `barnabas` is the checkout's."""
    command = tmp_path / "bin" / "barnabas"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P {ROOT}/barnabas/launcher.py "$@"\n')
    command.chmod(0o755)
    return {**environment(), "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}


def run(*command: str | Path, folder: Path, environ: dict[str, str]) -> str:
    words = [str(word) for word in command]
    ended = subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.place)
def test_the_block_does_what_the_document_says(
    block: Block, tmp_path: Path, on_the_path: dict[str, str], fresh_kafka_broker: barnabas.Broker
) -> None:
    text = block.text.replace("localhost:9092", fresh_kafka_broker.bootstrap)
    environ = {**on_the_path, "BARNABAS_BOOTSTRAP": fresh_kafka_broker.bootstrap}
    if block.language == "sh":
        for program in {"kcat"} & {*text.split()}:
            need_program(program)
        printed = run("bash", "-euo", "pipefail", "-c", text, folder=tmp_path, environ=environ)
        assert "hello" in printed or "echo" not in text
    elif block.language == "python":
        file = tmp_path / "test_it.py"
        file.write_text(text)
        as_tests = ("-m", "pytest", "-q", *PLUGIN) if "def test_" in text else ()
        run(sys.executable, *as_tests, file, folder=tmp_path, environ=environ)
    else:
        assert block.language == "java"
        need_apache_kafka()
        need_program("javac")  # which runs a file of source, too
        (tmp_path / "Hello.java").write_text(text)
        command = ("java", "-cp", tool("classpath").strip(), "Hello.java")
        assert "greetings hello\n" in run(*command, folder=tmp_path, environ=environ)
