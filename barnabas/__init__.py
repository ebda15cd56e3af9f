"""A Kafka broker in one process: start it, connect any Kafka client to it, stop it.

    import barnabas

    with barnabas.Broker() as broker:
        print(broker.bootstrap)

`barnabas.Cluster` is several brokers and a controller. `barnabas.prove` tries a program against all that may fail. The
broker always runs as a process of its own, so importing this package loads nothing of it.
"""

# `typing` is not imported for its TYPE_CHECKING: the command `barnabas` passes through here too,
# and starts in a blink because it passes through so little.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from barnabas.broker import Broker, BrokerError
    from barnabas.cluster import Cluster
    from barnabas.proving.trials import prove

__all__ = ["Broker", "BrokerError", "Cluster", "__version__", "prove"]

__version__ = "0.1.0"


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "Cluster":
            from barnabas.cluster import Cluster

            return Cluster
        if name == "prove":
            from barnabas.proving.trials import prove

            return prove
        if name not in ("Broker", "BrokerError"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from barnabas import broker

        return getattr(broker, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
