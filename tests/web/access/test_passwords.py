# SPDX-License-Identifier: Apache-2.0
"""Passwords are checked one at a time in a thread; results are cached."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode
from collections.abc import Callable

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.access import auth
from exporter.web.access.auth import Passwords, credentials


def hashed(password: bytes, cost: int = 4) -> bytes:
    return bcrypt.hashpw(password, bcrypt.gensalt(cost))


ALICE = hashed(b"open sesame")
USERS = {"alice": ALICE, "b\u00f6b": hashed(b"\xff\xfe"), "max": hashed(b"x" * 72)}


class Computed:
    """Counts hashes, and holds them up while `gate` is closed."""

    def __init__(self) -> None:
        self.hashes: list[bytes] = []
        self.passwords: list[bytes] = []
        self.at_once = self.most_at_once = 0
        self.threads: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()
        self._checkpw: Callable[[bytes, bytes], bool] = bcrypt.checkpw

    def checkpw(self, password: bytes, wanted: bytes) -> bool:
        self.hashes.append(wanted)
        self.passwords.append(password)
        self.threads.add(threading.current_thread().name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            assert self.gate.wait(30)
            return self._checkpw(password, wanted)
        finally:
            self.at_once -= 1


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Computed:
    counting = Computed()
    monkeypatch.setattr(bcrypt, "checkpw", counting.checkpw)
    return counting


@pytest.mark.parametrize(
    ("user", "password", "is_right"),
    [
        (b"alice", b"open sesame", True),
        (b"alice", b"open sesame ", False),
        (b"alice", b"", False),
        (b"Alice", b"open sesame", False),
        (b"nobody", b"open sesame", False),
        ("b\u00f6b".encode(), b"\xff\xfe", True),
        ("b\u00f6b".encode("latin-1"), b"\xff\xfe", False),
        (b"max", b"x" * 72, True),
        (b"max", b"x" * 73, False),
        (b"alice", b"open sesame\0more", False),
        (b"alice\0", b"open sesame", False),
    ],
)
def test_only_the_right_password_is_right(user: bytes, password: bytes, is_right: bool) -> None:
    """All of it, for that user, in any bytes; also from the cache."""

    async def ask() -> list[bool | None]:
        checker = Passwords()
        return [await checker.check(USERS, user, password) for _ in range(2)]

    assert asyncio.run(ask()) == [is_right, is_right]


def test_guesses_evict_no_right_password(computed: Computed) -> None:
    """Right and wrong passwords have a cache each, of a hundred."""

    async def ask() -> int:
        checker = Passwords()
        assert await checker.check(USERS, b"alice", b"open sesame")
        for number in range(auth.CACHE_SIZE + 1):
            assert not await checker.check(USERS, b"alice", b"%d" % number)
        before = len(computed.hashes)
        assert await checker.check(USERS, b"alice", b"open sesame")
        assert not await checker.check(USERS, b"alice", b"0")  # the oldest, forgotten
        return len(computed.hashes) - before

    assert asyncio.run(ask()) == 1


def test_an_unknown_user_takes_as_long_as_a_known_one(computed: Computed) -> None:
    """One hash of a cost that a user's has, and the same one whenever the name is asked for."""

    async def ask() -> None:
        checker = Passwords()
        users = {"a": hashed(b"a", 4), "b": hashed(b"b", 5)}
        for number in range(40):
            for password in (b"1", b"2"):
                assert not await checker.check(users, b"nobody%d" % number, password)

    asyncio.run(ask())

    costs = [int(wanted[4:6]) for wanted in computed.hashes]
    assert set(costs) == {4, 5}
    assert costs[::2] == costs[1::2]


def place(number: int) -> str:
    """An address of a network of its own."""
    return f"2001:db8:0:{number:x}::{number:x}"


def test_few_requests_wait_for_their_check(computed: Computed) -> None:
    """Those of the origin that has most are sent away; their passwords are checked all the same."""

    async def ask() -> None:
        checker = Passwords()
        computed.gate.clear()
        guesses = [
            asyncio.ensure_future(
                checker.check(USERS, b"alice", b"%d" % number, place(number // 16))
            )
            for number in range(auth.MOST_WAITING)
        ]
        await asyncio.sleep(0)
        scraper = asyncio.ensure_future(checker.check(USERS, b"alice", b"open sesame", place(9)))
        await asyncio.sleep(0.01)
        assert [guess.done() for guess in guesses] == [False] * 15 + [True] + [False] * 16
        assert await guesses[15] is None
        computed.gate.set()
        assert await scraper
        assert await asyncio.gather(*guesses[:15], *guesses[16:]) == [False] * 31
        before = len(computed.hashes)
        assert not await checker.check(USERS, b"alice", b"15", place(0))
        assert len(computed.hashes) == before == auth.MOST_WAITING + 1

    asyncio.run(ask())


def test_one_origin_leaves_little_behind(computed: Computed) -> None:
    """All of this host's addresses are one."""

    async def ask() -> None:
        checker = Passwords()
        computed.gate.clear()
        guesses = [
            asyncio.ensure_future(
                checker.check(USERS, b"alice", b"%d" % number, f"127.0.{number}.1")
            )
            for number in range(200)
        ]
        await asyncio.sleep(0.01)
        computed.gate.set()
        answers = await asyncio.gather(*guesses)
        assert len(computed.hashes) == answers.count(False) <= auth.MOST_QUEUED_OF_ONE + 1

    asyncio.run(ask())


def test_what_could_not_be_checked_is_neither_right_nor_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As soon as there is memory again, the password is right."""

    def fail(*_: object) -> bool:
        raise MemoryError

    async def ask() -> None:
        checker = Passwords()
        with monkeypatch.context() as patched:
            patched.setattr(bcrypt, "checkpw", fail)
            assert await checker.check(USERS, b"alice", b"open sesame") is None
        assert await checker.check(USERS, b"alice", b"open sesame")

    asyncio.run(ask())


def basic(text: bytes) -> bytes:
    return b"Basic " + b64encode(text)


def test_the_header_is_read() -> None:
    """As RFC 7617 has it, in any bytes."""
    assert credentials(basic(b"alice:a:b")) == (b"alice", b"a:b")
    assert credentials(basic(b":")) == (b"", b"")
    assert credentials(basic(b"\xff\x00:\xfe")) == (b"\xff\x00", b"\xfe")
    assert credentials(b"bAsIc  " + b64encode(b"a:b") + b" ") == (b"a", b"b")
    for header in (basic(b"alice"), b"Basic", b"Basic !!!!", b"Basic YTp", b"Bearer YTpi", b""):
        assert credentials(header) is None


@given(st.binary() | st.binary().map(basic) | st.binary().map(lambda rest: b"basic " + rest))
def test_no_header_raises(header: bytes) -> None:
    """It comes from the other end of a connection."""
    found = credentials(header)
    assert found is None or b":" not in found[0]
