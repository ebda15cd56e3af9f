"""Writing the small files of a log directory, so that the newest one always wins."""

import logging
from collections.abc import Callable

from storage.background import Background, Lane
from storage.files import Files

logger = logging.getLogger(__name__)

BACKGROUND_SUFFIX = ".background.tmp"
REST_MS = 100
"""Between two that `write_soon` begins of a file: what each encodes grows with the partitions of the directory."""


class CheckpointWriter:
    """In the background, one at a time of each file; or at once, in which case nothing older comes after it."""

    def __init__(
        self, path: str, files: Files, background: Background, report: Callable[[OSError], object]
    ) -> None:
        self._path = path
        self._files = files
        self._background = background
        self._report = report
        self._writing: set[str] = set()
        self._waiting: dict[str, Callable[[], bytes]] = {}
        self._said: dict[str, bytes] = {}
        """By file, what this run wrote last: it isn't written again while nothing changes. Nothing of a file that may
        say something else by now."""
        self._syncing: dict[str, bytes] = {}
        """By file, what it says already while the directory is synced for it."""
        self._superseded: set[str] = set()
        """Of the files being written: those that meanwhile say something newer."""
        self._resting: dict[str, Callable[[], bytes] | None] = {}
        """Files of which `write_soon` began one lately, with what it is asked for since."""

    def write(self, name: str, encode: Callable[[], bytes]) -> None:
        """Begins to write the file. Of what comes while it is being written only the newest is written after it, and
        nothing else of it is encoded: of a thousand changes in a turn two are. What too little memory keeps from being
        begun waits for the next call."""
        self._waiting[name] = encode
        if name in self._writing:
            return
        data = encode()
        if self._said.get(name) == data:
            del self._waiting[name]
            return
        files = self._files
        path = f"{self._path}/{name}"
        temporary = path + BACKGROUND_SUFFIX

        def work() -> None:
            files.write_whole(temporary, data)
            files.sync(temporary)

        def then(failure: Exception | None) -> None:
            goes_on = False
            try:
                if name in self._superseded:
                    pass
                elif failure is not None:
                    self._failed(path, failure)
                # on the loop, not in the background: so what was written in the meantime isn't replaced by older news
                elif self._put_in_place(name, temporary, data):
                    self._sync_name(name, data)
                    goes_on = True
            finally:
                if not goes_on:
                    self._ended(name)

        self._writing.add(name)
        del self._waiting[name]
        try:
            self._background(work, then, lane=Lane.WRITING)
        except MemoryError:
            self._writing.discard(name)
            self._waiting[name] = encode
            raise

    def write_soon(self, name: str, encode: Callable[[], bytes]) -> None:
        """As `write`, for what clients may ask for as often as they like: at once, unless it was asked for a moment
        ago, and then once for all that ask meanwhile."""
        if name in self._resting:
            self._resting[name] = encode
            return
        self._resting[name] = None
        try:
            self._background(lambda: None, lambda _: self._rested(name), lane=Lane.WRITING, delay_ms=REST_MS)
        except MemoryError:
            del self._resting[name]
            raise
        self.write(name, encode)

    def _rested(self, name: str) -> None:
        encode = self._resting.pop(name, None)
        if encode is not None:
            self.write_soon(name, encode)

    def _put_in_place(self, name: str, temporary: str, data: bytes) -> bool:
        path = f"{self._path}/{name}"
        self._said.pop(name, None)
        try:
            self._files.rename(temporary, path)
        except OSError as failure:
            self._failed(path, failure)
            return False
        self._syncing[name] = data
        return True

    def _sync_name(self, name: str, data: bytes) -> None:
        directory, files = self._path, self._files

        def synced(failure: Exception | None) -> None:
            try:
                if name in self._superseded:
                    pass
                elif failure is not None:
                    # Kafka's `CheckpointFile.write` syncs the directory too, and its failure is that of the write
                    self._failed(f"{directory}/{name}", failure)
                elif self._syncing.get(name) is data:
                    self._said[name] = data
            finally:
                self._ended(name)

        self._background(lambda: files.sync_directory(directory), synced, lane=Lane.WRITING)

    def _ended(self, name: str) -> None:
        self._writing.discard(name)
        self._superseded.discard(name)
        self._syncing.pop(name, None)
        waiting = self._waiting.get(name)
        if waiting is not None:
            self.write(name, waiting)

    def _failed(self, path: str, failure: Exception) -> None:
        logger.error("%s can't be written: %s", path, failure)
        if isinstance(failure, OSError):
            self._report(failure)

    def has_written(self, name: str, data: bytes) -> bool:
        """Whether this is what the file says, even after a power loss, and nothing else is on its way there."""
        return self._said.get(name) == data and name not in self._writing and name not in self._waiting

    def write_now(self, name: str, data: bytes) -> None:
        """The file says this once the call returns, and nothing that was to be written before it comes after. Raises
        `OSError`."""
        # a failure may come after the rename
        self._said.pop(name, None)
        self._syncing.pop(name, None)
        self._files.replace_whole(f"{self._path}/{name}", data)
        self._said[name] = data
        self._waiting.pop(name, None)
        if name in self._writing:
            self._superseded.add(name)

    def stop(self) -> None:
        """Whoever holds the directory's lock next is alone to write."""
        self._waiting.clear()
        self._resting.clear()
        self._superseded |= self._writing
