"""The house is tidy: tests check what a reader may rely on in every file, so that nobody has to watch for it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.house import (
    FLOORS,
    MESSAGES,
    Source,
    bound_by_assignment,
    circles,
    classes_of_one_name,
    files_on_two_floors,
    imports,
    names_on_two_floors,
    raised_and_kept,
    sources,
)

LINES = 800
UNTOLD_LINES = 8
"""A public function of at most this many lines needs no docstring: its name says what it does."""

SOURCES = sources(*FLOORS, "barnabas", "cli")

FUNCTION_LINES = 60
LONG_FUNCTIONS = {
    "barnabas.faults.fault": "all that can be said of a fault, by name",
    "broker.controller.cluster_control.register": "Kafka's checks of a registration, in their order",
    "broker.handlers.describe_topic_partitions._described": "one list that a cursor cuts, topic for topic",
    "broker.handlers.fetch.handle": "a Fetch, step for step",
    "broker.handlers.produce.handle": "a Produce, step for step",
    "broker.network.connection._serve": "each request: a call more costs each",
    "broker.replicas.fetching._read": "each partition of a Fetch: the checks in their order",
    "protocol.records.checks.validate": "each batch: Kafka's checks, in their order",
    "protocol.records.checks.go_on": "each record: a call more costs each",
    "storage.log.partition_log.append": "each batch: the steps of appending, in their order",
    "storage.log.recovery._open": "what a start finds of a log, one after the other",
}
"""Functions that may be longer, and the reason."""

VERBS = {"apply", "decode", "encode", "validate"}
"""Functions that callers always name with their module: `producer_snapshot.encode`."""

SAID_WITH_THEIR_FOLDER = {
    "__init__": "Python's",
}
"""File names that may be on two floors."""


def places(found: list[Source]) -> list[str]:
    return [source.place for source in found]


def test_no_file_is_longer_than_can_be_read_at_once() -> None:
    long = {source.place for source in SOURCES + sources("tests") if source.text.count("\n") > LINES}
    assert long == set()


def test_no_function_is_longer_than_can_be_seen_at_once() -> None:
    long = {
        f"{source.name}.{node.name}"
        for source in SOURCES
        for node in source.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
    }
    assert long == LONG_FUNCTIONS.keys()


def test_every_file_has_a_docstring() -> None:
    assert places([each for each in SOURCES if each.text.strip() and not ast.get_docstring(each.tree)]) == []


def test_every_public_class_and_every_longer_function_has_a_docstring() -> None:
    untold = {
        f"{source.name}.{name}"
        for source in SOURCES
        if not source.name.startswith(MESSAGES)
        for name, node in source.public()
        if not ast.get_docstring(node)
        and (isinstance(node, ast.ClassDef) or (node.end_lineno or 0) - node.lineno > UNTOLD_LINES)
        # the file's docstring says it
        and not (source.name.startswith("broker.handlers.") and name == "handle")
    }
    assert untold == set()


def test_no_two_things_on_different_floors_have_one_name() -> None:
    """This holds for classes, functions, constants and aliases. A name that callers say with its module may occur
    twice, if it is in `VERBS`. If two things are the same, there is one of them, on the lower floor."""
    assert names_on_two_floors().keys() == VERBS


def test_no_two_classes_have_one_name() -> None:
    assert classes_of_one_name() == {}


def test_no_two_files_on_different_floors_have_one_name() -> None:
    assert files_on_two_floors().keys() == SAID_WITH_THEIR_FOLDER.keys()


def test_a_modules_public_names_are_those_that_others_may_import(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "import logging\n"
        "from typing import TYPE_CHECKING, TypeVar\n"
        "log = logging.getLogger('it')\n"
        "T = TypeVar('T')\n"
        "A = B = 1\n"
        "C, (D, _E) = 1, (2, 3)\n"
        "F: int = 4\n"
        "_G = 5\n"
        "if TYPE_CHECKING:\n"
        "    H = dict[str, T]\n"
        "class I:\n"
        "    j = 1\n"
        "async def k(): pass\n"
    )
    assert [*Source(file).names()] == ["A", "B", "C", "D", "F", "H", "I", "k"]


def test_no_method_is_bound_by_assignment() -> None:
    """A reader who searches for a method finds a `def`."""
    bound = {source.place for source in SOURCES if [*bound_by_assignment(source)]}
    assert bound == set()


def test_no_exception_stays_in_the_frame_that_raised_it() -> None:
    kept = {name for source in sources(*FLOORS) for name in raised_and_kept(source)}
    assert kept == set()


@pytest.mark.parametrize("folder", [*FLOORS, "barnabas"])
def test_files_import_in_one_direction(folder: str) -> None:
    """This holds for imports of types, too."""
    in_circles = {name for circle in circles(imports(sources(folder))) for name in circle}
    assert in_circles == set()
