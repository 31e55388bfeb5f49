#!/usr/bin/env bash
# For `make check`: prints make's variables UNIT_BIN and INTEGRATION_BIN, environments of the oldest and the newest Python of this machine,
# and says on standard error which those are. An environment other than .venv is made in .venv-tools when it is missing or the lock has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/pythons.sh

bin_of() { # VERSION PROGRAM
  if [ "$(version_of .venv/bin/python)" = "$1" ]; then echo .venv/bin; return; fi
  local here=.venv-tools/python-$1
  if ! cmp -s uv.lock "$here/uv.lock"; then
    echo "installing locked dependencies for Python $1 into $here" >&2
    .venv/bin/uv venv --quiet --clear --python "$2" "$here" >&2
    scripts/sync-dependencies.sh "$PWD/$here" >&2
    cp uv.lock "$here/uv.lock"
  fi
  echo "$here/bin"
}

mapfile -t found < <(pythons)
read -r oldest oldest_program <<< "${found[0]}"
read -r newest newest_program <<< "${found[-1]}"
if [ "$oldest" = "$newest" ]; then
  echo "unit and integration tests run on Python $oldest, the only one here" >&2
else
  echo "unit tests run on Python $oldest, the oldest here, and integration tests on Python $newest, the newest" >&2
fi
unit=$(bin_of "$oldest" "$oldest_program")
integration=$(bin_of "$newest" "$newest_program")
echo "UNIT_BIN=$unit INTEGRATION_BIN=$integration"
