"""Figures side by side: the printed table, and the file for programs."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One measured thing. `aim` is barnabas's. Figures below it are only good if less is better."""

    key: str
    title: str
    unit: str
    aim: float | None = None
    less_is_better: bool = False
    decimals: int = 0


# The figures of one side by the row's key, one per round.
Figures = Mapping[str, Sequence[float]]


def table(rows: Sequence[Row], sides: Mapping[str, Figures]) -> str:
    """Return a table with the median (least to most) of each row, one column per side, and whether the first side meets
    its aim.

    The last columns have the median of its ratios to each other side in the same round, because the machine's speed
    changes between rounds.
    """
    first_side, *others = sides
    lines = [["", *sides, "aim", "", *(f"to {side}" for side in others)]]
    for row in rows:
        if not any(figures.get(row.key) for figures in sides.values()):
            continue
        cells = [f"{row.title} ({row.unit})"]
        cells += [_cell(row, figures.get(row.key, ())) for figures in sides.values()]
        first = sides[first_side].get(row.key, ())
        ratios = [_ratio(first, sides[side].get(row.key, ())) for side in others]
        lines.append([*cells, _aim(row), _verdict(row, first), *ratios])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def as_json(rows: Sequence[Row], sides: Mapping[str, Figures], load: Mapping[str, Sequence[float]]) -> str:
    """Return the same with every figure of every round, and the machine. `load`: the machine's load by time."""
    return json.dumps(
        {
            "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "where": _machine(),
            "load": load,
            "measures": [
                {
                    "key": row.key,
                    "title": row.title,
                    "unit": row.unit,
                    "aim": row.aim,
                    "less_is_better": row.less_is_better,
                    "figures": {
                        side: {"median": statistics.median(of_row), "rounds": list(of_row)}
                        for side, figures in sides.items()
                        if (of_row := figures.get(row.key))
                    },
                }
                for row in rows
            ],
        },
        indent=2,
    )


def _cell(row: Row, figures: Sequence[float]) -> str:
    if not figures:
        return "-"
    median, least, most = statistics.median(figures), min(figures), max(figures)
    return f"{median:,.{row.decimals}f} ({least:,.{row.decimals}f} to {most:,.{row.decimals}f})"


def _ratio(figures: Sequence[float], others: Sequence[float]) -> str:
    ratios = [figure / other for figure, other in zip(figures, others, strict=False) if other]
    return f"{statistics.median(ratios):.3g}" if ratios else ""


def _aim(row: Row) -> str:
    if row.aim is None:
        return ""
    return f"{'≤' if row.less_is_better else '≥'} {row.aim:,.{row.decimals}f}"


def _verdict(row: Row, figures: Sequence[float]) -> str:
    if row.aim is None or not figures:
        return ""
    median = statistics.median(figures)
    return "met" if (median <= row.aim if row.less_is_better else median >= row.aim) else "MISSED"


def _machine() -> dict[str, object]:
    return {
        "processors": os.cpu_count(),
        "processor": _processor(),
        "memory_mb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6),
        "system": platform.platform(),
        "python": platform.python_version(),
        "confluent_kafka": metadata.version("confluent-kafka"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
