"""A repository that would like to run its own code in our commands, and to lead them to its own server."""

from pathlib import Path

from tests.support.config_files import TIERS, write_config

# Python's own modules, those of others and ours: each is imported by some command or some process of the server.
SINGLE = (
    "json", "httpx", "yaml", "argparse", "asyncio", "typing", "sitecustomize", "usercustomize", "orjson", "psutil",
)  # fmt: skip
PACKAGES = ("deployments", "reliability", "ray", "starlette", "uvicorn", "pydantic", "jsonschema")
MARK = 'import os, sys; open({!r}, "a").write(f"{} {{sys.argv}}\\n"); os._exit(99)\n'


def fill_folder(folder: Path, marks: Path, port: int | None = None) -> None:
    """Fill `folder` with modules that note in `marks` that they were run, and a configuration that names `port`."""
    for name in SINGLE:
        (folder / f"{name}.py").write_text(MARK.format(str(marks), name))
    for name in PACKAGES:
        (folder / name).mkdir()
        for file in ("__init__", "__main__"):
            (folder / name / f"{file}.py").write_text(MARK.format(str(marks), name))
    write_config(folder / "serve_config.yaml", {"stolen": TIERS["fast"]}, {"port": port or 1})
    (folder / ".env").write_text(f"MLX_STACK_URL=http://127.0.0.1:{port}\nHTTP_PROXY=http://127.0.0.1:{port}\n")


def find_run(marks: Path) -> list[str]:
    """List which of the modules were run."""
    return sorted(set(marks.read_text().splitlines())) if marks.exists() else []
