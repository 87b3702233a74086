# SPDX-License-Identifier: Apache-2.0
"""Asks for passwords and limits the rate of requests, as the web configuration says.

To check a password takes long by design. One is checked at a time, in a thread; clients take turns
by address. Results are cached, right and wrong ones apart, so that guesses evict no right one. At
the limit of waiting requests one gets 503; its password is checked all the same, for the retry.
"""

from __future__ import annotations

import asyncio
import binascii
import hmac
import logging
import math
import secrets
import time
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exporter.web.access.config import Hash, RateLimit
from exporter.web.access.reload import ActiveConfig, WebConfigWatcher
from exporter.web.fairness import FairQueue, origin
from exporter.web.responses import Header, refuse_plainly
from exporter.web.server.counts import uncounted
from exporter.web.threads import Threads

OPEN_PATH = "/-/healthy"
"""It asks for nothing: what starts the daemon anew when it hangs has no password."""
CHALLENGE = b'Basic realm="roofline-exporter", charset="UTF-8"'
NO_STORE = (b"cache-control", b"no-store")
RETRY_SECONDS = 1
MOST_REMEMBERED = 100
"""Right ones, and as many wrong ones."""
MOST_WAITING = 1024
"""Passwords that are to be checked: so many origins can have their turn."""
MOST_WAITING_OF_ONE = 16
"""Of one origin, so that it does not leave an hour's work behind."""
MOST_HELD = 32
"""Requests that wait for that: each is a connection that makes no room for others."""
LONGEST_PASSWORD = 72
"""Bytes; bcrypt does not look at more."""

log = logging.getLogger(__name__)


class _Refusal(NamedTuple):
    reason: str
    """As in `exporter.model.daemon.REQUEST_REFUSALS`."""
    status: int
    text: str
    header: Header | None = None


