// The promises of ricochet.h: wrong arguments, buffers that are too small, timeouts, other threads, the end.

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ricochet.h"

#define EXPECT(condition)                                                                       \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: expected %s; last error: %s\n", __FILE__, __LINE__, #condition, \
                    ricochet_error());                                                          \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

static const int64_t PATIENCE = 30000000;
static const char *const GROUPS[] = {"contract"};

static int is_readable(int fd, int wait_ms) {
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    return poll(&waiting, 1, wait_ms) == 1;
}

static ricochet_node *start(const char *seed) {
    ricochet_options *options = NULL;
    ricochet_node *node = NULL;
    // No reader is left behind, however busy the machine is.
    const char *settings = "[node]\ninterface = \"lo\"\nport = 0\nunicast = true\n"
                           "[flow]\npatience_ms = 0\nsilence_ms = 60000\n";
    EXPECT(ricochet_options_parse(settings, &options) == RICOCHET_OK);
    EXPECT(ricochet_options_address(options, "127.0.0.1") == RICOCHET_OK);
    if (seed != NULL) {
        EXPECT(ricochet_options_seed(options, seed) == RICOCHET_OK);
    }
    EXPECT(ricochet_node_start(options, &node) == RICOCHET_OK);
    ricochet_options_free(options);
    return node;
}

static void wrong_arguments_are_errors(void) {
    ricochet_options *options = NULL;
    ricochet_node *node = NULL;
    ricochet_received received;
    size_t members;
    EXPECT(ricochet_options_new(NULL, &options) == RICOCHET_INVALID);
    EXPECT(strstr(ricochet_error(), "interface: expected a text, saw NULL") != NULL);
    EXPECT(ricochet_options_new("lo", NULL) == RICOCHET_INVALID);
    EXPECT(ricochet_options_parse("[repair]\nr = 65\n", &options) == RICOCHET_INVALID);
    EXPECT(strstr(ricochet_error(), "from 1 to 64") != NULL);
    EXPECT(ricochet_options_load("/nothing/like/it", &options) == RICOCHET_INVALID && options == NULL);
    EXPECT(ricochet_options_new("lo", &options) == RICOCHET_OK);
    EXPECT(ricochet_options_address(options, "nowhere") == RICOCHET_INVALID);
    EXPECT(ricochet_options_key(options, "short") == RICOCHET_INVALID);
    EXPECT(ricochet_options_interface(options, "nothing-like") == RICOCHET_OK);
    EXPECT(ricochet_node_start(options, &node) == RICOCHET_FAILED && node == NULL);
    EXPECT(ricochet_node_start(NULL, &node) == RICOCHET_INVALID);
    ricochet_options_free(options);
    EXPECT(ricochet_recv(NULL, NULL, 0, RICOCHET_NOW, &received) == RICOCHET_INVALID);
    EXPECT(ricochet_send(NULL, "x", 1, RICOCHET_NOW, NULL) == RICOCHET_INVALID);
    EXPECT(ricochet_node_members(NULL, "g", &members) == RICOCHET_INVALID);
    EXPECT(ricochet_node_address(NULL) == NULL && ricochet_node_id(NULL) == 0);
    EXPECT(ricochet_subscription_fd(NULL) == -1 && ricochet_sender_fd(NULL) == -1);
    ricochet_options_free(NULL);
    ricochet_node_free(NULL);
    ricochet_sender_free(NULL);
    ricochet_subscription_free(NULL);
    ricochet_text_free(NULL);
}

