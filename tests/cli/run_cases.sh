#!/bin/bash
# usage: run_cases.sh PROGRAM PROBE ROOT CASES.txt     runs the cases of a file
#        run_cases.sh --self-test                      shows that a case that should fail does
#
# A case begins with a line "case: NAME"; the lines after it, each "KEY: VALUE", are
#   needs:   a shell command; the case is skipped if it fails
#   setup:   a shell command that prepares the case's own empty folder (may be repeated)
#   args:    the program's arguments, as a shell would read them
#   env:     NAME=VALUE before the program (may be repeated)
#   stdout-to: a file that takes standard output
#   exit:    the exit status wanted
#   stderr:  an extended regular expression that standard error must match (may be repeated)
#   stdout:  the same for standard output
#   then:    a shell command that must succeed afterwards (may be repeated)
# Lines that begin with # are remarks. Commands run in the case's folder and know $TESSERA, $DATA (tests/data), $DEMO,
# `model NAME` (puts a copy of the checkpoint tests/data/models/NAME into ./model) and `probe` (cli_probe).
# Wanted of every case that ends with an error: exactly one line on standard error, which begins with "error: ", no
# picture and no temporary file in the folder.
set -u

model() { cp -r "$DATA/models/$1" model && chmod -R u+w model; }
probe() { "$PROBE" "$@"; }

fault() { faults+="    $1"$'\n'; }

check_error_is_clean() {
  local lines
  lines=$(wc -l <"$log/stderr")
  [ "$lines" = 1 ] || fault "standard error has $lines lines, not one"
  grep -q '^error: ' "$log/stderr" || fault 'standard error does not begin with "error: "'
  [ -z "$(find . -name '*.png' -newer "$log/start")" ] || fault "a picture was left behind"
}

run_case() {
  local line key value status=0 wanted=0 stdout_to="$log/stdout" faults='' skip=''
  local args='' then=() stderr=() stdout=() variables=()
  while IFS= read -r line; do
    key=${line%%:*} value=${line#*:} value=${value# }
    case $key in
      needs) eval "$value" >/dev/null 2>&1 || skip=$value ;;
      setup) [ -n "$skip" ] || eval "$value" || fault "setup failed: $value" ;;
      args) args=$value ;;
      env) variables+=("$value") ;;
      stdout-to) stdout_to=$value ;;
      exit) wanted=$value ;;
      stderr) stderr+=("$value") ;;
      stdout) stdout+=("$value") ;;
      then) then+=("$value") ;;
      *) fault "the case has a line that is not understood: $line" ;;
    esac
  done
  [ -z "$skip" ] || { echo "  skipped: $skip"; return 0; }
  touch "$log/start"
  eval "env ${variables[*]-} \"\$TESSERA\" $args" >"$stdout_to" 2>"$log/stderr" </dev/null || status=$?
  [ "$status" = "$wanted" ] || fault "exit status $status, wanted $wanted"
  for value in ${stderr[@]+"${stderr[@]}"}; do
    grep -qE -- "$value" "$log/stderr" || fault "standard error does not match: $value"
  done
  for value in ${stdout[@]+"${stdout[@]}"}; do
    grep -qE -- "$value" "$log/stdout" || fault "standard output does not match: $value"
  done
  [ "$wanted" = 0 ] || check_error_is_clean
  [ -z "$(find . -name '.tessera-*')" ] || fault "a temporary file was left behind"
  for value in ${then[@]+"${then[@]}"}; do
    eval "$value" >/dev/null 2>"$log/then" || fault "failed afterwards: $value"$'\n'"$(sed 's/^/      /' "$log/then")"
  done
  [ -z "${CLI_CASES_VERBOSE-}" ] || sed 's/^/    /' "$log/stderr"
  [ -n "$faults" ] || return 0
  printf '%s    standard error was:\n' "$faults"
  head -c 2000 "$log/stderr" | sed 's/^/      /'
  return 1
}

run_file() {
  local name='' body='' line failed=0 count=0
  # Not local: the trap runs after this function.
  work=$(mktemp -d)
  trap 'umount "$work"/*/full 2>/dev/null; rm -rf "$work"' EXIT
  finish() {
    [ -n "$name" ] || return 0
    count=$((count + 1))
    mkdir "$work/$count" "$work/$count.log"
    echo "case: $name"
    (cd "$work/$count" && log=$work/$count.log && run_case <<<"$body") || { echo "  FAILED"; failed=$((failed + 1)); }
  }
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
      '' | '#'*) ;;
      'case: '*) finish && name=${line#case: } body='' ;;
      *) body+=${body:+$'\n'}$line ;;
    esac
  done <"$1"
  finish
  echo "$count cases, $failed failed"
  [ "$count" -gt 0 ] && [ "$failed" = 0 ]
}

# A program that behaves badly in a given way; every case must find it out.
self_test() {
  local dir bad=0 line
  dir=$(mktemp -d)
  export PROBE=/bin/false DATA=/nonexistent DEMO=/nonexistent TESSERA=$dir/program
  try() {  # try BODY-OF-PROGRAM LINES-OF-CASE yes|no
    printf '#!/bin/bash\n%s\n' "$1" >"$TESSERA"
    chmod +x "$TESSERA"
    printf 'case: c\n%b\n' "$2" >"$dir/cases"
    if (run_file "$dir/cases") >/dev/null 2>&1; then found=no; else found=yes; fi
    [ "$found" = "$3" ] || { echo "self-test: program '$1', case '$2': fault found: $found, wanted: $3"; bad=1; }
  }
  try 'echo "error: no" >&2; exit 1' 'args: x\nexit: 1\nstderr: no$' no
  try 'exit 0' 'args: x\nexit: 1' yes
  try 'echo "error: no" >&2; exit 1' 'args: x\nexit: 2' yes
  try 'echo "error: no" >&2; exit 1' 'args: x\nexit: 1\nstderr: yes' yes
  try 'printf "error: a\\nb\\n" >&2; exit 1' 'args: x\nexit: 1' yes
  try 'echo "oops" >&2; exit 1' 'args: x\nexit: 1' yes
  try 'echo "error: no" >&2; touch a.png; exit 1' 'args: x\nexit: 1' yes
  try 'touch .tessera-1.tmp' 'args: x\nexit: 0' yes
  try 'true' 'args: x\nexit: 0\nthen: test -e a.png' yes
  try 'true' 'args: x\nexit: 0\nsetup: false' yes
  try 'true' 'args: x\nexit: 0\nstdot: x' yes
  try 'exit 1' 'needs: false\nargs: x\nexit: 0' no
  try '[ "$A" = b ] && [ "$1" = "c d" ]' "args: 'c d'\nenv: A=b\nexit: 0" no
  rm -r "$dir"
  [ "$bad" = 0 ] && echo "self-test passed"
  return "$bad"
}

if [ "${1:-}" = --self-test ]; then
  self_test
  exit
fi
export TESSERA=$1 PROBE=$2 DATA=$3/tests/data DEMO=$3/models/demo
run_file "$4"
