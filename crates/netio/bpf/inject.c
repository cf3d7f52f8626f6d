// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Makes a packet that is written to a TUN device arrive by another interface, the WAN. Firewall, connection
// tracking, source checks and queueing disciplines then treat it as they treat packets from the wire.
//
// The path of a packet: undrop_inject, at the ingress of the TUN device: set the mark, add the link's header,
// redirect -> the WAN's packet sockets and taps, which pass marked packets over -> undrop_arrive, at the
// ingress of the WAN after the taps: count, remove the mark. Only then do the rules of the machine see it.
//
// A probe is a packet of this machine to itself that shows whether this path works. It ends in undrop_arrive.
//
// Built by `bpf/build.sh`, under the conditions stated in `tap.c`. The helpers exist since Linux 4.18; since
// 5.10 bpf_fib_lookup returns what is needed.

#include "kernel.h"

struct fib_lookup {
	u8 family;
	u8 l4_protocol;
	u16 sport;
	u16 dport;
	u16 tot_len;
	u32 ifindex;
	u32 tos;
	u32 src[4];
	u32 dst[4];
	u32 vlan;
	u8 smac[6];
	u8 dmac[6];
};

_Static_assert(sizeof(struct fib_lookup) == 64, "layout of linux/bpf.h");

static long (*store_bytes)(void *skb, u32 at, const void *from, u32 len, u64 flags) = (void *)9;
static long (*redirect)(u32 index, u64 flags) = (void *)23;
static long (*change_type)(void *skb, u32 type) = (void *)32;
static long (*change_head)(void *skb, u32 len, u64 flags) = (void *)43;
static long (*fib_lookup)(void *ctx, void *params, int len, u32 flags) = (void *)69;

enum { TO_INGRESS = 1 };   // BPF_F_INGRESS
enum { LOOKUP_OUTPUT = 2 }; // BPF_FIB_LOOKUP_OUTPUT
enum { PACKET_HOST = 0 };
enum { INET = 2, INET6 = 10 };

// ---- interface to user space

// REFUSED: the kernel could not add the link's header. ARRIVED: at the ingress of the WAN.
enum count { REFUSED = 0, ARRIVED = 1, PROBES = 2, COUNTS = 3 };

// set before loading
volatile const u32 wan = 0;
volatile const u32 has_link_header = 0;
volatile const u32 mark = 0;
volatile const u32 probe_mark = 0;
volatile const u64 probe_token = 0;
volatile const u8 wan_address[8] = {0};

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, COUNTS);
	TYPE(key, u32);
	TYPE(value, u64);
} counters SEC(".maps");

// ---- the packet's path

INLINE void count(u32 which)
{
	u64 *counter = map_lookup(&counters, &which);
	if (counter)
		*counter += 1; // one per CPU, and neither program interrupts itself
}

INLINE u16 swap(u16 value)
{
	return __builtin_bswap16(value);
}

enum { PROBE_HEADER = 20, PROBE_LEN = 28 };

INLINE int is_probe(struct __sk_buff *skb)
{
	u64 token;
	if (skb->len != PROBE_LEN || load_bytes(skb, PROBE_HEADER, &token, sizeof(token)))
		return 0;
	return token == probe_token;
}

struct ethernet {
	u8 destination[6];
	u8 source[6];
	u16 protocol;
};

// Sets the router on the way back to the packet's source, which stays zero if it is not known.
INLINE void find_router(struct __sk_buff *skb, struct ethernet *header)
{
	struct fib_lookup route = {.ifindex = wan};
	if (header->protocol == swap(ETH_IP)) {
		route.family = INET;
		if (load_bytes(skb, 12, route.dst, 4) || load_bytes(skb, 16, route.src, 4))
			return;
	} else {
		route.family = INET6;
		if (load_bytes(skb, 8, route.dst, 16) || load_bytes(skb, 24, route.src, 16))
			return;
	}
	if (!fib_lookup(skb, &route, sizeof(route), LOOKUP_OUTPUT) && route.ifindex == wan)
		__builtin_memcpy(header->source, route.dmac, sizeof(header->source));
}

INLINE int add_link_header(struct __sk_buff *skb)
{
	struct ethernet header = {.protocol = skb->protocol};
	for (int i = 0; i < 6; i++)
		header.destination[i] = wan_address[i];
	find_router(skb, &header);
	return change_head(skb, sizeof(header), 0) || store_bytes(skb, 0, &header, sizeof(header), 0);
}

SEC("classifier/undrop_inject") int undrop_inject(struct __sk_buff *skb)
{
	u32 chosen = is_probe(skb) ? probe_mark : mark;
	if (has_link_header && add_link_header(skb)) {
		count(REFUSED);
		return DROP;
	}
	skb->mark = chosen;
	return redirect(wan, TO_INGRESS);
}

SEC("classifier/undrop_arrive") int undrop_arrive(struct __sk_buff *skb)
{
	if (skb->mark == mark) {
		// The address of the interface may have changed since this program was loaded.
		change_type(skb, PACKET_HOST);
		skb->mark = 0;
		count(ARRIVED);
	} else if (skb->mark == probe_mark) {
		count(PROBES);
		return DROP;
	}
	return GO_ON;
}

char _license[] SEC("license") = "Dual MIT/GPL";
