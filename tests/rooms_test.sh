#!/bin/bash
# Checks how the source tree hangs together:
#   - a file of tessera/<room> includes its own room and rooms above it in the list below, and nothing else of ours;
#   - only the pjrt room (and its tests) includes pjrt_c_api.h;
#   - no file names a path of the machine that it was written on.
# usage: rooms_test.sh [ROOT] | rooms_test.sh --self-test (shows on a made-up tree that each fault is found)
set -eu

rooms="base pjrt comm graph kernels runtime ops checkpoint nn text models schedulers image pipelines plan cli"

# Files of tree $1, relative to it: what git tracks or would track; without git, all but what builds leave behind.
tree_files() {
  git -C "$1" ls-files --cached --others --exclude-standard 2>/dev/null && return
  (cd "$1" && find . \( -path ./build -o -path ./third_party -o -path ./out -o -path ./.git \) -prune -o -type f -print | sed 's|^\./||')
}

check_includes() {
  grep -rHnE '^[[:space:]]*#[[:space:]]*include' --include='*.h' --include='*.cc' tessera tests | awk -F: -v rooms="$rooms" '
    BEGIN { count = split(rooms, names, " "); for (i = 1; i <= count; ++i) rank[names[i]] = i }
    {
      file = $1; where = $1 ":" $2; text = $0; sub(/^[^:]*:[^:]*:/, "", text)
      split(file, parts, "/"); room = parts[2]
      target = text; sub(/^[^"<]*["<]/, "", target); sub(/[">].*/, "", target)
      if (target ~ /pjrt_c_api[a-z_]*\.h$/ && room != "pjrt") print where ": only the pjrt room includes " target
      if (parts[1] != "tessera") next
      if (!(room in rank)) { print where ": " room " is no room of the list in tests/rooms_test.sh"; next }
      if (target ~ /pjrt_c_api[a-z_]*\.h$/) next
      if (target !~ /^tessera\//) {
        if (text ~ /"/) print where ": \"" target "\" is not written from the root (\"tessera/...\")"
        next
      }
      split(target, to, "/")
      if (!(to[2] in rank)) print where ": " target " is in no room of the list in tests/rooms_test.sh"
      else if (rank[to[2]] > rank[room]) print where ": room " room " includes " target ", which is below it"
    }'
}

check_paths() {
  tree_files . | while IFS= read -r file; do
    [ ! -f "$file" ] || printf '%s\0' "$file"
  done | xargs -0 grep -HnIE '(^|[^A-Za-z0-9_.~})-])/(work|tmp|root|home|Users)/' 2>/dev/null |
    sed 's/^\([^:]*:[^:]*\):.*/\1: names a path of a machine/' || true
}

check() {
  faults=$(cd "$1" && check_includes && check_paths)
  [ -z "$faults" ] || { echo "$faults"; return 1; }
}

# Writes line $2 to file $1 of the made-up tree, and wants a fault in it that matches $3 (none if $3 is empty).
expect() {
  mkdir -p "$tree/$(dirname "$1")"
  printf '%s\n' "$2" >"$tree/$1"
  if found=$(check "$tree"); then found=; fi
  if { [ -n "$3" ] && ! echo "$found" | grep -q "^$1:1: .*$3"; } || { [ -z "$3" ] && [ -n "$found" ]; }; then
    echo "self-test: '$2' in $1: expected '${3:-no fault}', found '${found:-no fault}'"
    failed=1
  fi
  rm "$tree/$1"
}

self_test() {
  tree=$(mktemp -d)
  trap 'rm -rf "$tree"' EXIT
  failed=0
  mkdir -p "$tree/tests" "$tree/tessera"
  expect tessera/nn/a.cc '#include "tessera/ops/ops.h"' ''
  expect tessera/nn/a.cc '#include "tessera/nn/a.h"  // its own' ''
  expect tessera/nn/a.cc '#include <vector>' ''
  expect tessera/ops/a.cc '#include "tessera/nn/a.h"' 'below it'
  expect tessera/base/a.h '  #  include <tessera/cli/main.h>' 'below it'
  expect tessera/kernels/common/a.cc '#include "tessera/runtime/tensor.h"' 'below it'
  expect tessera/nn/a.cc '#include "a.h"' 'not written from the root'
  expect tessera/nn/a.cc '#include "tessera/attic/a.h"' 'no room'
  expect tessera/attic/a.cc '#include "tessera/base/error.h"' 'no room'
  expect tessera/runtime/a.cc '#include "pjrt_c_api.h"' 'only the pjrt room'
  expect tests/runtime/a.cc '#include "xla/pjrt/c/pjrt_c_api.h"' 'only the pjrt room'
  expect tessera/pjrt/a.cc '#include "pjrt_c_api.h"' ''
  expect tests/pjrt/fake.cc '#include "pjrt_c_api.h"' ''
  for top in work tmp root home Users; do
    expect docs/a.md "see /$top/me/model" 'path of a machine'
  done
  expect docs/a.md "see ~/models, src/work/a and https://host.example/home/a" ''
  [ "$failed" = 0 ] && echo "self-test passed"
  return "$failed"
}

if [ "${1:-}" = --self-test ]; then
  self_test
else
  check "${1:-$(dirname "$0")/..}"
fi
