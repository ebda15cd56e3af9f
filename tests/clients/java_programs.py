"""The Java programs of `java/`, compiled and run against Apache Kafka's jars."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.apache_kafka import tool
from tests.support.requirements import need_program

SOURCES = Path(__file__).parent / "java"
COMPILE_TIMEOUT_S = 90.0


def run_java(name: str, *arguments: str, timeout_s: float = 90.0) -> str:
    """What the program `java/NAME.java` prints. Skips without `javac`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_CP", os.fspath(java_classes()))
        return tool("class", name, *arguments, timeout_s=timeout_s)


@functools.cache
def java_classes() -> Path:
    """The folder with all programs, compiled. It lies beside Kafka's jars for as long as the sources are these.

    Skips without `javac`.
    """
    javac = need_program("javac")
    class_path = tool("classpath").strip()
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    jars = Path(class_path).parent
    classes = jars / f"programs-{digest[:16]}"
    if not classes.exists():
        # Into a folder of its own first: of two workers that compile at once, one comes too late.
        with tempfile.TemporaryDirectory(dir=jars, prefix=".programs-") as folder:
            compile_it = [javac, "-cp", class_path, "-d", f"{folder}/classes", *map(str, sources)]
            subprocess.run(compile_it, check=True, timeout=COMPILE_TIMEOUT_S)
            with contextlib.suppress(OSError):
                os.rename(f"{folder}/classes", classes)
    return classes
