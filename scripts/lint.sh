#!/bin/bash
# usage: scripts/lint.sh format [--fix]     clang-format on the C++ files that git tracks
#        scripts/lint.sh tidy [FILE.cc...]  clang-tidy on these files, or on all that build/release compiles
# Exits 77, with the reason, when the tool is missing. clang-format differs from version to version: 14 is the one of
# Debian 12 that the tree is formatted with.
set -eu
cd "$(dirname "$0")/.."
version=14

skip() {
  echo "skipped: $*"
  exit 77
}

format() {
  tool=$(command -v clang-format-$version || command -v clang-format) || skip "no clang-format (scripts/setup.sh --lint)"
  "$tool" --version | grep -q "version $version\." || skip "$("$tool" --version) is not version $version"
  git rev-parse --is-inside-work-tree >/dev/null 2>&1 || skip "no git checkout"
  if [ "${1:-}" = --fix ]; then
    git ls-files -z -- '*.cc' '*.h' | xargs -0r "$tool" -i
  else
    # Of its pages of carets only the first line of each file says something.
    wrong=$(git ls-files -z -- '*.cc' '*.h' | xargs -0r "$tool" --dry-run -Werror 2>&1) ||
      { sed -nE 's|^([^ ]+:[0-9]+):[0-9]+: .*|\1: not formatted (make format)|p' <<<"$wrong" | sort -t : -k 1,1 -u; exit 1; }
  fi
}

tidy() {
  tool=$(command -v clang-tidy-$version || command -v clang-tidy) || skip "no clang-tidy (scripts/setup.sh --lint)"
  database=build/release/compile_commands.json
  [ -f "$database" ] || { echo "error: no $database; run make build first"; exit 1; }
  if [ $# -gt 0 ]; then
    printf '%s\0' "$@"
  else
    sed -n "s|^ *\"file\": \"$PWD/\(.*\)\",*$|\1|p" "$database" | grep -v '^build/' | tr '\n' '\0'
  fi | xargs -0r -n 1 -P "$(nproc)" "$tool" -p build/release --quiet --warnings-as-errors='*' 2>&1 |
    { grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header-filter|^$' || true; }
  return "${PIPESTATUS[0]}"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
  format) format "$@" ;;
  tidy) tidy "$@" ;;
  *)
    sed -n '2,5s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
