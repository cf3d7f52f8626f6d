// Sends messages in an event loop, which waits while the receivers have no room: send CONFIG SEED GROUP COUNT

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ricochet.h"

static const int64_t SECOND = 1000000;

static void check(ricochet_result result, const char *what) {
    if (result != RICOCHET_OK) {
        fprintf(stderr, "error: %s: %s\n", what, ricochet_error());
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: send CONFIG SEED GROUP COUNT\n");
        return 2;
    }
    ricochet_options *options;
    ricochet_node *node;
    ricochet_sender *sender;
    check(ricochet_options_load(argv[1], &options), argv[1]);
    check(ricochet_options_seed(options, argv[2]), "seed");
    check(ricochet_node_start(options, &node), "start");
    ricochet_options_free(options);
    check(ricochet_sender_new(node, argv[3], 0, &sender), "sender");
    check(ricochet_node_wait_for_members(node, argv[3], 1, 30 * SECOND), "members");

    struct pollfd room = {.fd = ricochet_sender_fd(sender), .events = POLLIN};
    long count = strtol(argv[4], NULL, 10);
    for (long number = 0; number < count;) {
        char text[64];
        snprintf(text, sizeof text, "message %ld from C", number);
        ricochet_result result = ricochet_send(sender, text, strlen(text), RICOCHET_NOW, NULL);
        if (result == RICOCHET_TIMEOUT) {
            // An event loop would serve other descriptors meanwhile.
            poll(&room, 1, -1);
            continue;
        }
        check(result, "send");
        number++;
    }
    // A member that holds this message holds all before it, so that the node may end.
    check(ricochet_send_held(sender, "all sent", 8, 1, 30 * SECOND, NULL), "wait for a member");
    check(ricochet_send(sender, "end", 3, RICOCHET_FOREVER, NULL), "send");
    check(ricochet_node_flush(node, 30 * SECOND), "flush");
    ricochet_sender_free(sender);
    ricochet_node_free(node);
    return 0;
}
