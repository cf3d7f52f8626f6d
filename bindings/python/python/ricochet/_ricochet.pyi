from os import PathLike
from types import TracebackType
from typing import Any, AsyncIterator, Iterator, Literal, Sequence

__version__: str

class RicochetError(Exception):
    """An error that is not caused by a wrong argument."""

class Closed(RicochetError):
    """The node or subscription is closed, and all queued messages have been received."""

class LossWarning(RuntimeWarning):
    """Messages are lost, or were dropped because the program reads too slowly."""

class Message:
    """A message of a group."""

    @property
    def group(self) -> str:
        """Name of the group that the message was sent to."""
    @property
    def sender(self) -> int:
        """Identifier of the sender: one life of a node."""
    @property
    def sequence(self) -> int:
        """Sequence number among this sender's messages to this group, from 0, modulo 2**32."""
    @property
    def payload(self) -> bytes:
        """Payload as it was sent."""
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
        """Number of messages that a member keeps; None at the end."""
    @property
    def complete(self) -> bool | None:
        """Whether these are all that were asked for; None at the end."""

class Subscription:
    """A bounded queue of the messages of one or more groups."""

    def recv(self, timeout: float | None = None) -> Message:
        """Waits for the next message. Raises TimeoutError after `timeout` seconds, if given.

        Warns with LossWarning of messages that are lost before it."""
    def recv_event(self, timeout: float | None = None) -> Message | Lost | History:
        """Waits for the next message or loss report, in order.

        Raises TimeoutError after `timeout` seconds, if given."""
    def try_recv(self) -> Message | None:
        """Returns the next message if one waits, otherwise None. Warns as `recv` does."""
    def try_recv_event(self) -> Message | Lost | History | None:
        """Returns the next message or loss report if one waits, otherwise None."""
    async def recv_async(self) -> Message:
        """Waits for the next message in an event loop."""
    async def recv_event_async(self) -> Message | Lost | History:
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

    def send_held(self, payload: bytes, members: int = 1, timeout: float = 10.0) -> int:
        """Sends a message, and waits until `members` members of the group hold it.

        Raises TimeoutError after `timeout` seconds; the message was sent."""
    def try_send(self, payload: bytes) -> int | None:
        """Sends a message if it need not wait for its readers. Returns None otherwise."""
    def send(self, payload: bytes) -> int:
        """Sends a message and returns its sequence number."""

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
        """Starts a node on an interface. Arguments override the settings in the TOML file `config`."""
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
    ) -> Subscription:
        """Joins groups, with one queue for all.

        The subscription receives all messages sent to them from this moment on, and before them the `last` messages of
        each group, or those of the time `since`, in seconds, as far as members keep them. `lifetime`: seconds after which
        a missing message is given up that its sender marked as expiring. `held`: with `fifo`, maximum number of
        messages held back until earlier ones arrive. The node's settings apply to options not given."""
    def send(self, group: str, payload: bytes) -> int:
        """Sends a message to a group and returns its sequence number. The node need not be a member."""
    def sender(self, group: str, *, expiring: bool = False, fragments: bool = False) -> Sender:
        """Returns a handle that sends to one group and does not check the name each time."""
    def wait_for_members(self, group: str, count: int = 1, timeout: float = 10.0) -> bool:
        """Waits until at least `count` other nodes are known to be in a group, or the node is closed.

        Returns whether there are that many. Waits at most for `timeout` seconds."""
    def members(self, group: str) -> int:
        """Returns the number of other nodes known to be in a group."""
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