static void a_message_too_long_for_the_buffer_is_not_lost(ricochet_subscription *subscription, ricochet_sender *sender) {
    char buffer[16];
    ricochet_received received;
    ricochet_counts counts;
    uint32_t sequence = 99;
    int fd = ricochet_subscription_fd(subscription);
    EXPECT(fd >= 0);
    EXPECT(ricochet_recv(subscription, buffer, sizeof buffer, RICOCHET_NOW, &received) == RICOCHET_TIMEOUT);
    EXPECT(!is_readable(fd, 0));
    EXPECT(ricochet_recv(subscription, buffer, sizeof buffer, 1000, &received) == RICOCHET_TIMEOUT);

    EXPECT(ricochet_send(sender, "twelve bytes", 12, RICOCHET_FOREVER, &sequence) == RICOCHET_OK && sequence == 0);
    EXPECT(is_readable(fd, 30000));
    for (int round = 0; round < 3; round++) {
        EXPECT(ricochet_recv(subscription, buffer, 11, RICOCHET_FOREVER, &received) == RICOCHET_TOO_SMALL);
        EXPECT(received.length == 12 && is_readable(fd, 0));
        EXPECT(ricochet_recv(subscription, NULL, 0, RICOCHET_NOW, &received) == RICOCHET_TOO_SMALL);
    }
    EXPECT(ricochet_subscription_counts(subscription, &counts) == RICOCHET_OK);
    EXPECT(counts.queued == 1 && counts.waiting == 1 && counts.lost == 0);
    memset(buffer, 'z', sizeof buffer);
    EXPECT(ricochet_recv(subscription, buffer, 12, RICOCHET_NOW, &received) == RICOCHET_OK);
    EXPECT(received.event == RICOCHET_MESSAGE && received.length == 12 && received.sequence == 0);
    EXPECT(memcmp(buffer, "twelve byteszzzz", 16) == 0 && strcmp(received.group, "contract") == 0);
    EXPECT(ricochet_recv(subscription, buffer, sizeof buffer, RICOCHET_NOW, &received) == RICOCHET_TIMEOUT);

    EXPECT(ricochet_send(sender, NULL, 0, RICOCHET_FOREVER, NULL) == RICOCHET_OK);
    EXPECT(ricochet_recv(subscription, NULL, 0, PATIENCE, &received) == RICOCHET_OK && received.length == 0);
    EXPECT(ricochet_recv(subscription, NULL, 1, RICOCHET_NOW, &received) == RICOCHET_INVALID);
    EXPECT(ricochet_recv(subscription, buffer, 1, RICOCHET_NOW, NULL) == RICOCHET_INVALID);
}

static void a_descriptor_that_is_created_late_tells_of_a_message_too_long(ricochet_node *receiver, ricochet_node *node) {
    const char *const groups[] = {"late"};
    ricochet_subscription *late = NULL;
    ricochet_sender *sender = NULL;
    ricochet_received received;
    char buffer[16];
    EXPECT(ricochet_join(receiver, groups, 1, NULL, &late) == RICOCHET_OK);
    EXPECT(ricochet_sender_new(node, "late", 0, &sender) == RICOCHET_OK);
    EXPECT(ricochet_node_wait_for_members(node, "late", 1, PATIENCE) == RICOCHET_OK);
    EXPECT(ricochet_send(sender, "late", 4, RICOCHET_FOREVER, NULL) == RICOCHET_OK);
    EXPECT(ricochet_recv(late, NULL, 0, PATIENCE, &received) == RICOCHET_TOO_SMALL);
    int fd = ricochet_subscription_fd(late);
    EXPECT(is_readable(fd, 0));
    EXPECT(ricochet_recv(late, buffer, sizeof buffer, RICOCHET_NOW, &received) == RICOCHET_OK);
    EXPECT(ricochet_recv(late, buffer, sizeof buffer, RICOCHET_NOW, &received) == RICOCHET_TIMEOUT);
    EXPECT(!is_readable(fd, 0));
    ricochet_sender_free(sender);
    ricochet_subscription_free(late);
}

