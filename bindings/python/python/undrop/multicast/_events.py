"""Receiving in an event loop, by waiting for a subscription's descriptor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, AsyncIterator

from undrop.multicast._ricochet import Closed

if TYPE_CHECKING:
    from undrop.multicast._ricochet import GroupNews, History, Lost, MemberNews, Message, OrderChange, RegistryNews, Subscription

# Tasks that wait for a descriptor, by loop and descriptor: a loop has only one callback for each descriptor.
_waiting: dict[tuple[asyncio.AbstractEventLoop, int], set[asyncio.Future[None]]] = {}


async def recv(subscription: Subscription) -> Message:
    while True:
        message = subscription.try_recv()
        if message is not None:
            return message
        await _readable(subscription)


async def recv_event(subscription: Subscription) -> Message | Lost | History | MemberNews | GroupNews | OrderChange | RegistryNews:
    while True:
        event = subscription.try_recv_event()
        if event is not None:
            return event
        await _readable(subscription)


async def messages(subscription: Subscription) -> AsyncIterator[Message]:
    while True:
        try:
            message = await recv(subscription)
        except Closed:
            return
        yield message


async def _readable(subscription: Subscription) -> None:
    loop = asyncio.get_running_loop()
    descriptor = subscription.fileno()
    key = (loop, descriptor)
    future: asyncio.Future[None] = loop.create_future()
    if key not in _waiting:
        _waiting[key] = set()
        loop.add_reader(descriptor, _wake, key)
    _waiting[key].add(future)
    try:
        await future
    finally:
        others = _waiting.get(key)
        if others is not None:
            others.discard(future)
            if not others:
                _forget(key)


def _wake(key: tuple[asyncio.AbstractEventLoop, int]) -> None:
    # Wakes all tasks. A task that finds nothing waits again.
    for future in _waiting.get(key, ()):
        if not future.done():
            future.set_result(None)
    _forget(key)


def _forget(key: tuple[asyncio.AbstractEventLoop, int]) -> None:
    if _waiting.pop(key, None) is not None:
        loop, descriptor = key
        loop.remove_reader(descriptor)
