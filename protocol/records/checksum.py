"""CRC-32C, the checksum of record batches and of producer snapshots.

The package `crc32c` asks for its own version when it is imported, and with that costs a tenth of a broker's start.
Only its extension module is loaded here; where that isn't where it is expected, the package itself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

Crc32c = Callable[[bytes | bytearray | memoryview], int]


def _load() -> Crc32c:
    package = find_spec("crc32c")
    if package is not None and package.submodule_search_locations is not None:
        spec = PathFinder.find_spec("_crc32c", list(package.submodule_search_locations))
        if spec is not None and spec.loader is not None:
            extension = module_from_spec(spec)
            spec.loader.exec_module(extension)
            found: Crc32c = extension.crc32c
            return found
    from crc32c import crc32c

    return crc32c


crc32c = _load()
