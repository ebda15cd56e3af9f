"""The journals of a broker in a process of its own and of a cluster, and the journal in a failed test's report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import barnabas
from barnabas.journal import lines
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.support.transactional_client import amid_transaction, eventually
from tests.support.wire import Client

ROOT = Path(__file__).parents[2]


def test_a_transaction_step_by_step() -> None:
    with barnabas.Broker(config={"barnabas.journal.size": 1000}) as broker:
        with Client.of(broker.bootstrap) as client:
            eventually(lambda: amid_transaction(client.ask, "payer", "orders", [0]).end(commit=True))
        found = broker.journal(transactional_id="payer")
        apis = [each["api"] for each in found]
        assert apis[-1] == "EndTxn"
        assert "InitProducerId" in apis
        assert "Produce" in apis
        assert [each["n"] for each in broker.journal("EndTxn")] == [found[-1]["n"]]
        assert [json.loads(line) for line in lines(found).splitlines()] == found
        with pytest.raises(ValueError, match="there is no API EndTransaction"):
            broker.journal("EndTransaction")


def test_an_answer_of_a_fault_is_in_the_journal() -> None:
    with (
        barnabas.Broker(config={"barnabas.journal.size": 10}) as broker,
        Client.of(broker.bootstrap) as client,
        broker.fault("Metadata", error="UNKNOWN_SERVER_ERROR"),
    ):
        client.ask(MetadataRequest(topics=[]), 13)
        assert [each["errors"] for each in broker.journal("Metadata")] == [{"UNKNOWN_SERVER_ERROR": 1}]
    # the journal is still kept when no fault is armed any more


def test_the_journal_outlives_faults_and_is_empty_after_a_reset() -> None:
    with barnabas.Broker(config={"barnabas.journal.size": 10}) as broker:
        with broker.fault("Metadata", error="UNKNOWN_SERVER_ERROR", may_not_fire=True):
            pass
        with Client.of(broker.bootstrap) as client:
            client.ask(MetadataRequest(topics=[]), 13)
        assert len(broker.journal("Metadata")) == 1
        broker.reset()
        assert broker.journal() == []
        with Client.of(broker.bootstrap) as client:
            client.ask(MetadataRequest(topics=[]), 13)
        assert len(broker.journal("Metadata")) == 1


def test_more_than_one_answer_holds() -> None:
    with barnabas.Broker(config={"barnabas.journal.size": 1000}) as broker:
        with Client.of(broker.bootstrap) as client:
            for _ in range(400):
                client.ask(MetadataRequest(topics=[]), 13)
        found = broker.journal("Metadata")
        assert len(found) == 400
        assert len(lines(found)) > 2 * 32_768


def test_there_is_no_journal_unless_wanted() -> None:
    with (
        barnabas.Broker() as broker,
        pytest.raises(ValueError, match=r"barnabas\.journal\.size sets how many requests"),
    ):
        broker.journal()


def test_a_clusters_journal_names_the_node_and_reads_forwarded_requests() -> None:
    with barnabas.Cluster(brokers=1, config={"barnabas.journal.size": 1000}) as cluster:
        with Client.of(cluster.bootstrap, client_id="admin") as client:
            wanted = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
            client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
        found = cluster.journal("CreateTopics", client_id="admin", topic="orders")
        assert {str(cluster[1]), str(cluster.controller)} == {each["node"] for each in found}
        assert all("errors" not in each for each in found)


def test_a_failed_test_shows_its_brokers_requests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        """
        import socket

        def test_it(barnabas_broker):
            from protocol.messages.metadata import MetadataRequest
            from tests.support.wire import Client

            with Client.of(barnabas_broker.bootstrap, client_id="mine") as client:
                client.ask(MetadataRequest(topics=[]), 13)
            assert False
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:barnabas", "-p", "barnabas.pytest_plugin")
    result.stdout.fnmatch_lines(
        ["*what barnabas_broker was asked*", '{"n": *"client_id": "mine"*"api": "Metadata"*']
    )
