#!/usr/bin/env bash
# The load tool guidellm, locked in an environment of its own (.venv-tools): it must not meet the versions Fairlead is locked to. Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=tests/tools/guidellm.txt
here=.venv-tools/guidellm
cmp -s "$wanted" "$here/installed.txt" && exit 0
echo "installing the load tool guidellm into $here"
.venv/bin/uv venv --quiet --clear --python .venv/bin/python "$here"
.venv/bin/uv pip install --quiet --python "$here/bin/python" -r "$wanted" || {
  echo "the load tool could not be installed: reach the package registry and repeat (it is needed by tests/integration/clients only)" >&2; exit 1
}
cp "$wanted" "$here/installed.txt"
