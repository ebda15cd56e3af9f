"""What keeps a broker from starting: a value that a setting can't have, a mistake of whoever starts it, and what a
start found.
"""

from __future__ import annotations


class ConfigError(Exception):
    """A value that a setting can't have, in Kafka's words (its ConfigException).

    `name` is the setting at fault, where it is one.
    """

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


def invalid_value(name: str, value: str, reason: str) -> ConfigError:
    """Kafka's ConfigException of three arguments."""
    return ConfigError(f"Invalid value {value} for configuration {name}: {reason}", name)


class UsageError(Exception):
    """A mistake of whoever starts the broker: one line that says what is wrong, and where.

    `exit_status` is 2 for what stays wrong until somebody writes it otherwise: a command line, a setting; 1 for what a
    disk holds.
    """

    def __init__(self, message: str, exit_status: int = 2) -> None:
        super().__init__(" ".join(message.split("\n")))
        self.exit_status = exit_status


class StartError(Exception):
    """One line for the user: what is wrong, and where. The exit status is 2 where a setting is to be written
    otherwise, and 1 where a start may find it otherwise."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status
