"""Every message that `protocol.messages` declares."""

import importlib
import pkgutil

import protocol.messages
from protocol.wire.schema import Message


def declared_messages() -> dict[str, type[Message]]:
    """All declared messages by Kafka's name, over all families."""
    found: dict[str, type[Message]] = {}
    for module in pkgutil.iter_modules(protocol.messages.__path__):
        family = importlib.import_module(f"protocol.messages.{module.name}")
        for value in vars(family).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                assert value.__name__ not in found, f"{value.__name__} is declared twice"
                found[value.__name__] = value
    return found
