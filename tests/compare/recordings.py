"""Kafka's transcripts from the last recording: barnabas is compared with these if Kafka isn't available."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from .diff import Entry

FOLDER = Path(__file__).parent / "recorded"


def read(script_key: str) -> list[Entry] | None:
    """Return a script's transcript, or None if none was recorded."""
    family, _, title = script_key.rpartition("/")
    return _read_family(FOLDER / f"{family}.json.gz").get(title)


def write(transcripts: dict[str, list[Entry]], *, keep_others: bool) -> None:
    """Keep these transcripts, and if told those of other scripts. Equal transcripts make equal bytes."""
    families: dict[str, dict[str, list[Entry]]] = {}
    for key, transcript in transcripts.items():
        family, _, title = key.rpartition("/")
        families.setdefault(family, {})[title] = transcript
    for family, recorded in families.items():
        path = FOLDER / f"{family}.json.gz"
        path.parent.mkdir(exist_ok=True)
        if keep_others:
            recorded = _read_family(path) | recorded
        text = json.dumps(dict(sorted(recorded.items())), ensure_ascii=False, separators=(",", ":"))
        path.write_bytes(gzip.compress(text.encode("utf-8", "surrogatepass"), mtime=0))
    if not keep_others:
        for family in recorded_families() - families.keys():
            (FOLDER / f"{family}.json.gz").unlink()


def recorded_families() -> set[str]:
    """Return the families, with their folder in front if they have one."""
    return {
        path.relative_to(FOLDER).as_posix().removesuffix(".json.gz") for path in FOLDER.rglob("*.json.gz")
    }


def _read_family(path: Path) -> dict[str, list[Entry]]:
    if not path.exists():
        return {}
    recorded: dict[str, list[Entry]] = json.loads(gzip.decompress(path.read_bytes()))
    return recorded
