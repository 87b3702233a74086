# SPDX-License-Identifier: Apache-2.0
"""One connection: takes a request at a time, and nothing that nobody would read."""

from __future__ import annotations

import asyncio
import fcntl
import http
import struct
import termios
from collections.abc import Callable

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from exporter.web.server.counts import Counts
from exporter.web.server.heads import Heads, HeadTooLong
from exporter.web.server.limits import Limits
from exporter.web.server.outlet import Backlog, Outlet, close_once
from exporter.web.server.standing import Phase, Standing
from exporter.web.server.terms import SCOPE_KEY, Terms

METHODS = frozenset({"GET", "HEAD"})
LINGER_BYTES = 1024 * 1024
"""What a client may still send after it was refused; it would not see the answer otherwise."""


class Refused(Exception):
    """A request is answered with an error, and is the last of its connection."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        """Of `REQUEST_REFUSALS`."""


class _Flow(FlowControl):
    """Stays paused while bytes wait behind an answer, whatever the answer's task asks for."""

    holds = False

    def hold(self) -> None:
        self.holds = True
        self.pause_reading()

    def let_go(self) -> None:
        self.holds = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self.holds:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, but each head is parsed only when the answer before it is sent."""

    flow: _Flow
    _outlet: Outlet
    """Both from connection_made on."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        *,
        address: str,
        limits: Limits,
        counts: Counts,
        backlog: Backlog,
        clock: Callable[[], float],
        on_end: Callable[[Connection], None],
    ) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self.address = address
        self.terms: Terms | None = None
        """To be set before the connection is made."""
        self._limits = limits
        self._counts = counts
        self._backlog = backlog
        self._clock = clock
        self._on_end = on_end
        self._heads = Heads(limits.head_bytes)
        self.is_made = False
        """Whether there is a transport: with TLS, from the end of its handshake on."""
        self._descriptor = -1
        self._phase = Phase.HANDSHAKE
        self._since = self._progressed = self._emptied = clock()
        self._unsent_bytes = self._taken_bytes = 0
        self._answered = False
        """Whether the answer under way is complete but for what is unsent."""
        self._has_said_all = False
        """Whether the client sends no more, but may still read."""
        self._refusal: Refused | None = None
        self._hosts = 0
        self._has_body = False
        self._discarded_bytes = 0

    # How it stands

    def standing(self) -> Standing:
        """Return how it stands; what is unsent is as of the last `look`."""
        phase = self._phase
        if phase is Phase.ANSWERING and self.cycle.chunked_encoding and not self._answered:
            phase = Phase.STREAMING
        return Standing(phase, self._since, self._unsent_bytes, self._progressed, self._emptied)

    def look(self) -> Standing:
        """See what is unsent, in the kernel too; return how it stands."""
        now = self._clock()
        if self._has_socket:
            waiting = self._outlet.unsent_bytes
            unsent = waiting + _unacknowledged_bytes(self._descriptor)
            # Not what is unsent: that can be the same again and again while answers go out.
            taken = self._outlet.written_bytes - unsent
            if taken != self._taken_bytes or not unsent:
                self._progressed = now
            if not waiting:
                self._emptied = now
            self._unsent_bytes, self._taken_bytes = unsent, taken
            if self._has_said_all and self.standing().phase is Phase.STREAMING:
                self.transport.abort()  # who watches stays open in both directions
            if self.transport.is_closing() and self._phase is not Phase.CLOSING:
                self._become(Phase.CLOSING)
        return self.standing()

    @property
    def _has_socket(self) -> bool:
        """False once it is lost: over TLS, Python 3.10 is done with it before it says so."""
        return self.is_made and self.transport.get_extra_info("socket") is not None

    @property
    def holds_body(self) -> bool:
        """True while it has a large answer that the client is slow to take."""
        return self.is_made and self._outlet.holds_body

    def _become(self, phase: Phase) -> None:
        self._phase = phase
        self._since = self._clock()

    def shutdown(self) -> None:
        """End it once its answer is sent."""
        if not self.transport.is_closing():
            super().shutdown()

    def end(self) -> None:
        """End it at once, whatever is unsent."""
        if self.is_made:
            self._outlet.drop()
            self.transport.abort()

    # The transport's calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, unless the client's certificate has a wrong name."""
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._outlet = Outlet(transport, self._backlog)
        self._outlet.open()
        self.is_made = True
        terms = self.terms
        if terms is not None and not terms.admit(transport.get_extra_info("peercert")):
            self._counts.refuse_connection("client_name")
            self._become(Phase.CLOSING)
            transport.abort()
            return
        self._descriptor = transport.get_extra_info("socket").fileno()
        self._become(Phase.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what is unsent."""
        super().connection_lost(exc)
        close_once(self.transport)  # after an error Python 3.10 takes one with TLS for open
        self.is_made = False
        self._phase = Phase.CLOSING
        self._descriptor = -1
        self._outlet.drop()
        self._on_end(self)

    def data_received(self, data: bytes) -> None:
        """Begin a request, or have it wait behind the answer that is under way."""
        if self._phase is Phase.CLOSING:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > LINGER_BYTES:
                self.transport.abort()
            return
        self._heads.put(data)
        if self._phase is not Phase.ANSWERING:
            self._go_on()
        elif self._heads:
            self.flow.hold()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Finish the answers that are due; over TLS the transport does not wait for that."""
        self._has_said_all = True
        phase = self.standing().phase
        return (phase is Phase.ANSWERING and self.transport.can_write_eof()) or None

    def pause_writing(self) -> None:
        """Note that the client is slow."""
        self._outlet.is_full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Send more soon: asyncio would end a connection twice that is closed within this call."""
        self.loop.call_soon(self._send_more)

    def _send_more(self) -> None:
        """Send more of the answer; go on with the next request behind its last byte."""
        self._outlet.is_full = False
        self._outlet.go_on()
        if not self._outlet.is_empty:
            return
        self._emptied = self._progressed = self._clock()
        super().resume_writing()
        if self._answered:
            self._next()

    # Requests

    def _go_on(self) -> None:
        """Begin the next request if its head is there."""
        try:
            if self._heads.is_tls:
                raise _malformed("this is TLS, and plain HTTP is served here")
            head = self._heads.take()
            if head is not None:
                self._parse(head)
            elif self._heads and self._phase is Phase.IDLE:
                self._become(Phase.HEAD)
        except HeadTooLong:
            most = self._limits.head_bytes
            self._refuse(Refused(431, "head_size", f"the head has more than {most} bytes"))
        except Refused as refusal:
            self._refuse(refusal)

    def _parse(self, head: bytes) -> None:
        self._refusal, self._hosts, self._has_body = None, 0, False
        try:
            self.parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            # Answered as if it had not asked; what it sends next is another request.
            self.parser = httptools.HttpRequestParser(self)
        except httptools.HttpParserError:
            if self._phase is not Phase.ANSWERING:
                raise self._refusal or _malformed("this is no request of HTTP/1.1") from None
            self.cycle.keep_alive = False
        if self._phase is not Phase.ANSWERING:
            raise _malformed("this is no request of HTTP/1.1")

    def on_message_begin(self) -> None:
        """Begin a scope."""
        super().on_message_begin()
        if self.terms is not None:
            self.scope[SCOPE_KEY] = self.terms  # type: ignore[literal-required]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head."""
        name = name.lower()
        self.headers.append((name, value))
        if name == b"host":
            self._hosts += 1
        elif name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 \t")):
            self._has_body = True
        if len(self.headers) > self._limits.head_fields:
            most = self._limits.head_fields
            self._object(Refused(431, "head_count", f"the head has more than {most} fields"))

    def on_headers_complete(self) -> None:
        """Have the request answered, or object."""
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._object(_malformed("only HTTP/1.1 and 1.0 are spoken here"))
        if self._hosts != 1 and (self._hosts or version == "1.1"):
            self._object(_malformed("a request has one Host"))
        if self._has_body:
            self._object(Refused(413, "body", "nothing here reads a body"))
        super().on_headers_complete()
        if self.scope["method"] not in METHODS:
            self._counts.refuse_request("malformed")
        self.cycle.transport = self._outlet  # type: ignore[assignment]
        self._outlet.begin()
        self._answered = False
        self._become(Phase.ANSWERING)
        if self._heads:
            self.flow.hold()

    def _object(self, refusal: Refused) -> None:
        """Stop the parser, which lets no exception through as it is."""
        self._refusal = refusal
        raise refusal

    def on_body(self, body: bytes) -> None:
        """Do nothing: a request with a body is refused by its head."""

    def on_message_complete(self) -> None:
        """Let the answer know that no body comes."""
        if self._phase is Phase.ANSWERING:
            super().on_message_complete()

    # Answers

    def on_response_complete(self) -> None:
        """Go on once the answer is sent."""
        self.server_state.total_requests += 1
        self._outlet.flush()
        self._answered = True
        if self._outlet.is_empty:
            self._next()

    def _next(self) -> None:
        """Go on behind an answer of which nothing is left."""
        self._answered = False
        if self.transport.is_closing() or not self._has_socket:
            self._become(Phase.CLOSING)
            return
        self._become(Phase.IDLE)
        if self._heads:
            self._go_on()
        is_answering = self._phase is Phase.ANSWERING
        if self._has_said_all and not is_answering:
            close_once(self.transport)
        elif not self.transport.is_closing() and not (is_answering and self._heads):
            self.flow.let_go()

    def _refuse(self, refusal: Refused) -> None:
        """Answer with an error, while no other answer is under way, and end."""
        self._counts.refuse_request(refusal.reason)
        text = f"{http.HTTPStatus(refusal.status).phrase}: {refusal}\n".encode("latin-1", "replace")
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(text)),
            (b"connection", b"close"),
        ]
        lines = b"".join(b"%b: %b\r\n" % field for field in headers)
        self._become(Phase.CLOSING)
        self.transport.write(b"".join((STATUS_LINE[refusal.status], lines, b"\r\n", text)))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()


def _malformed(text: str) -> Refused:
    return Refused(400, "malformed", text)


def _unacknowledged_bytes(descriptor: int) -> int:
    """Return how many bytes the kernel has that the peer did not confirm."""
    try:
        found = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0
    number: int = struct.unpack("i", found)[0]
    return number
