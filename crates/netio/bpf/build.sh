#!/bin/sh
# Builds the kernel parts of the tap, the injection and the laboratory. Needs clang and llvm-strip of LLVM 14 or later; see tests/it/bpf_object.rs.
# usage: bpf/build.sh [DIRECTORY]     without a directory each object is written beside its source
set -eu
cd "$(dirname "$0")/../.."
for part in netio/bpf/tap netio/bpf/inject netlab/bpf/drop netlab/bpf/pass; do
	source=$(basename "$part").c
	directory=$PWD/$(dirname "$part")
	out=${1:-$directory}/$(basename "$part").bpf.o
	# no paths of this machine in the result
	(cd "$directory" && clang -O2 -g -Wall -Wextra -Werror -target bpf -mcpu=v2 -mlittle-endian \
		-fdebug-prefix-map="$PWD=." -c "$source" -o "$out")
	# drops the debug sections and the line numbers, keeps .BTF, which describes the maps
	llvm-strip -g --remove-section=.BTF.ext --remove-section=.rel.BTF.ext "$out"
done
