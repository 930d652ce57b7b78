"""API keys: the file and the environment variable; no error repeats what may be a key."""

from collections.abc import Callable, Mapping

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deployments.api import api_keys
from deployments.api.access import Caller, access_for
from deployments.api.api_keys import ApiKey, digest, entry_line, load_keys, new_key, parse_file
from deployments.config.app_config import ServerConfig
from deployments.config.config_errors import ConfigError
from deployments.graph.reconfigure import apply_change
from tests.unit.deployments.api.test_access import AGENT, BOSS, ENV, access


def entry(name: str, key: str, **flags: object) -> dict[str, object]:
    return {"name": name, "sha256": digest(key).hex(), **flags}


def refused(value: str) -> str:
    with pytest.raises(ConfigError) as caught:
        access(value)
    return str(caught.value)


def refused_file(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_file(text, "keys")
    return str(caught.value)


def outcome(load: Callable[[], tuple[ApiKey, ...]]) -> tuple[tuple[ApiKey, ...], str]:
    """The keys, or the line of the one error that may be raised."""
    try:
        return load(), ""
    except ConfigError as error:
        return (), str(error)


# The value has one mistake, which the line names; all that is not a flag may be a key.
BAD_VALUES = [
    (AGENT, "entry 1: NAME:KEY"),
    (f"agent:{AGENT},", "entry 2: NAME:KEY"),
    (f"a b:{AGENT}", "entry 1: the name must have"),
    (f":{AGENT}", "entry 1: the name must have"),
    (f"{'n' * 65}:{AGENT}", "entry 1: the name must have"),
    (f"sk-or-v1-0123456789:{AGENT}", "entry 1: the name looks like a key"),
    (f"ok:{AGENT},agent:short-secret", "entry 2: the key must have 24 to 256"),
    (f"agent:{AGENT}!", "entry 1: the key must have 24 to 256"),
    (f"agent:{AGENT * 20}", "entry 1: the key must have 24 to 256"),
    (f"agent:{AGENT}:root", "entry 1: unknown or repeated flag after the key; allowed here: admin, local-only"),
    (f"agent:{AGENT}:{BOSS}", "entry 1: unknown or repeated flag"),
    (f"agent:{AGENT}:admin:admin", "entry 1: unknown or repeated flag"),
    (f"agent:{AGENT},agent:{BOSS}", f"entry 2: has the same name as {ENV}: entry 1"),
    (f"agent:{AGENT},boss:{AGENT}", f"entry 2: has the same key as {ENV}: entry 1"),
    (",".join(f"n{i}:{AGENT}{i}" for i in range(1001)), "entry 1001: over 1000 keys"),
]


@pytest.mark.parametrize(("value", "line"), BAD_VALUES)
def test_a_bad_variable_is_one_line_without_a_key(value, line):
    """The line names the variable, the entry and the mistake, and repeats no piece of the value."""
    said = refused(value)

    assert f"{ENV}: {line}" in said
    assert "\n" not in said
    assert not any(key in said for key in (AGENT, BOSS, "short-secret", "sk-or", "root"))


@given(st.text(st.sampled_from("abc:, ADMIN-._\n1")))
def test_any_variable_is_keys_or_one_line(value):
    """No value of the variable raises anything else than the one line."""
    keys, line = outcome(lambda: load_keys(ServerConfig(), {ENV: value}))

    assert bool(keys) is (line == "" and bool(value.strip()))
    assert line == "" or line.startswith(f"{ENV}: entry ")
    assert "\n" not in line


def test_the_file_and_the_variable_together(tmp_path):
    """Both sources count, and one name or key in both is refused."""
    path = tmp_path / "keys.yaml"
    path.write_text(yaml.safe_dump([entry("team", AGENT, tokens_per_hour=500, allow_cloud=False)]))
    both = access_for(ServerConfig(api_keys_file=str(path)), {ENV: f"boss:{BOSS}:admin"})

    assert both.caller({"x-api-key": AGENT}) == Caller(name="team", admin=False, allow_cloud=False, tokens_per_hour=500)
    assert both.caller({"x-api-key": BOSS}).admin
    for value, what in ((f"team:{BOSS}", "name"), (f"other:{AGENT}", "key")):
        with pytest.raises(ConfigError, match=rf"{ENV}: entry 1: has the same {what} as server.api_keys_file: entry 1"):
            access_for(ServerConfig(api_keys_file=str(path)), {ENV: value})


def test_a_digest_may_be_written_in_capitals():
    """Some tools print digests so."""
    written = yaml.safe_dump([entry("a", AGENT)]).upper()
    assert parse_file(written.replace("NAME", "name").replace("SHA256", "sha256"), "")


GOOD = digest(AGENT).hex()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: x", "keys: a list of entries is needed"),
        ("- x", "keys: entry 1: a mapping with name and sha256 is needed"),
        (f"- [secret: {AGENT}", "keys: is not YAML: line 1, column "),
        ("- 2026-13-45", "keys: is not YAML"),
        (f"- {{name: a}}\n- {{sha256: {GOOD}}}", "keys: entry 1: sha256: Field required"),
        (f"- {{sha256: '{GOOD}'}}", "keys: entry 1: name: Field required"),
        (f"- {{name: a, sha256: {AGENT}}}", "keys: entry 1: sha256: String should match pattern"),
        (
            f"- {{name: a, key: {AGENT}, sha256: '{GOOD}'}}",
            "keys: entry 1: unknown field; allowed here: admin, allow_cloud",
        ),
        (f"- {{name: a, {AGENT}: 1, sha256: '{GOOD}'}}", "keys: entry 1: unknown field"),
        (f"- {{1: 1, name: a, sha256: '{GOOD}'}}", "keys: entry 1: unknown field"),
        (f"- {{name: yes, sha256: '{GOOD}'}}", "keys: entry 1: name: Input should be a valid string"),
        (f"- {{name: sk-or-v1-abc, sha256: '{GOOD}'}}", "keys: entry 1: the name looks like a key"),
        (f"- {{name: a, sha256: '{GOOD}', admin: 'no'}}", "keys: entry 1: admin: Input should be a valid boolean"),
        (f"- {{name: a, sha256: '{GOOD}', tokens_per_hour: 0}}", "keys: entry 1: tokens_per_hour: "),
        (f"- {{name: a, sha256: '{GOOD}'}}\n- {{name: b, sha256: '{GOOD}'}}", "keys: entry 2: has the same key as"),
    ],
)
def test_a_bad_file_is_one_line_without_a_key(text, line):
    """The line names the entry and the mistake, and repeats nothing of the file."""
    said = refused_file(text)

    assert line in said
    assert "\n" not in said
    assert not any(secret in said for secret in (AGENT, GOOD, "sk-or"))


