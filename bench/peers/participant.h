// What every participant written in C shares: the command line of the rig, its lines on standard input and output,
// the messages, the schedule of a sender and the records of a receiver. docs/participants.md says what the rig expects.
#ifndef PARTICIPANT_H
#define PARTICIPANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MESSAGE_SIZE_MIN = 32, MESSAGE_SIZE_MAX = 1 << 20, GROUPS_MAX = 1024 };

// What the rig wrote; COMMAND_NONE when the wait ended for another reason.
enum command { COMMAND_NONE, COMMAND_GO, COMMAND_STOP, COMMAND_END };

struct record {
    uint32_t group;
    uint32_t sender;
    uint64_t number;
    uint64_t send_ns;
    uint64_t receive_ns;
};

struct participant {
    bool sends;
    unsigned index, receivers, senders, groups;
    size_t size;
    double rate;
    uint64_t count, seed;
    const char *interface, *address, *settings, *dir, *out;
    uint64_t start_ns;        // set by COMMAND_GO
    struct record *records;   // in order of delivery
    size_t records_len, records_cap;
    uint64_t corrupt;         // messages that were not what their sender wrote
    uint64_t dropped_records; // deliveries beyond the room for records
    uint64_t refused;         // send calls that the system refused for the moment and that were repeated
    char line[256];
    size_t line_len;
};

// Ends the process with a message on standard error.
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

// Reads the command line and makes room for the records of a receiver.
void participant_init(struct participant *p, int argc, char **argv);

// The value of `key` in --settings, else `fallback`.
double setting_number(const struct participant *p, const char *key, double fallback);
bool setting_is(const struct participant *p, const char *key, const char *value);

// One line to the rig, flushed.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Waits for a line of the rig, for `fd` (-1: none) to become readable, or for the time to pass (-1: for ever).
enum command participant_wait(struct participant *p, int fd, int timeout_ms);

uint64_t now_ns(void);

// Gives a message to the system. False: refused for the moment, to be tried again with the same bytes.
typedef bool send_call(void *context, unsigned group, const uint8_t *message, size_t size);

// Sends all messages at the times they are due, then prints `sent`.
void participant_send_all(struct participant *p, send_call *send, void *context);

// Checks a delivered message that came by the channel of `group` and notes it. Not for several threads at once.
void participant_deliver(struct participant *p, unsigned group, const uint8_t *message, size_t size);

// Writes --out, prints the counters and `done`.
void participant_finish(struct participant *p);

#ifdef __cplusplus
}
#endif

#endif
