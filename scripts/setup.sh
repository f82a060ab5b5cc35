#!/bin/sh
# Installs what a build of Tessera needs: missing Debian packages, and the PJRT CPU plugin and headers in third_party/.
# A second run finds everything in place, needs no network and takes a fraction of a second.
#
# usage: scripts/setup.sh [--lint] [--tpu] [--prefix DIR] [--no-packages]
#   --lint          also install what `make lint` needs
#   --tpu           also unpack libtpu (137 MB to fetch, 467 MB on disk), the compiler for TPUs; where it cannot be had,
#                   a warning says why, and the tests that need it are skipped
#   --prefix DIR    unpack into DIR instead of third_party/
#   --no-packages   leave the system's packages alone
# TESSERA_WHEEL_DIR: a folder with the wheels of scripts/wheels*.txt, for a machine without a network.
set -eu

layout=1  # raise it when what is unpacked changes
root=$(cd "$(dirname "$0")/.." && pwd)
prefix="$root/third_party"
build_packages="g++ cmake ninja-build pkg-config ccache nlohmann-json3-dev libcli11-dev libfmt-dev libspdlog-dev
  libpng-dev libpcre2-dev libutf8proc-dev libxxhash-dev libopenmpi-dev openmpi-bin libgtest-dev libgmock-dev"
lint_packages="clang-format clang-tidy"
modules="nlohmann_json CLI11 fmt spdlog libpng libpcre2-8 libutf8proc libxxhash gtest gmock"

lint=no
tpu=no
manage_packages=yes

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 1
}

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Those of the named Debian packages that are not installed. One query for the usual case that all are.
missing_packages() {
  # shellcheck disable=SC2086
  states=$(dpkg-query -W -f='${db:Status-Status}\n' $1 2>/dev/null) && ! echo "$states" | grep -qv '^installed$' && return
  for package in $1; do
    is_installed "$package" || printf '%s ' "$package"
  done
}

install_packages() {
  missing=$(missing_packages "$1")
  [ -n "$missing" ] || return 0
  [ "$manage_packages" = yes ] || die "these packages are missing: ${missing}(or run without --no-packages)"
  if [ "$(id -u)" = 0 ]; then
    as_root=
  elif command -v sudo >/dev/null 2>&1; then
    as_root=sudo
  else
    die "not root and no sudo; install these packages, then try again: apt-get install $missing"
  fi
  say "installing ${missing}(Debian packages)"
  log=$(mktemp)
  # shellcheck disable=SC2086
  if ! { $as_root apt-get update -qq && $as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends $missing; } </dev/null >"$log" 2>&1; then
    reason=$(grep -E '^E:' "$log" | head -n 1 || true)
    rm -f "$log"
    die "apt-get could not install ${missing}(${reason:-no reason given})"
  fi
  rm -f "$log"
}

# On a system without apt: say what is missing, by the names that its own package manager is likely to know.
check_tools() {
  missing=
  for tool in cmake ninja pkg-config; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
  done
  command -v c++ >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 || missing="$missing g++"
  if command -v pkg-config >/dev/null 2>&1; then
    for module in $modules; do
      pkg-config --exists "$module" || missing="$missing $module"
    done
  fi
  [ "$lint" = no ] || command -v clang-format >/dev/null 2>&1 || missing="$missing clang-format"
  [ "$lint" = no ] || command -v clang-tidy >/dev/null 2>&1 || missing="$missing clang-tidy"
  [ -z "$missing" ] || die "this is no Debian; install these, with their development files, then try again:$missing"
}

# Which wheels are meant from here on: pip's options for them, their size, what they hold, and the files that matter.
use_base_wheels() {
  wheels="$root/scripts/wheels.txt"
  stamp_file="$prefix/stamp"
  pip_options=
  size="125 MB"
  what="the CPU plugin and the PJRT header"
  files="plugins/pjrt_c_api_cpu_plugin.so include/pjrt_c_api.h"
}

use_ffi_wheels() {
  wheels="$root/scripts/wheels-ffi.txt"
  stamp_file="$prefix/stamp-ffi"
  pip_options="--python-version 3.11 --implementation cp --abi cp311 --platform macosx_11_0_arm64"
  size="61 MB"
  what="the headers of XLA's foreign function interface"
  files="include/xla/ffi/api/c_api.h include/xla/ffi/api/api.h include/xla/ffi/api/ffi.h"
}

use_tpu_wheels() {
  wheels="$root/scripts/wheels-tpu.txt"
  stamp_file="$prefix/stamp-tpu"
  # There is a wheel for each version of Python, with the same library in each.
  pip_options="--python-version 3.11 --implementation cp --abi cp311 --platform manylinux_2_31_x86_64 --retries 1"
  size="137 MB"
  what="libtpu"
  files="plugins/libtpu.so"
}

# The stamp says which wheels the files came from and how they were laid out.
stamp() {
  echo "layout $layout"
  cat "$wheels"
}

is_unpacked() {
  for file in $files; do
    [ -s "$prefix/$file" ] || return 1
  done
  [ -f "$stamp_file" ] && stamp | cmp -s - "$stamp_file"
}

# "name version sha256" of the wheels, one a line.
pinned() { sed -n 's/^\([A-Za-z0-9._-]*\)==\([^ ]*\) --hash=sha256:\([0-9a-f]*\)$/\1 \2 \3/p' "$wheels"; }