static void long_and_held_messages(ricochet_node *node, ricochet_subscription *subscription, ricochet_sender *sender) {
    size_t length = ricochet_node_payload_max(node) + 1;
    char *large = calloc(1, length);
    ricochet_received received;
    ricochet_sender *fragments = NULL;
    EXPECT(large != NULL && ricochet_node_message_max(node) > length);
    EXPECT(ricochet_send(sender, large, length, RICOCHET_NOW, NULL) == RICOCHET_TOO_LONG);
    EXPECT(strstr(ricochet_error(), "expected a payload of at most") != NULL);
    EXPECT(ricochet_sender_new(node, "contract", 4, &fragments) == RICOCHET_INVALID);
    EXPECT(ricochet_sender_new(node, "con*", 0, &fragments) == RICOCHET_INVALID);
    EXPECT(ricochet_sender_new(node, "contract", RICOCHET_FRAGMENTS, &fragments) == RICOCHET_OK);
    EXPECT(ricochet_send_held(fragments, large, length, 1, PATIENCE, NULL) == RICOCHET_OK);
    EXPECT(ricochet_recv(subscription, large, length, PATIENCE, &received) == RICOCHET_OK);
    EXPECT(received.length == length);
    EXPECT(ricochet_send_held(sender, "x", 1, 2, 1000, NULL) == RICOCHET_NOT_HELD);
    EXPECT(ricochet_recv(subscription, large, length, PATIENCE, &received) == RICOCHET_OK);
    ricochet_sender_free(fragments);
    free(large);
}

// The receiver does not read, and its queue drops all but the newest message.
static void a_slow_reader_is_told(ricochet_node *receiver, ricochet_node *node) {
    const char *const groups[] = {"slow"};
    ricochet_join_options options = {0};
    ricochet_subscription *slow = NULL;
    ricochet_sender *sender = NULL;
    ricochet_received received;
    ricochet_counts counts = {0};
    char byte;
    options.queue = 1;
    options.policy = RICOCHET_DROP_OLDEST;
    options.reserved[0] = 1;
    EXPECT(ricochet_join(receiver, groups, 1, &options, &slow) == RICOCHET_INVALID);
    options.reserved[0] = 0;
    EXPECT(ricochet_join(receiver, groups, 0, &options, &slow) == RICOCHET_INVALID);
    EXPECT(ricochet_join(receiver, groups, 1, &options, &slow) == RICOCHET_OK);
    EXPECT(ricochet_sender_new(node, "slow", 0, &sender) == RICOCHET_OK);
    EXPECT(ricochet_node_wait_for_members(node, "slow", 1, PATIENCE) == RICOCHET_OK);
    for (char at = 'a'; at <= 'e'; at++) {
        EXPECT(ricochet_send(sender, &at, 1, RICOCHET_FOREVER, NULL) == RICOCHET_OK);
    }
    for (int waited = 0; counts.queued + counts.dropped < 9 && waited < 30000; waited += 10) {
        poll(NULL, 0, 10);
        EXPECT(ricochet_subscription_counts(slow, &counts) == RICOCHET_OK);
    }
    EXPECT(counts.queued == 5 && counts.dropped == 4 && counts.waiting == 1);
    EXPECT(ricochet_recv(slow, &byte, 1, PATIENCE, &received) == RICOCHET_OK);
    EXPECT(received.event == RICOCHET_SLOW_READER && received.sequence == 0 && received.last == 3);
    EXPECT(strcmp(received.reason, "the reader was too slow") == 0 && received.length == 0);
    EXPECT(ricochet_recv(slow, &byte, 1, PATIENCE, &received) == RICOCHET_OK);
    EXPECT(received.event == RICOCHET_MESSAGE && byte == 'e' && received.reason[0] == 0);
    ricochet_sender_free(sender);
    ricochet_subscription_free(slow);
}

