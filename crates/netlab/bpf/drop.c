// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Loses packets as they arrive at an interface, by a loss model. It injects faults in tests and measurements,
// never in traffic that matters. Packets that do not match the filter pass unchanged.
//
// The path of a packet: undrop_drop -> wanted4, wanted6: does it match the filter? -> lose: the model's
// verdict -> report: identify the packet by a mark in it.
//
// Built by `bpf/build.sh`; the object is checked in, like the tap's (see netio's tap.c), for Linux 5.8 and
// later.

#include "../../netio/bpf/kernel.h"

struct bpf_spin_lock {
	u32 value;
};

static u32 (*random_u32)(void) = (void *)7;
static void (*lock)(struct bpf_spin_lock *lock) = (void *)93;
static void (*unlock)(struct bpf_spin_lock *lock) = (void *)94;

enum { LINK_HEADER = 14 };

// ---- interface to user space

// A chain: loss with probability `lost`, after a lost packet with `lost_again`. With a burst: exactly `burst`
// consecutive packets, and at least one passes between two bursts. Probabilities are thresholds for random
// 64-bit numbers; the maximum stands for certainty.
struct model {
	u64 lost;
	u64 lost_again;
	u64 burst; // 0 for a chain
};

struct state {
	struct bpf_spin_lock lock; // packets arrive on several CPUs
	u32 left;                  // of this burst
	u32 last_lost;
	u32 unused;
	u64 seen;
	u64 lost;
	u64 super_packets; // lost, each with all its segments
	u64 unmarked;      // lost ones without the mark
	u64 unreported;    // lost ones for which the ring had no room
};

enum { REPORT_LEN = 32 };

struct record {
	u64 time_ns; // CLOCK_MONOTONIC
	u8 bytes[REPORT_LEN]; // from the mark on
};

struct prefix4 {
	u32 bits;
	u8 address[4];
};

struct prefix6 {
	u32 bits;
	u8 address[16];
};

// the filter; set before loading
volatile const u32 multicast_only = 0;
volatile const u32 udp_only = 0;
volatile const u32 length_min = 0; // of the IP packet
volatile const u32 sources_only = 0;
// 0 reports no packets
volatile const u64 wanted_mark = 0;

#define ONE(name, of)                \
	struct {                     \
		UINT(type, MAP_ARRAY); \
		UINT(max_entries, 1); \
		TYPE(key, u32);      \
		TYPE(value, of);     \
	} name SEC(".maps")

ONE(models, struct model);
ONE(states, struct state);

#define NETWORKS(name, key_type)           \
	struct {                           \
		UINT(type, MAP_LPM_TRIE);  \
		UINT(map_flags, NO_PREALLOC); \
		UINT(max_entries, 1024);   \
		TYPE(key, key_type);       \
		TYPE(value, u8);           \
	} name SEC(".maps")

NETWORKS(sources4, struct prefix4);
NETWORKS(sources6, struct prefix6);

struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 1 << 20);
} ring SEC(".maps");

// ---- the packet's path, last stage first as C requires

// Bytes of the UDP payload that are searched for the mark.
enum { WINDOW = 168 };

// Returns the position of the mark from `at` on, or WINDOW if there is none.
INLINE u32 find_mark(struct __sk_buff *skb, u32 at)
{
	u8 window[WINDOW] = {};
	if (load_bytes(skb, at, window, WINDOW) && load_bytes(skb, at, window, 96) &&
	    load_bytes(skb, at, window, 64) && load_bytes(skb, at, window, REPORT_LEN))
		return WINDOW;
	u64 last = 0;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < WINDOW; i++) {
		last = last >> 8 | (u64)window[i] << 56;
		if (last == wanted_mark)
			return i - 7;
	}
	return WINDOW;
}

INLINE void report(struct __sk_buff *skb, struct state *state, u32 payload)
{
	u32 mark = find_mark(skb, payload);
	if (mark >= WINDOW) {
		__sync_fetch_and_add(&state->unmarked, 1);
		return;
	}
	struct record *record = ring_reserve(&ring, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&state->unreported, 1);
		return;
	}
	if (load_bytes(skb, payload + mark, record->bytes, REPORT_LEN)) {
		ring_discard(record, NO_WAKEUP);
		__sync_fetch_and_add(&state->unmarked, 1);
		return;
	}
	record->time_ns = now_ns();
	ring_submit(record, NO_WAKEUP);
}

