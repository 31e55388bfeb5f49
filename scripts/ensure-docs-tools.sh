#!/usr/bin/env bash
# The generator of the docs site, locked in an environment of its own (.venv-tools): it must not meet the versions Fairlead is locked to.
# Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=tests/tools/docs.txt
here=.venv-tools/docs
cmp -s "$wanted" "$here/installed.txt" && exit 0
echo "installing Sphinx and its theme into $here"
.venv/bin/uv venv --quiet --clear --python .venv/bin/python "$here"
.venv/bin/uv pip install --quiet --python "$here/bin/python" -r "$wanted" || {
  echo "Sphinx and its theme could not be installed: reach the package registry and repeat" >&2; exit 1
}
cp "$wanted" "$here/installed.txt"
