// Ricochet: multicast that recovers lost packets within milliseconds.
//
// This file is generated from bindings/c/src by a test; change the sources instead.
//
// A node (ricochet_node) joins groups and sends to groups. Messages of joined groups arrive at a subscription
// (ricochet_subscription), messages leave by a sender (ricochet_sender). ricochet_options holds the settings
// of a node that has not started yet.
//
// Results. A function that may fail returns a ricochet_result. ricochet_error() returns the text of the last
// error of the calling thread: what was expected, what was seen, and often the remedy.
//
// Handles. Each handle has a function that frees it, which accepts NULL. A subscription and a sender may
// outlive the handle of their node; then they report RICOCHET_CLOSED. A handle must not be used after it was
// freed. Texts that are passed in end with a zero byte and are UTF-8; the library keeps no pointer to them.
//
// Threads. Every function may be called from any thread, and threads may share a handle, with two exceptions:
// a handle must not be freed while another thread uses it, and ricochet_options belongs to one thread at a
// time. To end waits of other threads, call ricochet_node_close or ricochet_subscription_leave first. The
// library calls no function of the program: events wait until they are received. It starts threads of its own
// for each node, which inherit the signal mask of the thread that starts the node.
//
// fork. A node belongs to the process that started it. In a child, functions that send, receive, join, wait
// or read counters return RICOCHET_FAILED, and ricochet_error() says why. ricochet_node_status returns a
// status whose field `failed` says why. Closing and freeing handles there does nothing to the node. The child
// may start another node, with another port if that is set.
//
// Times are in microseconds. A timeout of RICOCHET_NOW does not wait, RICOCHET_FOREVER waits without limit.
// Signals do not end a wait.
//
// Event loops. ricochet_subscription_fd and ricochet_sender_fd return descriptors for poll and epoll
// (level-triggered). The library owns them: poll them, but never read, write or close them.


#ifndef RICOCHET_H
#define RICOCHET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Timeout of a call that does not wait.
#define RICOCHET_NOW 0

// Timeout of a call that waits without limit.
#define RICOCHET_FOREVER -1

// Flag of a sender whose late messages are worthless: receivers do not request them.
#define RICOCHET_EXPIRING 1

// Flag of a sender that sends messages longer than a packet in several packets.
#define RICOCHET_FRAGMENTS 2

// Length of the buffer for the name of a group: 1,024 bytes and a zero byte.
#define RICOCHET_GROUP_SIZE 1025

// Length of the buffer for the reason of a loss, with its zero byte.
#define RICOCHET_REASON_SIZE 64

// Maximum length of a key in bytes.
#define RICOCHET_KEY_SIZE 255

// Messages are delivered as they arrive: a recovered one may follow messages that were sent later.
#define RICOCHET_UNORDERED 0

// The messages of one sender to one group are delivered in the order in which they were sent.
#define RICOCHET_FIFO 1

// The policy of the node's settings.
#define RICOCHET_POLICY_OF_NODE 0

// A full queue drops its oldest message, and RICOCHET_SLOW_READER tells.
#define RICOCHET_DROP_OLDEST 1

// A full queue drops the newest message, and RICOCHET_SLOW_READER tells.
#define RICOCHET_DROP_NEWEST 2

// While the queue is full, the node processes no packets, so that senders wait.
#define RICOCHET_BLOCK 3

// Result of a call.
typedef enum ricochet_result {
    // Success.
    RICOCHET_OK = 0,
    // The time was over: no event came, the readers had no room, or there were too few members.
    RICOCHET_TIMEOUT = 1,
    // The buffer is too small for the message, which waits for the next call. The needed length is told.
    RICOCHET_TOO_SMALL = 2,
    // The node was closed or the groups were left, and nothing waits any more.
    RICOCHET_CLOSED = 3,
    // An argument or a setting is wrong.
    RICOCHET_INVALID = 4,
    // The message is longer than a packet of the node, or than the longest message.
    RICOCHET_TOO_LONG = 5,
    // Too few members hold the message. It was sent.
    RICOCHET_NOT_HELD = 6,
    // Another failure, such as a missing interface, a port in use, or a node that has failed.
    RICOCHET_FAILED = 7,
} ricochet_result;

