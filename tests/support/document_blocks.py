"""The blocks of commands and code in README and docs/, and what checks each of them.

A block that somebody would copy has a comment above it, or its document has a line in `HELD`:

- `<!-- run -->`: `tests/clients/test_document_blocks.py` runs it;
- `<!-- held by tests/… -->`: that test runs it, or tests what it says;
- `<!-- not run: why -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
NOT_COPIED = ("", "text", "mermaid")

HELD: dict[tuple[str, str], str] = {
    ("docs/cli.md", "sh"): "held by tests/cli/test_records.py",
    ("docs/cli.md", "properties"): "held by tests/cli/test_secured.py",
    ("docs/cluster.md", "sh"): "held by tests/interop/test_live_migration.py",
    ("docs/cluster.md", "python"): "held by tests/process/test_cluster.py",
    ("docs/cluster.md", "properties"): "held by tests/interop/test_documented_settings.py",
    ("docs/cluster.md", "json"): "held by tests/interop/test_live_migration.py",
    ("docs/console.md", "sh"): "held by tests/cli/console",
    ("docs/metrics.md", "properties"): "held by tests/unit/metrics",
    ("docs/metrics.md", "sh"): "not run: it measures for minutes",
    ("docs/performance.md", "sh"): "not run: it measures for minutes",
    ("docs/pipeline.md", "sh"): "held by tests/spark",
    ("docs/pipeline.md", "python"): "held by tests/spark",
    ("docs/security.md", "python"): "held by tests/clients/test_security_document.py",
    ("docs/security.md", "properties"): "held by tests/process/test_secured_broker.py",
    ("docs/security.md", "sh"): "held by tests/process/test_secured_broker.py",
    ("docs/spark.md", "python"): "held by tests/spark/test_first_job.py",
    ("docs/spark.md", "sh"): "held by tests/spark/test_first_job.py",
    ("docs/prove.md", "python"): "held by tests/clients/test_prove.py",
    ("docs/testing.md", "python"): "held by tests/clients/test_testing_document.py",
}


class Block(NamedTuple):
    """One block. `line` counts from 1; `held` is the text of its comment or in `HELD`."""

    document: str
    line: int
    language: str
    text: str
    held: str

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def blocks() -> Iterator[Block]:
    """Yield all blocks that somebody would copy."""
    for path in DOCUMENTS:
        document = str(path.relative_to(ROOT))
        text = path.read_text("utf-8")
        for found in re.finditer(
            r"^(?:<!-- (.*) -->\n)?^( *)```(\w*)\n((?:.*\n)*?) *```$", text, re.MULTILINE
        ):
            comment, indent, language, body = found.groups()
            if language not in NOT_COPIED:
                line = text.count("\n", 0, found.start(4))
                held = comment or HELD.get((document, language), "")
                yield Block(
                    document, line, language, re.sub(f"^{indent}", "", body, flags=re.MULTILINE), held
                )
