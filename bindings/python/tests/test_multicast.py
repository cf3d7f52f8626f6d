"""Tests the module with real nodes on the loopback interface, by unicast."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest

from undrop import multicast

LONG = 30.0


def start(*seeds: str, **settings: str) -> multicast.Node:
    return multicast.Node(
        "lo", address="127.0.0.1", port=0, unicast=True, seeds=list(seeds), key=settings.get("key")
    )


@pytest.fixture
def pair() -> Iterator[tuple[multicast.Node, multicast.Node]]:
    with start() as first, start(first.address) as second:
        yield first, second


def test_a_message_reaches_a_member(pair: tuple[multicast.Node, multicast.Node]) -> None:
    receiver, sender = pair
    prices = receiver.join("prices/AAPL", "prices/IBM")
    assert prices.groups == ["prices/AAPL", "prices/IBM"]
    assert sender.wait_for_members("prices/IBM", timeout=LONG)
    assert sender.send("prices/IBM", b"187.21") == 0
    message = prices.recv(timeout=LONG)
    assert (message.group, message.payload, message.sequence) == ("prices/IBM", b"187.21", 0)
    assert message.sender == sender.id
    assert not message.recovered and message.latency == 0.0
    assert "prices/IBM" in repr(message)


def test_thousands_of_messages_arrive_in_order(pair: tuple[multicast.Node, multicast.Node]) -> None:
    receiver, sender = pair
    subscription = receiver.join("load", fifo=True, queue=10_000, policy="block")
    assert sender.wait_for_members("load", timeout=LONG)
    load = sender.sender("load")
    thread = threading.Thread(target=lambda: [load.send(n.to_bytes(4, "big")) for n in range(3_000)])
    thread.start()
    got = [int.from_bytes(subscription.recv(timeout=LONG).payload, "big") for _ in range(3_000)]
    thread.join()
    assert got == list(range(3_000))
    assert subscription.dropped == 0


def test_a_slow_program_is_told_what_it_missed(pair: tuple[multicast.Node, multicast.Node]) -> None:
    receiver, sender = pair
    told, warned = receiver.join("load", queue=100), receiver.join("load", queue=100)
    assert sender.wait_for_members("load", timeout=LONG)
    for number in range(1_000):
        sender.send("load", number.to_bytes(4, "big"))
    while told.dropped < 900 or warned.dropped < 900:
        time.sleep(0.01)
    report = told.recv_event(timeout=LONG)
    assert isinstance(report, multicast.Lost)
    assert (report.first, report.last, report.reason) == (0, 899, "the reader was too slow")
    with pytest.warns(multicast.LossWarning, match="0 to 899"):
        message = warned.recv(timeout=LONG)
    assert message.sequence == 900 and (told.lost, warned.lost) == (0, 0)


def test_a_wait_ends_with_its_timeout_and_with_the_node(pair: tuple[multicast.Node, multicast.Node]) -> None:
    receiver, _ = pair
    quiet = receiver.join("quiet")
    assert quiet.try_recv() is None
    with pytest.raises(TimeoutError):
        quiet.recv(timeout=0.05)
    timer = threading.Timer(0.2, receiver.close)
    timer.start()
    assert list(quiet) == []
    with pytest.raises(multicast.Closed):
        quiet.recv()
    with pytest.raises(multicast.Closed):
        receiver.send("quiet", b"")
    timer.join()


def test_leaving_ends_a_wait(pair: tuple[multicast.Node, multicast.Node]) -> None:
    quiet = pair[0].join("quiet")
    timer = threading.Timer(0.2, quiet.leave)
    timer.start()
    with pytest.raises(multicast.Closed):
        quiet.recv(timeout=LONG)
    timer.join()


def interrupt(after: float) -> threading.Timer:
    # A process that was started in the background ignores the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def test_ctrl_c_ends_a_wait_and_the_node_remains_usable(pair: tuple[multicast.Node, multicast.Node]) -> None:
    receiver, sender = pair
    prices = receiver.join("prices")
    assert sender.wait_for_members("prices", timeout=LONG)
    for wait in (
        prices.recv,
        prices.recv_event,
        lambda: next(prices),
        lambda: prices.recv(timeout=LONG),
        lambda: receiver.wait_for_members("nobody", timeout=LONG),
    ):
        with pytest.raises(KeyboardInterrupt):
            timer = interrupt(0.1)
            wait()
        timer.join()
    sender.send("prices", b"187.21")
    assert prices.recv(timeout=LONG).payload == b"187.21"


def test_ctrl_c_ends_waits_for_holders_and_replies(pair: tuple[multicast.Node, multicast.Node]) -> None:
    receiver, sender = pair
    with receiver.join("orders"):
        assert sender.wait_for_members("orders", timeout=LONG)
        orders = sender.sender("orders")
        for wait in (
            lambda: orders.send_held(b"buy", members=9, timeout=LONG),
            lambda: sender.request("orders", b"how many?", timeout=LONG),
            lambda: sender.request_all("orders", b"how many?", timeout=LONG),
        ):
            begun = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                timer = interrupt(0.1)
                wait()
            timer.join()
            assert time.monotonic() - begun < LONG / 2
        assert orders.send_held(b"buy", timeout=LONG) > 0


def test_a_message_for_which_there_is_no_room_in_time_raises_a_timeout() -> None:
    with start() as receiver, receiver.join("still", queue=1, policy="block") as still:
        with start(receiver.address) as sender:
            assert sender.wait_for_members("still", timeout=LONG)
            handle = sender.sender("still")
            # A short message could share the last packet that waits.
            long = bytes(1_000)
            refused = 0
            while refused < 200:
                refused = 0 if handle.try_send(long) is not None else refused + 1
                time.sleep(0.01 if refused else 0.0)
            for wait in (
                lambda: handle.send_held(long, timeout=0.2),
                lambda: sender.request("still", long, timeout=0.2),
                lambda: sender.request_all("still", long, timeout=0.2),
            ):
                with pytest.raises(TimeoutError, match="nothing was sent"):
                    wait()
            assert still.recv(timeout=LONG).payload == long


def test_other_threads_run_while_a_node_is_collected() -> None:
    with start() as receiver, receiver.join("still", queue=1, policy="block"):
        node = start(receiver.address)
        assert node.wait_for_members("still", timeout=LONG)
        still = node.sender("still")
        refused = 0
        while refused < 200:
            refused = 0 if still.try_send(bytes(1_000)) is not None else refused + 1
            time.sleep(0.01 if refused else 0.0)
        ticks: list[float] = []
        done = threading.Event()

        def tick() -> None:
            while not done.wait(0.01):
                ticks.append(time.monotonic())

        thread = threading.Thread(target=tick)
        thread.start()
        begun = time.monotonic()
        # The node waits for two seconds for the reader that stands still.
        del node
        ended = time.monotonic()
        done.set()
        thread.join()
        assert ended - begun > 1.0
        assert sum(begun < at < ended for at in ticks) > 10
        with pytest.raises(multicast.Closed):
            still.send(b"x")


def test_a_closed_node_releases_its_port_while_handles_remain() -> None:
    def on(port: int) -> multicast.Node:
        return multicast.Node("lo", address="127.0.0.1", port=port, unicast=True)

    node = start()
    port = int(node.address.rpartition(":")[2])
    held = node.join("g"), node.sender("g")
    waiter = threading.Thread(target=node.wait_for_members, args=("g", 1, 3600.0))
    waiter.start()
    time.sleep(0.05)
    node.close()
    waiter.join(LONG)
    assert not waiter.is_alive()
    with on(port) as again:
        assert again.address.endswith(f":{port}")
    with pytest.raises(multicast.Closed):
        held[1].send(b"x")


def test_expiring_and_held_back_messages_have_settings(
    pair: tuple[multicast.Node, multicast.Node],
) -> None:
    receiver, sender = pair
    positions = receiver.join("positions", fifo=True, held=16, lifetime=0.02)
    assert sender.wait_for_members("positions", timeout=LONG)
    sender.sender("positions", expiring=True).send(b"52.5 N 13.4 E")
    assert positions.recv(timeout=LONG).payload == b"52.5 N 13.4 E"
    with pytest.raises(ValueError, match="lifetime"):
        receiver.join("positions", lifetime=0.03)
    with pytest.raises(ValueError, match="held: expected 1 to 1048576"):
        receiver.join("other", fifo=True, held=0)


def test_event_loops_receive(pair: tuple[multicast.Node, multicast.Node]) -> None:
    receiver, sender = pair

    async def some(subscription: multicast.Subscription, count: int) -> list[bytes]:
        got = []
        async for message in subscription:
            got.append(message.payload)
            if len(got) == count:
                break
        return got

    async def main() -> None:
        first, second = receiver.join("a"), receiver.join("b")
        assert await asyncio.to_thread(sender.wait_for_members, "b", 1, LONG)

        async def send() -> None:
            for n in range(100):
                sender.send("a", str(n).encode())
                sender.send("b", str(n).encode())
                await asyncio.sleep(0.001)

        numbers = [str(n).encode() for n in range(100)]
        got = await asyncio.wait_for(asyncio.gather(some(first, 100), some(second, 100), send()), LONG)
        assert sorted(got[0]) == sorted(numbers) and sorted(got[1]) == sorted(numbers)

    asyncio.run(main())


def test_tasks_share_a_subscription_and_leaving_ends_them(pair: tuple[multicast.Node, multicast.Node]) -> None:
    async def main() -> None:
        quiet = pair[0].join("quiet")
        waiting = [asyncio.ensure_future(quiet.recv_async()) for _ in range(3)]
        await asyncio.sleep(0.05)
        cancelled = waiting.pop()
        cancelled.cancel()
        await asyncio.sleep(0.05)
        quiet.leave()
        for task in waiting:
            with pytest.raises(multicast.Closed):
                await asyncio.wait_for(task, LONG)

    asyncio.run(main())


def test_long_messages_travel_in_several_packets(pair: tuple[multicast.Node, multicast.Node]) -> None:
    receiver, sender = pair
    files = receiver.join("files")
    assert sender.wait_for_members("files", timeout=LONG)
    long = bytes(range(256)) * 200
    with pytest.raises(ValueError, match=str(sender.payload_max)):
        sender.send("files", long)
    sender.sender("files", fragments=True).send(long)
    assert files.recv(timeout=LONG).payload == long


def test_a_late_joiner_gets_the_past(pair: tuple[multicast.Node, multicast.Node]) -> None:
    member, sender = pair
    kept = member.join("prices")
    assert sender.wait_for_members("prices", timeout=LONG)
    for number in range(10):
        sender.send("prices", str(number).encode())
    for _ in range(10):
        kept.recv(timeout=LONG)
    with start(member.address) as late:
        assert late.wait_for_members("prices", timeout=LONG)
        prices = late.join("prices", last=3)
        begins = prices.recv_event(timeout=LONG)
        assert isinstance(begins, multicast.History)
        assert (begins.group, begins.messages, begins.complete, begins.ended) == ("prices", 3, True, False)
        past = [prices.recv(timeout=LONG) for _ in range(3)]
        assert [message.payload for message in past] == [b"7", b"8", b"9"]
        assert all(message.past for message in past)
        ends = prices.recv_event(timeout=LONG)
        assert isinstance(ends, multicast.History) and ends.ended and ends.messages is None
        with late.join("prices", since=3600.0) as again:
            assert again.recv(timeout=LONG).past
        with pytest.raises(ValueError, match="one of last, since and last_per_key"):
            late.join("other", last=3, since=1.0)


def test_a_late_joiner_gets_the_last_value_of_each_key(pair: tuple[multicast.Node, multicast.Node]) -> None:
    member, node = pair
    kept = member.join("prices")
    assert node.wait_for_members("prices", timeout=LONG)
    prices = node.sender("prices")
    for key, value in [(b"AAPL", b"187.21"), (b"IBM", b"141.10"), (b"AAPL", b"187.22")]:
        prices.send(value, key=key)
    assert [kept.recv(timeout=LONG).key for _ in range(3)] == [b"AAPL", b"IBM", b"AAPL"]
    with start(member.address) as late:
        assert late.wait_for_members("prices", timeout=LONG)
        values = late.join("prices", last_per_key=True)
        begins = values.recv_event(timeout=LONG)
        # The member has joined without the values from before, so it cannot know whether these are all.
        assert isinstance(begins, multicast.History) and (begins.messages, begins.complete) == (2, False)
        came = [values.recv(timeout=LONG) for _ in range(2)]
        assert [(message.key, message.payload) for message in came] == [(b"IBM", b"141.10"), (b"AAPL", b"187.22")]
        with pytest.raises(ValueError, match="expected 1 to 255 bytes, saw 0"):
            prices.send(b"x", key=b"")
        with pytest.raises(ValueError, match="one of last, since and last_per_key"):
            late.join("other", last=3, last_per_key=True)


def test_messages_come_with_time_address_and_headers(pair: tuple[multicast.Node, multicast.Node]) -> None:
    receiver, sender = pair
    orders = receiver.join("orders")
    own = sender.join("orders", loopback=True)
    assert sender.wait_for_members("orders", timeout=LONG)
    before = time.time()
    handle = sender.sender("orders", content_type="text/plain", deadline=600.0)
    handle.send(b"buy", headers=b"desk=7")
    for subscription, is_own in ((orders, False), (own, True)):
        message = subscription.recv(timeout=LONG)
        assert (message.payload, message.own) == (b"buy", is_own)
        assert (message.content_type, message.headers) == ("text/plain", b"desk=7")
        assert message.address == sender.address
        assert message.sent is not None and abs(message.sent - before) < LONG
    with pytest.raises(ValueError, match="256"):
        handle.send(b"buy", headers=bytes(300))
    with pytest.raises(ValueError, match="deadline: expected up to 3600 seconds"):
        handle.send(b"buy", deadline=7200.0)


def test_a_message_that_is_read_too_late_is_reported(pair: tuple[multicast.Node, multicast.Node]) -> None:
    receiver, sender = pair
    orders = receiver.join("orders")
    assert sender.wait_for_members("orders", timeout=LONG)
    handle = sender.sender("orders")
    handle.send(b"first")
    assert orders.recv(timeout=LONG).payload == b"first"
    handle.send(b"late", deadline=0.02)
    while len(orders) == 0:
        time.sleep(0.005)
    time.sleep(0.05)
    report = orders.recv_event(timeout=LONG)
    assert isinstance(report, multicast.Lost)
    assert (report.reason, orders.expired) == ("its deadline passed", 1)


def test_members_are_listed_and_told(pair: tuple[multicast.Node, multicast.Node]) -> None:
    watcher, other = pair
    news = watcher.join("g", members=True)

    def change() -> tuple[int, str, str]:
        event = news.recv_event(timeout=LONG)
        assert isinstance(event, multicast.MemberNews) and event.group == "g"
        return event.member, event.address, event.change

    with other.join("g"):
        assert change() == (other.id, other.address, "joined")
        assert watcher.member_list("g") == [(other.id, other.address)]
    assert change() == (other.id, other.address, "left")


def test_requests_get_replies(pair: tuple[multicast.Node, multicast.Node]) -> None:
    server, client = pair
    sums = server.join("sums")
    assert client.wait_for_members("sums", timeout=LONG)

    def serve() -> None:
        for _ in range(2):
            request = sums.recv(timeout=LONG)
            assert request.is_request
            server.reply(request, str(sum(request.payload)).encode())

    thread = threading.Thread(target=serve)
    thread.start()
    assert client.request("sums", bytes([1, 2, 3]), timeout=LONG).payload == b"6"
    replies = client.request_all("sums", bytes([4, 5]), timeout=LONG, count=1)
    assert [reply.payload for reply in replies] == [b"9"]
    thread.join()
    with pytest.raises(TimeoutError, match="expected a reply within 0.05 s"):
        client.request("sums", b"", timeout=0.05)
    with pytest.raises(ValueError, match="expected a request"):
        server.reply(replies[0], b"")


def test_a_pattern_joins_groups_as_they_appear(pair: tuple[multicast.Node, multicast.Node]) -> None:
    receiver, sender = pair
    prices = receiver.join("prices/*")
    sender.sender("prices/AAPL")
    found = prices.recv_event(timeout=LONG)
    assert isinstance(found, multicast.GroupNews)
    assert (found.group, found.pattern, found.refused) == ("prices/AAPL", "prices/*", None)
    assert sender.wait_for_members("prices/AAPL", timeout=LONG)
    sender.send("prices/AAPL", b"187.21")
    message = prices.recv(timeout=LONG)
    assert (message.group, message.payload) == ("prices/AAPL", b"187.21")
    with pytest.raises(ValueError, match="without `\\*`"):
        sender.send("prices/*", b"")


def test_error_texts_name_the_mistake(pair: tuple[multicast.Node, multicast.Node]) -> None:
    node = pair[0]
    with pytest.raises(ValueError, match="1 to 1024 bytes"):
        node.join("")
    with pytest.raises(ValueError, match="at least one"):
        node.join()
    with pytest.raises(ValueError, match="policy: expected one of block, drop-oldest, drop-newest"):
        node.join("g", policy="never")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="repair: expected one of xor"):
        multicast.Node("lo", repair="none")  # type: ignore[arg-type]
    with pytest.raises(multicast.RicochetError, match="nothing-like-it"):
        multicast.Node("nothing-like-it")
    with pytest.raises(ValueError, match="IP address"):
        multicast.Node("lo", address="localhost")
    with pytest.raises(ValueError, match="timeout"):
        node.join("g").recv(timeout=-1.0)


def test_a_cluster_key_excludes_other_nodes() -> None:
    key = multicast.generate_key()
    with start(key=key) as first, start(first.address, key=key) as friend:
        with start(first.address) as stranger:
            secret = first.join("secret")
            assert friend.wait_for_members("secret", timeout=LONG)
            assert not stranger.wait_for_members("secret", timeout=0.5)
            friend.send("secret", b"hello")
            assert secret.recv(timeout=LONG).payload == b"hello"
            assert sum(first.status()["dropped"].values()) > 0


def test_a_cluster_changes_its_key_while_it_runs() -> None:
    old, new = multicast.generate_key(), multicast.generate_key()
    with start(key=old) as first, start(first.address, key=old) as friend:
        messages = first.join("g")
        assert friend.wait_for_members("g", timeout=LONG)
        for node, keys in [(first, [old, new]), (friend, [new, old]), (first, [new]), (friend, [new])]:
            node.set_keys(keys)
            friend.send("g", b"hello")
            assert messages.recv(timeout=LONG).payload == b"hello"
        assert [key["signs"] for key in first.status()["keys"]] == [True]
        with pytest.raises(ValueError, match="44 characters"):
            first.set_keys(["nonsense"])
        with pytest.raises(multicast.RicochetError, match="at least one"):
            first.set_keys([])
        with pytest.raises(multicast.RicochetError, match="key file"):
            first.reload_keys()
    with start(key=f"# two keys\n{old}\n{new}\n") as both:
        assert len(both.status()["keys"]) == 2


def test_the_status_is_plain_data(pair: tuple[multicast.Node, multicast.Node]) -> None:
    with pair[0].join("g"):
        status = pair[0].status()
        assert [group["name"] for group in status["groups"]] == ["g"]
        assert isinstance(status["counts"]["sent"], int)
    assert pair[0].status()["groups"] == []


def test_the_quick_start_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parent.parent / "examples" / "quickstart.py"))
    assert capsys.readouterr().out == "prices/AAPL 187.21 as sent\n"


def test_the_demonstration_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_module("undrop.multicast", run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert sum("received 187.22 of prices/AAPL" in line for line in lines) == 2
    assert sum("that was sent before it joined" in line for line in lines) == 2


def test_a_registry_that_is_away_is_an_event(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    # The first port of the host, at which nobody listens.
    node = '[node]\ninterface = "lo"\naddress = "127.0.0.1"\nport = 0\nunicast = true\n'
    config.write_text(node + '[membership]\netcd = ["http://127.0.0.1:1"]\n')
    with multicast.Node(config=config) as alone:
        event = alone.join("g", members=True).recv_event(timeout=LONG)
        assert isinstance(event, multicast.RegistryNews)
        assert (event.kind, "cannot connect to http://127.0.0.1:1" in (event.error or "")) == ("etcd", True)
        assert repr(event).startswith('RegistryNews(kind="etcd", error=')