// Kind of an event.
typedef enum ricochet_event {
    // A message.
    RICOCHET_MESSAGE = 0,
    // Messages that will not come.
    RICOCHET_LOST = 1,
    // Messages that came, but were dropped because the program reads too slowly and the queue was full.
    RICOCHET_SLOW_READER = 2,
    // Messages from before the subscription follow. `messages` is their number, `complete` says whether
    // these are all that the subscription asked for.
    RICOCHET_HISTORY_BEGINS = 3,
    // Messages that follow were sent since the subscription.
    RICOCHET_HISTORY_ENDS = 4,
    // No member keeps messages from before the subscription. `messages` is the number of members asked.
    // RICOCHET_HISTORY_ENDS does not follow.
    RICOCHET_NO_HISTORY = 5,
    // An event that this header has no name for. It may be ignored.
    RICOCHET_OTHER_EVENT = 6,
} ricochet_event;

// A node of a cluster.
typedef struct ricochet_node ricochet_node;

// Settings of a node to be started.
typedef struct ricochet_options ricochet_options;

// Sends messages to one group.
typedef struct ricochet_sender ricochet_sender;

// A queue of the events of one or more groups.
typedef struct ricochet_subscription ricochet_subscription;

// Options for joining groups. Zero in all fields is the default, `{0}` in C and `{}` in C++.
typedef struct ricochet_join_options {
    // RICOCHET_UNORDERED or RICOCHET_FIFO.
    uint32_t order;
    // Treatment of messages for which the queue has no room: RICOCHET_POLICY_OF_NODE, RICOCHET_DROP_OLDEST,
    // RICOCHET_DROP_NEWEST or RICOCHET_BLOCK.
    uint32_t policy;
    // Maximum number of messages in the queue; 0 for the node's setting.
    size_t queue;
    // Maximum number of bytes of messages in the queue; 0 for the node's setting.
    size_t queue_bytes;
    // With RICOCHET_FIFO: maximum number of messages held back until earlier ones arrive; 0 for the node's
    // setting.
    size_t held;
    // Number of messages from before the subscription, of each group; 0 for none.
    uint64_t last;
    // Instead of `last`: time in microseconds before the subscription whose messages it gets; 0 for none.
    uint64_t since_us;
    // Time after which a missing message is given up that its sender marked as expiring; 0 for the node's
    // setting.
    uint64_t lifetime_us;
    // Whether this node sends messages longer than a packet to the groups.
    bool fragments;
    // Instead of `last`: whether it begins with the last value of each key (ricochet_send_keyed).
    bool last_per_key;
    // Room for later options, which must be zero.
    uint64_t reserved[8];
} ricochet_join_options;

// A received event. Fields that an event does not have are zero.
typedef struct ricochet_received {
    // Kind of the event.
    enum ricochet_event event;
    // Node that sent the message, or the lost messages.
    uint32_t sender;
    // Sequence number of the message, or of the first lost one, among those of the sender to the group. A
    // message that was sent in several packets takes as many numbers.
    uint32_t sequence;
    // Sequence number of the last lost message; otherwise `sequence`.
    uint32_t last;
    // Length of the message in bytes.
    size_t length;
    // Length of the key of which the message is the value; 0 if it has none. A message of no bytes deletes
    // its key.
    size_t key_length;
    // Time for which the node knew that the message was missing, in microseconds.
    uint64_t latency_us;
    // Number of messages from before the subscription, or of members asked for them.
    uint64_t messages;
    // Whether the message was lost at first, and then recovered or retransmitted.
    bool recovered;
    // Whether the message was sent before the subscription, and kept by a member.
    bool past;
    // Whether the messages from before the subscription are all that it asked for.
    bool complete;
    // Name of the group.
    char group[RICOCHET_GROUP_SIZE];
    // Reason of the loss.
    char reason[RICOCHET_REASON_SIZE];
    // The key, without a zero byte.
    uint8_t key[RICOCHET_KEY_SIZE];
} ricochet_received;

// Counters of a subscription.
typedef struct ricochet_counts {
    // Messages queued.
    uint64_t queued;
    // Messages dropped because the queue was full. RICOCHET_SLOW_READER tells of each.
    uint64_t dropped;
    // Packets that never came. RICOCHET_LOST tells of each.
    uint64_t lost;
    // Loss reports dropped for lack of room.
    uint64_t reports_dropped;
    // Times that the queue was full and made the node wait.
    uint64_t blocked;
    // Messages that wait.
    uint64_t waiting;
} ricochet_counts;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the text of the last error of the calling thread, or an empty text if there was none.
//
// The text is valid until the next call of this library on the same thread. Thread-safe.
const char *ricochet_error(void);