INLINE int happens(u64 drawn, u64 threshold)
{
	return drawn < threshold || threshold == ~0ULL;
}

// Returns the model's verdict. A super-packet has one verdict and counts as its segments.
INLINE int lose(struct state *state, const struct model *model, u32 segments)
{
	// no calls while holding the lock
	u64 drawn = (u64)random_u32() << 32 | random_u32();
	u64 first = model->lost, again = model->lost_again, burst = model->burst;
	u32 lost;
	lock(&state->lock);
	if (!burst) {
		lost = happens(drawn, state->last_lost ? again : first);
	} else {
		if (!state->left && !state->last_lost && happens(drawn, first))
			state->left = burst;
		lost = state->left > 0;
		if (lost)
			state->left -= segments < state->left ? segments : state->left;
	}
	state->last_lost = lost;
	state->seen += segments;
	if (lost)
		state->lost += segments;
	if (lost && segments > 1)
		state->super_packets += 1;
	unlock(&state->lock);
	return lost;
}

enum { UDP = 17, UDP_HEADER = 8 };

// Returns where the UDP payload would begin, from the start of the frame; 0 if the packet does not match the
// filter.
INLINE u32 wanted4(struct __sk_buff *skb)
{
	u8 header[20];
	if (load_bytes(skb, LINK_HEADER, header, sizeof(header)) || header[0] >> 4 != 4)
		return 0;
	if (multicast_only && header[16] >> 4 != 14)
		return 0;
	if (udp_only && header[9] != UDP)
		return 0;
	if ((u32)(header[2] << 8 | header[3]) < length_min)
		return 0;
	if (sources_only) {
		struct prefix4 key = {.bits = 32};
		__builtin_memcpy(key.address, header + 12, sizeof(key.address));
		if (!map_lookup(&sources4, &key))
			return 0;
	}
	return LINK_HEADER + (header[0] & 15) * 4 + UDP_HEADER;
}

INLINE u32 wanted6(struct __sk_buff *skb)
{
	u8 header[40];
	if (load_bytes(skb, LINK_HEADER, header, sizeof(header)) || header[0] >> 4 != 6)
		return 0;
	if (multicast_only && header[24] != 0xff)
		return 0;
	if (udp_only && header[6] != UDP)
		return 0;
	if (40 + (u32)(header[4] << 8 | header[5]) < length_min)
		return 0;
	if (sources_only) {
		struct prefix6 key = {.bits = 128};
		__builtin_memcpy(key.address, header + 8, sizeof(key.address));
		if (!map_lookup(&sources6, &key))
			return 0;
	}
	return LINK_HEADER + 40 + UDP_HEADER;
}

enum { PACKET_OTHERHOST = 3, PACKET_LOOPBACK = 5 };

SEC("classifier/undrop_drop") int undrop_drop(struct __sk_buff *skb)
{
	// packets for other machines, and the echo of our own
	if (skb->pkt_type == PACKET_OTHERHOST || skb->pkt_type == PACKET_LOOPBACK)
		return GO_ON;
	u16 protocol = __builtin_bswap16(skb->protocol);
	u32 payload = 0;
	if (protocol == ETH_IP)
		payload = wanted4(skb);
	else if (protocol == ETH_IPV6)
		payload = wanted6(skb);
	if (!payload)
		return GO_ON;
	u32 zero = 0;
	struct state *state = map_lookup(&states, &zero);
	const struct model *model = map_lookup(&models, &zero);
	if (!state || !model)
		return GO_ON;
	u32 segments = skb->gso_segs > 1 ? skb->gso_segs : 1;
	if (!lose(state, model, segments))
		return GO_ON;
	if (wanted_mark)
		report(skb, state, payload);
	return DROP;
}

char _license[] SEC("license") = "Dual MIT/GPL";
