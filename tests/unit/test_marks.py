"""Each table, limit and fault leads to its test: `grep` for the mark with its name."""

from __future__ import annotations

import ast
import re
from functools import cache

from storage.files import OPERATIONS
from tests.support.house import FLOORS, MESSAGES, ROOT, Source, sources

ROOMS = [source for source in sources(*FLOORS) if not source.name.startswith(MESSAGES)]
TESTS = sources(
    "tests/unit", "tests/node", "tests/simulation", "tests/crash", "tests/process", "tests/property"
)

LIMIT = re.compile(
    r"(MAX|MIN|MOST|LEAST|LONGEST|MANY|REMEMBERED)_\w+|(\w+_)?PER_TURN|(LONG_)?AT_ONCE|\w+_BEFORE_SWEEP"
)
"""Names of constants that limit something of ours or of a client's."""

BOUNDS_NOTHING = {
    "broker.replicas.searches_by_time.MAX_TIMESTAMP": "a question that Kafka wrote as a number",
    "protocol.records.batch.MAX_TIMESTAMP_POS": "a place in a batch",
}


def constants(source: Source) -> dict[str, ast.expr]:
    """Return the public constants of a file, by name. Their names are in capitals."""
    found = {}
    for node in source.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_"):
                found[target.id] = node.value
    return found


def tables() -> set[str]:
    """Return the public tables of all files of states, and each table of next states."""
    return {
        f"{source.name}.{name}"
        for source in ROOMS
        for name, value in constants(source).items()
        if source.path.stem.endswith("states") or name == "NEXT_STATE"
        if isinstance(value, ast.Dict | ast.DictComp)
    }


def limits() -> set[str]:
    """Return the numbers whose names say that they limit something."""
    return {
        f"{source.name}.{name}"
        for source in ROOMS
        for name, value in constants(source).items()
        if LIMIT.fullmatch(name) and all(isinstance(node, NUMBER) for node in ast.walk(value))
        if not (isinstance(value, ast.Constant) and not isinstance(value.value, int | float))
    }


NUMBER = ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop


@cache
def marked(kind: str) -> set[str]:
    """Return the names in all tests' marks of this kind."""
    return {
        node.args[0].value
        for source in TESTS
        if f"pytest.mark.{kind}" in source.text
        for node in source.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"pytest.mark.{kind}"
        for _ in node.args[:1]
        if isinstance(node.args[0], ast.Constant)
    }


def test_every_table_of_states_has_a_test_that_bears_its_name() -> None:
    assert tables()
    assert marked("table") == tables()


def test_every_limit_has_a_test_that_bears_its_name() -> None:
    assert marked("limit") == limits() - BOUNDS_NOTHING.keys()
    assert BOUNDS_NOTHING.keys() <= limits()


def test_the_table_of_limits_names_only_such_limits() -> None:
    rows = re.findall(r"^\| `([\w.]+)` ", (ROOT / "docs/reliability.md").read_text("utf-8"), re.MULTILINE)
    assert rows
    assert len(rows) == len(set(rows))
    assert set(rows) <= limits()


def test_every_operation_on_files_has_a_test_that_lets_it_fail() -> None:
    assert marked("fault") == set(OPERATIONS)
