"""Multicast that recovers lost packets within milliseconds.

    from undrop import multicast

    with multicast.Node("eth0", seeds=["10.0.0.7:7900"]) as node:
        prices = node.join("prices/AAPL")
        node.send("prices/AAPL", b"187.21")
        message = prices.recv(timeout=1.0)

In an event loop, receive with `async for` or `await subscription.recv_async()`.
"""

from undrop.multicast._ricochet import (
    Closed,
    GroupNews,
    History,
    LossWarning,
    Lost,
    MemberNews,
    Message,
    Node,
    OrderChange,
    RegistryNews,
    RicochetError,
    Sender,
    Subscription,
    __version__,
    generate_key,
)

__all__ = [
    "Closed",
    "GroupNews",
    "History",
    "LossWarning",
    "Lost",
    "MemberNews",
    "Message",
    "Node",
    "OrderChange",
    "RegistryNews",
    "RicochetError",
    "Sender",
    "Subscription",
    "__version__",
    "generate_key",
]
