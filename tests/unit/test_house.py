"""The house is tidy: what a reader may rely on in every file, held by a test instead of by attention."""

from __future__ import annotations

import ast

import pytest

from tests.support.house import (
    FLOORS,
    MESSAGES,
    Source,
    bound_by_assignment,
    circles,
    imports,
    names_on_two_floors,
    sources,
)

LINES = 400
UNTOLD_LINES = 8
"""A public function of so many lines tells what it does by its name alone."""

SOURCES = sources(*FLOORS, "barnabas")

VERBS = {"apply", "decode", "encode", "validate"}
"""Functions that are named with their module wherever they are called: `producer_snapshot.encode`."""


def places(found: list[Source]) -> list[str]:
    return [source.place for source in found]


def test_no_file_is_longer_than_can_be_read_at_once() -> None:
    long = {source.place for source in SOURCES + sources("tests") if source.text.count("\n") > LINES}
    assert long == set()


def test_every_file_says_what_it_is_for() -> None:
    assert places([each for each in SOURCES if each.text.strip() and not ast.get_docstring(each.tree)]) == []


def test_every_public_class_and_every_longer_function_says_what_it_does() -> None:
    untold = {
        f"{source.name}.{name}"
        for source in SOURCES
        if not source.name.startswith(MESSAGES)
        for name, node in source.public()
        if not ast.get_docstring(node)
        and (isinstance(node, ast.ClassDef) or (node.end_lineno or 0) - node.lineno > UNTOLD_LINES)
        and not (source.name.startswith("broker.handlers.") and name == "handle")  # the file says it
    }
    assert untold == set()


def test_no_two_things_on_different_floors_have_one_name() -> None:
    """A name that is said with its module may be there twice, and then it is in the list of those."""
    assert names_on_two_floors().keys() == VERBS


def test_no_method_is_bound_by_assignment() -> None:
    """A reader who asks for the uses of a method finds a `def`."""
    bound = {source.place for source in SOURCES if [*bound_by_assignment(source)]}
    assert bound == set()


@pytest.mark.parametrize("folder", [*FLOORS, "barnabas"])
def test_files_import_in_one_direction(folder: str) -> None:
    """For types, too."""
    in_circles = {name for circle in circles(imports(sources(folder))) for name in circle}
    assert in_circles == set()
