// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Copies the packets of chosen networks into a ring buffer, as they leave and enter an interface. It never
// alters, delays or drops a packet: the verdict is always "go on with the next program".
//
// The path of a packet: undrop_egress or undrop_ingress -> copy: find the IP header -> wanted4, wanted6: does
// it belong to one of our networks? -> capture: reserve a record of its size class, copy, submit.
//
// Built by `bpf/build.sh`. The object is checked in, so that a build needs no C compiler. The program uses
// only the kernel's stable interface of Linux 5.8 and later, and no header of a particular kernel. `-mcpu=v2`
// suits all these kernels.

#include "kernel.h"

enum { IP_HEADER = 20 };

// ---- interface to user space

enum direction { OUTGOING = 0, INCOMING = 1 };
enum flag { TAGGED = 1 };
// Counted per direction: the counters of incoming packets follow those of outgoing packets. All but FOREIGN
// count packets of our networks. FOREIGN counts malformed packets, which no IP stack accepts. SHED counts
// packets on the wire of flows that are not copied.
enum count { CAPTURED = 0, RING_FULL = 1, UNREADABLE = 2, OVERSIZE = 3, FOREIGN = 4, SHED = 5, COUNTS = 6 };

struct record {
	u64 time_ns; // CLOCK_MONOTONIC
	u32 length;  // of the packet
	u16 gso_size;
	u16 gso_segs;
	u8 direction;
	u8 flags;
	u16 vlan_tci;
	u32 unused;
	u8 packet[]; // from the IP header on
};

struct prefix4 {
	u32 bits;
	u8 address[4];
};

struct prefix6 {
	u32 bits;
	u8 address[16];
};

// one end of a UDP flow that is not copied
struct endpoint {
	u8 address[16]; // IPv4 in the first four
	u16 port;       // network byte order
	u16 version;
};

// number of bytes before the IP header; set before loading
volatile const u32 link_header = 14;
// whether any endpoint is excluded; set before loading
volatile const u32 excluding = 0;
// mark of incoming packets that are not copied, or 0; set before loading
volatile const u32 passed_over = 0;

#define NETWORKS(name, key_type)           \
	struct {                           \
		UINT(type, MAP_LPM_TRIE);  \
		UINT(map_flags, NO_PREALLOC); \
		UINT(max_entries, 1024);   \
		TYPE(key, key_type);       \
		TYPE(value, u8);           \
	} name SEC(".maps")

NETWORKS(outgoing4, struct prefix4);
NETWORKS(outgoing6, struct prefix6);
NETWORKS(incoming4, struct prefix4);
NETWORKS(incoming6, struct prefix6);

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 1024);
	TYPE(key, struct endpoint);
	TYPE(value, u8);
} excluded SEC(".maps");

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 2 * COUNTS);
	TYPE(key, u32);
	TYPE(value, u64);
} counters SEC(".maps");

// whether the reader polls by itself and must not be woken
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u32);
} polling SEC(".maps");

// for each direction: flows with this hash or a higher one are not copied; 0: all are
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 2);
	TYPE(key, u32);
	TYPE(value, u32);
} shares SEC(".maps");

struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 16 << 20);
} ring SEC(".maps");

// ---- the packet's path, last stage first as C requires

INLINE void count_many(u32 which, u32 direction, u64 number)
{
	which += direction * COUNTS;
	u64 *counter = map_lookup(&counters, &which);
	if (counter)
		*counter += number; // one per CPU, and this program does not interrupt itself
}

INLINE void count(u32 which, u32 direction)
{
	count_many(which, direction, 1);
}

INLINE u16 swap(u16 value)
{
	return __builtin_bswap16(value);
}

struct packet {
	u32 at;     // IP header, from the start of the frame
	u64 length; // from the IP header on
	u32 vlan;
	u32 tagged;
};

// Waking the reader costs ten times what copying a packet costs.
INLINE void submit(struct record *record)
{
	u32 zero = 0;
	const volatile u32 *reader_polls = map_lookup(&polling, &zero);
	if (!reader_polls || !*reader_polls) {
		// wakes the reader if it had read all records before this one
		ring_submit(record, 0);
		return;
	}
	ring_submit(record, NO_WAKEUP);
	// Submitting is a full barrier. The reader first asks for wake-ups, then looks once more: either it sees
	// this record, or we see its request here.
	if (*reader_polls)
		return;
	void *nothing = ring_reserve(&ring, 8, 0);
	if (nothing)
		ring_discard(nothing, FORCE_WAKEUP);
}

