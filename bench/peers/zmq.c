// ZeroMQ: PUB and SUB sockets over EPGM, which is PGM (RFC 3208) in UDP datagrams, by libzmq with OpenPGM. A group is a
// multicast address and port with a PUB socket at each sender; a receiver has one SUB socket. README.md has the settings and why.
#define _GNU_SOURCE
#include "participant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>

enum { PORT = 33000, HELLO_SIZE = MESSAGE_SIZE_MIN, HELLO_MS = 20, DRAIN_MS = 5, SOCKET_BUFFER = 4 << 20 };

// One budget for the packets that all PUB sockets of all senders keep, as a receiver keeps them too.
static const double KEPT_BYTES = 32 << 20;
static const double KEEP_MS_MIN = 50, KEEP_MS_MAX = 10 * 1000;

struct system {
    struct participant p;
    void *context;
    void *publishers[GROUPS_MAX]; // a sender's
    void *subscriber;             // a receiver's
    uint8_t *message;             // what a receiver reads into
    bool *greeted;                // by sender and group: a hello has come
    unsigned ungreeted;
};

static void set_number(void *socket, int option, int value, const char *what) {
    if (zmq_setsockopt(socket, option, &value, sizeof value) != 0) fail("zmq: cannot set %s: %s", what, zmq_strerror(errno));
}

static void *open_socket(const struct system *s, int type) {
    bool tuned = setting_is(&s->p, "profile", "tuned");
    double mbit = setting_number(&s->p, "mbit", tuned ? 1000 : 100); // the library's default is 100 kbit/s
    // The library keeps packets for as long as a time: its window has the bytes of that time at the full rate.
    double keep_ms = KEPT_BYTES / (s->p.groups * s->p.senders) * 8 / (mbit * 1000);
    keep_ms = keep_ms < KEEP_MS_MIN ? KEEP_MS_MIN : keep_ms > KEEP_MS_MAX ? KEEP_MS_MAX : keep_ms;
    void *socket = zmq_socket(s->context, type);
    if (socket == NULL) fail("zmq: cannot create a socket: %s", zmq_strerror(errno));
    set_number(socket, ZMQ_RATE, (int)(mbit * 1000), "the rate");
    set_number(socket, ZMQ_RECOVERY_IVL, (int)setting_number(&s->p, "keep_ms", keep_ms), "the recovery interval");
    if (tuned) {
        set_number(socket, ZMQ_RCVBUF, SOCKET_BUFFER, "the receive buffer");
        set_number(socket, ZMQ_SNDBUF, SOCKET_BUFFER, "the send buffer");
    }
    return socket;
}

// 239.88.x.y with the group in x and y, from 1 on. OpenPGM's sockets receive all groups of their port, so each has its own.
static void group_address(const struct system *s, unsigned group, char *text, size_t room) {
    // OpenPGM finds an interface of a namespace by its address only.
    snprintf(text, room, "epgm://%s;239.88.%u.%u:%d", s->p.address, (group + 1) >> 8, (group + 1) & 0xff,
             PORT + group);
}

static void open_sockets(struct system *s) {
    s->context = zmq_ctx_new();
    zmq_ctx_set(s->context, ZMQ_MAX_SOCKETS, GROUPS_MAX + 1);
    if (!s->p.sends) {
        s->subscriber = open_socket(s, ZMQ_SUB);
        zmq_setsockopt(s->subscriber, ZMQ_SUBSCRIBE, "", 0);
        s->ungreeted = s->p.senders * s->p.groups;
        s->greeted = calloc(s->ungreeted, sizeof *s->greeted);
        s->message = malloc(s->p.size + 1);
        if (s->greeted == NULL || s->message == NULL) fail("no memory for messages of %zu bytes", s->p.size);
    }
    for (unsigned group = 0; group < s->p.groups; group++) {
        char address[128];
        group_address(s, group, address, sizeof address);
        void *socket = s->subscriber;
        if (s->p.sends) {
            socket = s->publishers[group] = open_socket(s, ZMQ_PUB);
            set_number(socket, ZMQ_XPUB_NODROP, 1, "waiting for room"); // else a message without room is dropped in silence
        }
        if (zmq_connect(socket, address) != 0) fail("zmq: cannot use %s: %s", address, zmq_strerror(errno));
    }
}

// Nothing tells a sender who follows it, so it greets until the start. A hello has zeros for the magic bytes.
static void greet(struct system *s) {
    for (unsigned group = 0; group < s->p.groups; group++) {
        uint8_t hello[HELLO_SIZE] = {0};
        uint32_t sender = s->p.index, to = group;
        memcpy(hello + 8, &sender, 4);
        memcpy(hello + 12, &to, 4);
        zmq_send(s->publishers[group], hello, sizeof hello, ZMQ_DONTWAIT); // the next one does if this finds no room
    }
}

static void note_hello(struct system *s) {
    uint32_t sender, group;
    memcpy(&sender, s->message + 8, 4);
    memcpy(&group, s->message + 12, 4);
    sender -= s->p.receivers;
    if (sender >= s->p.senders || group >= s->p.groups || s->greeted[sender * s->p.groups + group]) return;
    s->greeted[sender * s->p.groups + group] = true;
    if (--s->ungreeted == 0) say("ready");
}

static void receive_all(struct system *s) {
    for (;;) {
        int size = zmq_recv(s->subscriber, s->message, s->p.size + 1, ZMQ_DONTWAIT);
        if (size < 0) return;
        if (size == HELLO_SIZE && s->message[0] == 0) {
            note_hello(s);
            continue;
        }
        uint32_t group = GROUPS_MAX; // a SUB socket does not say to which address a message was sent
        if (size >= MESSAGE_SIZE_MIN) memcpy(&group, s->message + 12, 4);
        participant_deliver(&s->p, group, s->message, size);
    }
}

static bool send_message(void *context, unsigned group, const uint8_t *message, size_t size) {
    struct system *s = context;
    if (zmq_send(s->publishers[group], message, size, ZMQ_DONTWAIT) >= 0) return true;
    if (errno != EAGAIN) fail("zmq: cannot send: %s", zmq_strerror(errno));
    return false;
}

int main(int argc, char **argv) {
    static struct system s;
    participant_init(&s.p, argc, argv);
    open_sockets(&s);
    int readable = -1;
    size_t room = sizeof readable;
    if (!s.p.sends && zmq_getsockopt(s.subscriber, ZMQ_FD, &readable, &room) != 0)
        fail("zmq: no descriptor: %s", zmq_strerror(errno));
    if (s.p.sends) say("ready");
    bool started = false;
    for (;;) {
        enum command command = participant_wait(&s.p, readable, !s.p.sends ? DRAIN_MS : started ? -1 : HELLO_MS);
        if (command == COMMAND_END) return 0;
        if (command == COMMAND_STOP) break;
        if (command == COMMAND_GO) {
            started = true;
            if (s.p.sends) participant_send_all(&s.p, send_message, &s);
        }
        if (!s.p.sends) receive_all(&s);
        else if (!started) greet(&s);
    }
    participant_finish(&s.p);
    fflush(stdout);
    _Exit(0); // sockets are not closed: what they still keep would only keep the rig waiting
}
