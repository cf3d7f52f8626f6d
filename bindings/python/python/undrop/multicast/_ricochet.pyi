from os import PathLike
from types import TracebackType
from typing import Any, AsyncIterator, Iterator, Literal, Sequence

from _typeshed import ReadableBuffer

__version__: str

class RicochetError(Exception):
    """An error that is not caused by a wrong argument."""

class Closed(RicochetError):
    """The node or subscription is closed, and all queued messages have been received."""

class LossWarning(RuntimeWarning):
    """Messages are lost, were dropped because the program reads too slowly, or were received in another order than
    the members agreed."""

class Message:
    """A message of a group. It is a buffer: `memoryview(message)` shows its payload without a copy."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Payload as it was sent, read-only."""

    @property
    def group(self) -> str:
        """Name of the group that the message was sent to."""
    @property
    def sender(self) -> int:
        """Identifier of the sender: one life of a node."""
    @property
    def sequence(self) -> int:
        """Sequence number among this sender's messages to this group, from 0, modulo 2**32.

        A message that was sent in several packets takes as many numbers."""
    @property
    def number(self) -> int | None:
        """Number of the message in total order; None in other orders."""
    @property
    def payload(self) -> bytes:
        """Payload as it was sent. It is copied the first time."""
    @property
    def address(self) -> str | None:
        """Address of the sender, such as `10.0.0.7:7900`; None if it is not known."""
    @property
    def sent(self) -> float | None:
        """Time at which the message was sent, in seconds since 1970, by the sender's clock as that was
        set when its node started. Messages that share a packet have the time of the first.

        None if the sender does not tell."""
    @property
    def is_request(self) -> bool:
        """Whether the sender waits for replies."""
    @property
    def own(self) -> bool:
        """Whether this node sent the message itself."""
    @property
    def content_type(self) -> str | None:
        """Type of the payload, if the sender has given one."""
    @property
    def headers(self) -> bytes:
        """Bytes that the sender has given to the message beside the payload."""
    @property
    def key(self) -> bytes | None:
        """Key of which the message is the value; None if it has none. An empty payload deletes the key."""
    @property
    def recovered(self) -> bool:
        """Whether the message was lost at first, and then recovered or retransmitted."""
    @property
    def past(self) -> bool:
        """Whether the message was sent before the subscription, and kept by a member."""
    @property
    def latency(self) -> float:
        """Seconds for which this node knew that the message was missing."""

class Lost:
    """A report of messages that will not arrive, or that were dropped because the program reads too slowly."""

    @property
    def group(self) -> str:
        """Name of the group."""
    @property
    def sender(self) -> int:
        """Identifier of the sender."""
    @property
    def first(self) -> int:
        """Sequence number of the first of them among this sender's messages to this group."""
    @property
    def last(self) -> int:
        """Sequence number of the last of them."""
    @property
    def reason(self) -> str:
        """Reason why they were given up."""

class History:
    """News about the messages from before a subscription: they begin, or end."""

    @property
    def group(self) -> str:
        """Name of the group."""
    @property
    def ended(self) -> bool:
        """Whether the messages that follow are those sent since the subscription."""
    @property
    def messages(self) -> int | None:
        """Number of messages that a member keeps; 0 if no member answered; None at the end."""
    @property
    def complete(self) -> bool | None:
        """Whether these are all that were asked for; False if no member answered; None at the end."""

class MemberNews:
    """News about a member of a group: it joined, left or failed."""

    @property
    def group(self) -> str:
        """Name of the group."""
    @property
    def member(self) -> int:
        """Identifier of the member: one life of a node."""
    @property
    def address(self) -> str:
        """Address of the member."""
    @property
    def change(self) -> Literal["joined", "left", "failed"]:
        """What has changed."""

class GroupNews:
    """News about a group whose name matches a pattern of a subscription."""

    @property
    def group(self) -> str:
        """Name of the group."""
    @property
    def pattern(self) -> str:
        """Pattern that it matches."""
    @property
    def refused(self) -> str | None:
        """Why the subscription has not joined it; None if it has."""

