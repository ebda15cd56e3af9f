"""From a table or a named fault to its test: `grep` for the mark, or for the name of the operation."""

from __future__ import annotations

import ast

from storage.files import OPERATIONS
from tests.support.house import Source, sources

TABLES = sources("coordinator", "broker/network")
TESTS = sources("tests/unit", "tests/simulation", "tests/crash", "tests/property")


def tables(source: Source) -> set[str]:
    """The public tables of a file of states: dicts in capitals."""
    found = set()
    for node in source.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict | ast.DictComp):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_"):
                found.add(f"{source.name}.{target.id}")
    return found


def marked() -> set[str]:
    """What the marks `table` of all tests name."""
    return {
        node.args[0].value
        for source in TESTS
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.table"
        for _ in node.args[:1]
        if isinstance(node.args[0], ast.Constant)
    }


def test_every_table_of_states_has_a_test_that_bears_its_name() -> None:
    there = {name for source in TABLES if source.path.stem.endswith("states") for name in tables(source)}
    assert there
    assert marked() == there


def test_every_operation_on_files_is_named_by_a_test() -> None:
    named = {
        node.value
        for source in TESTS
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and source.path.name != "test_marks.py"
    }
    assert set(OPERATIONS) <= named
