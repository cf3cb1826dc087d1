"""The local web server of a table: one page and one WebSocket, both behind a token and for one origin."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.figures import render_page
from rllib_llm_comm.play.room import Guest, Room, ServerLimits

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import Response
    from starlette.websockets import WebSocket

_NOT_ALLOWED = 1008  # of the WebSocket protocol: against the rules
_TRY_LATER = 1013
_CLOSE_SECONDS = 1.0
_HTTP = 80
_ONCE_SECONDS = 60.0
# Nothing is left to accept connections with; the loop tries again each second.
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
logger = logging.getLogger(__name__)


def require_libraries() -> None:
    """Refuses to go on without the libraries of the extra `play`."""
    try:
        import starlette
        import uvicorn
        import websockets
    except ImportError as error:
        raise UserError(
            f"`rllib play` needs {error.name}, which is not installed; type `pip install 'rllib_llm_comm[play]'`."
        ) from error
    del starlette, uvicorn, websockets


class Access:
    """Lets in who knows the token and comes from the page itself.

    Args:
        host: The address that the server listens on.
        port: Its port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        self.host_token = secrets.token_urlsafe(24)
        self._once, self._until = secrets.token_urlsafe(24), time.monotonic() + _ONCE_SECONDS
        self.local = _is_local(host)
        shown = f"[{host}]" if ":" in host else host
        end = "" if port == _HTTP else f":{port}"  # browsers omit the usual port
        self._hosts = {f"{name}{end}" for name in (shown, "127.0.0.1", "localhost", "[::1]")}
        self.address = f"http://{shown}{end}"

    @property
    def url(self) -> str:
        """The page's address, with the token."""
        return f"{self.address}/?token={self.token}"

    @property
    def host_url(self) -> str:
        """The page's address for who started the server, with a token of its own: it steers without a seat."""
        return f"{self.address}/?token={self.host_token}"

    @property
    def once_url(self) -> str:
        """An address that leads to `url` once and soon, for a browser's command line, which everybody here can read."""
        return f"{self.address}/once/{self._once}"

    def spend(self, code: str) -> bool:
        """True for the code of `once_url`, the first time and within a minute."""
        known = bool(self._once) and time.monotonic() < self._until
        known = known and hmac.compare_digest(code.encode(), self._once.encode())
        self._once = "" if known else self._once
        return known

    def is_host(self, request: HTTPConnection) -> bool:
        """True if a request has the token of who started the server."""
        return hmac.compare_digest(request.query_params.get("token", "").encode(), self.host_token.encode())

    def meets(self, request: HTTPConnection) -> bool:
        """True if a request came under a name of this machine, where the server is for this machine alone."""
        return not self.local or request.headers.get("host", "") in self._hosts

    def opens(self, request: HTTPConnection, *, with_origin: bool) -> bool:
        """True if a request has the token and is meant for this server.

        A name that somebody else lets point to this machine is none of ours, so that no page of another site can reach
        the server under its own name; an origin is what a browser tells of the page that asks.

        Args:
            request: The request.
            with_origin: True if it has to come from our page.
        """
        if not self.meets(request):
            return False
        if with_origin and request.headers.get("origin") != f"http://{request.headers.get('host', '')}":
            return False
        known = hmac.compare_digest(request.query_params.get("token", "").encode(), self.token.encode())
        return known or self.is_host(request)


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def make_app(room: Room, access: Access) -> Starlette:
    """The web application."""
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse
    from starlette.routing import Route, WebSocketRoute

    async def page(request: Request) -> Response:
        if not access.opens(request, with_origin=False):
            return PlainTextResponse(_CLOSED, status_code=403, headers=_END)
        nonce = secrets.token_urlsafe(16)
        return HTMLResponse(render_page("play.html", {}, title=room.title, nonce=nonce), headers=_headers(nonce))

    async def once(request: Request) -> Response:
        if not access.meets(request) or not access.spend(request.path_params["code"]):
            return PlainTextResponse(_CLOSED, status_code=403, headers=_END)
        return RedirectResponse(access.url, status_code=303, headers={**_END, **_headers("")})

    async def wire(socket: WebSocket) -> None:
        if not access.opens(socket, with_origin=True):
            await socket.close(_NOT_ALLOWED)
            return
        await _serve(room, socket, access.is_host(socket))

    @contextlib.asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(_LoggedOnce())
        task = asyncio.create_task(room.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    routes = [Route("/", page), Route("/once/{code}", once), WebSocketRoute("/wire", wire)]
    return Starlette(routes=routes, lifespan=running)


_CLOSED = "Open the address that `rllib play` printed, with its token."
_END = {"Connection": "close"}  # a connection is for one request: only a browser at the table keeps one


class _LoggedOnce:
    """Handles what nobody handled in the loop; that no connection can be accepted is logged once, not each second."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _NO_ROOM):
            loop.default_exception_handler(context)
        elif not self._told:
            self._told = True
            logger.warning("No further browser can connect now (%s); those that are here go on.", error.strerror)


def _headers(nonce: str) -> dict[str, str]:
    rules = (
        f"default-src 'none'; img-src data:; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": rules,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        **_END,
    }


async def _serve(room: Room, socket: WebSocket, host: bool) -> None:
    """One browser, from its first view to its last command."""
    await socket.accept()
    guest = Guest(socket, host=host)
    if not await room.enter(guest):
        await socket.close(_TRY_LATER, "too many browsers")
        return
    tasks = [
        asyncio.create_task(_read(room, guest, socket)),
        asyncio.create_task(guest.deliver(room.limits.send_seconds)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        reasons = await asyncio.gather(*tasks, return_exceptions=True)
        await room.leave(guest)
    code, reason = reasons[0] if isinstance(reasons[0], tuple) else (_TRY_LATER, "the browser takes no messages")
    with contextlib.suppress(Exception):  # closed by the other side, or a browser that takes nothing
        await asyncio.wait_for(socket.close(code, reason), _CLOSE_SECONDS)


class Pace:
    """Counts the commands of one browser.

    Args:
        per_second: Commands per second, on average.
    """

    def __init__(self, per_second: float) -> None:
        self._rate, self._most = per_second, 2 * per_second
        self._left, self._then = self._most, time.monotonic()

    def allows(self) -> bool:
        """Takes one command; false if it comes too soon."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._then) * self._rate)
        self._then = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


async def _read(room: Room, guest: Guest, socket: WebSocket) -> tuple[int, str]:
    """Obeys a browser until it goes or has to go; the code and the reason of the end."""
    from starlette.websockets import WebSocketDisconnect

    pace = Pace(room.limits.commands_per_second)
    try:
        while True:
            text = await asyncio.wait_for(socket.receive_text(), 60.0 * room.limits.idle_minutes)
            if not pace.allows():
                return _NOT_ALLOWED, "too many commands"
            await room.obey(guest, text)
    except (asyncio.TimeoutError, TimeoutError):
        return _TRY_LATER, "nothing happened for long"
    except (WebSocketDisconnect, KeyError, RuntimeError):  # gone, or something that is no text
        return _NOT_ALLOWED, "only text is understood"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Args:
        host: The address, or "localhost".
        port: The port; 0 for a free one.

    Raises:
        UserError: If that cannot be had, or no address is given, which would be all of this machine's.
    """
    if not host.strip():
        raise UserError(f"`--host` is {host!r} but must be an address, such as 127.0.0.1, or 0.0.0.0 for all.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"nobody can listen on {host!r}, port {port} ({error}); give another `--port` (0 for a free one) or "
            "`--host`."
        ) from error


def make_server(app: Starlette, limits: ServerLimits) -> Any:
    """A uvicorn server that says nothing by itself; `run(sockets=[...])` serves until it is told to exit.

    Args:
        app: The application.
        limits: Bounds of messages, and of connections that have not shown the token.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    class Stranger(H11Protocol):
        """A connection until it belongs to a browser at the table: there may be so many, and each so long."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._patience = self.loop.call_later(limits.stranger_seconds, self._send_away)
            strangers = [one for one in self.connections if isinstance(one, Stranger)]
            if len(strangers) > limits.most_strangers:  # who asks at once is answered before it is the oldest one
                min(strangers, key=lambda one: one._patience.when())._send_away()

        def connection_lost(self, exc: Exception | None) -> None:
            self._patience.cancel()
            super().connection_lost(exc)

        def _send_away(self) -> None:
            if self.transport.get_protocol() is self:  # no browser at the table, whose protocol is another one
                self.connections.discard(self)
                self.transport.abort()

    class Browser(WebSocketsSansIOProtocol):
        """A connection that asked for a wire; who asks in a way that no browser does would keep it without an end."""

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.handshake_exc is not None:
                self.transport.abort()

    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="error",  # strangers would fill the console with warnings
            access_log=False,
            loop="asyncio",
            http=Stranger,
            ws=Browser,
            ws_max_size=limits.most_bytes,
            timeout_graceful_shutdown=2,
            lifespan="on",
            server_header=False,
        )  # fmt: skip
    )
