"""The Java programs of `java/`, compiled and run against Apache Kafka's jars."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.apache_kafka import tool
from tests.support.requirements import need_program

SOURCES = Path(__file__).parent / "java"


def run_java(name: str, *arguments: str, folder: Path, timeout_s: float = 90.0) -> str:
    """What the program `java/NAME.java` prints; its classes go into `folder`. Skips without `javac`."""
    compile_java(name, folder, timeout_s=timeout_s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_CP", os.fspath(folder))
        return tool("class", name, *arguments, timeout_s=timeout_s)


def compile_java(name: str, folder: Path, *, timeout_s: float = 90.0) -> None:
    """Compile `java/NAME.java`, and what it needs of that folder, into `folder`. Skips without `javac`."""
    class_path = tool("classpath").strip()
    options = ["-cp", class_path, "-sourcepath", str(SOURCES), "-implicit:class", "-d", str(folder)]
    compile_it = [need_program("javac"), *options, str(SOURCES / f"{name}.java")]
    subprocess.run(compile_it, check=True, timeout=timeout_s)
