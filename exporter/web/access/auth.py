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

from exporter.web.access.config import RateLimit
from exporter.web.access.reload import ActiveConfig, WebConfigWatcher
from exporter.web.fairness import FairQueue, origin
from exporter.web.responses import Header, refuse_plainly
from exporter.web.server.counts import uncounted
from exporter.web.threads import Threads

OPEN_PATH = "/-/healthy"
"""It needs no password: liveness probes have none."""
CHALLENGE = (b"www-authenticate", b'Basic realm="roofline-exporter", charset="UTF-8"')
NO_STORE = (b"cache-control", b"no-store")
RETRY_SECONDS = 1
CACHE_SIZE = 100
"""Right passwords, and as many wrong ones."""
MOST_QUEUED = 1024
"""Passwords to be checked."""
MOST_QUEUED_OF_ONE = 16
"""Of one origin, so that it does not leave an hour's work behind."""
MOST_WAITING = 32
"""Requests that wait for their check: each takes a connection."""
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
    """ASGI middleware: rate limit, passwords, configured headers."""

    def __init__(
        self,
        app: ASGIApp,
        config: WebConfigWatcher,
        count: Callable[[str], None] = uncounted,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Guard an application; `count` is called with the reason of each refusal."""
        self._app = app
        self._config = config
        self._count = count
        self._clock = clock
        self._passwords = Passwords()
        self._bucket: Bucket | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or have it answered."""
        is_open = scope["path"] == OPEN_PATH
        active = self._config.active
        refusal = None if is_open else await self._refusal(scope, active)
        send = _dressed(send, active)
        if refusal is not None:
            self._count(refusal.reason)
            headers = [NO_STORE] if refusal.header is None else [NO_STORE, refusal.header]
            await refuse_plainly(scope, send, refusal.status, refusal.text, headers)
        else:
            await self._app(scope, receive, send)

    async def _refusal(self, scope: Scope, active: ActiveConfig) -> _Refusal | None:
        if active.refuses_requests:
            return _Refusal("web_config", 503, "the web configuration cannot be used, see the log")
        bucket = self._limit(active)
        if bucket is not None and not bucket.take(self._clock()):
            retry = _retry_after(bucket.retry_after_seconds)
            return _Refusal("rate", 429, "more requests than rate_limit allows", retry)
        if not active.config.users:
            return None
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        login = credentials(given[0]) if len(given) == 1 else None
        address = (scope.get("client") or ("",))[0]
        users = active.config.users
        is_right = await self._passwords.check(users, *login, address) if login else False
        if is_right:
            return None
        if is_right is None:
            retry = _retry_after(RETRY_SECONDS)
            return _Refusal("password", 503, "too many passwords wait to be checked", retry)
        return _Refusal("password", 401, "a user and password are needed", CHALLENGE)

    def _limit(self, active: ActiveConfig) -> Bucket | None:
        limit = active.config.rate_limit
        if limit is None:
            self._bucket = None
        elif self._bucket is None or self._bucket.limit != limit:
            self._bucket = Bucket(limit, self._clock())
        return self._bucket


def _dressed(send: Send, active: ActiveConfig) -> Send:
    """Return `send` with the configured headers, in the place of the application's own."""
    names = {name for name, _ in active.config.headers}

    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [pair for pair in message.get("headers", ()) if pair[0].lower() not in names]
            message = {**message, "headers": [*own, *active.config.headers]}
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
        """Whole seconds until the next token."""
        return max(1, math.ceil((1.0 - self._tokens) * self.limit.interval_seconds))


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


class _Check(NamedTuple):
    origin: str
    key: bytes
    password: bytes
    hashed: bytes
    user_exists: bool
    result: asyncio.Future[bool | None]
    """Whether it is right; None to answer 503."""

    def resolve(self, is_right: bool | None) -> None:
        if not self.result.done():
            self.result.set_result(is_right)


class Passwords:
    """Checks passwords, one at a time."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._thread = Threads("password")
        self._queue: FairQueue[_Check] = FairQueue(MOST_QUEUED, MOST_QUEUED_OF_ONE)
        self._waiting: FairQueue[_Check] = FairQueue(MOST_WAITING)
        self._checking: asyncio.Task[None] | None = None

    async def check(
        self, users: Mapping[str, bytes], user: bytes, password: bytes, address: str = ""
    ) -> bool | None:
        """Return whether this is the user's password; None if too many wait already.

        Unknown users take as long as known ones.
        """
        name = user.decode("utf-8", "replace")
        found = users.get(name) if name.encode() == user else None
        # bcrypt looks at no more bytes, and some implementations of it at none after a NUL.
        if len(password) > LONGEST_PASSWORD or b"\0" in password:
            return False
        hashed = found or self._dummy(users, user)
        key = self._key(user, password, hashed)
        cached = self._cached(key)
        if cached is not None:
            return cached
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bool | None] = loop.create_future()
        check = _Check(origin(address), key, password, hashed, found is not None, result)
        for queue in (self._queue, self._waiting):
            dropped = queue.put(check.origin, check)
            if dropped is not None:
                dropped.resolve(None)
            if dropped is check:
                break
        if self._checking is None or self._checking.done():
            self._checking = loop.create_task(self._check_all())
        try:
            return await result
        finally:
            self._waiting.discard(check.origin, check)

    async def _check_all(self) -> None:
        while self._queue:
            check, is_right = self._queue.pop(), None
            try:
                matches = await self._thread.run(_matches, check.password, check.hashed)
            except Exception:  # such as no memory: neither right nor wrong
                log.debug("a password was not checked", exc_info=True)
            else:
                is_right = matches and check.user_exists
                self._cache(self._right if is_right else self._wrong, check.key)
            for each in [check, *(each for each in self._queue if each.key == check.key)]:
                self._queue.discard(each.origin, each)
                each.resolve(is_right)

    def _dummy(self, users: Mapping[str, bytes], user: bytes) -> bytes:
        """Return a hash for an unknown user: always the same, and of a cost that a user's has."""
        costs = [int(known[4:6]) for known in users.values()]
        number = int.from_bytes(hmac.digest(self._secret, user, "sha256")[:8], "big")
        cost = costs[number % len(costs)]
        return b"$2b$%02d$%b" % (cost, b"." * 53)

    def _key(self, user: bytes, password: bytes, hashed: bytes) -> bytes:
        """Return the key of the cache; it contains the hash, so that a new one takes effect."""
        parts = (user, password, hashed)
        text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._secret, text, "sha256")

    def _cached(self, key: bytes) -> bool | None:
        for known, is_right in ((self._right, True), (self._wrong, False)):
            if key in known:
                known.move_to_end(key)
                return is_right
        return None

    def _cache(self, known: OrderedDict[bytes, None], key: bytes) -> None:
        known[key] = None
        while len(known) > CACHE_SIZE:
            known.popitem(last=False)


def _matches(password: bytes, hashed: bytes) -> bool:
    import bcrypt  # loaded with the file, if that has users

    try:
        return bcrypt.checkpw(password, hashed)
    except ValueError:
        return False
