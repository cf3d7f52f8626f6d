// NORM: one session per group, with a multicast address and port of its own. README.md has the settings and why.
// C++ only because the library's header asks for it.
#include "participant.h"

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <normApi.h>

// A hello is what a sender writes first in each group, so that every receiver follows the group before the start.
static const int READY_CHECK_MS = 20, PORT = 31000;
static const size_t HELLO_SIZE = MESSAGE_SIZE_MIN;

// Longest segment: with its headers it fits a packet of 1,500 bytes.
static const size_t SEGMENT_MAX = 1400;

// How often a tuned sender asks who follows, before the start: 1,024 streams asking each millisecond would start nothing.
static const double START_GRTT_S = 0.1;

// One budget for the buffers of all streams of a host.
static const uint32_t BUFFERS_ALL = 32 << 20, BUFFER_MAX = 8 << 20, BUFFER_MIN = 32 << 10;

static const uint8_t HELLO[HELLO_SIZE] = {0};

struct channel {
    unsigned group;
    NormSessionHandle session;
    NormObjectHandle stream; // a sender's; NORM_OBJECT_INVALID in mode=object
    size_t written;          // bytes of the present message that the stream has taken
    bool followed;           // all receivers have acknowledged the hello
};

// A receiver's end of the stream of one sender in one group.
struct inbox {
    size_t len;
    uint8_t bytes[]; // has room for a message
};

struct system {
    struct participant p;
    NormInstanceHandle instance;
    struct channel channels[GROUPS_MAX];
    bool objects; // a message is an object of its own, not a part of a stream
    bool tuned;
};

static uint32_t buffer_size(const struct system *s) {
    uint32_t share = BUFFERS_ALL / (s->p.groups * s->p.senders);
    // A long message must fit, with others behind it.
    uint32_t least = std::max<uint32_t>(BUFFER_MIN, 4 * s->p.size);
    return std::min(std::max(share, least), BUFFER_MAX);
}

static double tuned_grtt_s(const struct system *s) { return setting_number(&s->p, "grtt_us", 1000) * 1e-6; }

static bool unicast_nacks(const struct system *s) {
    return s->tuned && setting_number(&s->p, "unicast_nack", 1) != 0;
}

static void start_receiver(const struct system *s, NormSessionHandle session) {
    NormSetDefaultUnicastNack(session, unicast_nacks(s));
    NormSetDefaultSyncPolicy(session, NORM_SYNC_STREAM);
    NormSetRxCacheLimit(session, 4096);
    if (!NormStartReceiver(session, buffer_size(s))) fail("norm: cannot start a receiver");
    NormSetRxSocketBuffer(session, 1 << 20);
}

static void tune_sender(const struct system *s, NormSessionHandle session) {
    if (unicast_nacks(s)) NormSetTxOnly(session, true, false); // requests come to its own port: no need to hear the group
    NormSetGrttEstimate(session, std::max(START_GRTT_S, tuned_grtt_s(s)));
    NormSetGrttMax(session, 0.1);
    NormSetGrttProbingMode(session, NORM_PROBE_NONE);
    NormSetBackoffFactor(session, setting_number(&s->p, "backoff", 0));
    NormSetGroupSize(session, s->p.receivers);
    NormSetFlowControl(session, 0.0);
    NormSetTxRobustFactor(session, (int)setting_number(&s->p, "robust", 2));
}

// The library sends from the buffer that it is given, and reports when it has done with it.
static NormObjectHandle push_object(const struct channel *channel, const uint8_t *bytes, size_t size) {
    char *copy = (char *)malloc(size);
    if (copy == NULL) fail("no memory for a message");
    memcpy(copy, bytes, size);
    NormObjectHandle object = NormDataEnqueue(channel->session, copy, size, NULL, 0);
    if (object == NORM_OBJECT_INVALID) free(copy);
    return object;
}

static bool push(struct system *s, struct channel *channel, const uint8_t *bytes, size_t size) {
    if (s->objects) return push_object(channel, bytes, size) != NORM_OBJECT_INVALID;
    channel->written +=
        NormStreamWrite(channel->stream, (const char *)bytes + channel->written, size - channel->written);
    if (channel->written < size) return false;
    channel->written = 0;
    NormStreamFlush(channel->stream, true, s->tuned ? NORM_FLUSH_ACTIVE : NORM_FLUSH_PASSIVE);
    return true;
}

static void start_sender(struct system *s, struct channel *channel) {
    NormSessionHandle session = channel->session;
    unsigned block = setting_number(&s->p, "block", s->tuned ? 4 : 64);
    unsigned parity = setting_number(&s->p, "parity", s->tuned ? 0 : 16);
    NormSetTxRate(session, setting_number(&s->p, "mbit", 100) * 1e6); // the library's default is 64 kbit/s
    if (s->tuned) tune_sender(s, session);
    if (!NormStartSender(session, s->p.index + 1, buffer_size(s), std::min(s->p.size, SEGMENT_MAX), block, parity, 0))
        fail("norm: cannot start a sender");
    NormSetAutoParity(session, setting_number(&s->p, "auto_parity", 0));
    NormSetTxCacheBounds(session, buffer_size(s), 16, 4096);
    channel->stream = NORM_OBJECT_INVALID;
    if (!s->objects) channel->stream = NormStreamOpen(session, buffer_size(s), NULL, 0);
    for (unsigned k = 0; k < s->p.receivers; k++) NormAddAckingNode(session, k + 1);
    NormObjectHandle last = channel->stream;
    if (s->objects) last = push_object(channel, HELLO, HELLO_SIZE);
    else push(s, channel, HELLO, HELLO_SIZE);
    NormSetWatermark(session, last, false);
}

