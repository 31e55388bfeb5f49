#!/usr/bin/env bash
# The programs of `make static`, locked in an environment of their own (.venv-tools): they must not meet the versions Fairlead is locked to.
# Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=tests/tools/static.txt
here=.venv-tools/static
cmp -s "$wanted" "$here/installed.txt" && exit 0
echo "installing bandit and pip-audit into $here"
.venv/bin/uv venv --quiet --clear --python .venv/bin/python "$here"
.venv/bin/uv pip install --quiet --python "$here/bin/python" -r "$wanted" || {
  echo "bandit and pip-audit could not be installed: reach the package registry and repeat" >&2; exit 1
}
cp "$wanted" "$here/installed.txt"
