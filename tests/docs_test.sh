#!/usr/bin/env bash
# Runs every command line of README.md that begins with build/release/tessera, and the example that it shows; checks that
# the example is the one in examples/. Usage: docs_test.sh SOURCE_DIR PROGRAM EXAMPLE
set -euo pipefail
source=$1 program=$2 example=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source/models" "$work/models"
cd "$work"

count=0
while IFS= read -r line; do
  command=${line#    build/release/tessera}
  echo "tessera$command"
  eval "\"$program\"$command" >output.txt
  count=$((count + 1))
done < <(grep -E '^    build/release/tessera ' "$source/README.md")
[ "$count" -ge 4 ] || { echo "README.md shows only $count commands"; exit 1; }
for picture in apple.png picture-0.png picture-1.png; do
  [ -s "$picture" ] || { echo "$picture was not drawn"; exit 1; }
done

rm apple.png
"$example"
[ -s apple.png ] || { echo "the example drew nothing"; exit 1; }
sed -n '/^```cpp$/,/^```$/p' "$source/README.md" | sed '1d;$d' >shown.cc
diff shown.cc "$source/examples/first_picture.cc"
