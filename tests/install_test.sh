#!/bin/bash
# usage: install_test.sh BUILD [CMAKE-ARGUMENT...]
# Installs what BUILD holds into a fresh folder, builds tests/consumer against it by find_package(tessera), runs it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -G Ninja -S "$here/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" "$@" >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/build"
"$work/build/consumer"