class AuthMiddleware:
    """ASGI middleware: rate limit, passwords, configured headers, streams end when files change."""

    def __init__(
        self,
        app: ASGIApp,
        config: WebConfigWatcher,
        count: Callable[[str], None] = uncounted,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Guard an application.

        Args:
            app: what answers those who may ask.
            config: the web configuration.
            count: is called with the reason of each refusal.
            clock: gives seconds; never steps.
        """
        self._app = app
        self._config = config
        self._count = count
        self._clock = clock
        self._passwords = Passwords()
        self._bucket: Bucket | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or have it answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_open = scope["path"] == OPEN_PATH
        active = self._config.active if is_open else await self._config.recent()
        refusal = None if is_open else await self._refusal(scope, active)
        send = _dressed(send, active)
        if refusal is not None:
            self._count(refusal.reason)
            headers = [NO_STORE] if refusal.header is None else [NO_STORE, refusal.header]
            await refuse_plainly(scope, send, refusal.status, refusal.text, headers)
        else:
            await self._app(scope, self._ending(receive, active), send)

    async def _refusal(self, scope: Scope, active: ActiveConfig) -> _Refusal | None:
        if active.refuses_requests:
            return _Refusal("web_config", 503, "the web configuration cannot be used, see the log")
        bucket = self._limit(active)
        if bucket is not None and not bucket.take(self._clock()):
            retry = _retry_after(bucket.retry_after_seconds)
            return _Refusal("rate", 429, "more requests than rate_limit allows", retry)
        if not active.users:
            return None
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        asked = credentials(given[0]) if len(given) == 1 else None
        address = (scope.get("client") or ("",))[0]
        try:
            if asked and await self._passwords.check(active.users, *asked, address):
                return None
        except Busy:
            retry = _retry_after(RETRY_SECONDS)
            return _Refusal("password", 503, "too many passwords wait to be checked", retry)
        return _Refusal(
            "password", 401, "a user and password are needed", (b"www-authenticate", CHALLENGE)
        )

    def _limit(self, active: ActiveConfig) -> Bucket | None:
        limit = active.rate_limit
        if limit is None:
            self._bucket = None
        elif self._bucket is None or self._bucket.limit != limit:
            self._bucket = Bucket(limit, self._clock())
        return self._bucket

    def _ending(self, receive: Receive, active: ActiveConfig) -> Receive:
        """Return `receive` that says that the client has gone once another configuration holds.

        A stream would go on under the old ones for as long as it likes.
        """

        async def ending() -> Message:
            received = asyncio.ensure_future(receive())
            superseded = asyncio.ensure_future(self._config.superseded(active.generation))
            try:
                await asyncio.wait({received, superseded}, return_when=asyncio.FIRST_COMPLETED)
                return received.result() if received.done() else {"type": "http.disconnect"}
            finally:
                received.cancel()
                superseded.cancel()

        return ending


def _dressed(send: Send, active: ActiveConfig) -> Send:
    """Return `send` with the configured headers, in the place of the application's own."""
    names = {name for name, _ in active.headers}

    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [pair for pair in message.get("headers", ()) if pair[0].lower() not in names]
            message = {**message, "headers": [*own, *active.headers]}
        await send(message)

    return dressed


def _retry_after(seconds: int) -> Header:
    return b"retry-after", str(seconds).encode()


class Bucket:
    """Starts full, with `burst` tokens, and gains one each interval; a request takes one."""

    def __init__(self, limit: RateLimit, now: float) -> None:
        self.limit = limit
        self._tokens = float(limit.burst)
        self._at = now

    def take(self, now: float) -> bool:
        """Return whether there was a token; `now` is in seconds, of a clock that never steps."""
        gained = (now - self._at) / self.limit.interval_seconds
        self._tokens = min(float(self.limit.burst), self._tokens + gained)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    @property
    def retry_after_seconds(self) -> int:
        """Whole seconds after which there is a token, if nobody else takes it."""
        return max(1, math.ceil((1.0 - self._tokens) * self.limit.interval_seconds))


class Busy(Exception):
    """Too many wait already; asking again a second later may help."""


def credentials(header: bytes) -> tuple[bytes, bytes] | None:
    """Return user and password of an Authorization header, None if it holds none."""
    scheme, _, rest = header.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        decoded = b64decode(rest.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    user, colon, password = decoded.partition(b":")
    return (user, password) if colon else None


class _Asked(NamedTuple):
    """A password that is to be checked."""

    of: str
    """Its origin."""
    key: bytes
    password: bytes
    wanted: Hash
    is_known: bool
    """Whether there is such a user."""
    answer: asyncio.Future[bool | None]
    """Whether it is right; None for who is not to wait."""

    def say(self, is_right: bool | None) -> None:
        if not self.answer.done():
            self.answer.set_result(is_right)


class Passwords:
    """Checks passwords, one at a time."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._thread = Threads("password")
        self._turns: FairQueue[_Asked] = FairQueue(MOST_WAITING, MOST_WAITING_OF_ONE)
        self._held: FairQueue[_Asked] = FairQueue(MOST_HELD)
        self._checking: asyncio.Task[None] | None = None

    async def check(
        self, users: Mapping[str, Hash], user: bytes, password: bytes, address: str = ""
    ) -> bool:
        """Return whether this is the user's password; unknown users take as long as known ones.

        Raises:
            Busy: so many wait that this one may not; it may be checked all the same.
        """
        name = user.decode("utf-8", "replace")
        found = users.get(name) if name.encode() == user else None
        # bcrypt looks at no more bytes, and some implementations of it at none after a NUL.
        if len(password) > LONGEST_PASSWORD or b"\0" in password:
            return False
        wanted = found or self._dummy(users, user)
        key = self._key(user, password, wanted)
        known = self._remembered(key)
        if known is not None:
            return known
        loop, of = asyncio.get_running_loop(), origin(address)
        asked = _Asked(of, key, password, wanted, found is not None, loop.create_future())
        for queue in (self._turns, self._held):
            left_out = queue.put(of, asked)
            if left_out is not None:
                left_out.say(None)
            if left_out is asked:
                break
        if self._checking is None or self._checking.done():
            self._checking = loop.create_task(self._check_all())
        try:
            is_right = await asked.answer
        finally:
            self._held.discard(of, asked)
        if is_right is None:
            raise Busy
        return is_right

    async def _check_all(self) -> None:
        while self._turns:
            asked, is_right = self._turns.pop(), None
            try:
                matches = await self._thread.run(_matches, asked.password, asked.wanted)
            except Exception:  # such as no memory: neither right nor wrong
                log.debug("a password was not checked", exc_info=True)
            else:
                is_right = matches and asked.is_known
                self._remember(self._right if is_right else self._wrong, asked.key)
            # Who asks again and again has one turn for all of it.
            for each in [asked, *(each for each in self._turns if each.key == asked.key)]:
                self._turns.discard(each.of, each)
                each.say(is_right)

    def _dummy(self, users: Mapping[str, Hash], user: bytes) -> Hash:
        """Return a hash for an unknown user: always the same, and of a cost that a user's has."""
        costs = [known.cost for known in users.values()]
        number = int.from_bytes(hmac.digest(self._secret, user, "sha256")[:8], "big")
        return dummy(costs[number % len(costs)] if costs else 10)

    def _key(self, user: bytes, password: bytes, wanted: Hash) -> bytes:
        """Return what stands for them; it has the hash in it, so that a new one takes effect."""
        parts = (user, password, wanted.octets)
        text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._secret, text, "sha256")

    def _remembered(self, key: bytes) -> bool | None:
        for known, is_right in ((self._right, True), (self._wrong, False)):
            if key in known:
                known.move_to_end(key)
                return is_right
        return None

    def _remember(self, known: OrderedDict[bytes, None], key: bytes) -> None:
        known[key] = None
        while len(known) > MOST_REMEMBERED:
            known.popitem(last=False)


def _matches(password: bytes, wanted: Hash) -> bool:
    import bcrypt  # only who has users needs it, for whom it is loaded with the file

    try:
        return bcrypt.checkpw(password, wanted.octets)
    except ValueError:
        return False


def dummy(cost: int) -> Hash:
    """Return a hash of that cost for those who have none; its matches are refused too."""
    return Hash(f"$2b${cost:02d}${'.' * 53}")