// The receiver does not read, and its policy makes the sender wait.
static void a_sender_is_told_of_room(ricochet_node *receiver, ricochet_node *node) {
    const char *const groups[] = {"full"};
    char payload[1000] = {0};
    ricochet_join_options options = {0};
    ricochet_subscription *full = NULL;
    ricochet_sender *sender = NULL;
    ricochet_received received;
    ricochet_result sent = RICOCHET_OK;
    options.queue = 1;
    options.policy = RICOCHET_BLOCK;
    EXPECT(ricochet_join(receiver, groups, 1, &options, &full) == RICOCHET_OK);
    EXPECT(ricochet_sender_new(node, "full", 0, &sender) == RICOCHET_OK);
    int fd = ricochet_sender_fd(sender);
    EXPECT(fd >= 0 && ricochet_sender_fd(sender) == fd && !is_readable(fd, 0));
    EXPECT(ricochet_node_wait_for_members(node, "full", 1, PATIENCE) == RICOCHET_OK);
    for (int count = 0; count < 100000 && sent == RICOCHET_OK; count++) {
        sent = ricochet_send(sender, payload, sizeof payload, RICOCHET_NOW, NULL);
    }
    EXPECT(sent == RICOCHET_TIMEOUT);
    for (int waited = 0; !is_readable(fd, 1); waited++) {
        EXPECT(waited < 30000);
        ricochet_recv(full, payload, sizeof payload, RICOCHET_NOW, &received);
    }
    for (int tries = 0; ricochet_send(sender, payload, sizeof payload, RICOCHET_NOW, NULL) != RICOCHET_OK; tries++) {
        EXPECT(tries < 100000);
        ricochet_recv(full, payload, sizeof payload, 1000, &received);
    }
    for (int tries = 0; ricochet_node_flush(node, RICOCHET_NOW) != RICOCHET_OK; tries++) {
        EXPECT(tries < 100000);
        ricochet_recv(full, payload, sizeof payload, 1000, &received);
    }
    ricochet_subscription_free(full);
    ricochet_sender_free(sender);
}

static void a_late_joiner_gets_the_last_value_of_each_key(ricochet_node *member, ricochet_node *node) {
    const char *const groups[] = {"values"};
    const char *const sent[][2] = {{"one", "1"}, {"two", "1"}, {"gone", "1"}, {"one", "22"}, {"gone", ""}};
    const char *const expected[][2] = {{"two", "1"}, {"one", "22"}};
    ricochet_join_options options = {0};
    ricochet_subscription *kept = NULL, *values = NULL;
    ricochet_sender *sender = NULL;
    ricochet_received received;
    char buffer[16];
    EXPECT(ricochet_join(member, groups, 1, NULL, &kept) == RICOCHET_OK);
    EXPECT(ricochet_sender_new(node, "values", 0, &sender) == RICOCHET_OK);
    EXPECT(ricochet_node_wait_for_members(node, "values", 1, PATIENCE) == RICOCHET_OK);
    EXPECT(ricochet_send_keyed(sender, NULL, 0, "x", 1, RICOCHET_NOW, NULL) == RICOCHET_INVALID);
    EXPECT(strstr(ricochet_error(), "expected 1 to 255 bytes, saw 0") != NULL);
    EXPECT(ricochet_send_keyed(sender, NULL, 3, "x", 1, RICOCHET_NOW, NULL) == RICOCHET_INVALID);
    EXPECT(ricochet_send_keyed(NULL, "key", 3, "x", 1, RICOCHET_NOW, NULL) == RICOCHET_INVALID);
    for (size_t at = 0; at < sizeof sent / sizeof *sent; at++) {
        const char *key = sent[at][0], *value = sent[at][1];
        EXPECT(ricochet_send_keyed(sender, key, strlen(key), value, strlen(value), PATIENCE, NULL) == RICOCHET_OK);
        EXPECT(ricochet_recv(kept, buffer, sizeof buffer, PATIENCE, &received) == RICOCHET_OK);
        EXPECT(received.key_length == strlen(key) && memcmp(received.key, key, received.key_length) == 0);
    }
    EXPECT(ricochet_send(sender, "plain", 5, PATIENCE, NULL) == RICOCHET_OK);
    EXPECT(ricochet_recv(kept, buffer, sizeof buffer, PATIENCE, &received) == RICOCHET_OK);
    EXPECT(received.key_length == 0);

    ricochet_node *late = start(ricochet_node_address(member));
    EXPECT(ricochet_node_wait_for_members(late, "values", 1, PATIENCE) == RICOCHET_OK);
    options.last_per_key = true;
    EXPECT(ricochet_join(late, groups, 1, &options, &values) == RICOCHET_OK);
    EXPECT(ricochet_recv(values, buffer, sizeof buffer, PATIENCE, &received) == RICOCHET_OK);
    // The member has joined without the values from before, so it does not know whether these are all.
    EXPECT(received.event == RICOCHET_HISTORY_BEGINS && received.messages == 2 && !received.complete);
    for (size_t at = 0; at < sizeof expected / sizeof *expected; at++) {
        const char *key = expected[at][0], *value = expected[at][1];
        EXPECT(ricochet_recv(values, buffer, sizeof buffer, PATIENCE, &received) == RICOCHET_OK);
        EXPECT(received.event == RICOCHET_MESSAGE && received.past);
        EXPECT(received.key_length == strlen(key) && memcmp(received.key, key, received.key_length) == 0);
        EXPECT(received.length == strlen(value) && memcmp(buffer, value, received.length) == 0);
    }
    EXPECT(ricochet_recv(values, buffer, sizeof buffer, PATIENCE, &received) == RICOCHET_OK);
    EXPECT(received.event == RICOCHET_HISTORY_ENDS && received.key_length == 0);
    ricochet_subscription_free(values);
    ricochet_node_free(late);
    ricochet_sender_free(sender);
    ricochet_subscription_free(kept);
}

