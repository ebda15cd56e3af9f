"""The site's hooks: documents at the root become pages, and links to files of the checkout lead there.

On the site every page lies in one folder, so `../GAPS.md` is `GAPS.md` there. What is no page, such as
`docker/compose.yaml`, is a link into the repository where `PROJECT_URL` has its address, and else a name.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
_LINK = re.compile(
    r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<path>(?!\w+:|#)[^)#]+)(?P<anchor>#[^)]*)?\)"
)


def on_files(files: Files, config: Any) -> Files:
    """Adds the documents of the root."""
    for document in sorted(ROOT.glob("*.md")):
        files.append(File.generated(config, document.name, content=document.read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """With every link as it is on the site."""
    path = page.file.src_uri
    here = "" if (ROOT / path).exists() else posixpath.dirname(f"docs/{path}")
    return linked(markdown, here, posixpath.dirname(path), {each.src_uri for each in files})


def linked(markdown: str, here: str, page_folder: str, pages: set[str]) -> str:
    """`here` is the folder of the document in the checkout, `page_folder` that of its page among all pages."""
    url = os.environ.get("PROJECT_URL", "").rstrip("/")

    def on_site(link: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join(here, link["path"]))
        page = place.removeprefix("docs/")
        if page in pages:
            target = posixpath.relpath(page, page_folder or ".")
        elif not (ROOT / place).exists():
            target = link["path"]  # the generator's to complain of
        elif url:
            target = f"{url}/blob/main/{place}"
        else:
            return link["text"]
        return f"{link['image']}[{link['text']}]({target}{link['anchor'] or ''})"

    return _LINK.sub(on_site, markdown)
