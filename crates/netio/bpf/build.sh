#!/bin/sh
# Builds the kernel parts. Needs clang and llvm-strip of LLVM 14 or later; see tests/bpf_object.rs.
# usage: bpf/build.sh [DIRECTORY]
set -eu
cd "$(dirname "$0")"
for part in tap drop; do
	out=${1:-.}/$part.bpf.o
	# no paths of this machine in the result
	clang -O2 -g -Wall -Wextra -Werror -target bpf -mcpu=v2 -mlittle-endian -fdebug-prefix-map="$PWD=." \
		-c $part.c -o "$out"
	# drops the debug sections and the line numbers, keeps .BTF, which describes the maps
	llvm-strip -g --remove-section=.BTF.ext --remove-section=.rel.BTF.ext "$out"
done
