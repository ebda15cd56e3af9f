"""What the page of a release says beside `pyproject.toml`: where the project lives, and links that lead there.

On that page a link to a file of the checkout leads nowhere. `PROJECT_URL`, the address of the repository (`make dist`
asks for it), makes them whole. Without it the description is README.md as it is: the page isn't made anywhere then.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<image>!?)(?P<text>\[[^\]]*\])\((?P<path>(?![a-z]+:|#)[^)]+)\)")


def page(readme: str, url: str) -> str:
    """The description with absolute links: to a file's view, or to the bytes of a picture."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["image"] else "blob"
        return f"{link['image']}{link['text']}({url}/{kind}/main/{link['path']})"

    return _LINK.sub(absolute, readme)


def urls(url: str) -> dict[str, str]:
    """The links at the side of the page."""
    return {
        "Homepage": url,
        "Documentation": f"{url}/blob/main/README.md",
        "Source": url,
        "Issues": f"{url}/issues",
        "Changelog": f"{url}/blob/main/CHANGELOG.md",
    }


class CustomMetadataHook(MetadataHookInterface):
    """Hatchling's."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds description and links."""
        readme = Path(self.root, "README.md").read_text("utf-8")
        url = os.environ.get("PROJECT_URL", "").rstrip("/")
        metadata["readme"] = {"content-type": "text/markdown", "text": page(readme, url) if url else readme}
        metadata["urls"] = urls(url) if url else {}