class OrderChange:
    """News about the total order of a group, in its place among the messages."""

    @property
    def group(self) -> str:
        """Name of the group."""
    @property
    def kind(self) -> Literal["begins", "missed", "broken", "stalled", "resumed"]:
        """Kind of the news."""
    @property
    def first(self) -> int | None:
        """First number that was missed, or that this node delivered otherwise than the others agreed."""
    @property
    def continues(self) -> int | None:
        """Number with which the agreed messages continue."""

class RegistryNews:
    """News about the registry that the members come from, for subscriptions with `members=True`."""

    @property
    def kind(self) -> Literal["etcd", "Kubernetes"]:
        """Name of the service."""
    @property
    def error(self) -> str | None:
        """Why it cannot be reached, while the members stay as they are known; None if it is reached again."""

class Subscription:
    """A bounded queue of the messages of one or more groups."""

    def recv(self, timeout: float | None = None) -> Message:
        """Waits for the next message. Raises TimeoutError after `timeout` seconds, if given.

        Warns with LossWarning of messages that are lost before it, or were received before it and are not what the
        members in total order agreed."""
    def recv_event(self, timeout: float | None = None) -> Message | Lost | History | MemberNews | GroupNews | OrderChange | RegistryNews:
        """Waits for the next message or loss report, in order.

        Raises TimeoutError after `timeout` seconds, if given."""
    def try_recv(self) -> Message | None:
        """Returns the next message if one waits, otherwise None. Warns as `recv` does."""
    def try_recv_event(self) -> Message | Lost | History | MemberNews | GroupNews | OrderChange | RegistryNews | None:
        """Returns the next message or loss report if one waits, otherwise None."""
    async def recv_async(self) -> Message:
        """Waits for the next message in an event loop."""
    async def recv_event_async(self) -> Message | Lost | History | MemberNews | GroupNews | OrderChange | RegistryNews:
        """Waits for the next message or loss report in an event loop."""
    def fileno(self) -> int:
        """Returns a descriptor that becomes readable when a message comes after `try_recv` returned None.

        The subscription owns it: do not close it."""
    def leave(self) -> None:
        """Leaves the groups. Waits for a message end with Closed."""
    @property
    def groups(self) -> list[str]:
        """Names of the groups."""
    @property
    def dropped(self) -> int:
        """Number of messages dropped because the queue was full."""
    @property
    def expired(self) -> int:
        """Number of packets whose deadline passed before they came, or before they were read."""
    @property
    def lost(self) -> int:
        """Number of packets reported lost."""
    def __len__(self) -> int:
        """Number of messages that wait."""
    def __bool__(self) -> bool: ...
    def __iter__(self) -> Iterator[Message]: ...
    def __next__(self) -> Message: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def __enter__(self) -> Subscription: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

class Sender:
    """A handle that sends to one group."""

    def send_held(self, payload: ReadableBuffer, members: int = 1, timeout: float = 10.0) -> int:
        """Sends a message, and waits until `members` members of the group hold it.

        Raises TimeoutError after `timeout` seconds; the text says whether the message was sent."""
    def try_send(self, payload: ReadableBuffer) -> int | None:
        """Sends a message if it need not wait for its readers. Returns None otherwise."""
    def send(
        self,
        payload: ReadableBuffer,
        *,
        headers: ReadableBuffer | None = None,
        deadline: float | None = None,
        content_type: str | None = None,
        key: ReadableBuffer | None = None,
    ) -> int:
        """Sends a message and returns its sequence number.

        `key`, of 1 to 255 bytes: the message is its value, and members keep the last value for those who join later with
        `last_per_key`. `headers` are bytes that receivers get beside the payload; with the content type up to 256. `deadline` is the age
        in seconds at which the message is worthless: receivers do not get it when it is older."""

