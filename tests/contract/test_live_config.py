"""`user_config` edited while the server runs."""

from typing import Any

import pytest

from tests.support import scripts
from tests.support.serving import Server, until

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def server(serve_port):
    """An app whose configuration changes."""
    from ray import serve

    yield Server("live", f"http://127.0.0.1:{serve_port}/live")
    serve.delete("live")


def deploy(user_config: dict[str, dict[str, Any]]) -> None:
    """As `serve deploy` of a file with these `user_config`s."""
    from ray import serve
    from ray.serve.schema import ServeDeploySchema

    application = {
        "name": "live",
        "route_prefix": "/live",
        "import_path": "deployments.app:build",
        "args": scripts.args(scripts.TWO),
        "deployments": [{"name": name, "user_config": change} for name, change in user_config.items()],
    }
    client = serve.context._get_global_client()
    client.deploy_apps(ServeDeploySchema.model_validate({"applications": [application]}), _blocking=True)


def test_user_config_is_live(server):
    """Law: a changed `user_config` takes effect without a restart, also where a deployment began without one; a wrong
    one changes nothing and is shown in /ready; one that is taken out of the file is gone, and what it has changed
    too."""
    deploy({})
    first = answer(server)
    deploy({"Router": {"server": {"aliasses": {}}}, "fast": {"scrip": []}})
    until(lambda: refused(server), "the wrong ones are shown")
    kept = answer(server)
    deploy({"Router": {"server": {"aliases": {"other": "fast"}}}, "fast": {"script": [{"answer": "changed"}]}})
    until(lambda: server.get("/v1/models/other").status_code == 200, "the alias is there")
    until(lambda: answer(server) == "changed", "the script of fast has changed")

    deploy({"Router": {"server": {"aliasses": {}}}, "fast": {"scrip": []}})
    ready = until(lambda: refused(server), "the wrong ones are shown again")
    changed = server.get("/v1/models/other").status_code, answer(server)
    deploy({})
    until(lambda: server.get("/v1/models/other").status_code == 404, "the alias is gone")
    until(lambda: answer(server) == first, "the script is as it was")

    assert first.startswith("Hello from fast")
    assert kept == first
    assert changed == (200, "changed")
    assert ready["refused_user_config"].startswith("server.aliasses: unknown key")
    assert "scrip: unknown key" in ready["tiers"]["fast"]["reason"]


def answer(server: Server) -> str:
    response = server.post({"messages": [{"role": "user", "content": "hi"}]})
    return str(response.json()["choices"][0]["message"]["content"])


def refused(server: Server) -> Any:
    ready = server.get("/ready").json()
    return ready if ready["refused_user_config"] and ready["tiers"]["fast"]["reason"] else None