// Reservations have constant sizes, because old kernels cannot verify others; hence size classes.
#define CLASS(size)                                                    \
	if (length <= (size)) {                                        \
		limit = (size);                                        \
		record = ring_reserve(&ring, sizeof(*record) + (size), 0); \
	} else

INLINE void capture(struct __sk_buff *skb, const struct packet *packet, u32 direction)
{
	u64 length = packet->length, limit;
	struct record *record;
	u32 present = skb->len - packet->at;
	// The length field of a super-packet of more than 64 KiB ("BIG TCP") is 0.
	if (present > 65536) {
		count(OVERSIZE, direction);
		return;
	}
	// The packet claims more bytes than present, or fewer than a header; no IP stack accepts it.
	if (length < IP_HEADER || length > present) {
		count(FOREIGN, direction);
		return;
	}
	CLASS(128)
	CLASS(576)
	CLASS(1536)
	CLASS(4096)
	CLASS(9216)
	CLASS(16384)
	CLASS(32768)
	CLASS(49152)
	CLASS(65536)
	{
		count(OVERSIZE, direction);
		return;
	}
	if (!record) {
		count(RING_FULL, direction);
		return;
	}
	// The verifier requires the bounds on the very register that is passed on, in 64 bits. Old ones learn
	// nothing from "not zero".
	asm volatile("" : "+r"(length), "+r"(limit));
	if (length < IP_HEADER || length > limit || load_bytes(skb, packet->at, record->packet, length)) {
		ring_discard(record, 0);
		count(UNREADABLE, direction);
		return;
	}
	record->time_ns = now_ns();
	record->length = length;
	record->gso_size = skb->gso_size;
	record->gso_segs = skb->gso_segs;
	record->direction = direction;
	record->flags = packet->tagged ? TAGGED : 0;
	record->vlan_tci = packet->vlan;
	record->unused = 0;
	submit(record);
	count(CAPTURED, direction);
}

enum { TCP = 6, UDP = 17, SCTP = 132 };

INLINE u32 word(const u8 *bytes)
{
	u32 value;
	__builtin_memcpy(&value, bytes, sizeof(value));
	return __builtin_bswap32(value);
}

INLINE u32 mix(u32 hash, u32 value)
{
	hash = (hash ^ value) * 0x9e3779b1u;
	return hash ^ hash >> 15;
}

// Returns whether the packet's flow is not in the share that is copied. The hash of its addresses is that of
// maelstrom-core/src/share.rs, and ends as there. `transport` is 0 if the packet has no ports. A fragment is
// copied if those without ports are, and one with ports also if whole packets with these ports are: a router
// may have made it of such a packet.
INLINE int is_shed(struct __sk_buff *skb, u32 hash, u32 protocol, u32 transport, u32 fragment, u32 direction)
{
	const u32 *end = map_lookup(&shares, &direction);
	if (!end || !*end)
		return 0;
	hash = mix(hash, protocol);
	if (fragment && mix(hash, 0) >> 16 < *end)
		return 0;
	if (transport && (protocol == TCP || protocol == UDP || protocol == SCTP)) {
		u8 ports[4] = {0};
		if (load_bytes(skb, transport, ports, sizeof(ports)))
			__builtin_memset(ports, 0, sizeof(ports));
		hash = mix(hash, word(ports));
	}
	if (mix(hash, 0) >> 16 < *end)
		return 0;
	u32 segments = skb->gso_segs;
	count_many(SHED, direction, segments ? segments : 1);
	return 1;
}

INLINE int is_excluded(struct __sk_buff *skb, u32 transport, struct endpoint *far, u32 direction)
{
	// source port, destination port: the far end of an outgoing packet is its destination
	u32 at = direction == OUTGOING ? transport + 2 : transport;
	if (load_bytes(skb, at, &far->port, sizeof(far->port)))
		return 0;
	return map_lookup(&excluded, far) != 0;
}

