#!/bin/sh
# Builds the other tunnels of `undrop-lab bench tunnel`, and PEPsal for `undrop-lab bench split`, in bench/peers/tunnels/build.
#
# build.sh DIRECTORY: each repository below has a clone in DIRECTORY, under the name in the first column. A clone that is
# missing is named and left out. WireGuard comes from Debian: apt-get install wireguard-go wireguard-tools. boringtun is
# built by cargo, and the stand-in for kcptun by go, each where it is installed.
set -eu

[ $# = 1 ] || { echo "usage: $0 DIRECTORY-OF-CLONES" >&2; exit 2; }
clones=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$here/build"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# take NAME REPOSITORY COMMIT: puts the files of this commit into $work/NAME
take() {
    if ! git -C "$clones/$1" cat-file -e "$3^{commit}" 2>/dev/null; then
        echo "$1: no commit $3 in $clones/$1; clone the repository $2" >&2
        return 1
    fi
    mkdir -p "$work/$1"
    git -C "$clones/$1" archive "$3" | tar -x -C "$work/$1"
}

# compile NAME PROGRAM AS: builds in $work/NAME; the makefiles ask git for a version, which the files do not have
compile() {
    echo "const char *gitversion = \"bench\";" >"$work/$1/git_version.h"
    make -C "$work/$1" -o git_version OPT=-w >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; return 1; }
    install -m 755 "$work/$1/$2" "$here/build/$3"
    echo "$here/build/$3"
}

if take UDPspeeder wangyu-/UDPspeeder 17694ecaa9681b04498709ba7526c8a8f022b512; then
    compile UDPspeeder speederv2 speederv2
fi
if take UDPspeeder-simd connollydavid/UDPspeeder-simd 4370bac6354c747004ba94e2e6e142d23f0fccab; then
    compile UDPspeeder-simd speederv2 speederv2-simd
fi
# tinyfecVPN contains this commit of UDPspeeder.
if take tinyfecVPN wangyu-/tinyfecVPN cbdf9beed3d03558b70d54e712453293f1d824f0; then
    if take UDPspeeder wangyu-/UDPspeeder 61b24a369700c3d8248dd18fa9a524b778741454; then
        rm -rf "$work/tinyfecVPN/UDPspeeder"
        mv "$work/UDPspeeder" "$work/tinyfecVPN/UDPspeeder"
        compile tinyfecVPN tinyvpn tinyvpn
    fi
fi
if take pepsal viveris/pepsal e799fdd5545c3d272ed2d4f683e20a460f805143; then
    # What its configure script would write.
    printf '#define VERSION "2.0.0"\n#define PACKAGE "pepsal"\n' >"$work/pepsal/include/config.h"
    cc -O2 -w -D_GNU_SOURCE -I"$work/pepsal/include" "$work"/pepsal/src/*.c -o "$here/build/pepsal" -lpthread -lrt -lm
    echo "$here/build/pepsal"
fi
if command -v cargo >/dev/null; then
    cargo install boringtun-cli --version 0.6.0 --locked --quiet --root "$work/boringtun"
    install -m 755 "$work/boringtun/bin/boringtun-cli" "$here/build/boringtun-cli"
    echo "$here/build/boringtun-cli"
fi
if command -v go >/dev/null; then
    (cd "$here/kcp" && go build -o "$here/build/kcp-stand-in" .)
    echo "$here/build/kcp-stand-in"
fi
