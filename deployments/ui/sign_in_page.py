"""`/ui/sign-in` and `/ui/sign-out`: an admin's key becomes a cookie, and the cookie goes again."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.errors import ApiError
from deployments.telemetry import log_info, log_warning
from deployments.ui.desk import Desk
from deployments.ui.visits import Visit

__all__ = ["SignInPage"]


class SignInPage:
    """The page."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        """List them, below `/ui`."""
        return [
            Route("/sign-in", self.show),
            Route("/sign-in", self.sign_in, methods=["POST"]),
            Route("/sign-out", self._desk.order(self.sign_out), methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Show the form."""
        return self._desk.show(request, None, "sign_in.html", next=request.query_params.get("next", "/"), wrong=False)

    async def sign_in(self, request: Request) -> Response:
        """Take the key."""
        visits = self._desk.visits
        try:
            form = await visits.read_form(request)
            cookie = await visits.sign_in(request, form.get("key", ""))
        except ApiError as error:
            return self._desk.explain(request, error)
        to = _choose_next(form.get("next", "/"))
        if cookie is None:
            log_warning("sign_in_refused")
            return self._desk.show(request, None, "sign_in.html", status=401, next=to, wrong=True)
        log_info("signed_in")
        response = self._desk.go(request, to)
        visits.set_cookie(request, response, cookie)
        return response

    async def sign_out(self, request: Request, _: Visit, form: Mapping[str, str]) -> Response:
        """End the cookie, also for whoever has a copy of it, and take it away."""
        await self._desk.visits.sign_out(request)
        response = self._desk.go(request, "/ui/sign-in")
        self._desk.visits.set_cookie(request, response, None)
        return response


def _choose_next(given: str) -> str:
    """Choose the page to go on with: one of this server's own, whatever a link says."""
    own = given.startswith("/") and not given.startswith(("//", "/\\"))
    return given if own and given.isprintable() else "/"