// Returns whether to copy the packet, and sets its length.
INLINE int wanted4(struct __sk_buff *skb, struct packet *packet, u32 direction)
{
	u8 header[20];
	if (load_bytes(skb, packet->at, header, sizeof(header)) || header[0] >> 4 != 4) {
		count(FOREIGN, direction); // the kernel drops it as well
		return 0;
	}
	const u8 *address = direction == OUTGOING ? header + 16 : header + 12;
	struct prefix4 key = {.bits = 32};
	__builtin_memcpy(key.address, address, sizeof(key.address));
	if (!(direction == OUTGOING ? map_lookup(&outgoing4, &key) : map_lookup(&incoming4, &key)))
		return 0;
	// later fragments have no ports; the repair channel is never fragmented
	u32 fragment = (header[6] & 0x3f) | header[7];
	if (excluding && header[9] == UDP && !fragment) {
		struct endpoint far = {.version = 4};
		__builtin_memcpy(far.address, address, 4);
		if (is_excluded(skb, packet->at + (header[0] & 15) * 4, &far, direction))
			return 0;
	}
	packet->length = (u16)(header[2] << 8 | header[3]);
	u32 hash = mix(mix(0, word(header + 12)), word(header + 16));
	u32 transport = packet->at + (header[0] & 15) * 4;
	// a fragment that leaves is protected like the others of its packet
	u32 offset = (header[6] & 0x1f) | header[7];
	if (offset || (fragment && direction == OUTGOING))
		transport = 0;
	return !is_shed(skb, hash, header[9], transport, fragment, direction);
}

INLINE int wanted6(struct __sk_buff *skb, struct packet *packet, u32 direction)
{
	u8 header[40];
	if (load_bytes(skb, packet->at, header, sizeof(header)) || header[0] >> 4 != 6) {
		count(FOREIGN, direction);
		return 0;
	}
	const u8 *address = direction == OUTGOING ? header + 24 : header + 8;
	struct prefix6 key = {.bits = 128};
	__builtin_memcpy(key.address, address, sizeof(key.address));
	if (!(direction == OUTGOING ? map_lookup(&outgoing6, &key) : map_lookup(&incoming6, &key)))
		return 0;
	if (excluding && header[6] == UDP) {
		struct endpoint far = {.version = 6};
		__builtin_memcpy(far.address, address, sizeof(far.address));
		if (is_excluded(skb, packet->at + 40, &far, direction))
			return 0;
	}
	packet->length = 40 + (u16)(header[4] << 8 | header[5]);
	u32 hash = 0;
#pragma unroll
	for (u32 at = 8; at < 40; at += 4)
		hash = mix(hash, word(header + at));
	return !is_shed(skb, hash, header[6], packet->at + 40, 0, direction);
}

enum { ETH_VLAN = 0x8100, ETH_VLAN_AD = 0x88a8 };
enum { PACKET_OTHERHOST = 3, PACKET_LOOPBACK = 5 };

INLINE int copy(struct __sk_buff *skb, u32 direction)
{
	// packets for other machines, and the echo of our own
	if (direction == INCOMING && (skb->pkt_type == PACKET_OTHERHOST || skb->pkt_type == PACKET_LOOPBACK))
		return GO_ON;
	if (direction == INCOMING && passed_over && skb->mark == passed_over)
		return GO_ON;
	struct packet packet = {.at = link_header, .vlan = skb->vlan_tci, .tagged = skb->vlan_present};
	u16 protocol = swap(skb->protocol);
	if (packet.at && (protocol == ETH_VLAN || protocol == ETH_VLAN_AD)) {
		// the tag is in the frame: it did not come from the card, or is not left to it
		u16 tag[2];
		if (load_bytes(skb, packet.at, tag, sizeof(tag))) {
			count(FOREIGN, direction);
			return GO_ON;
		}
		packet.vlan = swap(tag[0]);
		packet.tagged = 1;
		packet.at += 4;
		protocol = swap(tag[1]);
	}
	int wanted = 0;
	if (protocol == ETH_IP)
		wanted = wanted4(skb, &packet, direction);
	else if (protocol == ETH_IPV6)
		wanted = wanted6(skb, &packet, direction);
	if (wanted)
		capture(skb, &packet, direction);
	return GO_ON;
}

SEC("classifier/undrop_egress") int undrop_egress(struct __sk_buff *skb)
{
	return copy(skb, OUTGOING);
}

SEC("classifier/undrop_ingress") int undrop_ingress(struct __sk_buff *skb)
{
	return copy(skb, INCOMING);
}

char _license[] SEC("license") = "Dual MIT/GPL";
