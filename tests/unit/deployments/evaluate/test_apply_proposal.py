"""Writing the learned chain into a file: shown, whole, checked, and nothing else changed."""

from pathlib import Path

import pytest

from deployments.config.config_errors import ConfigError
from deployments.evaluate.apply_proposal import check_proposal, show_difference, write_file, write_proposal
from deployments.evaluate.evaluation_target import read_config
from deployments.graph.serve_file import read_file
from tests.support.repository import ROOT

TEXT = (ROOT / "serve_config.yaml").read_text(encoding="utf-8")
ESCALATION = {"chain": ["standard", "premium"], "start_at": [{"tier": "premium", "tools_min": 9}]}
PATCH = {"reliability": {"escalation": ESCALATION}, "tiers": {"fast": {"retry_strategy": ["constrain"]}}}


def test_what_is_patched_is_there_and_the_rest_as_it_was(tmp_path):
    """By the server's own reading; comments stay."""
    path = tmp_path / "mine.yaml"
    path.write_text(write_proposal(TEXT, PATCH))
    before, after = read_file(ROOT / "serve_config.yaml").args, read_file(path).args

    assert after.reliability.escalation.chain == ("standard", "premium")
    assert after.reliability.escalation.start_at[0].tier == "premium"
    assert after.tiers["fast"].retry_strategy == ("constrain",)
    assert after.server == before.server
    assert after.tiers["standard"] == before.tiers["standard"]
    comments = [line.strip() for line in TEXT.splitlines() if line.strip().startswith("#")]
    assert all(comment in path.read_text() for comment in comments)


def test_the_difference_shows_what_changes_and_little_else(tmp_path):
    """A line for each change, with its surroundings; the layout of the rest stays."""
    shown = show_difference(tmp_path / "mine.yaml", TEXT, write_proposal(TEXT, PATCH))
    changed = [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]

    assert any("standard" in line and line.startswith("+") for line in changed)
    assert len(changed) <= 10
    assert show_difference(tmp_path / "x", TEXT, TEXT) == ""


APP = """applications:
- name: a
  route_prefix: /
  import_path: deployments.app:build
  args:
    tiers:
      near: {kind: mlx, model: auto}  # the small one
      far: {kind: mlx, model: auto}
    reliability:
      escalation:
        chain: [near, far]
        escalate_on:
        - timeout
"""
WIDE = """applications:
    - name: a
      route_prefix: /
      import_path: deployments.app:build
      args:
          tiers:
              near: {kind: mlx, model: auto}
              far: {kind: mlx, model: auto}
          reliability:
              escalation:
                  chain:
                      - near
                      - far
"""
DASHES = """applications:
  - name: a
    route_prefix: /
    import_path: deployments.app:build
    args:
      tiers:
        near: {kind: mlx, model: auto}
        far: {kind: mlx, model: auto}
      reliability:
        escalation:
          chain:
            - near
            - far
"""
FAR = {"reliability": {"escalation": {"chain": ["far"]}}, "tiers": {"far": {"retry_strategy": ["constrain"]}}}
PATCHED = """  deployments:
  - name: Router
    user_config: {reliability: {escalation: {chain: [near, far]}, tool_validation: {max_retries: 1}}}
  - name: far
    user_config: {max_running: 2}
"""


def propose(path: Path, text: str, change: dict = FAR) -> str:
    path.write_text(text, newline="")
    new = write_proposal(text, change)
    check_proposal(path, new, change)
    return new


@pytest.mark.parametrize("text", [APP, WIDE, DASHES, APP.replace("\n", "\r\n")])
def test_the_layout_stays(tmp_path, text):
    """Indentation, dashes and ends of lines: what changes is what was proposed."""
    new = propose(tmp_path / "mine.yaml", text)
    kept = [line for line in text.splitlines(keepends=True) if line in new.splitlines(keepends=True)]

    assert len(kept) >= len(text.splitlines()) - 2
    assert new.count("\r") == new.count("\n") * text.count("\r") // text.count("\n")


def test_what_a_user_config_says_is_changed_there_too(tmp_path):
    """It goes before `args`: the proposal would have no effect. What it says beside that stays."""
    path = tmp_path / "mine.yaml"
    write_file(path, propose(path, APP + PATCHED))
    config = read_config(path)

    assert config.reliability.escalation.chain == ("far",)
    assert config.reliability.tool_validation.max_retries == 1
    assert (config.tiers["far"].max_running, config.tiers["far"].retry_strategy) == (2, ("constrain",))


@pytest.mark.parametrize(
    ("text", "words", "change"),
    [
        (APP.replace("near: {", "near: &one {").replace("far: {kind: mlx, model: auto}", "far: *one"), "anchor", FAR),
        (APP.replace("    reliability:", "    reliability: {}\n    reliability:"), "duplicate", FAR),
        (APP, "there is no tier 'nobody'", {"reliability": {"escalation": {"chain": ["nobody"]}}}),
    ],
)
def test_what_can_t_be_changed_alone_or_used_is_refused(tmp_path, text, words, change):
    """One node that stands for two tiers, a key that is there twice, which the server both reads; what it can't start
    with."""
    with pytest.raises(ConfigError, match=words) as refused:
        propose(tmp_path / "mine.yaml", text, change)

    assert "\n" not in str(refused.value)


def test_a_link_stays_one_and_a_file_keeps_its_mode(tmp_path):
    """What it leads to is written; a file of its owner's alone stays so."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/mine.yaml").write_text(APP)
    (tmp_path / "kept/mine.yaml").chmod(0o600)
    (tmp_path / "mine.yaml").symlink_to("kept/mine.yaml")
    write_file(tmp_path / "mine.yaml", write_proposal(APP, FAR))

    assert (tmp_path / "mine.yaml").is_symlink()
    assert (tmp_path / "kept/mine.yaml").stat().st_mode & 0o777 == 0o600
    assert "constrain" in (tmp_path / "kept/mine.yaml").read_text()


def test_what_can_t_be_written_is_said(tmp_path):
    """A file that is read-only stays as it is, whoever runs this; a folder that is none."""
    path = tmp_path / "mine.yaml"
    path.write_text(APP)
    path.chmod(0o444)
    with pytest.raises(ConfigError, match="read-only"):
        write_file(path, write_proposal(APP, FAR))
    with pytest.raises(ConfigError, match="can't be written"):
        write_file(path / "mine.yaml", APP)

    assert path.read_text() == APP
