"""What `pip install .` installs: the server with everything that it reads, and nothing else."""

import shutil
import subprocess
import sys
import zipfile

import pytest

from deployments.config.config_paths import BUILT_IN
from tests.support.repository import ROOT, tracked

BUILT_IN_FILES = ("serve_config.yaml", "serve.env")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of what git knows, built beside the work tree and without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in tracked():
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / "source" / name, follow_symlinks=False)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "-w", str(folder), str(folder / "source")], check=True, cwd=folder, capture_output=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as built:
        yield built


@pytest.mark.parametrize("name", BUILT_IN_FILES)
def test_the_built_in_files_are_those_of_the_repository(name):
    """There is one source of truth: what the package ships is what stands at the top of the repository."""
    assert (BUILT_IN / name).resolve() == ROOT / name
    assert sorted(path.name for path in BUILT_IN.iterdir()) == sorted(BUILT_IN_FILES)


@pytest.mark.parametrize("name", BUILT_IN_FILES)
def test_the_wheel_holds_the_built_in_files(wheel, name):
    """Not the links: who installs it has no repository beside it."""
    assert wheel.read(f"deployments/built_in/{name}") == (ROOT / name).read_bytes()


def test_the_wheel_holds_the_two_packages_whole(wheel):
    """Every file of theirs, data too, but notes for developers; and no test, tool or benchmark."""
    ours = {n for n in tracked() if n.startswith(("deployments/", "reliability/")) and not n.endswith("README.md")}
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    built = {name for name in held if name.endswith(".so")}

    assert held - built == ours
    assert {name.rpartition("/")[0] for name in built} <= {"deployments/tiers/mlx/cpu"}


def test_the_wheel_keeps_programs_executable(wheel):
    """Ray starts HAProxy by this script; without its bit the server would do without HAProxy, and say nothing."""
    (script,) = [info for info in wheel.infolist() if info.filename.endswith(".sh")]

    assert script.external_attr >> 16 & 0o111


def test_the_wheel_has_the_command(wheel):
    """`mlx-stack-serve` is installed with it."""
    (entry,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]

    assert "mlx-stack-serve = deployments.__main__:main" in wheel.read(entry).decode()
