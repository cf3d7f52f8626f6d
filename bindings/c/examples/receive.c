// Receives messages in an event loop: receive CONFIG GROUP COUNT
//
// Prints the address of its node, which is the seed address of others, then each message.

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "ricochet.h"

static void check(ricochet_result result, const char *what) {
    if (result != RICOCHET_OK) {
        fprintf(stderr, "error: %s: %s\n", what, ricochet_error());
        exit(1);
    }
}

// Takes all events that wait. Returns the number of messages among them.
static long drain(const ricochet_subscription *subscription, char **buffer, size_t *capacity) {
    long messages = 0;
    for (;;) {
        ricochet_received received;
        ricochet_result result = ricochet_recv(subscription, *buffer, *capacity, RICOCHET_NOW, &received);
        if (result == RICOCHET_TIMEOUT) {
            return messages;
        }
        if (result == RICOCHET_TOO_SMALL) {
            char *larger = realloc(*buffer, received.length);
            if (larger == NULL) {
                fprintf(stderr, "error: no memory for %zu bytes\n", received.length);
                exit(1);
            }
            *buffer = larger;
            *capacity = received.length;
            continue;
        }
        check(result, "receive");
        switch (received.event) {
        case RICOCHET_MESSAGE:
            printf("%s %u: %.*s\n", received.group, received.sequence, (int)received.length, *buffer);
            messages++;
            break;
        case RICOCHET_LOST:
        case RICOCHET_SLOW_READER:
            fprintf(stderr, "%s: messages %u to %u are lost: %s\n", received.group, received.sequence,
                    received.last, received.reason);
            exit(1);
        default:
            break;
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: receive CONFIG GROUP COUNT\n");
        return 2;
    }
    ricochet_options *options;
    ricochet_node *node;
    ricochet_subscription *subscription;
    const char *groups[] = {argv[2]};
    ricochet_join_options join = {0};
    join.order = RICOCHET_FIFO;
    check(ricochet_options_load(argv[1], &options), argv[1]);
    check(ricochet_node_start(options, &node), "start");
    ricochet_options_free(options);
    check(ricochet_join(node, groups, 1, &join, &subscription), "join");
    printf("%s\n", ricochet_node_address(node));
    fflush(stdout);

    // Small, to show what a program does with longer messages.
    size_t capacity = 4;
    char *buffer = malloc(capacity);
    struct pollfd waiting = {.fd = ricochet_subscription_fd(subscription), .events = POLLIN};
    long left = strtol(argv[3], NULL, 10);
    while (buffer != NULL && left > 0) {
        if (poll(&waiting, 1, -1) > 0) {
            left -= drain(subscription, &buffer, &capacity);
        }
    }
    free(buffer);
    ricochet_subscription_free(subscription);
    ricochet_node_free(node);
    return 0;
}
