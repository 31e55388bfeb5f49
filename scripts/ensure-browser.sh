#!/usr/bin/env bash
# The browser tests need Chromium. Installs Debian's package when there is none and we may, and beside it the one without
# windows, which takes half of the processor time for tests of pages (screenshots are taken with the whole one).
set -euo pipefail
may_install() { command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; }
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
for name in chromium chromium-browser google-chrome none; do
  command -v "$name" >/dev/null 2>&1 && break
done
if [ "$name" = none ]; then
  may_install || { echo "the browser tests need Chromium: install it (Debian: sudo apt-get install chromium) and repeat" >&2; exit 1; }
  echo "installing chromium for the browser tests"
  apt-get update -qq
  install chromium fonts-dejavu-core
fi
command -v chromium-headless-shell >/dev/null 2>&1 && exit 0
if may_install && apt-cache show chromium-headless-shell >/dev/null 2>&1; then # Debian has it since bookworm, others may not
  echo "installing chromium-headless-shell for the browser tests"
  install chromium-headless-shell || echo "it could not be installed: the tests use Chromium itself" >&2
fi
