#!/usr/bin/env bash
# Debian's Firefox for tests/e2e/web/test_firefox.py. Root installs it; an ordinary user gets it and what it needs unpacked into .venv-tools/firefox.
# Where it cannot be had, a line says so, and those tests are skipped with a reason. Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."
oldest=153 # as OLDEST in tests/support/fairlead_testing/running/firefox.py
here=.venv-tools/firefox
version_of() { "$1" --version 2>/dev/null | grep -oE '[0-9]+' | head -n 1; }
suits() { [ "$(version_of "$1")" -ge $oldest ] 2>/dev/null; }
skipped() { echo "the tests in Firefox are skipped: $1" >&2; exit 0; }

mkdir -p .venv-tools
exec 9>.venv-tools/firefox.lock
flock 9 # two lanes may be here at once
suits firefox-esr || suits "$here/firefox-esr" && exit 0
command -v apt-get >/dev/null 2>&1 || skipped "only Debian's firefox-esr $oldest or newer is driven, and there is no apt-get"

if [ "$(id -u)" = 0 ]; then
  echo "installing firefox-esr for the browser tests"
  apt-get update -qq || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends firefox-esr fonts-dejavu-core >/dev/null ||
    skipped "firefox-esr could not be installed"
else
  missing=$(apt-get install --simulate -qq --no-install-recommends firefox-esr fonts-dejavu-core 2>/dev/null | awk '/^Inst/ {print $2}' || true)
  [ -n "$missing" ] || skipped "apt-get knows no firefox-esr: sudo apt-get update, or install it"
  echo "unpacking firefox-esr into $here for the browser tests"
  rm -rf "$here"
  mkdir -p "$here/packages"
  # shellcheck disable=SC2086 # one word for each package
  (cd "$here/packages" && apt-get download -qq $missing) || skipped "firefox-esr could not be downloaded: sudo apt-get update, or install it"
  for package in "$here"/packages/*.deb; do dpkg-deb --extract "$package" "$here"; done
  rm -rf "$here/packages"
  libraries=$(find "$PWD/$here" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/usr/lib/firefox-esr/firefox-esr "$@"\n' "$libraries" "$PWD/$here" > "$here/firefox-esr"
  chmod +x "$here/firefox-esr"
fi
suits firefox-esr || suits "$here/firefox-esr" || skipped "they need firefox-esr $oldest or newer, and there is $(version_of firefox-esr || version_of "$here/firefox-esr" || echo none that starts)"
