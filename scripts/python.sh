#!/usr/bin/env bash
# Creates a virtual environment with the tools of the Python SDK, with the versions of its
# pyproject.toml.
#
#   scripts/python.sh DIRECTORY
set -euo pipefail

dir=$1
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
  echo "python: the SDK needs Python 3.10 or newer; set PYTHON to one" >&2
  exit 1
}
rm -rf "$dir"
"$python" -m venv "$dir"
mapfile -t tools < <(sed -nE 's/^dev = \[(.*)\]$/\1/p' sdk/python/pyproject.toml | tr -d '" ' | tr ',' '\n')
if "$dir/bin/pip" install -q --disable-pip-version-check uv 2>/dev/null; then
  "$dir/bin/uv" pip install -q --python "$dir/bin/python" "${tools[@]}"
else
  "$dir/bin/pip" install -q --disable-pip-version-check "${tools[@]}"
fi
touch "$dir/installed"
