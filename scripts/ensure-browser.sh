#!/usr/bin/env bash
# The browser tests need Chromium. Installs Debian's package when there is none and we may.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  echo "installing chromium for the browser tests"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
else
  echo "the browser tests need Chromium: install it (Debian: sudo apt-get install chromium) and repeat" >&2
  exit 1
fi
