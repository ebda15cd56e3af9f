"""A fresh interpreter loads only what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_family_is_imported_at_its_first_use_and_alone() -> None:
    program = """
import sys
from protocol.apis import APIS

def families():
    return {name for name in sys.modules if name.startswith("protocol.messages.")}

assert not families()
APIS[0].request
assert families() == {"protocol.messages.produce"}, families()
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_a_start_loads_nothing_slow() -> None:
    slow = {
        "asyncio",
        "dataclasses",
        "difflib",
        "inspect",
        "ipaddress",
        "json",
        "logging",
        "shutil",
        "socket",
        "tempfile",
    }
    program = (
        "import sys; before = set(sys.modules)\n"
        "from broker.process.command_line import parse_command_line\n"
        "parse_command_line(['--port', '0', '-o', 'num.partitions=3'], {'HOME': '/h'})\n"
        "print(*set(sys.modules) - before)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert slow.isdisjoint(run.stdout.split())


def test_a_broker_loads_nothing_for_security_or_metrics_that_it_does_not_have() -> None:
    program = """
import sys
import broker.process.run, broker.starting, broker.server, broker.network.listener
of_extras = {
    "broker.config.static_jaas",
    "broker.config.tls_config",
    "broker.http.http_server",
    "broker.metrics.metrics_listener",
    "h11",
    "prometheus_client",
    "broker.network.sasl_gate",
    "broker.network.tls",
    "broker.network.tls_channel",
    "broker.network.tls_gate",
    "broker.process.security_questions",
    "broker.security.oauthbearer",
    "broker.security.sasl",
    "broker.security.sasl_client",
    "broker.security.token_source",
    "broker.security.standard_authorizer",
}
assert of_extras.isdisjoint(sys.modules), of_extras & {*sys.modules}
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_modules_of_the_coordinators_are_imported_in_steps() -> None:
    """A step imports at most a dozen modules, at about half a millisecond each."""
    program = """
import sys
import broker.process.run, broker.starting
from broker.coordination.imports import MODULES, import_coordinators
from protocol.waiting import step

assert not any(name.startswith("coordinator.group.") and name.endswith("shard") for name in sys.modules)
assert "coordinator.group.offsets.commit" not in sys.modules, "which the handlers of offsets import"
assert step(import_coordinators({"orders"}))
for topic, wanted in MODULES.items():
    known = {*sys.modules}
    importing = import_coordinators({topic})
    while not step(importing):
        fresh, known = sys.modules.keys() - known, {*sys.modules}
        assert len(fresh) <= 12, (len(fresh), sorted(fresh))
    assert {*wanted} <= known
    assert step(import_coordinators({topic}))
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_shard_needs_no_module_that_was_not_imported_with_it() -> None:
    """Otherwise the first shard would import it, outside of the steps."""
    program = """
import sys
import broker.process.run, broker.starting
from broker.coordination.imports import MODULES, import_coordinators
from protocol.waiting import at_once, step

assert step(import_coordinators(()))
at_once(import_coordinators(MODULES))
known = {*sys.modules}
import broker.handlers.join_group, broker.handlers.init_producer_id, broker.handlers.read_share_group_state
fresh = {name for name in sys.modules.keys() - known if name.startswith("coordinator.")}
assert not fresh, fresh
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