entries = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=9), st.dates(), st.just(GOOD)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["name", "sha256", "admin", "allow_cloud", "tokens_per_hour", "x"]), inner),
    ),
)


@given(st.one_of(st.text(), entries.map(yaml.safe_dump), st.lists(entries).map(yaml.safe_dump)))
def test_any_file_is_keys_or_one_line(text):
    """No text raises anything else than the one line."""
    _, line = outcome(lambda: parse_file(text, "keys"))

    assert line == "" or line.startswith("keys: ")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "can't be read: No such file"),
        (b"", "holds no keys"),
        (b"[]", "holds no keys"),
        (b"\xff", "is not UTF-8"),
        (b"#" * (api_keys.FILE_BYTES_MAX + 1), "can't be read: it is over 1,048,576 bytes"),
    ],
    ids=["missing", "empty", "no entries", "no text", "huge"],
)
def test_a_named_file_must_hold_keys(tmp_path, content, line):
    """Whoever names a file means to lock the door: one that is missing or empty doesn't leave it open."""
    path = tmp_path / "keys.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"server\.api_keys_file: {line}"):
        access_for(ServerConfig(api_keys_file=str(path)), {})


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("~nosuchuser/keys.yaml", "can't be read: its home directory isn't known"),
        ("keys\0.yaml", "can't be read: no file can have that name"),
    ],
)
def test_a_path_that_no_file_can_have_is_one_line(path, line):
    """A path that means nothing on this machine is refused like a file that is missing. As a patch to a server that
    works it changes nothing."""
    server = ServerConfig(api_keys_file=path)
    with pytest.raises(ConfigError, match=rf"^server\.api_keys_file: {line}"):
        load_keys(server, {})

    def patched(_: Mapping[str, object]) -> str:
        load_keys(server, {})
        return "new"

    current, why = apply_change(patched, {}, "old", first=False, at="Router")
    assert current == "old"
    assert f"server.api_keys_file: {line}" in str(why)


def test_a_made_key_may_stand_in_the_variable():
    """What the command makes fits the variable's syntax, however the dice fall."""
    for _ in range(200):
        key = new_key()
        assert access(f"a:{key}:admin").caller({"x-api-key": key}).admin


@given(st.from_regex(api_keys.NAME, fullmatch=True), st.booleans(), st.booleans())
def test_an_entry_is_read_as_it_was_written(name, admin, allow_cloud):
    """`entry_line` and `parse_file` are inverse for every name, also for those that YAML takes for something else."""
    key = ApiKey(name=name, sha256=digest("k"), admin=admin, allow_cloud=allow_cloud)
    if not name.startswith("sk-"):
        assert parse_file(entry_line(key), "") == (key,)
