"""The outcome of a proof as lines for a terminal, an HTML page and JUnit XML."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from barnabas.proving.hazards import TOLD
from barnabas.proving.trials import Proof, Trial

_STYLE = (
    "body{font:15px/1.5 system-ui;margin:2rem;max-width:70rem}table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;vertical-align:top;padding:.4rem .8rem;border-top:1px solid #ccc}"
    ".no{color:#b00020}.yes{color:#0a7d2c}pre{white-space:pre-wrap}"
)


_NOT_OF_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML can't hold, such as those by which a program colours its output."""


def title(trial: Trial) -> str:
    """Name the run."""
    return "undisturbed" if trial.hazard is None else str(trial.hazard)


def verdict(trial: Trial) -> str:
    """Name the outcome in a word or two."""
    if trial.unjudged:
        return "not judged"
    if not trial.is_reached:
        return "not reached"
    return "equal" if trial.difference.is_none else "NOT EQUAL"


def findings(trial: Trial) -> Iterator[str]:
    """Yield the findings: how the outcome differs or why it isn't known, the reasons, and what happened on the way."""
    if trial.unjudged:
        yield f"the outcome isn't known, since the brokers failed: {trial.unjudged.splitlines()[0]}"
    yield from trial.difference.lines()
    yield from (f"because {each}" for each in trial.reasons)
    yield from trial.notes


def details(trial: Trial) -> str:
    """Return what the brokers and the program printed."""
    return "\n".join(filter(None, (trial.unjudged, trial.printed)))


def line(trial: Trial) -> str:
    """Return the lines for a terminal: one for the run, and its findings if it failed."""
    head = f"{verdict(trial):11}  {title(trial)}  ({trial.seconds:.1f} s)"
    if trial.holds:
        return head
    return "\n".join([head, *(f"             {each}" for each in findings(trial))])


def summary(proof: Proof) -> str:
    """Return the last line of the report."""
    failed = len(proof.failures)
    if not proof.trials:
        return "no hazard was tried: the program sends no request that changes anything"
    if failed:
        return f"{failed} of {len(proof.trials)} hazards changed the outcome, weren't reached, or couldn't be judged"
    return f"the outcome stayed equal in all {len(proof.trials)} hazards"


def page(proof: Proof) -> str:
    """Return a complete HTML page that fetches nothing."""
    rows = []
    for each in (proof.undisturbed, *proof.trials):
        told = "" if each.hazard is None else TOLD[each.hazard.strike]
        items = "".join(f"<li>{html.escape(found)}</li>" for found in findings(each))
        printed = details(each)
        shown = f"<pre>{html.escape(printed)}</pre>" if not each.holds and printed else ""
        rows.append(
            f'<tr><td class="{"yes" if each.holds else "no"}">{verdict(each)}</td><td>{html.escape(title(each))}'
            f"<br><small>{html.escape(told)}</small></td><td><ul>{items}</ul>{shown}</td>"
            f"<td>{each.seconds:.1f} s</td></tr>"
        )
    return (
        f'<!doctype html><meta charset="utf-8"><title>barnabas prove</title><style>{_STYLE}</style>'
        f"<h1>{html.escape(summary(proof))}</h1><table><tr><th>outcome</th><th>hazard</th><th>found</th><th>took</th></tr>"
        f"{''.join(rows)}</table>\n"
    )


def junit(proof: Proof) -> str:
    """Return JUnit XML with a test case for each hazard."""
    suite = ElementTree.Element(
        "testsuite",
        name="barnabas prove",
        tests=str(len(proof.trials)),
        failures=str(len(proof.failures)),
        time=f"{sum(each.seconds for each in proof.trials):.3f}",
    )
    for each in proof.trials:
        assert each.hazard is not None
        case = ElementTree.SubElement(
            suite, "testcase", classname=each.hazard.api, name=title(each), time=f"{each.seconds:.3f}"
        )
        if not each.holds:
            failure = ElementTree.SubElement(case, "failure", message=verdict(each))
            failure.text = _NOT_OF_XML.sub("\ufffd", "\n".join([*findings(each), details(each)]))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"
