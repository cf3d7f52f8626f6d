"""Tests the cluster for tests of applications, and payloads that are no bytes."""

from __future__ import annotations

import array
import struct

import pytest

from undrop import multicast
from undrop.multicast.testing import Cluster

LONG = 30.0


def test_each_node_of_a_cluster_hears_the_others() -> None:
    with Cluster(3) as cluster:
        received = cluster.join("prices/AAPL", "prices/IBM", timeout=LONG)
        assert len(cluster) == len(received) == 3
        for at, node in enumerate(cluster):
            node.send("prices/IBM", str(at).encode())
        for at, subscription in enumerate(received):
            payloads = {subscription.recv(timeout=LONG).payload for _ in range(2)}
            assert payloads == {str(other).encode() for other in range(3) if other != at}
    with pytest.raises(multicast.Closed):
        received[0].recv(timeout=LONG)


def test_a_node_of_a_cluster_starts_again() -> None:
    with Cluster(2) as cluster:
        cluster.join("prices", timeout=LONG)
        before = cluster[0].id
        again = cluster.restart(0)
        assert again is cluster[0] and again.id != before
        prices = again.join("prices")
        assert cluster[1].wait_for_members("prices", timeout=LONG)
        cluster.wait("prices", timeout=LONG)
        cluster[1].send("prices", b"187.21")
        assert prices.recv(timeout=LONG).payload == b"187.21"


def test_a_cluster_tells_what_it_waits_for() -> None:
    with pytest.raises(ValueError, match="expected at least 1 node, saw 0"):
        Cluster(0)
    with Cluster(2) as cluster:
        cluster[0].join("prices")
        with pytest.raises(TimeoutError, match="node 0: expected 1 other members of 'prices', saw 0"):
            cluster.wait("prices", timeout=0.2)


def test_a_payload_is_any_buffer() -> None:
    with Cluster(2) as cluster:
        _, prices = cluster.join("prices", timeout=LONG)
        sender = cluster[0].sender("prices")
        numbers = array.array("H", [1, 2, 3])
        sender.send(bytearray(b"bytearray"), key=memoryview(b"key"), headers=bytearray(b"headers"))
        cluster[0].send("prices", memoryview(b"every other")[::2])
        assert sender.try_send(numbers) == 2
        first = prices.recv(timeout=LONG)
        assert (first.payload, first.key, first.headers) == (b"bytearray", b"key", b"headers")
        assert first.payload is first.payload, "the payload is copied once"
        assert prices.recv(timeout=LONG).payload == b"eeyohr"
        assert prices.recv(timeout=LONG).payload == numbers.tobytes()
        for wrong in ("text", 7, [1, 2]):
            with pytest.raises(TypeError, match="bytes-like"):
                sender.send(wrong)  # type: ignore[arg-type]


def test_a_message_is_a_buffer_that_outlives_it() -> None:
    with Cluster(2) as cluster:
        prices, _ = cluster.join("prices", timeout=LONG)
        cluster[1].send("prices", b"187.21")
        message = prices.recv(timeout=LONG)
        assert struct.unpack_from("3s", message, 1) == (b"87.",)
        with pytest.raises((BufferError, TypeError)):
            struct.pack_into("B", message, 0, 0)
        view = memoryview(message)
        assert view.readonly and view.format == "B" and view.nbytes == 6
        del message
        cluster.close()
        assert bytes(view[3:]) == b".21", "the view keeps the packet"


def test_a_message_can_be_sent_on() -> None:
    with Cluster(2) as cluster:
        prices, copies = cluster[0].join("prices"), cluster[1].join("copies")
        assert cluster[1].wait_for_members("prices", timeout=LONG)
        assert cluster[0].wait_for_members("copies", timeout=LONG)
        for payload in (b"187.21", b""):
            cluster[1].send("prices", payload)
            cluster[0].send("copies", prices.recv(timeout=LONG))
            assert copies.recv(timeout=LONG).payload == payload
