#!/usr/bin/env bash
# Makes .venv in the checkout. Does nothing when it is current: the stamp is a hash of what decides its content.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
members=(schemas policy runtime services/admission services/scheduler services/executor services/telemetry simulator)
inputs=(constraints.txt pyproject.toml cli/pyproject.toml tools/setup.sh)
for member in "${members[@]}"; do inputs+=("$member/pyproject.toml"); done
# The shim is compiled while the executor is installed: its sources decide too.
while IFS= read -r file; do inputs+=("$file"); done < <(find services/executor -name '*.c' -o -name '*.h' -o -name 'hatch_build.py' | LC_ALL=C sort)
stamp="$( { pwd; "$python" -c 'import sys; print(sys.version)'; sha256sum "${inputs[@]}"; } | sha256sum | cut -d' ' -f1)"
if [ -x .venv/bin/makeway ] && [ "$(cat .venv/.stamp 2>/dev/null || true)" = "$stamp" ]; then exit 0; fi
"$python" -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "makeway needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.11")'
command -v "${CC:-cc}" >/dev/null || { echo "makeway needs a C compiler (gcc) for its shim; none is on the PATH" >&2; exit 1; }
echo "setting up .venv (once; about a minute)" >&2
# One set-up at a time in a checkout.
exec 9>.setup.lock; flock 9
rm -f .venv/.stamp
# Another Python than before makes nothing of what is there.
"$python" -m venv --clear .venv
export PIP_DISABLE_PIP_VERSION_CHECK=1
.venv/bin/python -m pip install --quiet --constraint constraints.txt hatchling editables
editables=(--editable 'cli[local,sim]')
for member in "${members[@]}"; do editables+=(--editable "$member"); done
# pip older than 25.1 knows no dependency groups: read the list from pyproject.toml.
mapfile -t dev < <(.venv/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")')
.venv/bin/python -m pip install --quiet --no-build-isolation --constraint constraints.txt "${editables[@]}" "${dev[@]}"
echo "$stamp" > .venv/.stamp
