"""A feed and a feed handler, written from the specification of MoldUDP64 (version 1.00) alone.

moldudp64.py feed GROUP PORT INTERFACE SERVER_PORT
    Reads commands from stdin, one a line: `session NAME` begins a session, `send N` sends N messages, `skip N`
    counts N messages that are never sent, `forget` makes the request server forget all, `end` ends the session.
moldudp64.py handle GROUP PORT INTERFACE SERVER SERVER_PORT
    Prints each message in order: its session, its number and its text; and `end` with session and next number.
"""

import select
import socket
import struct
import sys
import time

HEADER = struct.Struct(">10sQH")
BLOCK = struct.Struct(">H")
END_OF_SESSION = 0xFFFF


def downstream(session, number, messages):
    blocks = b"".join(BLOCK.pack(len(message)) + message for message in messages)
    return HEADER.pack(session, number, len(messages)) + blocks


def messages_of(packet, count):
    at = HEADER.size
    for _ in range(count):
        (length,) = BLOCK.unpack_from(packet, at)
        at += BLOCK.size
        assert at + length <= len(packet), "a message is cut off"
        yield packet[at : at + length]
        at += length
    assert at == len(packet), "bytes follow the last message"


class Feed:
    def __init__(self, group, port, interface, server_port):
        self.to = (group, port)
        self.out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
        self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.server.bind((interface, server_port))
        self.session, self.next, self.store, self.ended = None, 1, {}, False

    def message(self):
        # Some messages are empty, and some long.
        text = "%s:%d" % (self.session.decode().strip(), self.next)
        message = b"" if self.next % 19 == 0 else text.encode() + b"." * (self.next % 97 * (self.next % 7))
        self.store[self.next] = message
        self.next += 1
        return message

    def command(self, words):
        if words[0] == "session":
            self.session, self.next, self.store, self.ended = words[1].ljust(10).encode(), 1, {}, False
        elif words[0] == "send":
            left = int(words[1])
            while left > 0:
                first, some = self.next, min(left, 1 + self.next % 5)
                self.out.sendto(downstream(self.session, first, [self.message() for _ in range(some)]), self.to)
                left -= some
                # The network is no faster than this.
                time.sleep(0.0005)
        elif words[0] == "skip":
            for _ in range(int(words[1])):
                self.message()
        elif words[0] == "forget":
            self.store = {}
        elif words[0] == "end":
            self.ended = True

    def beat(self):
        if self.session:
            count = END_OF_SESSION if self.ended else 0
            self.out.sendto(HEADER.pack(self.session, self.next, count), self.to)

    def serve(self):
        request, source = self.server.recvfrom(2048)
        session, number, count = HEADER.unpack(request)
        packed, size = [], HEADER.size
        while session == self.session and len(packed) < count and number + len(packed) in self.store:
            message = self.store[number + len(packed)]
            size += BLOCK.size + len(message)
            if size > 1400:
                break
            packed.append(message)
        if packed:
            self.server.sendto(downstream(session, number, packed), source)

    def run(self):
        while True:
            ready, _, _ = select.select([sys.stdin, self.server], [], [], 0.2)
            if self.server in ready:
                self.serve()
            if sys.stdin in ready:
                line = sys.stdin.buffer.raw.readline()
                if not line:
                    return
                self.command(line.decode().split())
            if not ready:
                self.beat()


class Handler:
    def __init__(self, group, port, interface, server, server_port):
        self.feed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.feed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.feed.bind((group, port))
        joined = socket.inet_aton(group) + socket.inet_aton(interface)
        self.feed.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
        self.asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.asking.bind((interface, 0))
        self.server = (server, server_port)
        self.session, self.past, self.asked = None, set(), 0.0
        print("ready", flush=True)

    def begin(self, session):
        self.past.add(self.session)
        self.session, self.next, self.known, self.end, self.ahead = session, 1, 1, None, {}

    def take(self, packet, answer):
        session, number, count = HEADER.unpack_from(packet)
        if session != self.session:
            if answer or session in self.past:
                return
            self.begin(session)
        if count == END_OF_SESSION:
            self.end, count = number, 0
        for at, message in enumerate(messages_of(packet, count)):
            if number + at >= self.next:
                self.ahead[number + at] = message
        self.known = max(self.known, number + count)
        name = session.decode().strip()
        while self.next in self.ahead:
            text = self.ahead.pop(self.next).decode().rstrip(".")
            print(name, self.next, text, flush=True)
            self.next += 1
            self.asked = 0.0
        if self.end == self.next:
            print("end", name, self.next, flush=True)
            self.end = None

    def ask(self):
        now = time.monotonic()
        if self.session and self.next < self.known and now - self.asked > 0.02:
            first = min(self.ahead, default=self.known)
            count = min(first - self.next, 1000)
            self.asking.sendto(HEADER.pack(self.session, self.next, count), self.server)
            self.asked = now

    def run(self):
        while True:
            ready, _, _ = select.select([self.feed, self.asking], [], [], 0.02)
            for of in ready:
                self.take(of.recv(1 << 16), of is self.asking)
            self.ask()


role, rest = sys.argv[1], sys.argv[2:]
rest = [int(word) if word.isdigit() else word for word in rest]
(Feed if role == "feed" else Handler)(*rest).run()