static void in_the_child(ricochet_node *node, ricochet_subscription *subscription, ricochet_sender *sender) {
    ricochet_subscription *joined = NULL;
    ricochet_sender *other = NULL;
    ricochet_received received;
    ricochet_counts counts;
    size_t members = 0;
    // Ends the child if a call waits.
    alarm(30);
    EXPECT(ricochet_send(sender, "x", 1, RICOCHET_FOREVER, NULL) == RICOCHET_FAILED);
    EXPECT(strstr(ricochet_error(), "forked") != NULL);
    EXPECT(ricochet_send(sender, "x", 1, RICOCHET_NOW, NULL) == RICOCHET_FAILED);
    EXPECT(ricochet_send_held(sender, "x", 1, 1, RICOCHET_FOREVER, NULL) == RICOCHET_FAILED);
    EXPECT(ricochet_recv(subscription, NULL, 0, RICOCHET_NOW, &received) == RICOCHET_FAILED);
    EXPECT(ricochet_recv(subscription, NULL, 0, RICOCHET_FOREVER, &received) == RICOCHET_FAILED);
    EXPECT(ricochet_subscription_counts(subscription, &counts) == RICOCHET_FAILED);
    EXPECT(ricochet_subscription_fd(subscription) == -1 && ricochet_sender_fd(sender) == -1);
    EXPECT(ricochet_join(node, GROUPS, 1, NULL, &joined) == RICOCHET_FAILED && joined == NULL);
    EXPECT(ricochet_sender_new(node, "contract", 0, &other) == RICOCHET_FAILED && other == NULL);
    EXPECT(ricochet_node_members(node, "contract", &members) == RICOCHET_FAILED);
    EXPECT(ricochet_node_wait_for_members(node, "contract", 1, RICOCHET_FOREVER) == RICOCHET_FAILED);
    EXPECT(ricochet_node_flush(node, RICOCHET_FOREVER) == RICOCHET_FAILED);
    EXPECT(ricochet_node_reload_keys(node) == RICOCHET_FAILED && strstr(ricochet_error(), "forked") != NULL);
    EXPECT(ricochet_subscription_leave(subscription) == RICOCHET_OK && ricochet_node_close(node) == RICOCHET_OK);
    ricochet_sender_free(sender);
    ricochet_subscription_free(subscription);
    ricochet_node_free(node);
    // It starts a node of its own.
    node = start(NULL);
    EXPECT(ricochet_join(node, GROUPS, 1, NULL, &joined) == RICOCHET_OK);
    ricochet_node_free(node);
    ricochet_subscription_free(joined);
}

