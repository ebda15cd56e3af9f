"""A cluster from Python: several brokers and a controller, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.child import QuestionRefusedError
from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest
from tests.process.clusters import QUICK, coordinator_at, create, produced, topics_at
from tests.support.waiting import process_is_gone, until
from tests.support.wire import Client


@pytest.fixture(scope="module")
def cluster() -> Iterator[barnabas.Cluster]:
    """Start one cluster for the tests that leave it as they found it."""
    with barnabas.Cluster(brokers=3, racks=["a", "b"], config=QUICK) as running:
        yield running


def test_a_started_cluster_has_all_brokers_known_to_each_of_them(cluster: barnabas.Cluster) -> None:
    assert [node.node_id for node in cluster] == [1, 2, 3]
    assert len(cluster) == 3
    assert cluster.bootstrap == ",".join(cluster[node_id].bootstrap for node_id in (1, 2, 3))
    assert cluster.controller.node_id not in (1, 2, 3)
    for node in cluster:
        with Client.of(node.bootstrap) as client:
            brokers = client.ask(MetadataRequest(topics=[]), 8).brokers
        assert {each.node_id: (f"{each.host}:{each.port}", each.rack) for each in brokers} == {
            1: (cluster[1].bootstrap, "a"),
            2: (cluster[2].bootstrap, "b"),
            3: (cluster[3].bootstrap, "a"),
        }


def test_leaders_are_named_and_moved_while_clients_produce(cluster: barnabas.Cluster) -> None:
    create(cluster, "moved")
    before = cluster.leader_of("moved", 0)
    assert produced(before, "moved", acks=-1) is Error.NONE
    wanted = next(node for node in cluster if node is not before)
    cluster.move_leader("moved", 0, wanted)
    assert cluster.leader_of("moved", 0) is wanted
    assert cluster.replicas_of("moved")[0] is wanted
    assert produced(wanted, "moved", acks=-1) is Error.NONE
    assert produced(before, "moved") is Error.NOT_LEADER_OR_FOLLOWER
    cluster.move_leader("moved", 0, before.node_id)
    assert cluster.leader_of("moved", 0) is before


def test_a_broker_without_a_replica_gets_the_leading_one(cluster: barnabas.Cluster) -> None:
    create(cluster, "given", replicas=1)
    before = cluster.leader_of("given", 0)
    assert produced(before, "given") is Error.NONE
    wanted = next(node for node in cluster if node is not before)
    cluster.move_leader("given", 0, wanted)
    assert cluster.leader_of("given", 0) is wanted
    assert cluster.replicas_of("given") == [wanted]
    assert cluster.in_sync_replicas_of("given") == [wanted]


def test_a_paused_broker_neither_leads_nor_is_in_sync(cluster: barnabas.Cluster) -> None:
    create(cluster, "paused")
    cluster.move_leader("paused", 0, 1)
    cluster[2].pause()
    try:
        with pytest.raises(TimeoutError, match="still broker 2 is paused"):
            cluster.wait_until_in_sync(0)
        with pytest.raises(TimeoutError, match="broker 2 doesn't lead paused-0: broker 2 is paused"):
            cluster.move_leader("paused", 0, 2, timeout_s=0)
    finally:
        cluster[2].resume()
    cluster.wait_until_in_sync(120)
    cluster.controller.pause()
    controller = cluster.controller.node_id
    try:
        with pytest.raises(TimeoutError, match=f"still controller {controller} is paused"):
            cluster.wait_until_in_sync(0)
        with pytest.raises(TimeoutError, match=f"doesn't lead paused-0: controller {controller} is paused"):
            cluster.move_leader("paused", 0, 2, timeout_s=0)
    finally:
        cluster.controller.resume()
    cluster.move_leader("paused", 0, 2)
    cluster.wait_until_in_sync(120)


def test_coordinators_are_those_that_clients_find(cluster: barnabas.Cluster) -> None:
    with pytest.raises(LookupError, match="__transaction_state doesn't exist"):
        cluster.coordinator_of(transactional_id="pay")
    for key_type in (0, 1):
        until(lambda kind=key_type: coordinator_at(cluster[1], "pay", kind) > 0, "there is a coordinator")
    cluster.wait_until_in_sync(120)
    assert cluster.coordinator_of(group="pay").node_id == coordinator_at(cluster[2], "pay", 0)
    assert cluster.coordinator_of(transactional_id="pay").node_id == coordinator_at(cluster[2], "pay", 1)
    with pytest.raises(TypeError):
        cluster.coordinator_of()


def test_an_unknown_resource_is_reported_by_name(cluster: barnabas.Cluster) -> None:
    create(cluster, "told", replicas=1)
    cluster.move_leader("told", 0, 1)
    with pytest.raises(LookupError, match="no partition nowhere-3"):
        cluster.leader_of("nowhere", 3)
    with pytest.raises(QuestionRefusedError, match="this node isn't the controller"):
        cluster[1].ask({"ask": "reassign", "topic": "told", "partition": 0, "replicas": [1]})
    with pytest.raises(QuestionRefusedError, match="partition: KeyError"):
        cluster[1].ask({"ask": "partition"})
    with pytest.raises(TimeoutError, match=r"broker 2.* doesn't lead told-0"):
        cluster.move_leader("told", 0, 2, timeout_s=0)
    with pytest.raises(QuestionRefusedError, match="INVALID_REPLICA_ASSIGNMENT"):
        cluster.controller.ask({"ask": "reassign", "topic": "told", "partition": 0, "replicas": [9]})
    with pytest.raises(KeyError, match="no broker 4"):
        cluster[4]
    with pytest.raises(RuntimeError, match="started already"):
        cluster.start()


def test_a_cluster_can_be_of_one_broker_and_stops_twice() -> None:
    cluster = barnabas.Cluster(brokers=1)
    assert not cluster.running
    with cluster:
        create(cluster, "alone", replicas=1)
        folder, pids = cluster.data, [cluster.controller.pid, cluster[1].pid]
        assert produced(cluster[1], "alone", acks=-1) is Error.NONE
    assert not folder.exists()
    assert all(process_is_gone(pid) for pid in pids)
    cluster.stop()
    with pytest.raises(RuntimeError, match="not started, or is closed"):
        _ = cluster.bootstrap


def test_a_broker_that_is_killed_comes_back_where_it_was_and_catches_up() -> None:
    with barnabas.Cluster(brokers=3, config=QUICK) as cluster:
        create(cluster, "kept")
        killed = cluster.leader_of("kept", 0)
        where, folder = killed.bootstrap, killed.data
        killed.kill()
        assert not killed.running
        with pytest.raises(TimeoutError, match="partitions out of sync: 1, kept-0"):
            cluster.wait_until_in_sync(0)  # though no node has noticed yet that it is gone
        with pytest.raises(
            TimeoutError, match=f"broker {killed.node_id} doesn't lead kept-0: .* doesn't run"
        ):
            cluster.move_leader("kept", 0, killed, timeout_s=0)
        until(lambda: leads_another(cluster, "kept", killed.node_id), "another broker leads")
        leader = cluster.leader_of("kept", 0)
        until(lambda: produced(leader, "kept", acks=-1) is Error.NONE, f"{leader} knows that it leads")
        with pytest.raises(TimeoutError, match="partitions out of sync: 1, kept-0"):
            cluster.wait_until_in_sync(0)
        killed.start()
        cluster.wait_until_in_sync(120)
        assert (killed.bootstrap, killed.data) == (where, folder)
        assert killed in cluster.in_sync_replicas_of("kept")

        leader = cluster.leader_of("kept", 0)
        leader.stop()  # a clean stop: others lead at once, without waiting for its session to end
        assert cluster.leader_of("kept", 0) is not leader
        leader.start()
        cluster.wait_until_in_sync(120)

        cluster.controller.kill()
        assert produced(cluster.leader_of("kept", 0), "kept", acks=-1) is Error.NONE
        cluster.controller.start()
        cluster.wait_until_in_sync(120)


def test_a_stopped_cluster_starts_again_with_its_topics_where_it_was() -> None:
    with barnabas.Cluster(brokers=2) as cluster:
        create(cluster, "kept", replicas=2)
        folder, bootstrap = cluster.data, cluster.bootstrap
        cluster.stop()
        assert not cluster.running
        assert (cluster.data, cluster.bootstrap) == (folder, bootstrap)
        cluster.start()
        assert cluster.bootstrap == bootstrap
        cluster.wait_until_in_sync(120)
        assert topics_at(cluster[2]) == {"kept"}
    assert not folder.exists()


def leads_another(cluster: barnabas.Cluster, topic: str, node_id: int) -> bool:
    try:
        return cluster.leader_of(topic, 0).node_id != node_id
    except LookupError:
        return False


def test_a_folder_that_is_given_keeps_the_cluster(tmp_path: Path) -> None:
    for turn in range(2):
        with barnabas.Cluster(brokers=2, data=tmp_path / "data") as cluster:
            if turn == 0:
                create(cluster, "orders", replicas=2)
            assert topics_at(cluster[2]) == {"orders"}
    assert {path.name for path in (tmp_path / "data").iterdir()} == {
        *("controller", "1", "2"),
        *("controller.log", "1.log", "2.log"),
    }
    assert (tmp_path / "data" / "1.log").read_text().count("[KafkaServer id=1] started") == 2


async def test_an_asynchronous_block_starts_and_stops_it() -> None:
    async with barnabas.Cluster(brokers=1) as cluster:
        assert cluster[1].running
        pid = cluster[1].pid
    assert process_is_gone(pid)


def test_an_impossible_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match=r"listeners, node\.id: a cluster sets that itself"):
        barnabas.Cluster(config={"node.id": 3, "listeners": "PLAINTEXT://:9092"})
    with pytest.raises(ValueError, match="one broker or more"):
        barnabas.Cluster(brokers=0)


def test_a_setting_that_kafka_does_not_have_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cluster = barnabas.Cluster(brokers=2, config={"num.partition": 3})
    with pytest.raises(barnabas.BrokerError, match=r"did you mean num\.partitions\?"):
        cluster.start()
    assert not cluster.running
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_leaves_the_cluster_alone() -> None:
    program = """
