"""The reference of settings says correctly which settings have an effect."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase

from broker.config.broker_definitions import BROKER_ROWS, DYNAMIC_ONLY_ROWS, OWN_ROWS
from broker.config.group_config import GROUP_ROWS
from broker.config.topic_config import TOPIC_ROWS, TOPIC_SYNONYMS
from docs.effects import BY_PREFIX, EFFECTS, effect
from tests.support.house import ROOT, sources

SETTINGS = {**BROKER_ROWS, **DYNAMIC_ONLY_ROWS}
LISTED = ("broker.config.broker_definitions", "broker.config.documentation", "broker.config.reconfiguration")
"""Files that name settings, but don't use them."""


def named(*without: str) -> set[str]:
    """Return the settings that the code names, except in files whose names begin so."""
    return {
        node.value
        for source in sources("broker", "coordinator", "storage")
        if not source.name.startswith(without)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in SETTINGS
    }


def test_a_setting_that_no_code_names_is_documented_as_without_effect() -> None:
    behind_topics = {each for found in TOPIC_SYNONYMS.values() for each, _ in found}
    read = named(*LISTED) | behind_topics
    unread = {name for name in SETTINGS if name not in read and not name.startswith(BY_PREFIX)}
    assert {name for name in unread if effect(name) == "yes"} == set()


def test_a_setting_that_code_uses_is_not_documented_as_without_effect() -> None:
    used = named("broker.config")
    assert {name for name in used if effect(name).startswith("none")} == set()


def test_each_line_about_effects_is_about_a_setting() -> None:
    names = {*SETTINGS, *TOPIC_ROWS, *GROUP_ROWS}
    assert [pattern for pattern in EFFECTS if not any(fnmatchcase(name, pattern) for name in names)] == []


def test_the_reference_has_all_settings() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    in_tables = set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE))
    assert {*SETTINGS, *TOPIC_ROWS, *GROUP_ROWS} <= in_tables
    for name in OWN_ROWS:
        assert f"{name}`" in text