static void a_child_gets_errors_and_does_nothing_to_the_nodes(ricochet_node *receiver, ricochet_node *node) {
    const char *const groups[] = {"forked"};
    ricochet_subscription *subscription = NULL;
    ricochet_sender *sender = NULL;
    ricochet_received received;
    uint32_t sequence = 99;
    int status = -1;
    char buffer[16];
    EXPECT(ricochet_join(receiver, groups, 1, NULL, &subscription) == RICOCHET_OK);
    EXPECT(ricochet_sender_new(node, "forked", 0, &sender) == RICOCHET_OK);
    EXPECT(ricochet_node_wait_for_members(node, "forked", 1, PATIENCE) == RICOCHET_OK);
    int fd = ricochet_subscription_fd(subscription);
    EXPECT(fd >= 0 && ricochet_sender_fd(sender) >= 0);
    EXPECT(ricochet_send(sender, "1", 1, RICOCHET_FOREVER, &sequence) == RICOCHET_OK && sequence == 0);
    EXPECT(is_readable(fd, 30000));

    // Each node is closed in one of the children.
    ricochet_node *const nodes[] = {receiver, node};
    for (int which = 0; which < 2; which++) {
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            in_the_child(nodes[which], subscription, sender);
            _exit(0);
        }
        EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    EXPECT(is_readable(fd, 0));
    EXPECT(ricochet_send(sender, "2", 1, RICOCHET_FOREVER, &sequence) == RICOCHET_OK && sequence == 1);
    for (int number = 1; number <= 2; number++) {
        EXPECT(ricochet_recv(subscription, buffer, sizeof buffer, PATIENCE, &received) == RICOCHET_OK);
        EXPECT(received.event == RICOCHET_MESSAGE && received.length == 1 && buffer[0] == '0' + number);
    }
    ricochet_sender_free(sender);
    ricochet_subscription_free(subscription);
}

static void *wait_for_the_end(void *subscription) {
    ricochet_received received;
    ricochet_result result = ricochet_recv(subscription, NULL, 0, RICOCHET_FOREVER, &received);
    return result == RICOCHET_CLOSED && strstr(ricochet_error(), "closed") != NULL ? subscription : NULL;
}

static void *wait_for_members_that_never_come(void *node) {
    ricochet_result result = ricochet_node_wait_for_members(node, "nobody", 1, RICOCHET_FOREVER);
    return result == RICOCHET_CLOSED && strstr(ricochet_error(), "closed") != NULL ? node : NULL;
}

static void *wait_until_all_is_sent(void *node) {
    ricochet_result result = ricochet_node_flush(node, RICOCHET_FOREVER);
    return result == RICOCHET_CLOSED && strstr(ricochet_error(), "closed") != NULL ? node : NULL;
}

// Messages wait for a reader that stands still when the node is closed.
static void a_node_that_is_closed_ends_waits_for_members_and_for_room(ricochet_node *receiver) {
    const char *const groups[] = {"still"};
    char payload[1000] = {0};
    ricochet_join_options options = {0};
    ricochet_subscription *still = NULL;
    ricochet_sender *sender = NULL;
    ricochet_result sent = RICOCHET_OK;
    pthread_t threads[2];
    options.queue = 1;
    options.policy = RICOCHET_BLOCK;
    ricochet_node *node = start(ricochet_node_address(receiver));
    EXPECT(ricochet_join(receiver, groups, 1, &options, &still) == RICOCHET_OK);
    EXPECT(ricochet_sender_new(node, "still", 0, &sender) == RICOCHET_OK);
    EXPECT(ricochet_node_wait_for_members(node, "still", 1, PATIENCE) == RICOCHET_OK);
    for (int count = 0; count < 100000 && sent == RICOCHET_OK; count++) {
        sent = ricochet_send(sender, payload, sizeof payload, 2000000, NULL);
    }
    EXPECT(sent == RICOCHET_TIMEOUT && ricochet_node_flush(node, 1000) == RICOCHET_TIMEOUT);
    EXPECT(pthread_create(&threads[0], NULL, wait_for_members_that_never_come, node) == 0);
    EXPECT(pthread_create(&threads[1], NULL, wait_until_all_is_sent, node) == 0);
    EXPECT(ricochet_node_close(node) == RICOCHET_OK);
    for (int at = 0; at < 2; at++) {
        void *ended = NULL;
        EXPECT(pthread_join(threads[at], &ended) == 0 && ended == node);
    }
    EXPECT(ricochet_node_flush(node, RICOCHET_NOW) == RICOCHET_CLOSED);
    ricochet_sender_free(sender);
    ricochet_subscription_free(still);
    ricochet_node_free(node);
}

