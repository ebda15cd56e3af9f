"""What starts and stops, in `with` and `async with`."""

from __future__ import annotations

import abc
import contextlib
from types import TracebackType
from typing import Self

from barnabas.child import BrokerError


class InBlocks(abc.ABC):
    """It runs as long as the block, and what it fails to stop with is a note where the block fails, too."""

    @property
    @abc.abstractmethod
    def running(self) -> bool:
        """Whether it was started, and not stopped yet."""

    @abc.abstractmethod
    def start(self) -> Self:
        """Raises BrokerError if it does not start."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop it if it runs, and keep nothing of it. Raises BrokerError if it does not end well."""

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BrokerError as end:
            if error is None:
                raise
            error.add_note(str(end))

    async def __aenter__(self) -> Self:
        """As `with`, and the loop isn't held up meanwhile."""
        import asyncio

        if not self.running:
            starting = asyncio.ensure_future(asyncio.to_thread(self.start))
            try:
                await asyncio.shield(starting)
            except asyncio.CancelledError:  # nobody is there to stop it any more
                with contextlib.suppress(BrokerError):
                    await starting
                    await asyncio.to_thread(self.close)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, trace))
