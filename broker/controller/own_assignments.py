"""Where the replicas of a node are that controls its cluster: recorded by a decision of its own controller."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from broker.controller.assigned_directories import assignment
from broker.controller.controller_result import ControllerResult
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.controller.controller import Controller
    from broker.controller.image import ClusterImage

log = logging.getLogger("barnabas.directories")

AnsweredLater: TypeAlias = "Callable[[KafkaError | None], None]"

AssignDirectory: TypeAlias = "Callable[[tuple[bytes, int], bytes, AnsweredLater], bool]"
"""Has the controller record that the replica of a topic id and number is in the directory of that id. Returns whether
that is committed; where it isn't yet, the last argument is told. Raises KafkaError where it is refused at once."""


class OwnAssignments:
    """Of one run."""

    def __init__(self, controller: Controller, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id

    def assign(self, replica: tuple[bytes, int], directory_id: bytes, answered_later: AnsweredLater) -> bool:
        """See `AssignDirectory`."""
        topic_id, index = replica
        answers: list[KafkaError | None] = []
        is_later = False

        def decide(image: ClusterImage) -> ControllerResult[KafkaError | None]:
            if topic_id not in image.topics_by_id:
                raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)  # its deletion isn't committed yet
            record = assignment(image, topic_id, index, self._node_id, directory_id)
            return ControllerResult([] if record is None else [record], lambda error: error)

        def reply(error: KafkaError | None) -> None:
            if is_later:
                answered_later(error)
            else:
                answers.append(error)

        def failed(error: BaseException) -> None:
            """An error of ours, and it is later by now: who asked tries it again."""
            log.error("where partition %d of a topic is can't be recorded", index, exc_info=error)
            answered_later(KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error)))

        self._controller.submit(decide, reply, failed)
        is_later = True
        for error in answers:
            if error is not None:
                answers.clear()
                try:
                    raise error
                finally:
                    del error  # its traceback holds this frame
        return bool(answers)
