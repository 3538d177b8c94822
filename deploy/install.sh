#!/bin/sh
# Install a lock file into a virtual environment: with uv in seconds, or else with pip in minutes.
set -eu
venv=$1 lock=$2
pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes"
$pip -r requirements-uv.lock 2>/dev/null || true
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r "$lock" \
    2>/dev/null || $pip -r "$lock"  # of a mirror that only pip knows, for example
