"""Where two transcripts differ, for the eye."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Entry = dict[str, Any]

_MISSING = object()


def differences(
    theirs: list[Entry], ours: list[Entry], *, names: tuple[str, str] = ("Kafka", "barnabas")
) -> list[str]:
    """Return a text for each case that differs, in the order of the script, including cases of one side only."""
    out = []
    of_theirs = {entry["case"]: entry for entry in theirs}
    of_ours = {entry["case"]: entry for entry in ours}
    for case in [*of_theirs, *(case for case in of_ours if case not in of_theirs)]:
        lines = list(_lines(of_theirs.get(case, _MISSING), of_ours.get(case, _MISSING), ""))
        if lines:
            request = (of_theirs.get(case) or of_ours[case]).get("request", "")
            head = f"{case}  [{request}]" if request else case
            width = max(map(len, names))
            shown = [
                f"    {path or 'the case'}\n"
                + "\n".join(f"      {name:<{width}}  {text}" for name, text in zip(names, texts, strict=True))
                for path, *texts in lines
            ]
            out.append("\n".join([f"  {head}", *shown]))
    return out


def _lines(theirs: Any, ours: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if theirs is ours or theirs == ours:
        return
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            yield from _lines(
                theirs.get(name, _MISSING), ours.get(name, _MISSING), f"{path}.{name}".lstrip(".")
            )
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for i, (their, our) in enumerate(zip(theirs, ours, strict=True)):
            yield from _lines(their, our, f"{path}[{i}]")
    else:
        yield path, _text(theirs), _text(ours)


def _text(value: Any) -> str:
    if value is _MISSING:
        return "-"
    text = repr(value)
    return text if len(text) <= 600 else f"{text[:600]}… ({len(text)} characters)"
