// Raw UDP multicast: what a plain socket delivers and how soon. Nothing repairs, so nothing that was lost arrives.
// A group is a multicast address; all share a port and, at a receiver, one socket.
#define _GNU_SOURCE
#include "participant.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// A datagram of DATAGRAM_MAX bytes fits a packet of 1,500 bytes.
enum { PORT = 30880, RECEIVE_BUFFER = 4 << 20, DATAGRAM_MAX = 1472 };

// 239.88.x.y with the group in x and y, from 1 on.
static struct in_addr group_address(unsigned group) {
    return (struct in_addr){.s_addr = htonl((239u << 24) | (88u << 16) | (group + 1))};
}

static int open_sender(const struct participant *p) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ip_mreqn from = {.imr_ifindex = if_nametoindex(p->interface)};
    if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof from) != 0)
        fail("cannot send on %s: %s", p->interface, strerror(errno));
    return fd;
}

static int open_receiver(const struct participant *p) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1, buffer = RECEIVE_BUFFER;
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (struct sockaddr *)&any, sizeof any) != 0)
        fail("cannot receive on port %d: %s", PORT, strerror(errno));
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    for (unsigned group = 0; group < p->groups; group++) {
        struct ip_mreqn join = {.imr_multiaddr = group_address(group), .imr_ifindex = if_nametoindex(p->interface)};
        if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join) != 0)
            fail("cannot join group %u of %u: %s; net.ipv4.igmp_max_memberships may be too low", group, p->groups,
                 strerror(errno));
    }
    return fd;
}

static bool send_message(void *context, unsigned group, const uint8_t *message, size_t size) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr = group_address(group)};
    return sendto(*(int *)context, message, size, 0, (struct sockaddr *)&to, sizeof to) == (ssize_t)size;
}

// The group that a datagram was sent to, by its destination address; GROUPS_MAX if it has none.
static unsigned group_of(struct msghdr *header) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_PKTINFO) continue;
        struct in_pktinfo info;
        memcpy(&info, CMSG_DATA(c), sizeof info);
        return (ntohl(info.ipi_addr.s_addr) & 0xffff) - 1;
    }
    return GROUPS_MAX;
}

static void receive_all(struct participant *p, int fd) {
    uint8_t message[DATAGRAM_MAX + 1], control[128];
    for (;;) {
        struct iovec part = {.iov_base = message, .iov_len = sizeof message};
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t size = recvmsg(fd, &header, MSG_DONTWAIT);
        if (size < 0) return;
        participant_deliver(p, group_of(&header), message, size);
    }
}

int main(int argc, char **argv) {
    struct participant p;
    participant_init(&p, argc, argv);
    if (p.size > DATAGRAM_MAX) fail("--size: expected at most %d without fragments, saw %zu", DATAGRAM_MAX, p.size);
    int fd = p.sends ? open_sender(&p) : open_receiver(&p);
    say("ready");
    for (;;) {
        enum command command = participant_wait(&p, p.sends ? -1 : fd, -1);
        if (command == COMMAND_END) return 0;
        if (command == COMMAND_STOP) break;
        if (command == COMMAND_GO && p.sends) participant_send_all(&p, send_message, &fd);
        if (!p.sends) receive_all(&p, fd);
    }
    participant_finish(&p);
    return 0;
}
