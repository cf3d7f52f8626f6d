#!/bin/sh
# Builds the tap's kernel part. Needs clang and llvm-strip of LLVM 14 or later; see tests/bpf_object.rs.
# usage: bpf/build.sh [OUTPUT]
set -eu
cd "$(dirname "$0")"
out=${1:-tap.bpf.o}
# no paths of this machine in the result
clang -O2 -g -Wall -Wextra -Werror -target bpf -mcpu=v2 -mlittle-endian -fdebug-prefix-map="$PWD=." \
	-c tap.c -o "$out"
# drops the debug sections and the line numbers, keeps .BTF, which describes the maps
llvm-strip -g --remove-section=.BTF.ext --remove-section=.rel.BTF.ext "$out"
