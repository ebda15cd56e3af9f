#!/usr/bin/env bash
# Says where barnabas is installed, and under which key that folder is kept from run to run.
#
# PYTHON and EXTRAS as the inputs of the action. The key changes with the system, the Python and anything that is installed.
set -euo pipefail
: "${PYTHON:?}" "${EXTRAS?}"
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "::error::barnabas needs Python 3.11 or later, and $PYTHON isn't: put actions/setup-python before it" >&2
  exit 1
fi
python="$("$PYTHON" -c 'import platform; print("-".join([platform.system(), platform.machine(), platform.python_version()]))')"
sources="$("$PYTHON" - "$root" <<'PROGRAM'
import hashlib
import pathlib
import sys

root = pathlib.Path(sys.argv[1])
found = hashlib.sha256()
for name in ("barnabas", "protocol", "storage", "coordinator", "broker", "cli", "pyproject.toml"):
    path = root / name
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and "__pycache__" not in file.parts:
            found.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
print(found.hexdigest()[:20])
PROGRAM
)"
{
  echo "folder=${RUNNER_TOOL_CACHE:-$HOME/.cache}/barnabas/$sources"
  echo "key=barnabas-$python-${EXTRAS//,/_}-$sources"
} >>"$GITHUB_OUTPUT"