class Node:
    """A node of a cluster: joins groups, and sends to any group."""

    def __new__(
        cls,
        interface: str | None = None,
        *,
        seeds: Sequence[str] = ...,
        config: str | PathLike[str] | None = None,
        member_file: str | PathLike[str] | None = None,
        address: str | None = None,
        port: int | None = None,
        group_port: int | None = None,
        ipv6: bool = False,
        unicast: bool = False,
        key: str | None = None,
        key_file: str | PathLike[str] | None = None,
        repair: Literal["xor", "digest", "auto"] | None = None,
        control: str | PathLike[str] | None = None,
    ) -> Node:
        """Starts a node on an interface. Arguments override the settings in the TOML file `config`.

        `ipv6` and `unicast` can only switch on: False leaves what the file says."""
    def join(
        self,
        *groups: str,
        fifo: bool = False,
        queue: int | None = None,
        policy: Literal["block", "drop-oldest", "drop-newest"] | None = None,
        fragments: bool = False,
        c: int | None = None,
        lifetime: float | None = None,
        held: int | None = None,
        last: int | None = None,
        since: float | None = None,
        loopback: bool = False,
        members: bool = False,
        order: Literal["unordered", "fifo", "total", "total-safe"] | None = None,
        last_per_key: bool = False,
    ) -> Subscription:
        """Joins groups, with one queue for all. A name with `*` is a pattern: it joins all groups that match, as they appear.

        The subscription receives all messages sent to them from this moment on, and before them the `last` messages of
        each group, or those of the time `since`, in seconds, or, with `last_per_key`, the last value of each key, as far
        as members keep them. `lifetime`: seconds after which a missing message is given up that its sender marked as
        expiring. `held`: with `fifo`, maximum number of
        messages held back until earlier ones arrive. `loopback`: receive the node's own messages too. `members`: events
        about the members of the groups, first for those known. The node's settings apply to options not given."""
    def send(self, group: str, payload: ReadableBuffer) -> int:
        """Sends a message to a group and returns its sequence number. The node need not be a member."""
    def sender(
        self,
        group: str,
        *,
        expiring: bool = False,
        fragments: bool = False,
        deadline: float | None = None,
        content_type: str | None = None,
    ) -> Sender:
        """Returns a handle that sends to one group and does not check the name each time.

        `deadline` and `content_type` apply to messages that have none of their own."""
    def request(self, group: str, payload: ReadableBuffer, timeout: float = 1.0) -> Message:
        """Sends a request to a group and returns the first reply.

        Raises TimeoutError after `timeout` seconds."""
    def request_all(
        self, group: str, payload: ReadableBuffer, timeout: float = 1.0, count: int | None = None
    ) -> list[Message]:
        """Sends a request to a group and returns all replies that come in `timeout` seconds, at most `count`.

        Raises TimeoutError if there was no room for the request in that time."""
    def reply(self, request: Message, payload: ReadableBuffer) -> int:
        """Replies to a request."""
    def wait_for_members(self, group: str, count: int = 1, timeout: float = 10.0) -> bool:
        """Waits until at least `count` other nodes are known to be in a group, or the node is closed.

        Returns whether there are that many. Waits at most for `timeout` seconds."""
    def members(self, group: str) -> int:
        """Returns the number of other nodes known to be in a group."""
    def member_list(self, group: str) -> list[tuple[int, str]]:
        """Returns the other nodes known to be in a group: the identifier and the address of each."""
    def set_keys(self, keys: Sequence[str]) -> None:
        """Continues with other cluster keys. The node signs with the first and accepts all."""
    def reload_keys(self) -> int:
        """Reads the cluster keys from the configured file again, and returns their number.

        The node does so by itself within a second after the file changes."""
    @property
    def id(self) -> int:
        """Identifier of this life of the node."""
    @property
    def address(self) -> str:
        """Address at which others reach this node, and which serves them as a seed address."""
    @property
    def payload_max(self) -> int:
        """Maximum payload in bytes of a message that is sent in one packet."""
    def status(self) -> dict[str, Any]:
        """Returns the counters of the node, and the nodes that it knows."""
    def close(self) -> None:
        """Announces to the others that this node leaves, and ends it.

        Releases port and groups, even if subscriptions and senders remain."""
    def __enter__(self) -> Node: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

def generate_key() -> str:
    """Generates a cluster key and returns it as text."""