// Creates the default settings of a node that uses an interface, such as `eth0`.
enum ricochet_result ricochet_options_new(const char *interface, struct ricochet_options **options);

// Reads settings from a TOML file, `node.toml` of the manual.
enum ricochet_result ricochet_options_load(const char *file, struct ricochet_options **options);

// Reads settings from a text in the format of that file. Every setting of the manual can be made so.
enum ricochet_result ricochet_options_parse(const char *toml, struct ricochet_options **options);

// Frees settings. Nodes that were started with them continue.
void ricochet_options_free(struct ricochet_options *options);

// Sets the interface.
enum ricochet_result ricochet_options_interface(struct ricochet_options *options, const char *interface);

// Sets the IP address to send from and to be reached at; by default the first of the interface.
enum ricochet_result ricochet_options_address(struct ricochet_options *options, const char *address);

// Sets the UDP port of the node; 0 for any free port. By default it is 7900 if that is free, otherwise any.
enum ricochet_result ricochet_options_port(struct ricochet_options *options, uint16_t port);

// Sets whether the node sends a copy of each message to each member instead of using IP multicast.
enum ricochet_result ricochet_options_unicast(struct ricochet_options *options, bool unicast);

// Adds a seed address, `ADDRESS:PORT` of any live node of the cluster.
enum ricochet_result ricochet_options_seed(struct ricochet_options *options, const char *seed);

// Adds a cluster key, as text. The node signs with the first and accepts all.
enum ricochet_result ricochet_options_key(struct ricochet_options *options, const char *key);

// Sets the file with the cluster keys, of mode 0600, or 0640 if it belongs to root. The node reads it again
// when it changes.
enum ricochet_result ricochet_options_key_file(struct ricochet_options *options, const char *file);

// Sets the path of a Unix socket that `undrop multicast status` reads.
enum ricochet_result ricochet_options_control(struct ricochet_options *options, const char *path);

// Starts a node. The settings may be used again.
enum ricochet_result ricochet_node_start(const struct ricochet_options *options, struct ricochet_node **node);

// Ends a node, but does not free its handle. Announces to the others that it leaves, and releases its port
// and groups. Waits of all threads end. Waits for up to two seconds until messages that wait for their
// readers have been sent, and for up to two seconds until the members that do not hear its multicast have
// requested what they missed. With etcd it also waits for up to one second until its entry is removed.
// Messages that were received before can still be taken.
enum ricochet_result ricochet_node_close(const struct ricochet_node *node);

// Ends a node, if it was not closed, and frees its handle.
void ricochet_node_free(struct ricochet_node *node);

// Returns the identifier of this life of the node, drawn at random at its start; 0 if `node` is NULL.
uint32_t ricochet_node_id(const struct ricochet_node *node);

// Returns the address at which others reach the node, which serves them as a seed address. The text is valid
// until the handle is freed; it is NULL if `node` is NULL.
const char *ricochet_node_address(const struct ricochet_node *node);

// Returns the maximum length in bytes of a message that is sent in one packet.
size_t ricochet_node_payload_max(const struct ricochet_node *node);

// Returns the maximum length in bytes of a message that is sent in several packets.
size_t ricochet_node_message_max(const struct ricochet_node *node);

// Stores the number of other nodes known to be in a group.
enum ricochet_result ricochet_node_members(const struct ricochet_node *node,
                                           const char *group,
                                           size_t *members);

// Waits until at least `count` other nodes are known to be in a group. If the node ends before, returns
// RICOCHET_CLOSED or RICOCHET_FAILED.
enum ricochet_result ricochet_node_wait_for_members(const struct ricochet_node *node,
                                                    const char *group,
                                                    size_t count,
                                                    int64_t timeout_us);

// Waits until all messages have been sent. If the node ends before, returns RICOCHET_CLOSED or
// RICOCHET_FAILED, and the messages that wait are not sent.
enum ricochet_result ricochet_node_flush(const struct ricochet_node *node, int64_t timeout_us);

// Stores the state of a node as JSON: its counters, and the nodes that it knows. The fields are those of
// `undrop multicast status --json`. The text must be freed with ricochet_text_free.
enum ricochet_result ricochet_node_status(const struct ricochet_node *node, char **json);