static void a_node_that_is_closed_ends_waits(ricochet_node *node, ricochet_subscription *subscription) {
    pthread_t thread;
    void *ended;
    ricochet_received received;
    EXPECT(pthread_create(&thread, NULL, wait_for_the_end, subscription) == 0);
    EXPECT(ricochet_node_close(node) == RICOCHET_OK);
    EXPECT(pthread_join(thread, &ended) == 0 && ended == subscription);
    EXPECT(is_readable(ricochet_subscription_fd(subscription), 0));
    ricochet_node_free(node);
    EXPECT(ricochet_recv(subscription, NULL, 0, RICOCHET_NOW, &received) == RICOCHET_CLOSED);
    EXPECT(ricochet_subscription_leave(subscription) == RICOCHET_OK);
    ricochet_subscription_free(subscription);
}

int main(void) {
    ricochet_subscription *subscription = NULL;
    ricochet_sender *sender = NULL;
    char *json = NULL;
    size_t members = 0;
    EXPECT(strcmp(ricochet_error(), "") == 0);
    wrong_arguments_are_errors();

    ricochet_node *receiver = start(NULL);
    EXPECT(ricochet_join(receiver, NULL, 1, NULL, &subscription) == RICOCHET_INVALID);
    EXPECT(ricochet_join(receiver, GROUPS, 1, NULL, &subscription) == RICOCHET_OK);
    ricochet_node *node = start(ricochet_node_address(receiver));
    EXPECT(ricochet_node_id(node) != ricochet_node_id(receiver));
    EXPECT(ricochet_node_wait_for_members(node, "nobody", 1, 1000) == RICOCHET_TIMEOUT);
    EXPECT(ricochet_node_wait_for_members(node, "contract", 1, PATIENCE) == RICOCHET_OK);
    EXPECT(ricochet_node_members(node, "contract", &members) == RICOCHET_OK && members == 1);
    EXPECT(ricochet_sender_new(node, "contract", 0, &sender) == RICOCHET_OK);

    a_message_too_long_for_the_buffer_is_not_lost(subscription, sender);
    a_descriptor_that_is_created_late_tells_of_a_message_too_long(receiver, node);
    long_and_held_messages(node, subscription, sender);
    a_slow_reader_is_told(receiver, node);
    a_sender_is_told_of_room(receiver, node);
    a_late_joiner_gets_the_last_value_of_each_key(receiver, node);
    a_child_gets_errors_and_does_nothing_to_the_nodes(receiver, node);
    EXPECT(ricochet_node_flush(node, PATIENCE) == RICOCHET_OK);
    EXPECT(ricochet_node_status(receiver, NULL) == RICOCHET_INVALID);
    EXPECT(ricochet_node_status(receiver, &json) == RICOCHET_OK);
    EXPECT(json[0] == '{' && strstr(json, "\"name\":\"contract\"") != NULL);
    ricochet_text_free(json);
    EXPECT(ricochet_node_reload_keys(node) == RICOCHET_FAILED);

    a_node_that_is_closed_ends_waits_for_members_and_for_room(receiver);
    a_node_that_is_closed_ends_waits(receiver, subscription);
    ricochet_node_free(node);
    EXPECT(ricochet_send(sender, "x", 1, RICOCHET_NOW, NULL) == RICOCHET_CLOSED);
    ricochet_sender_free(sender);
    printf("ok\n");
    return 0;
}
