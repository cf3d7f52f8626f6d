"""Tests total order with real nodes on the loopback interface."""

from __future__ import annotations

import socket
import time
import warnings
from pathlib import Path

import pytest

from undrop import multicast

LONG = 30.0


def test_a_program_is_warned_of_what_the_others_have_not_agreed_on(tmp_path: Path) -> None:
    ports = []
    for _ in range(2):
        with socket.socket(type=socket.SOCK_DGRAM) as unused:
            unused.bind(("127.0.0.1", 0))
            ports.append(unused.getsockname()[1])
    members = [f'[[member]]\naddress = "127.0.0.1:{port}"\n' for port in ports]
    files = [tmp_path / f"{port}.toml" for port in ports]
    for file, member in zip(files, members):
        file.write_text(member)
    first, second = (
        multicast.Node("lo", address="127.0.0.1", port=port, unicast=True, member_file=file)
        for port, file in zip(ports, files)
    )
    with first, second:
        # Each begins an order of its own, because it knows no other node.
        audits = [node.join("audit", order="total") for node in (first, second)]
        for node, audit in zip((first, second), audits):
            node.send("audit", b"alone")
            assert audit.recv(timeout=LONG).number == 0
        for file in files:
            file.write_text("".join(members))
        end = time.monotonic() + LONG
        told = 'numbers 0 to 0 of "audit" were received otherwise'
        with warnings.catch_warnings(), pytest.raises(multicast.LossWarning, match=told):
            warnings.simplefilter("error", multicast.LossWarning)
            while time.monotonic() < end:
                for audit in audits:
                    audit.try_recv()
                time.sleep(0.01)
