#!/bin/sh
# Makes the virtual environment named by the first argument with the first Python that is new enough.
set -eu
venv=$1
for python in "${GATEHOUSE_PYTHON:-python3}" python3.13 python3.12 python3.11; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        if "$python" -m venv "$venv"; then exit 0; fi
        rm -rf "$venv"
        echo "cannot make $venv: on Debian, apt-get install python3-venv" >&2
        exit 1
    fi
done
echo "needs Python 3.11 or later: install it, or name it with GATEHOUSE_PYTHON=/path/to/python3" >&2
exit 1
