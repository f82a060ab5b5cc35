#!/bin/bash
# usage: kill_test.sh PROGRAM MODEL
# Kills one of two processes that draw a picture together: the other must end, and the launcher with an error, within
# 10 seconds, with nothing left running and nothing written. Then the same for the launcher itself.
set -u
program=$1 model=$2
work=$(mktemp -d)
trap 'pkill -KILL -f "$work/never.png"; rm -rf "$work"' EXIT

fail() {
  echo "failed: $*"
  cat "$work/stderr"
  exit 1
}

ranks() { pgrep -f "^$program generate .*$work/never.png"; }

# Starts a run that takes longer than this test, and waits until both processes are at work.
start() {
  "$program" launch --nproc 2 --device cpu -- generate "$model" -p "a red apple" --seed 7 --steps 1000 \
    -o "$work/never.png" 2>"$work/stderr" &
  launcher=$!
  for _ in $(seq 300); do
    [ "$(ranks | wc -l)" = 2 ] && ! ranks | sed 's|.*|/proc/&/maps|' | xargs grep -L pjrt_c_api | grep -q . && break
    sleep 0.1
  done
  [ "$(ranks | wc -l)" = 2 ] || fail "two processes did not start"
  sleep 1
}

# Waits until nothing runs any more.
await_end() {
  for _ in $(seq 100); do
    [ -z "$(ranks)" ] && return
    sleep 0.1
  done
  fail "processes are left after 10 s: $(ranks | tr '\n' ' ')"
}

start
kill -KILL "$(ranks | tail -n 1)"
begin=$SECONDS
wait "$launcher"
status=$?
[ "$status" = 1 ] || fail "the launcher ended with status $status after a rank was killed"
[ $((SECONDS - begin)) -le 10 ] || fail "the launcher ended $((SECONDS - begin)) s after a rank was killed"
grep -q '^error: a rank was ended by signal 9 (Killed), and with it the others$' "$work/stderr" || fail "no word of the killed rank"
await_end

start
kill -TERM "$launcher"
wait "$launcher"
status=$?
[ "$status" = 143 ] || fail "the launcher ended with status $status when it was asked to stop"
# Open MPI now and then has a warning of its own about a pipe that has gone.
[ "$(grep '^error: ' "$work/stderr")" = "error: interrupted; nothing was written" ] || fail "more or less than one line was said"
await_end

start
kill -KILL "$launcher"
await_end
[ ! -e "$work/never.png" ] || fail "a picture was written"
echo "passed"
