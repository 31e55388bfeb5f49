#!/usr/bin/env bash
# The OpenID provider of the tests, locked by tests/tools/identity_provider and installed into .venv-tools. `--run` then becomes it, with the
# arguments of serve.mjs. Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/node.sh
here=.venv-tools/identity_provider
if ! diff -rq tests/tools/identity_provider "$here/installed" >/dev/null 2>&1; then
  echo "installing an OpenID provider for the tests into $here"
  rm -rf "$here" && mkdir -p "$here" && cp tests/tools/identity_provider/* "$here"
  (cd "$here" && "${npm[@]}" ci --silent --no-audit --no-fund) || {
    echo "the OpenID provider could not be installed: reach the npm registry and repeat (it is needed by tests of signing in only)" >&2; exit 1
  }
  cp -r tests/tools/identity_provider "$here/installed"
fi
[ "${1:-}" != --run ] || exec node "$here/serve.mjs" "${@:2}"
