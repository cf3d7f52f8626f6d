#define _GNU_SOURCE
#include "participant.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char MAGIC[8] = {'U', 'N', 'D', 'R', 'O', 'P', 'M', 'C'};

// How long a sender waits before it repeats a call that was refused.
enum { RETRY_NS = 100 * 1000 };

void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t unsigned_option(const char *name, const char *text) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') fail("%s: expected a number, saw `%s`", name, text);
    return value;
}

static void set_option(struct participant *p, const char *name, char *value) {
    if (strcmp(name, "--role") == 0) p->sends = strcmp(value, "send") == 0;
    else if (strcmp(name, "--index") == 0) p->index = unsigned_option(name, value);
    else if (strcmp(name, "--receivers") == 0) p->receivers = unsigned_option(name, value);
    else if (strcmp(name, "--senders") == 0) p->senders = unsigned_option(name, value);
    else if (strcmp(name, "--groups") == 0) p->groups = unsigned_option(name, value);
    else if (strcmp(name, "--size") == 0) p->size = unsigned_option(name, value);
    else if (strcmp(name, "--rate") == 0) p->rate = strtod(value, NULL);
    else if (strcmp(name, "--count") == 0) p->count = unsigned_option(name, value);
    else if (strcmp(name, "--seed") == 0) p->seed = unsigned_option(name, value);
    else if (strcmp(name, "--interface") == 0) p->interface = value;
    else if (strcmp(name, "--address") == 0) p->address = value;
    else if (strcmp(name, "--settings") == 0) p->settings = value;
    else if (strcmp(name, "--dir") == 0) p->dir = value;
    else if (strcmp(name, "--out") == 0) p->out = value;
}

void participant_init(struct participant *p, int argc, char **argv) {
    *p = (struct participant){.receivers = 1, .senders = 1, .groups = 1, .size = 1024, .rate = 1000, .interface = "eth0",
                              .address = "", .settings = "", .dir = "."};
    for (int i = 1; i + 1 < argc; i += 2) set_option(p, argv[i], argv[i + 1]);
    if (p->size < MESSAGE_SIZE_MIN || p->size > MESSAGE_SIZE_MAX)
        fail("--size: expected %d to %d, saw %zu", MESSAGE_SIZE_MIN, MESSAGE_SIZE_MAX, p->size);
    if (p->groups < 1 || p->groups > GROUPS_MAX) fail("--groups: expected 1 to %d, saw %u", GROUPS_MAX, p->groups);
    if (!(p->rate > 0)) fail("--rate: expected more than 0 messages a second");
    if (p->sends) return;
    // Duplicates are written down too, so there is room for some.
    p->records_cap = p->senders * p->count * 2 + 1024;
    p->records = calloc(p->records_cap, sizeof *p->records);
    if (p->records == NULL) fail("no memory for %zu records", p->records_cap);
    memset(p->records, 1, p->records_cap * sizeof *p->records); // faults the pages in now, not at delivery
}

static const char *setting(const struct participant *p, const char *key) {
    size_t key_len = strlen(key);
    for (const char *at = p->settings; at != NULL && *at != '\0';) {
        if (strncmp(at, key, key_len) == 0 && at[key_len] == '=') return at + key_len + 1;
        at = strchr(at, ',');
        if (at != NULL) at++;
    }
    return NULL;
}

double setting_number(const struct participant *p, const char *key, double fallback) {
    const char *value = setting(p, key);
    if (value == NULL) return fallback;
    char *end;
    double number = strtod(value, &end);
    if (end == value || (*end != '\0' && *end != ',')) fail("--settings %s: expected a number, saw `%s`", key, value);
    return number;
}

bool setting_is(const struct participant *p, const char *key, const char *value) {
    const char *found = setting(p, key);
    size_t len = strlen(value);
    return found != NULL && strncmp(found, value, len) == 0 && (found[len] == '\0' || found[len] == ',');
}

void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

// The first whole line that is waiting in the buffer.
static enum command take_line(struct participant *p) {
    char *end = memchr(p->line, '\n', p->line_len);
    if (end == NULL) {
        if (p->line_len == sizeof p->line) fail("a line of more than %zu bytes from the rig", sizeof p->line);
        return COMMAND_NONE;
    }
    *end = '\0';
    enum command command = COMMAND_NONE;
    if (strncmp(p->line, "go ", 3) == 0) {
        p->start_ns = strtoull(p->line + 3, NULL, 10);
        command = COMMAND_GO;
    } else if (strcmp(p->line, "stop") == 0) {
        command = COMMAND_STOP;
    }
    size_t used = end + 1 - p->line;
    memmove(p->line, p->line + used, p->line_len - used);
    p->line_len -= used;
    return command;
}

