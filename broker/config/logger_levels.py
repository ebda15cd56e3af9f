"""The levels of this process's loggers, under Kafka's names for levels (KIP-412; Kafka:
`RuntimeLoggerManager`).

The loggers are those of this process, not Kafka's classes. Two nodes in one process share their levels, just
as they share the output. As in Kafka, alterations last until the process ends.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.config.alterations import Alteration

ROOT = "root"
LEVELS = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}

SET, DELETE, APPEND, SUBTRACT = range(4)


def level_name(level: int) -> str:
    """The name of the most verbose level that this one lets through."""
    return next((name for name, least in LEVELS.items() if level >= least), "TRACE")


def logger_levels() -> dict[str, str]:
    """Each logger's level in force, by name."""
    loggers = logging.Logger.manager.loggerDict
    levels = {
        name: level_name(logger.getEffectiveLevel())
        for name, logger in sorted(loggers.items())
        if isinstance(logger, logging.Logger)
    }
    return {ROOT: level_name(logging.getLogger().level), **levels}


def check_alterations(alterations: Sequence[Alteration]) -> None:
    """Raises KafkaError: INVALID_CONFIG for an unknown logger or level, INVALID_REQUEST."""
    known = logger_levels()
    for name, operation, level in alterations:
        if operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise KafkaError(
                Error.INVALID_REQUEST,
                f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource",
            )
        if operation not in (SET, DELETE):
            raise KafkaError(
                Error.INVALID_REQUEST, f"Operation {operation} is not allowed for the BROKER_LOGGER resource"
            )
        if name not in known:
            raise KafkaError(Error.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == SET and level not in LEVELS:
            raise KafkaError(
                Error.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {level}: it can be one of {', '.join(LEVELS)}",
            )
        if operation == DELETE and name == ROOT:
            raise KafkaError(Error.INVALID_REQUEST, f"The log level of the {ROOT} logger can't be removed")


def alter(alterations: Sequence[Alteration]) -> None:
    """Put levels into force, after `check_alterations`. A logger whose level is removed has that of the
    logger above it."""
    for name, operation, level in alterations:
        logger = logging.getLogger() if name == ROOT else logging.getLogger(name)
        logger.setLevel(LEVELS[level or ""] if operation == SET else logging.NOTSET)
