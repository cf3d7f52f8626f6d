"""Tests what a child of a fork may do with the nodes of its parent."""

from __future__ import annotations

import os
import signal
import warnings
from typing import Callable

from undrop import multicast

LONG = 30.0


def start(*seeds: str) -> multicast.Node:
    return multicast.Node("lo", address="127.0.0.1", port=0, unicast=True, seeds=list(seeds))


def fork() -> int:
    with warnings.catch_warnings():
        # Python warns of all forks of processes that have threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def says_why(call: Callable[[], object]) -> bool:
    try:
        call()
    except Exception as error:
        return "the process was forked" in str(error)
    return False


def is_right_in_the_child(receiver: multicast.Node, sender: multicast.Node, prices: multicast.Subscription, handle: multicast.Sender) -> bool:
    calls: list[Callable[[], object]] = [
        lambda: handle.send(b"from the child"),
        lambda: handle.try_send(b"from the child"),
        lambda: handle.send_held(b"from the child", timeout=LONG),
        lambda: sender.send("prices", b"from the child"),
        lambda: sender.request("prices", b"from the child", timeout=LONG),
        lambda: sender.wait_for_members("prices", timeout=LONG),
        lambda: sender.members("prices"),
        lambda: sender.member_list("prices"),
        lambda: sender.set_keys([multicast.generate_key()]),
        lambda: receiver.join("others"),
        lambda: prices.recv(),
        lambda: prices.recv_event(timeout=LONG),
        lambda: prices.try_recv(),
        lambda: list(prices),
        lambda: prices.fileno(),
    ]
    silent = [number for number, call in enumerate(calls) if not says_why(call)]
    if silent:
        print(f"calls that do not say why they fail: {silent}", flush=True)
        return False
    failed = sender.status()["failed"]
    prices.leave()
    receiver.close()
    sender.close()
    with start() as own, own.join("own", loopback=True) as subscription:
        own.send("own", b"1")
        return "forked" in failed and subscription.recv(timeout=LONG).payload == b"1"


def test_a_child_gets_errors_and_does_nothing_to_the_nodes_of_its_parent() -> None:
    with start() as receiver, start(receiver.address) as sender:
        prices = receiver.join("prices")
        assert sender.wait_for_members("prices", timeout=LONG)
        handle = sender.sender("prices")
        assert handle.send(b"before") == 0
        child = fork()
        if child == 0:
            # Ends the child if a call waits.
            signal.alarm(60)
            is_right = False
            try:
                is_right = is_right_in_the_child(receiver, sender, prices, handle)
            finally:
                os._exit(0 if is_right else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert handle.send(b"after") == 1
        assert [prices.recv(timeout=LONG).payload for _ in range(2)] == [b"before", b"after"]
