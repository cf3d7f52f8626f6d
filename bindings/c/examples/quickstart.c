// Two nodes on this machine: one sends, the other receives. On a network, give the interface's name alone.

#include <stdio.h>
#include <stdlib.h>

#include "ricochet.h"

static void check(ricochet_result result) {
    if (result != RICOCHET_OK) {
        fprintf(stderr, "error: %s\n", ricochet_error());
        exit(1);
    }
}

int main(void) {
    ricochet_options *here;
    ricochet_node *receiver, *sender;
    ricochet_subscription *prices;
    ricochet_sender *to_prices;
    ricochet_received message;
    const char *groups[] = {"prices/AAPL"};
    char payload[1500];

    check(ricochet_options_new("lo", &here));
    check(ricochet_options_address(here, "127.0.0.1"));
    check(ricochet_options_port(here, 0));
    check(ricochet_options_unicast(here, true));
    check(ricochet_node_start(here, &receiver));
    check(ricochet_join(receiver, groups, 1, NULL, &prices));

    check(ricochet_options_seed(here, ricochet_node_address(receiver)));
    check(ricochet_node_start(here, &sender));
    ricochet_options_free(here);
    check(ricochet_sender_new(sender, groups[0], 0, &to_prices));
    check(ricochet_node_wait_for_members(sender, groups[0], 1, 10000000));
    check(ricochet_send(to_prices, "187.21", 6, RICOCHET_FOREVER, NULL));

    do {
        check(ricochet_recv(prices, payload, sizeof payload, RICOCHET_FOREVER, &message));
    } while (message.event != RICOCHET_MESSAGE);
    printf("%s %.*s %s\n", message.group, (int)message.length, payload,
           message.recovered ? "recovered" : "as sent");

    ricochet_sender_free(to_prices);
    ricochet_subscription_free(prices);
    ricochet_node_free(sender);
    ricochet_node_free(receiver);
    return 0;
}
