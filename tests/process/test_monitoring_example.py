"""The example for Prometheus, checked by Prometheus's own tool."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.requirements import need_program

FOLDER = Path(__file__).parents[2] / "examples" / "monitoring"


def test_prometheus_takes_the_example_as_it_is() -> None:
    promtool = need_program("promtool")
    checked = subprocess.run(
        [promtool, "check", "config", "prometheus.yaml"], cwd=FOLDER, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
    assert "9 rules found" in checked.stdout