// Frees a text of ricochet_node_status.
void ricochet_text_free(char *text);

// Reads the cluster keys from the configured file again, as the node does by itself within a second after a
// change.
enum ricochet_result ricochet_node_reload_keys(const struct ricochet_node *node);

// Creates a sender to a group. The node need not be a member of the group. `flags` is 0 or a sum of
// RICOCHET_EXPIRING and RICOCHET_FRAGMENTS.
enum ricochet_result ricochet_sender_new(const struct ricochet_node *node,
                                         const char *group,
                                         uint32_t flags,
                                         struct ricochet_sender **sender);

// Frees a sender. Messages that wait for their readers are sent nevertheless.
void ricochet_sender_free(struct ricochet_sender *sender);

// Sends a message of `length` bytes, and waits while its readers have no room. With RICOCHET_TIMEOUT
// nothing was sent. If `sequence` is not NULL, stores the number of the message among those of the node to
// the group. A loss in the network is not an error.
enum ricochet_result ricochet_send(const struct ricochet_sender *sender,
                                   const void *payload,
                                   size_t length,
                                   int64_t timeout_us,
                                   uint32_t *sequence);

// Sends the value of a key, as ricochet_send sends a message. The key has 1 to RICOCHET_KEY_SIZE bytes. The
// members of the group keep the last value of each key, up to 64 KiB each, for those who join later with
// `last_per_key`. A value of no bytes deletes the key. Of two values, the one that was sent later counts, by
// the clocks of their senders.
enum ricochet_result ricochet_send_keyed(const struct ricochet_sender *sender,
                                         const void *key,
                                         size_t key_length,
                                         const void *payload,
                                         size_t length,
                                         int64_t timeout_us,
                                         uint32_t *sequence);

// Sends a message, and waits until `members` members of the group hold it. With RICOCHET_NOT_HELD, fewer
// hold it when the time is over, but it was sent. With RICOCHET_TIMEOUT nothing was sent. A member that has
// given the message up as lost (`nak.give_up_ms`) counts too.
enum ricochet_result ricochet_send_held(const struct ricochet_sender *sender,
                                        const void *payload,
                                        size_t length,
                                        size_t members,
                                        int64_t timeout_us,
                                        uint32_t *sequence);

// Returns a descriptor for event loops, which belongs to the sender; -1 on failure. After ricochet_send
// with RICOCHET_NOW returned RICOCHET_TIMEOUT, it becomes readable when there may be room. Poll it only
// meanwhile. A sender with a descriptor should be used by one thread at a time.
int ricochet_sender_fd(const struct ricochet_sender *sender);

// Joins `count` groups, all or none, with one queue for all. `options` may be NULL.
enum ricochet_result ricochet_join(const struct ricochet_node *node,
                                   const char *const *groups,
                                   size_t count,
                                   const struct ricochet_join_options *options,
                                   struct ricochet_subscription **subscription);

// Waits for the next event and stores it. The payload of a message is copied into `buffer`, which has room
// for `capacity` bytes. With RICOCHET_TOO_SMALL, `received` is stored and tells the length, and the message
// waits for the next call. `buffer` may be NULL if `capacity` is 0.
enum ricochet_result ricochet_recv(const struct ricochet_subscription *subscription,
                                   void *buffer,
                                   size_t capacity,
                                   int64_t timeout_us,
                                   struct ricochet_received *received);

// Returns a descriptor for event loops, which belongs to the subscription; -1 on failure. It is readable
// when an event may wait, and stays so until ricochet_recv with RICOCHET_NOW has returned
// RICOCHET_TIMEOUT. It is also readable when the node was closed.
int ricochet_subscription_fd(const struct ricochet_subscription *subscription);

// Stores the counters of a subscription.
enum ricochet_result ricochet_subscription_counts(const struct ricochet_subscription *subscription,
                                                  struct ricochet_counts *counts);

// Leaves the groups, but does not free the handle. Events that wait can still be received; then
// ricochet_recv returns RICOCHET_CLOSED. Waits of other threads end.
enum ricochet_result ricochet_subscription_leave(const struct ricochet_subscription *subscription);

// Leaves the groups and frees a subscription, with all events that wait.
void ricochet_subscription_free(struct ricochet_subscription *subscription);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RICOCHET_H */
