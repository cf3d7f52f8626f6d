from os import PathLike
from types import TracebackType
from typing import Any, AsyncIterator, Iterator, Literal, Sequence

__version__: str

class RicochetError(Exception):
    """Something went wrong that is no mistake of the caller's."""

class Closed(RicochetError):
    """The node or subscription is closed, and nothing more will come."""

class Message:
    """A message of a group."""

    @property
    def group(self) -> str:
        """The name of the group that it was sent to."""
    @property
    def sender(self) -> int:
        """Who sent it: one life of a node."""
    @property
    def sequence(self) -> int:
        """Its place in what this sender sends to this group, from 0, modulo 2**32."""
    @property
    def payload(self) -> bytes:
        """What was sent."""
    @property
    def recovered(self) -> bool:
        """Whether it was lost on its way, and brought back."""
    @property
    def latency(self) -> float:
        """For how many seconds this node knew that it was missing."""

class Lost:
    """Messages that will not come."""

    @property
    def group(self) -> str:
        """The name of the group."""
    @property
    def sender(self) -> int:
        """Who sent them."""
    @property
    def first(self) -> int:
        """Place of the first of them in what this sender sends to this group."""
    @property
    def last(self) -> int:
        """Place of the last of them."""
    @property
    def reason(self) -> str:
        """Why they were given up."""

class Subscription:
    """A bounded queue of the messages of one group or many."""

    def recv(self, timeout: float | None = None) -> Message:
        """The next message. Waits for it, no longer than `timeout` seconds if given; then raises TimeoutError."""
    def recv_event(self, timeout: float | None = None) -> Message | Lost:
        """As `recv`, but also the reports of messages that will not come, each in its place."""
    def try_recv(self) -> Message | None:
        """The next message if one waits, else None."""
    def try_recv_event(self) -> Message | Lost | None:
        """As `try_recv`, but also the reports of messages that will not come."""
    async def recv_async(self) -> Message:
        """The next message, in an event loop."""
    async def recv_event_async(self) -> Message | Lost:
        """As `recv_async`, but also the reports of messages that will not come."""
    def fileno(self) -> int:
        """A descriptor that is readable once something came after `try_recv` gave None. Do not close it."""
    def leave(self) -> None:
        """Leaves the groups. Whoever waits for a message gets Closed."""
    @property
    def groups(self) -> list[str]:
        """The names of the groups."""
    @property
    def dropped(self) -> int:
        """Messages dropped since the queue was full."""
    @property
    def lost(self) -> int:
        """Packets that were reported lost."""
    def __len__(self) -> int:
        """Messages that wait."""
    def __bool__(self) -> bool: ...
    def __iter__(self) -> Iterator[Message]: ...
    def __next__(self) -> Message: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def __enter__(self) -> Subscription: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

class Sender:
    """Sends to one group."""

    def send(self, payload: bytes) -> int:
        """Sends a message; returns its sequence number."""

class Node:
    """A node of a cluster: joins groups, and sends to any."""

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
        """Starts a node on an interface. What `config` (a TOML file) says is overruled by what is passed."""
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
    ) -> Subscription:
        """Joins groups, and receives what is sent to them from now on, through one queue.

        `lifetime`: seconds after which a missing message is given up that its sender marked as expiring; `held`: with
        `fifo`, most messages held back until earlier ones are there. What is left out is as the node is set up."""
    def send(self, group: str, payload: bytes) -> int:
        """Sends a message to a group, of which this node need not be a member; returns its sequence number."""
    def sender(self, group: str, *, expiring: bool = False, fragments: bool = False) -> Sender:
        """What sends to one group, without looking at its name each time."""
    def wait_for_members(self, group: str, count: int = 1, timeout: float = 10.0) -> bool:
        """Waits until `count` other nodes are known to be in a group; whether they are.

        Waits no longer than `timeout` seconds, nor beyond the end of the node."""
    def members(self, group: str) -> int:
        """How many other nodes are known to be in a group."""
    @property
    def id(self) -> int:
        """This life of this node."""
    @property
    def address(self) -> str:
        """Where others reach this node: a seed for them."""
    @property
    def payload_max(self) -> int:
        """Longest payload of a message that is sent in one packet, in bytes."""
    def status(self) -> dict[str, Any]:
        """Everything that is counted, and whom this node knows."""
    def close(self) -> None:
        """Says farewell to the others, and ends; gives port and groups back, whoever holds what was made of it."""
    def __enter__(self) -> Node: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

def generate_key() -> str:
    """A new key for a cluster, as text."""
