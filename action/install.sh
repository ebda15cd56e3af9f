#!/usr/bin/env bash
# Installs this checkout of barnabas into FOLDER, unless the cache has brought it, and puts its commands on the path.
#
# PYTHON and EXTRAS as the inputs of the action.
set -euo pipefail
: "${PYTHON:?}" "${EXTRAS?}"
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

if ! "$FOLDER/bin/barnabas" --version 2>/dev/null; then
  rm -rf "$FOLDER"
  "$PYTHON" -m venv "$FOLDER"
  "$FOLDER/bin/python" -m pip install --quiet --disable-pip-version-check "$root${EXTRAS:+[$EXTRAS]}"
  "$FOLDER/bin/barnabas" --version
fi
# One command alone: the python of that folder must not take the place of the job's own.
mkdir -p "$FOLDER/command"
ln -sf ../bin/barnabas "$FOLDER/command/barnabas"
echo "$FOLDER/command" >>"$GITHUB_PATH"
