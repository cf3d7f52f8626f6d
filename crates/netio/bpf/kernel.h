// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The used part of linux/bpf.h and of the kernel's calls, written out so that no object depends on installed
// headers. Included by the programs of `netio` and of `netlab`.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol;
	u32 vlan_present;
	u32 vlan_tci;
	u8 between[136];
	u32 gso_segs;
	u64 sk;
	u32 gso_size;
};

_Static_assert(__builtin_offsetof(struct __sk_buff, gso_segs) == 164, "layout of linux/bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, gso_size) == 176, "layout of linux/bpf.h");

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define CALL static __attribute__((unused))
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) type *name

CALL void *(*map_lookup)(void *map, const void *key) = (void *)1;
CALL u64 (*now_ns)(void) = (void *)5;
CALL long (*load_bytes)(const void *skb, u32 from, void *to, u32 len) = (void *)26;
CALL void *(*ring_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
CALL void (*ring_submit)(void *record, u64 flags) = (void *)132;
CALL void (*ring_discard)(void *record, u64 flags) = (void *)133;

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERCPU_ARRAY = 6, MAP_LPM_TRIE = 11, MAP_RINGBUF = 27 };
enum { NO_PREALLOC = 1 };
enum { NO_WAKEUP = 1, FORCE_WAKEUP = 2 };
enum { GO_ON = -1, DROP = 2 }; // TC_ACT_UNSPEC and TCX_NEXT, TC_ACT_SHOT and TCX_DROP
enum { ETH_IP = 0x0800, ETH_IPV6 = 0x86dd };