static void open_channels(struct system *s) {
    s->objects = setting_is(&s->p, "mode", "object");
    s->tuned = setting_is(&s->p, "profile", "tuned");
    s->instance = NormCreateInstance(false);
    for (unsigned group = 0; group < s->p.groups; group++) {
        char address[32];
        snprintf(address, sizeof address, "239.88.%u.%u", (group + 1) >> 8, (group + 1) & 0xff);
        struct channel *channel = &s->channels[group];
        channel->group = group;
        channel->session = NormCreateSession(s->instance, address, PORT + group, s->p.index + 1);
        if (channel->session == NORM_SESSION_INVALID) fail("norm: cannot create session %u", group);
        NormSetUserData(channel->session, channel);
        NormSetMulticastInterface(channel->session, s->p.interface);
        if (s->p.sends) start_sender(s, channel);
        else start_receiver(s, channel->session);
    }
}

// Reads what the stream has; a message ends where the next begins, and a hello is known by its zeros.
static void read_stream(struct system *s, const struct channel *channel, NormObjectHandle stream) {
    struct inbox *inbox = (struct inbox *)NormObjectGetUserData(stream);
    if (inbox == NULL) {
        inbox = (struct inbox *)calloc(1, sizeof *inbox + s->p.size);
        if (inbox == NULL) fail("no memory for a stream");
        NormObjectSetUserData(stream, inbox);
    }
    for (;;) {
        size_t whole = inbox->len > 0 && inbox->bytes[0] != 0 ? s->p.size : HELLO_SIZE;
        unsigned got = whole - inbox->len;
        if (!NormStreamRead(stream, (char *)inbox->bytes + inbox->len, &got)) { // broken: bytes were given up
            inbox->len = 0;
            if (!NormStreamSeekMsgStart(stream)) return;
            continue;
        }
        if (got == 0) return;
        inbox->len += got;
        if (inbox->len < whole || (inbox->bytes[0] != 0 && inbox->len < s->p.size)) continue;
        if (inbox->bytes[0] != 0) participant_deliver(&s->p, channel->group, inbox->bytes, inbox->len);
        inbox->len = 0;
    }
}

static void read_object(struct system *s, const struct channel *channel, NormObjectHandle object) {
    size_t size = NormObjectGetSize(object);
    if (size != HELLO_SIZE)
        participant_deliver(&s->p, channel->group, (const uint8_t *)NormDataAccessData(object), size);
}

static void handle_event(struct system *s, const NormEvent *event) {
    struct channel *channel = event->session == NORM_SESSION_INVALID ? NULL : (struct channel *)NormGetUserData(event->session);
    if (channel == NULL) return;
    switch (event->type) {
    case NORM_RX_OBJECT_UPDATED:
        if (NormObjectGetType(event->object) == NORM_OBJECT_STREAM) read_stream(s, channel, event->object);
        break;
    case NORM_RX_OBJECT_COMPLETED:
        if (NormObjectGetType(event->object) == NORM_OBJECT_DATA) read_object(s, channel, event->object);
        break;
    case NORM_TX_OBJECT_PURGED:
        if (s->objects) free((void *)NormDataAccessData(event->object));
        break;
    case NORM_TX_WATERMARK_COMPLETED:
        if (NormGetAckingStatus(event->session, NORM_NODE_ANY) != NORM_ACK_SUCCESS) {
            NormResetWatermark(event->session);
            break;
        }
        channel->followed = true;
        if (s->tuned) NormSetGrttEstimate(event->session, tuned_grtt_s(s));
        break;
    default:
        break;
    }
}

static void handle_events(struct system *s) {
    NormEvent event;
    while (NormGetNextEvent(s->instance, &event, false)) handle_event(s, &event);
}

static bool all_followed(const struct system *s) {
    if (!s->p.sends) return true; // the senders wait for the acknowledgements of all receivers
    for (unsigned group = 0; group < s->p.groups; group++)
        if (!s->channels[group].followed) return false;
    return true;
}

static bool send_message(void *context, unsigned group, const uint8_t *message, size_t size) {
    struct system *s = (struct system *)context;
    handle_events(s);
    return push(s, &s->channels[group], message, size);
}

int main(int argc, char **argv) {
    static struct system s;
    participant_init(&s.p, argc, argv);
    open_channels(&s);
    bool ready = false;
    for (;;) {
        enum command command = participant_wait(&s.p, NormGetDescriptor(s.instance), ready ? -1 : READY_CHECK_MS);
        if (command == COMMAND_END) return 0;
        if (command == COMMAND_STOP) break;
        if (command == COMMAND_GO && s.p.sends) participant_send_all(&s.p, send_message, &s);
        handle_events(&s);
        if (!ready && all_followed(&s)) {
            ready = true;
            say("ready");
        }
    }
    participant_finish(&s.p);
    fflush(stdout);
    _Exit(0); // sessions are not closed: their farewells would only keep the rig waiting
}
