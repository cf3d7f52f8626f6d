"""A cluster on this machine, for tests of applications.

    from undrop.multicast.testing import Cluster

    with Cluster(3) as cluster:
        received = cluster.join("prices/AAPL")
        cluster[0].send("prices/AAPL", b"187.21")
        assert received[1].recv(timeout=10.0).payload == b"187.21"

The nodes are at the loopback interface and use unicast, so that tests need no privileges, and tests that run at
the same time do not hear one another. Nothing is lost there, except by a queue that is full.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Iterator

from undrop.multicast._ricochet import Node, Subscription


class Cluster:
    """Nodes that know one another. Use it in a `with` statement, or close it."""

    def __init__(self, size: int = 2, **settings: Any) -> None:
        """Starts `size` nodes, with further arguments of `Node` as settings."""
        if size < 1:
            raise ValueError(f"size: expected at least 1 node, saw {size}")
        self._settings = settings
        self._nodes: list[Node] = []
        try:
            for _ in range(size):
                self._nodes.append(self._start(self._nodes))
        except BaseException:
            self.close()
            raise

    def _start(self, others: list[Node]) -> Node:
        seeds = [node.address for node in others[:1]]
        return Node("lo", address="127.0.0.1", port=0, unicast=True, seeds=seeds, **self._settings)

    def join(self, *groups: str, timeout: float = 10.0, **options: Any) -> list[Subscription]:
        """Joins groups on all nodes, with further arguments of `Node.join` as options. Returns the subscriptions.

        Waits until each node knows that all others are members. Raises TimeoutError after `timeout` seconds."""
        subscriptions = [node.join(*groups, **options) for node in self._nodes]
        self.wait(*groups, timeout=timeout)
        return subscriptions

    def wait(self, *groups: str, timeout: float = 10.0) -> None:
        """Waits until each node knows that all others are members of groups.

        Raises TimeoutError after `timeout` seconds."""
        end = time.monotonic() + timeout
        others = len(self._nodes) - 1
        # Which groups match a pattern is not known.
        for group in (group for group in groups if "*" not in group):
            for at, node in enumerate(self._nodes):
                if not node.wait_for_members(group, others, max(0.0, end - time.monotonic())):
                    seen = node.members(group)
                    raise TimeoutError(f"node {at}: expected {others} other members of {group!r}, saw {seen}")

    def restart(self, at: int) -> Node:
        """Closes a node and starts another one in its place, which is in no group."""
        self._nodes[at].close()
        others = [node for node in self._nodes if node is not self._nodes[at]]
        self._nodes[at] = self._start(others)
        return self._nodes[at]

    def close(self) -> None:
        """Closes all nodes."""
        for node in self._nodes:
            node.close()

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, at: int) -> Node:
        return self._nodes[at]

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
