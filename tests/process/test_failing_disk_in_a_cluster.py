"""The disk of one broker of a cluster fails. The broker stops, as Kafka's does, and others lead its partitions."""

from __future__ import annotations

import resource

import pytest

import barnabas
from protocol.errors import Error
from tests.process.clusters import QUICK, create, produced
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="no limit of another process can be set"
)

FULL_BYTES = 256 * 1024


def test_others_lead_the_partitions_of_a_broker_whose_only_disk_refuses() -> None:
    with barnabas.Cluster(brokers=3, config=QUICK) as cluster:
        create(cluster, "kept")
        failing = cluster.leader_of("kept", 0)
        assert produced(failing, "kept", acks=-1) is Error.NONE
        # a write past the limit fails (EFBIG): the records exceed it, the lines of the log don't
        resource.prlimit(failing.pid, resource.RLIMIT_FSIZE, (FULL_BYTES, FULL_BYTES))
        assert produced(failing, "kept", acks=-1, value=bytes(FULL_BYTES)) is Error.KAFKA_STORAGE_ERROR
        until(lambda: not failing.running, "it has stopped")
        until(lambda: cluster.leader_of("kept", 0) is not failing, "another broker leads")
        leader = cluster.leader_of("kept", 0)
        until(lambda: produced(leader, "kept", acks=-1) is Error.NONE, f"{leader} knows that it leads")

        failing.start()  # the disk accepts writes again
        cluster.wait_until_in_sync(120)
        assert failing in cluster.in_sync_replicas_of("kept")
        assert f"{failing.data} has failed, and others are to lead what is in it" in failing.log
        assert failing.log.count("not cleanly, so that the next start checks the data") == 1