# The file of wheel $1 version $2 in folder $3; nothing if it is not there.
wheel_file() {
  for file in "$3/$(echo "$1" | tr '.-' '__')-$2-"*.whl; do
    [ ! -f "$file" ] || echo "$file"
  done | head -n 1
}

# Fetches what is pinned into folder $1.
download() {
  names=$(pinned | sed 's/ /==/; s/ .*//' | tr '\n' ' ')
  offline="on a machine without a network put the wheels in a folder and set TESSERA_WHEEL_DIR"
  say "downloading ${names}(about $size)"
  # shellcheck disable=SC2086
  if ! "$python" -m pip download --no-deps --require-hashes --only-binary=:all: --disable-pip-version-check -q \
      $pip_options -r "$wheels" -d "$1" </dev/null >"$1/log" 2>&1; then
    # Without a connection pip's last word is that there is no such version; the cause is in its first warning.
    reason=$(grep -E 'connection broken by|^ *ERROR' "$1/log" | head -n 1 | sed "s/.*broken by '//; s/^ *ERROR: *//" || true)
    die "pip could not download ${names}(${reason:-no reason given}); $offline"
  fi
}

# Copies member $2 of wheel $1 to $3, which appears whole or not at all.
unpack() {
  mkdir -p "$(dirname "$3")"
  "$python" - "$1" "$2" "$work/member" <<'PYTHON' 2>/dev/null || die "no $2 in $(basename "$1"), or no room for it in $prefix"
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as source, open(sys.argv[3], "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)
PYTHON
  mv -f "$work/member" "$3"
}

fetch_wheels() {
  [ "$(uname -sm)" = "Linux x86_64" ] || die "the pinned wheels are for Linux on x86-64; this is $(uname -sm)"
  python=python3
  [ -n "${TESSERA_WHEEL_DIR:-}" ] && module=zipfile || module=pip
  if ! python3 -c "import $module" >/dev/null 2>&1; then
    command -v apt-get >/dev/null 2>&1 || die "python3 with $module is missing; install it, then try again"
    [ "$module" = pip ] && install_packages "python3 python3-pip" || install_packages python3
    python=/usr/bin/python3
  fi
  mkdir -p "$prefix"
  work=$(mktemp -d "$prefix/.setup.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 1' HUP INT TERM
  from=${TESSERA_WHEEL_DIR:-}
  if [ -z "$from" ]; then
    from=$work
    download "$work"
  fi
  pinned >"$work/pinned"
  while read -r name version hash; do
    file=$(wheel_file "$name" "$version" "$from")
    [ -n "$file" ] || die "no wheel $name $version in $from${TESSERA_WHEEL_DIR:+ (TESSERA_WHEEL_DIR)}"
    found=$(sha256sum "$file" | cut -d ' ' -f 1)
    [ "$found" = "$hash" ] || die "$file has sha256 $found; scripts/${wheels##*/} asks for $hash: remove it and try again"
    case $name in
      lammps-jax-pjrt-cpu)
        unpack "$file" lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so "$prefix/plugins/pjrt_c_api_cpu_plugin.so"
        for text in LICENSE THIRD_PARTY_NOTICES; do
          unpack "$file" "lammps_jax_pjrt_cpu-$version.dist-info/licenses/$text" "$prefix/licenses/$name/$text"
        done
        ;;
      xla-cpu-pjrt)
        unpack "$file" xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h "$prefix/include/pjrt_c_api.h"
        # This wheel has no licence file; the header carries its notice, and its licence is Apache-2.0.
        mkdir -p "$prefix/licenses/$name"
        sed '/^=*\*\/$/q' "$prefix/include/pjrt_c_api.h" >"$prefix/licenses/$name/NOTICE"
        ;;
      jaxlib)
        for header in c_api.h api.h ffi.h; do
          unpack "$file" "jaxlib/include/xla/ffi/api/$header" "$prefix/include/xla/ffi/api/$header"
        done
        unpack "$file" "jaxlib-$version.dist-info/licenses/LICENSE.txt" "$prefix/licenses/$name/LICENSE.txt"
        ;;
      libtpu)
        unpack "$file" libtpu/libtpu.so "$prefix/plugins/libtpu.so"
        for text in LICENSE THIRD_PARTY_NOTICES.txt; do
          unpack "$file" "libtpu/$text" "$prefix/licenses/$name/$text"
        done
        ;;
      *) die "scripts/${wheels##*/} names $name, and scripts/setup.sh does not know what to take from it" ;;
    esac
  done <"$work/pinned"
  stamp >"$work/stamp"
  mv -f "$work/stamp" "$stamp_file"
  say "unpacked $what into $prefix"
}

while [ $# -gt 0 ]; do
  case $1 in
    --lint) lint=yes ;;
    --tpu) tpu=yes ;;
    --no-packages) manage_packages=no ;;
    --prefix)
      [ $# -ge 2 ] || die "--prefix wants a folder"
      prefix=$2
      shift
      ;;
    *) die "unknown argument $1 (known: --lint, --tpu, --prefix DIR, --no-packages)" ;;
  esac
  shift
done

if command -v apt-get >/dev/null 2>&1; then
  [ "$lint" = no ] || build_packages="$build_packages $lint_packages"
  install_packages "$build_packages"
else
  check_tools
fi
use_base_wheels
is_unpacked || (fetch_wheels)
use_ffi_wheels
is_unpacked || (fetch_wheels)
if [ "$tpu" = yes ]; then
  use_tpu_wheels
  is_unpacked || (fetch_wheels) || say "going on without libtpu: the tests that need it are skipped"
fi
