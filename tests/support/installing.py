"""`python -m tests.support.installing '.[dev]'`: pip install with short progress messages.

On a terminal, pip shows its own progress. Elsewhere, as in CI, this prints a line for each stage and each large file,
not for each of a hundred packages. If it fails, it prints everything. The arguments go to `pip install`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install")
TAIL_LINES = 40

_LARGE = re.compile(r"\s+Downloading (?P<file>\S+) \((?P<size>\d{2,}(\.\d+)? MB|[\d.]+ GB)\)")
_STAGES = (
    (re.compile(r"Collecting "), "finding out which packages are needed"),
    (re.compile(r"Building wheels? "), "building what comes as source"),
    (re.compile(r"Installing collected packages: (?P<names>.*)"), "installing {count} packages"),
    (re.compile(r"Successfully installed "), "installed"),
)


def install(arguments: Sequence[str], pip: Sequence[str] = PIP) -> int:
    """Run pip and return its exit status."""
    if sys.stdout.isatty():
        return subprocess.run([*pip, *arguments], check=False).returncode
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with subprocess.Popen(
        [*pip, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        for told in stages(_kept(running.stdout, tail)):
            print(f"pip: {told}", flush=True)
    if running.returncode:
        print("".join(tail), file=sys.stderr)
    return running.returncode


def stages(lines: Iterable[str]) -> Iterator[str]:
    """Yield messages for pip's lines, each stage once."""
    seen: set[str] = set()
    for line in lines:
        large = _LARGE.match(line)
        if large is not None:
            yield f"downloading {large['file'].rpartition('/')[2]} ({large['size']})"
        for pattern, stage in _STAGES:
            found = pattern.match(line)
            if found is not None and stage not in seen:
                seen.add(stage)
                yield stage.format(count=found[0].count(",") + 1)


def _kept(lines: Iterable[str], tail: deque[str]) -> Iterator[str]:
    for line in lines:
        tail.append(line)
        yield line


if __name__ == "__main__":
    sys.exit(install(sys.argv[1:]))
