"""The bidder as a service on this machine: ask for a bid, tell what came of it, look at the pacing."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from assay._core.errors import AssayError, InputError, require

from ._learners import check_number

if TYPE_CHECKING:
    from ._bidder import AutoBidder
    from ._ledger import Ledger

_BODY_LIMIT = 65_536  # bytes; an answer with a hundred competing bids has two thousand
_ID_LENGTH = 200  # characters; every id is kept in memory and in the journal
_HOSTS = ("127.0.0.1", "localhost")
_PLOT_POINTS = 400
_PAGE = Path(__file__).with_name("_page.html")


def snapshot(bidder: AutoBidder) -> dict[str, Any]:
    """What GET /state says."""
    history = bidder._history
    step = max(1, len(history) // _PLOT_POINTS)
    names = ("t", "spend", "reward", "lambda", "mu", "target")
    return {
        "t": bidder.t_,
        "horizon": bidder.horizon,
        "budget": bidder.budget,
        "spend": bidder.spend_,
        "reserved": bidder.reserved_,
        "remaining": bidder.remaining_budget,
        "target": bidder.target_(bidder.t_),
        "reward": bidder.reward_,
        "roi": None if math.isnan(bidder.roi_) else bidder.roi_,
        "roi_target": bidder.roi_target,
        "violation": bidder.violation_,
        "lambda": bidder.lambda_,
        "mu": bidder.mu_,
        "pending": bidder.pending_,
        "answered": bidder.answered_,
        "won": bidder.won_,
        "timed_out": bidder.timed_out_,
        "late_wins": bidder.late_wins_,
        "history": [dict(zip(names, row)) for row in history[::step]],
    }


_METRICS = {
    "bids": ("counter", "t", "Bids so far."),
    "answers": ("counter", "answered", "Answers in time."),
    "wins": ("counter", "won", "Wins."),
    "timeouts": ("counter", "timed_out", "Bids counted as lost without an answer."),
    "late_wins": ("counter", "late_wins", "Wins reported after their timeout."),
    "pending": ("gauge", "pending", "Bids that wait for an answer."),
    "budget": ("gauge", "budget", "Budget (currency)."),
    "spend": ("gauge", "spend", "Spent (currency)."),
    "reserved": ("gauge", "reserved", "What waiting bids may still cost (currency)."),
    "pace_target": ("gauge", "target", "Spending that the pace asks for by now (currency)."),
    "reward": ("gauge", "reward", "Gained (currency)."),
    "roi_violation": ("gauge", "violation", "By how much the ROI target is missed in total (currency)."),
    "lambda": ("gauge", "lambda", "Multiplier of the budget."),
    "mu": ("gauge", "mu", "Multiplier of the ROI target."),
}


def metrics(state: dict[str, Any]) -> str:
    """The state in the text format of Prometheus."""
    lines = []
    for name, (kind, key, text) in _METRICS.items():
        full = f"assay_dual_balancing_{name}" + ("_total" if kind == "counter" else "")
        lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full} {state[key]}"]
    return "\n".join(lines) + "\n"


def short(value: Any) -> str:
    """What was sent, as an answer can show it."""
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _own(origin: str) -> bool:
    try:
        return urlsplit(origin).hostname in _HOSTS
    except ValueError:  # such as http://[
        return False


def make_app(ledger: Ledger) -> Any:
    """The web application over a ledger; every request runs in one thread, in the order of arrival."""
    require("starlette", "server")
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    async def body(request: Request, allowed: set[str], needed: set[str]) -> dict[str, Any]:
        origin = request.headers.get("origin")
        # a browser sends a page's plain POST to any address, and says whose page it was
        if origin is not None and not _own(origin):
            raise InputError(f"Requests from pages of other sites are refused (Origin {short(origin)}).")
        raw = b""
        try:
            async for part in request.stream():
                raw += part
                if len(raw) > _BODY_LIMIT:
                    raise InputError(f"The body is above {_BODY_LIMIT} bytes.")
        except ClientDisconnect:
            raise InputError("The connection ended before the body did.") from None
        try:
            # NaN and Infinity are no JSON; Python reads them unless told otherwise
            given = json.loads(raw, parse_constant=lambda word: float("nan"))
        except (ValueError, RecursionError) as error:  # also: no UTF-8, numbers of thousands of digits, endless nesting
            raise InputError(f"The body is not JSON ({error}).") from None
        if not isinstance(given, dict):
            raise InputError("The body must be a JSON object.")
        for name in sorted(set(given) - allowed):
            raise InputError(f"There is no field {short(name)}; known are {', '.join(sorted(allowed))}.")
        for name in sorted(needed - set(given)):
            raise InputError(f"The field {name!r} is missing.")
        return given

    def number(given: dict[str, Any], name: str) -> float:
        value = given[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(f"{name} must be a number, got {short(value)}.")
        return check_number(name, value)

    def key_of(given: dict[str, Any]) -> str | int | None:
        key = given.get("id")
        if isinstance(key, bool) or (key is not None and not isinstance(key, (str, int))):
            raise InputError(f"id must be a text or a whole number, got {short(key)}.")
        if isinstance(key, int) and not -(2**63) <= key < 2**63:
            raise InputError("id is a whole number of more than 64 bits; send it as a text.")
        if isinstance(key, str) and not 0 < len(key) <= _ID_LENGTH:
            raise InputError(f"id must have 1 to {_ID_LENGTH} characters, got {len(key)}.")
        if isinstance(key, str) and not key.isprintable():  # half a surrogate pair could not even be answered
            raise InputError(f"id must be printable, got {short(key)}.")
        return key

    async def bid(request: Request) -> Response:
        given = await body(request, {"value", "id"}, {"value"})
        key, amount = ledger.bid(number(given, "value"), key_of(given))
        return JSONResponse({"id": key, "bid": amount})

    async def observe(request: Request) -> Response:
        given = await body(request, {"id", "won", "price", "value", "competing"}, {"id", "won"})
        if not isinstance(given["won"], bool):
            raise InputError(f"won must be true or false, got {short(given['won'])}.")
        answer: dict[str, Any] = {"won": given["won"]}
        for name in ("price", "value"):
            if given.get(name) is not None:
                answer[name] = number(given, name)
        rivals = given.get("competing")
        if rivals is not None:
            answer["competing"] = (
                [number({"competing": x}, "competing") for x in rivals]
                if isinstance(rivals, list)
                else number(given, "competing")
            )
        key = key_of(given)
        if key is None:
            raise InputError("The field 'id' is missing.")
        ledger.observe(key, answer)
        bidder = ledger.bidder
        return JSONResponse({"spend": bidder.spend_, "remaining": bidder.remaining_budget})

    async def state(request: Request) -> Response:
        return JSONResponse(snapshot(ledger.bidder))

    async def page(request: Request) -> Response:
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"))

    async def prometheus(request: Request) -> Response:
        return PlainTextResponse(metrics(snapshot(ledger.bidder)), media_type="text/plain; version=0.0.4")

    async def refused(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, status_code=400)

    async def failed(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, status_code=503)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/state", state),
            Route("/metrics", prometheus),
            Route("/bid", bid, methods=["POST"]),
            Route("/observe", observe, methods=["POST"]),
        ],
        exception_handlers={InputError: refused, AssayError: failed},
        # a page of another site may make a browser send requests here under a name of its own
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(_HOSTS))],
    )


def serve_forever(ledger: Ledger, port: int, started: Callable[[str], None]) -> None:
    """Serve on the loopback interface until SIGTERM or SIGINT, then return."""
    require("uvicorn", "server")
    import uvicorn

    # asyncio turns Nagle's delay (40 ms a request) off only where the protocol is named
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"--port {port} cannot be used ({reason}); choose another, 0 takes a free one.") from error

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            # uvicorn raises the signal again once it has stopped; here the report is still to be written
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            kept = {s: signal.signal(s, self.handle_exit) for s in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for s, handler in kept.items():
                    signal.signal(s, handler)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                started(f"http://127.0.0.1:{listener.getsockname()[1]}")

    config = uvicorn.Config(
        make_app(ledger), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=5
    )
    try:
        Server(config).run(sockets=[listener])
    finally:
        listener.close()