enum command participant_wait(struct participant *p, int fd, int timeout_ms) {
    enum command waiting = take_line(p);
    if (waiting != COMMAND_NONE) return waiting;
    struct pollfd polls[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    if (poll(polls, fd < 0 ? 1 : 2, timeout_ms) <= 0 || polls[0].revents == 0) return COMMAND_NONE;
    ssize_t n = read(STDIN_FILENO, p->line + p->line_len, sizeof p->line - p->line_len);
    if (n <= 0) return COMMAND_END;
    p->line_len += n;
    return take_line(p);
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void sleep_until(uint64_t at_ns) {
    struct timespec at = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {}
}

static uint64_t splitmix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

// Bytes are copied as they lie in memory: the messages are little-endian, and so are the machines of the rig.
static void fill_message(const struct participant *p, uint8_t *message, uint32_t group, uint64_t number) {
    uint32_t sender = p->index;
    memcpy(message, MAGIC, 8);
    memcpy(message + 8, &sender, 4);
    memcpy(message + 12, &group, 4);
    memcpy(message + 16, &number, 8);
    for (size_t i = MESSAGE_SIZE_MIN; i < p->size; i++) message[i] = (uint8_t)(i * 31 + number);
}

void participant_send_all(struct participant *p, send_call *send, void *context) {
    static uint8_t message[MESSAGE_SIZE_MAX];
    for (uint64_t n = 0; n < p->count; n++) {
        uint32_t group = splitmix64(p->seed ^ ((uint64_t)p->index << 40) ^ n) % p->groups;
        fill_message(p, message, group, n);
        sleep_until(p->start_ns + (uint64_t)(n * 1e9 / p->rate));
        uint64_t send_ns = now_ns();
        memcpy(message + 24, &send_ns, 8);
        while (!send(context, group, message, p->size)) {
            p->refused++;
            sleep_until(now_ns() + RETRY_NS);
        }
    }
    say("sent %llu", (unsigned long long)p->count);
}

static bool is_whole(const struct participant *p, unsigned group, const uint8_t *message, size_t size) {
    if (size != p->size || memcmp(message, MAGIC, 8) != 0 || group >= p->groups) return false;
    uint32_t sender, written_group;
    uint64_t number;
    memcpy(&sender, message + 8, 4);
    memcpy(&written_group, message + 12, 4);
    memcpy(&number, message + 16, 8);
    if (written_group != group || sender < p->receivers || sender >= p->receivers + p->senders) return false;
    for (size_t i = MESSAGE_SIZE_MIN; i < size; i++)
        if (message[i] != (uint8_t)(i * 31 + number)) return false;
    return true;
}

void participant_deliver(struct participant *p, unsigned group, const uint8_t *message, size_t size) {
    uint64_t receive_ns = now_ns();
    if (!is_whole(p, group, message, size)) {
        p->corrupt++;
        return;
    }
    if (p->records_len == p->records_cap) {
        p->dropped_records++;
        return;
    }
    struct record *record = &p->records[p->records_len++];
    record->group = group;
    memcpy(&record->sender, message + 8, 4);
    memcpy(&record->number, message + 16, 8);
    memcpy(&record->send_ns, message + 24, 8);
    record->receive_ns = receive_ns;
}

static void write_records(const struct participant *p) {
    FILE *out = fopen(p->out, "w");
    if (out == NULL) fail("cannot write %s: %s", p->out, strerror(errno));
    for (size_t i = 0; i < p->records_len; i++) {
        const struct record *r = &p->records[i];
        fprintf(out, "%u %u %llu %llu %llu\n", r->group, r->sender, (unsigned long long)r->number,
                (unsigned long long)r->send_ns, (unsigned long long)r->receive_ns);
    }
    if (fclose(out) != 0) fail("cannot write %s: %s", p->out, strerror(errno));
}

void participant_finish(struct participant *p) {
    if (p->sends) {
        say("stat refused %llu", (unsigned long long)p->refused);
    } else {
        if (p->out != NULL) write_records(p);
        say("stat corrupt %llu", (unsigned long long)p->corrupt);
        say("stat dropped_records %llu", (unsigned long long)p->dropped_records);
    }
    say("done");
}
