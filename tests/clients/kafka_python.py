"""kafka-python, imported past a warning: it reads its schemas in a way that Python 3.11 deprecates."""

import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors
    from kafka.admin import NewPartitions, NewTopic

__all__ = ["NewPartitions", "NewTopic", "kafka", "outcome_of_sending"]


def outcome_of_sending(topic: str, patience_s: float, **config: Any) -> str:
    """ "written", "TOPIC_AUTHORIZATION_FAILED" or "refused", and nothing left open.

    A KafkaProducer that is refused while it is made leaves its sockets to the garbage collector, whose
    warning would fail whichever test runs then.
    """
    clients: list[Any] = []

    def client(**settings: Any) -> Any:
        clients.append(kafka.KafkaProducer.DEFAULT_CONFIG["kafka_client"](**settings))
        return clients[-1]

    producer = None
    outcome = "written"
    try:
        producer = kafka.KafkaProducer(**config, kafka_client=client)
        producer.send(topic, b"v").get(patience_s)
    except kafka.errors.TopicAuthorizationFailedError:
        outcome = "TOPIC_AUTHORIZATION_FAILED"
    except kafka.errors.KafkaError:
        outcome = "refused"
    finally:
        if producer is not None:
            producer.close(timeout=0)
        else:
            for each in clients:
                each.close()
    return outcome
