"""Three brokers of ours while their leaders, coordinators and controller are killed, paused and cut off, for a short
while; `make checker ARGS=--cluster` does it for a longer one."""

from __future__ import annotations

import random

import barnabas
from tests.clients.checker.anomalies import find
from tests.clients.checker.cluster import CLUSTER_FAULTS, PATIENCE_S, SETTINGS, CheckedCluster
from tests.clients.checker.history import Outcome
from tests.clients.checker.plan import Plan
from tests.clients.checker.roles import CONSUMER, MODULES, Kind, Role, copying, reading, transacting
from tests.clients.checker.workload import Workload
from tests.support.waiting import until

FAULTS, OPERATIONS = 6, 150
ROLES = (
    *transacting(3, [*MODULES]),
    copying("confluent-kafka", CONSUMER),
    reading("kafka-python"),
    Role(Kind.SENDS, "aiokafka"),
)


def test_clients_see_no_anomaly_whatever_happens_to_three_brokers_and_their_controller() -> None:
    faults = random.Random(1).sample([*CLUSTER_FAULTS], FAULTS)
    plan = Plan(seed=1, operations=OPERATIONS, roles=ROLES, faults=tuple(faults))
    with barnabas.Cluster(brokers=3, config=SETTINGS) as cluster:
        served = CheckedCluster(cluster)
        work = Workload(served, plan)
        history = work.run()
        assert find(history) == {}
        done = [operation for operation in history if operation.outcome is Outcome.OK]
        assert len(done) > plan.operations / 2
        until(lambda: not served.differing(work.keys), "the replicas' files are equal", PATIENCE_S)