import os, sys
import barnabas
cluster = barnabas.Cluster(brokers=1).start()
pid = os.fork()
if pid == 0:
    assert not cluster[1].running
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert cluster[1].running
assert cluster.data.is_dir()
cluster.wait_until_in_sync()
cluster.stop()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_process_that_ends_without_a_stop_takes_its_cluster_along() -> None:
    program = """
import barnabas
cluster = barnabas.Cluster(brokers=1).start()
print(cluster.data, cluster.controller.pid, cluster[1].pid)
"""
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    folder, *pids = run.stdout.split()
    assert run.stderr == ""
    assert all(process_is_gone(int(pid)) for pid in pids)
    assert not Path(folder).exists()


def test_a_broker_that_ended_by_itself_is_reported_at_the_stop() -> None:
    cluster = barnabas.Cluster(brokers=1).start()
    os.kill(cluster[1].pid, signal.SIGKILL)
    until(lambda: not cluster[1].running, "it has ended")
    with pytest.raises(barnabas.BrokerError, match="had ended by itself, by SIGKILL"):
        cluster.close()
    assert not cluster.running


def test_nothing_is_left_when_the_process_that_made_it_is_killed(tmp_path: Path) -> None:
    """At that time one broker runs, one is paused, and one has already been killed."""
    program = """
import barnabas, sys
cluster = barnabas.Cluster(brokers=3).start()
cluster[2].pause()
cluster[3].kill()
print(cluster.data, *(node.pid for node in (cluster.controller, *cluster)), flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    folder, *pids = process.stdout.readline().split()
    assert Path(folder).is_dir()
    assert not process_is_gone(int(pids[2]))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for pid in pids:
        until(lambda each=int(pid): process_is_gone(each), f"{pid} has ended")
    until(lambda: not Path(folder).exists(), "the folder is gone")
