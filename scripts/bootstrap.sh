#!/usr/bin/env bash
# From a bare Python >= 3.11 to a locked environment in .venv. Safe to repeat; does nothing when the lock has not changed.
set -euo pipefail
cd "$(dirname "$0")/.."
UV_VERSION=0.13.8

. scripts/pythons.sh

python=""
for candidate in "${PYTHON:-}" python3 "$(pythons | tail -n 1 | cut -d ' ' -f 2-)"; do # the last one: the newest there is
  if [ -n "$candidate" ] && version_of "$candidate" >/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || { echo "fairlead needs Python 3.11 or newer on PATH (or PYTHON=/path/to/python make ...)" >&2; exit 1; }

# A venv that was cut short, or made without ensurepip, has python and no pip.
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  echo "creating .venv with $("$python" --version)"
  make_venv() { "$python" -m venv --clear .venv >/dev/null 2>&1; }
  may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
  install_venv() { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1"; }
  package=$("$python" -c 'import sys; print(f"python3.{sys.version_info[1]}-venv")')
  make_venv || { may_install && echo "installing $package" && install_venv "$package" >/dev/null 2>&1 && make_venv; } || {
    echo "python's venv module is missing: install it (Debian, Ubuntu: apt-get install $package) and repeat" >&2; exit 1
  }
fi
if ! .venv/bin/uv --version 2>/dev/null | grep -q "uv $UV_VERSION"; then
  echo "installing uv $UV_VERSION"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION" 2> >(grep -v '^WARNING: Location' >&2)
fi
echo "installing locked dependencies"
scripts/sync-dependencies.sh "$PWD/.venv" --inexact
touch .venv/ready
