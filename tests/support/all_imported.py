"""Imports every module of the floors before any test of this process alters one.

A node imports much only when it first needs it. If that happens while a test has replaced a constant, `from … import …`
keeps the replaced value for good. A later test then fails just because of the order.
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
