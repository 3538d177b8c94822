#!/bin/sh
# Make a virtual environment with the first Python that is new enough.
set -eu
for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
    path=$(command -v "$name") || continue
    "$path" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    if "$path" -m venv "$1"; then exit 0; fi
    rm -rf "$1"
    echo "$path cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2
    exit 1
done
echo "Python 3.11 or later is needed; name one with PYTHON=/path/to/python3 make …" >&2
exit 1
