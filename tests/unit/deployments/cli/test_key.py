"""The command that makes a key."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deployments import __main__
from deployments.api.access import Access, Caller
from deployments.api.api_keys import parse_file
from deployments.cli.key import key_command
from deployments.config.config_errors import ConfigError
from tests.unit.deployments.api.test_access import AGENT
from tests.unit.deployments.api.test_api_keys import GOOD


def made(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The lines that `key` prints."""
    assert __main__.main(["key", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("flags", [[], ["--admin"], ["--local-only"]])
def test_a_made_key_opens(capsys, flags):
    """The printed entry admits the printed key, with its flags; every key is a new one."""
    secret, line = made(capsys, "on", *flags)
    caller = Caller(name="on", admin="--admin" in flags, allow_cloud="--local-only" not in flags)

    assert Access(parse_file(line, "")).caller({"authorization": f"Bearer {secret}"}) == caller
    assert secret not in line
    assert made(capsys, "on", *flags)[0] != secret


def test_the_command_appends(tmp_path, capsys):
    """`--file` prints the key alone and adds its entry: what was there stays, and only its owner may read the file."""
    path = tmp_path / "keys.yaml"
    path.write_text(f"# ours\n- {{name: old, sha256: {GOOD!r}}}")
    path.chmod(0o644)
    (secret,) = made(capsys, "new", "--admin", "--file", str(path))
    keys = parse_file(path.read_text(), "")

    assert path.read_text().startswith("# ours\n")
    assert [key.name for key in keys] == ["old", "new"]
    assert Access(keys).caller({"x-api-key": secret}).admin
    assert Access(keys).caller({"x-api-key": AGENT}).name == "old"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret not in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_commands_at_once_lose_nothing(tmp_path):
    """Twenty keys appended at the same moment are all there. A new file is made; a link stays a link."""
    path, link = tmp_path / "keys.yaml", tmp_path / "link.yaml"
    link.symlink_to(path)
    with ThreadPoolExecutor(20) as pool:
        codes = list(pool.map(lambda i: key_command(f"n{i}", admin=False, local_only=False, file=link), range(20)))

    assert codes == [0] * 20
    assert link.is_symlink()
    assert {key.name for key in parse_file(path.read_text(), "")} == {f"n{i}" for i in range(20)}
    assert set(tmp_path.iterdir()) == {path, link}


@pytest.mark.parametrize(
    ("name", "old", "line"),
    [
        ("a b", None, "NAME must have"),
        ("sk-x", None, "NAME must have"),
        ("old", f"- {{name: old, sha256: {GOOD!r}}}\n", "entry 2: has the same name as"),
        ("new", f"[{{name: old, sha256: {GOOD!r}}}]\n", "nothing can be appended"),
        ("new", "name: x\n", "a list of entries is needed"),
    ],
)
def test_the_command_refuses_and_changes_nothing(tmp_path, capsys, name, old, line):
    """A name that is taken, or a file that isn't a list: one line, exit code 2, no key, the file as it was."""
    path = tmp_path / "keys.yaml"
    if old is not None:
        path.write_text(old)

    assert __main__.main(["key", name, "--file", str(path)]) == 2
    out, err = capsys.readouterr()
    assert line in err
    assert err.count("\n") == 1
    assert out == ""
    assert (path.read_text() if old is not None else None) == old
    assert list(tmp_path.iterdir()) == ([path] if old is not None else [])


def test_a_key_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One line, and no folder of that name is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="No such file"):
        key_command("a", admin=False, local_only=False, file=Path("~nobody-of-that-name/keys.yaml"))

    assert not list(tmp_path.iterdir())
