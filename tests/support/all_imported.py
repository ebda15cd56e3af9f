"""Every module of the floors, imported before any test of this process alters one.

A node imports much when it is first needed. What is imported while a test has another value in place of a constant
takes that over for good, where it says `from … import …`, and a later test fails by the order alone.
"""

from __future__ import annotations

import importlib
import pkgutil

import broker
import coordinator
import protocol
import storage

for _floor in (protocol, storage, coordinator, broker):
    for _module in pkgutil.walk_packages(_floor.__path__, f"{_floor.__name__}."):
        if not _module.name.endswith(".__main__"):
            importlib.import_module(_module.name)
