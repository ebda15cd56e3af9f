"""What a release says of itself, checked and written out.

`--check v0.1.0` holds a tag against the version and the changelog. `--archive FILE --url URL --into FOLDER` writes the
recipe for conda-forge and the formula for Homebrew with the version, the address and the SHA-256 of that archive.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEMPLATES = ("conda-forge/recipe.yaml", "homebrew/barnabas.rb")


def version() -> str:
    """The one in `barnabas/__init__.py`, which the wheel has, too."""
    text = (ROOT / "barnabas" / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit("barnabas/__init__.py has no __version__")
    return found[1]


def complaints(tag: str, changelog: str) -> list[str]:
    """Why that tag can't be released."""
    heading = re.search(r"^## (\S+) \(([^)]+)\)$", changelog, re.MULTILINE)
    found = []
    if tag != f"v{version()}":
        found.append(f"the tag is {tag}, and barnabas/__init__.py says {version()}")
    if heading is None or heading[1] != version():
        found.append(f"CHANGELOG.md doesn't begin with {version()}")
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2]):
        found.append(f"CHANGELOG.md says {heading[2]} of {heading[1]}, where the date is to stand")
    return found


def rendered(template: str, archive: Path, url: str) -> str:
    """The template with what is known of the archive. Raises SystemExit where a place is left open."""
    known = {
        "VERSION": version(),
        "HOME": url.partition("/releases/")[0],
        "URL": f"{url.rstrip('/')}/{archive.name}",
        "SHA256": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }
    text = re.sub(r"@([A-Z0-9]+)@", lambda place: known.get(place[1], place[0]), template)
    left = re.findall(r"@[A-Z0-9]+@", text)
    if left:
        raise SystemExit(f"nobody knows {', '.join(left)}")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", metavar="TAG", help="fail unless this tag can be released")
    parser.add_argument("--archive", type=Path, help="the sdist")
    parser.add_argument("--url", help="the folder from which the archive will be downloaded")
    parser.add_argument("--into", type=Path, help="where the files go")
    options = parser.parse_args()
    if options.check is not None:
        found = complaints(options.check, (ROOT / "CHANGELOG.md").read_text("utf-8"))
        if found:
            raise SystemExit("\n".join(found))
    if options.archive is not None:
        options.into.mkdir(parents=True, exist_ok=True)
        for name in TEMPLATES:
            text = rendered((ROOT / "release" / name).read_text("utf-8"), options.archive, options.url)
            (options.into / Path(name).name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
