"""What Ray Serve tells an app about its door: the host that it listens on, and the address of who asks."""

from collections.abc import Iterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from deployments.api.access import Access
from deployments.errors import ApiError
from deployments.listener.listening import find_serving_host

pytestmark = pytest.mark.ray


class Door:
    """An ingress that says what it sees; `at_start` is what its constructor saw."""

    def __init__(self) -> None:
        self.at_start = find_serving_host()

    def __serve_build_asgi_app__(self) -> Starlette:
        return Starlette(routes=[Route("/seen", self.seen)])

    async def seen(self, request: Request) -> JSONResponse:
        return JSONResponse({"host": self.at_start, "client": request.client.host if request.client else None})


@pytest.fixture(scope="module")
def url(serve_port: int) -> Iterator[str]:
    from ray import serve

    door = serve.deployment(serve.ingress()(Door)).options(name="Door", ray_actor_options={"num_cpus": 0})
    serve.run(door.bind(), name="door", route_prefix="/door")
    yield f"http://127.0.0.1:{serve_port}/door/seen"
    serve.delete("door")


def test_serve_says_where_it_listens(url):
    """A replica's constructor, and the driver that started Serve, learn the real host."""
    assert httpx.get(url).json()["host"] == "127.0.0.1"
    assert find_serving_host() == "127.0.0.1"


def test_the_peer_is_who_it_says(url):
    """The proxy passes the peer's address on, and that of a local reverse proxy's client in its place: whom a reverse
    proxy on this machine lets in from elsewhere is refused without keys."""
    access = Access(())
    near = httpx.get(url).json()["client"]
    far = httpx.get(url, headers={"x-forwarded-for": "203.0.113.7"}).json()["client"]

    access.guard(near, {})
    with pytest.raises(ApiError):
        access.guard(far, {})
    assert (near, far) == ("127.0.0.1", "203.0.113.7")
