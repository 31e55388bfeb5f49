#!/usr/bin/env bash
# eslint over the web UI's scripts, locked by webui/package-lock.json and installed when it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/node.sh
cd webui
if ! cmp -s package-lock.json node_modules/.installed.json; then
  echo "installing eslint into webui/node_modules"
  "${npm[@]}" ci --silent --no-audit --no-fund || { echo "eslint could not be installed: reach the npm registry and repeat" >&2; exit 1; }
  cp package-lock.json node_modules/.installed.json
fi
exec node_modules/.bin/eslint .
