// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Passes every packet on: an XDP program for tests of machines that have one. Built by netio's `bpf/build.sh`.

#define SEC(name) __attribute__((section(name), used))
enum { PASS = 2 }; // XDP_PASS

SEC("xdp") int undrop_pass(void *context)
{
	(void)context;
	return PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
