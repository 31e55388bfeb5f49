# Sourced. Finds interpreters that Fairlead takes: released, 3.11 or newer. Each is judged by running it, as a name on PATH may be a shim
# (of pyenv, say) with nothing behind it.

# version_of PROGRAM: its version, such as 3.13.5; fails for one that cannot be used.
version_of() {
  "$1" -c 'import sys; v = sys.version_info; v >= (3, 11) and v.releaselevel == "final" or sys.exit(1); print(*v[:3], sep=".")' 2>/dev/null
}

# pythons: a line for each version that PATH or .venv has, the oldest first: VERSION PROGRAM.
pythons() {
  local program version
  for program in .venv/bin/python python3 $(compgen -c python3. | grep -xE 'python3\.[0-9]+' | sort -u); do
    if version=$(version_of "$program"); then echo "$version $(command -v "$program")"; fi
  done | sort -s -u -V -k 1,1
}
