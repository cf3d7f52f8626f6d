"""A demonstration on this machine: `python -m undrop.multicast`.

Three nodes at the loopback interface send each other messages, and one that joins late gets those of the past. It needs
no privileges, and no network.
"""

from __future__ import annotations

from undrop.multicast import __version__
from undrop.multicast.testing import Cluster

GROUP = "prices/AAPL"


def main() -> None:
    print(f"undrop.multicast {__version__}: three nodes on this machine")
    with Cluster(3) as cluster:
        subscriptions = cluster.join(GROUP)
        for price in (b"187.21", b"187.22"):
            cluster[0].send(GROUP, price)
            for at in (1, 2):
                message = subscriptions[at].recv(timeout=10.0)
                print(f"node {at} received {message.payload.decode()} of {message.group} from {message.address}")
        late = cluster.restart(2)
        late.wait_for_members(GROUP)
        past = late.join(GROUP, last=2)
        for _ in range(2):
            message = past.recv(timeout=10.0)
            when = "that was sent before it joined" if message.past else "that was just sent"
            print(f"a node that joined late received {message.payload.decode()}, {when}")
    print("on a network: multicast.Node('eth0', seeds=['10.0.0.7:7900'])")


if __name__ == "__main__":
    main()
