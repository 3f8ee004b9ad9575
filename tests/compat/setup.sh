#!/usr/bin/env bash
# Makes the environment of the foreign clients: setup.sh PYTHON VENV. Does nothing where it is there and up to date.
set -euo pipefail

python=$1 venv=$2
here=$(cd "$(dirname "$0")" && pwd)
pins=$here/../../tools/constraints-compat.txt
apart=$here/constraints-instructor.txt
stamp=$venv/.ready

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

wanted=$(cat "$pins" "$apart" "$here/node/package-lock.json" | cksum)
[ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || exit 0

began=$SECONDS
log=$venv/setup.log
say "$venv, other people's clients"
"$python" -m venv "$venv"
: > "$log"

install() {  # FOLDER PINS
  "$1/bin/python" -m pip install --quiet --upgrade 'pip>=25.1' >> "$log" 2>&1 &&
    "$1/bin/python" -m pip install --quiet --requirement "$2" >> "$log" 2>&1 ||
    fail "the packages of $2 could not be installed; all of pip's words are in $log"
}

install "$venv" "$pins"
# Its releases hold an older jiter than the openai package that the others ask for.
"$python" -m venv "$venv/instructor"
install "$venv/instructor" "$apart"

if command -v npm > /dev/null; then
  mkdir -p "$venv/node"
  cp "$here/node/package.json" "$here/node/package-lock.json" "$venv/node/"
  (cd "$venv/node" && npm ci --silent --no-audit --no-fund) >> "$log" 2>&1 || fail "npm could not install; see $log"
else
  say "no npm here: the JavaScript clients are left out"
fi
printf '%s\n' "$wanted" > "$stamp"
say "done in $((SECONDS - began)) s"
