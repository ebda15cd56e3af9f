"""Which answers an observer of the metadata log accepts, and from which nodes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from broker.controller.metadata_log import METADATA_TOPIC_ID
from broker.controller.observer import FETCH_BYTES, AfterAnswer
from protocol.errors import Error
from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.node.metadata_logs import NEVER, begin, topic
from tests.node.observers import Controller, catch_up_some, names, observer_in


def test_a_node_that_is_no_controller_is_recognized(tmp_path: Path) -> None:
    """For example, the address of a broker's listener may have been given as the controller's."""
    observer = observer_in(tmp_path / "observer")
    of_topic = FetchableTopicResponse(
        topic_id=METADATA_TOPIC_ID, partitions=[PartitionData(error_code=Error.UNKNOWN_TOPIC_ID)]
    )
    assert observer.answered(FetchResponse(responses=[of_topic])) is AfterAnswer.BACK_OFF
    assert observer.complaint == "the node asked for the metadata isn't a controller: UNKNOWN_TOPIC_ID"


def test_the_records_applied_in_one_turn_are_bounded(tmp_path: Path) -> None:
    metadata = begin(tmp_path / "leader", NEVER)
    controller = Controller(metadata)
    largest = 0
    while metadata.log.size < 3 * FETCH_BYTES:
        before = metadata.log.size
        metadata.append(topic(f"t{before}", partitions=50))
        largest = max(largest, metadata.log.size - before)
    observer = observer_in(tmp_path / "observer")
    applied = [0]
    while len(names(observer._metadata)) < len(names(metadata)):
        catch_up_some(observer, controller, 1)
        applied.append(observer._log.size)
    turns = [after - before for before, after in pairwise(applied)]
    assert max(turns) <= FETCH_BYTES + largest
