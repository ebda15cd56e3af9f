"""kfake, built if there is Go. Users of Go test against it; a suite is measured beside it, too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

MODULES = (
    "github.com/twmb/franz-go/pkg/kfake@v0.0.0-20260918054303-01f206a7e32c",
    "github.com/twmb/franz-go@v1.22.3",
)
BUILD_TIMEOUT_S = 600.0


def command(folder: Path) -> str | None:
    """Return the command that starts it, after building it in the folder. If it can't be built, print the reason and
    return None."""
    go = shutil.which("go")
    if go is None:
        print("kfake is left out: there is no go")
        return None
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "main.go", folder)
    for step in (["mod", "init", "kfake"], ["get", *MODULES], ["build", "-o", "kfake", "."]):
        try:
            done = subprocess.run(
                [go, *step], cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            print(f"kfake is left out: go {step[0]} takes longer than {BUILD_TIMEOUT_S:.0f} s")
            return None
        if done.returncode:
            print(f"kfake is left out: go {step[0]}: {done.stderr.strip().splitlines()[-1]}")
            return None
    return f"{folder}/kfake -port {{port}}"
