"""The docs are true: what can be made from the code is, and what can be run or looked up is (see also `e2e`)."""

import re
import subprocess
from collections.abc import Iterator

import pytest
import yaml
from pydantic import BaseModel

from deployments.config.app_config import AppConfig
from deployments.config.tier_config import KINDS
from deployments.graph.serve_file import read_file
from tests.support.bare_router import list_routes
from tests.support.repository import ROOT, tracked
from tests.unit.deployments.config.test_app_config_effects import all_keys
from tools import docs
from tools.config_tables import section_of, sections

PAGES = [name for name in tracked() if name.endswith(".md")]
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
USERS_PAGES = [name for name in PAGES if name == "README.md" or name.startswith("docs/")]
YAML = [(name, block) for name in USERS_PAGES for block in re.findall(r"```yaml\n(.*?)```", TEXTS[name], re.DOTALL)]
FILE = r"(?:deployments|reliability|tests|loadtests|tools|docs)/[\w./-]+\.(?:py|yaml|md|json|sh)"


@pytest.mark.parametrize("page", [docs.SCHEMA, *docs.PAGES], ids=lambda page: page.name)
def test_what_comes_from_the_code_is_that_of_the_code(page):
    """Tables and schema are what `make docs` writes."""
    assert docs.render_page(page) == page.read_text(encoding="utf-8")


# -- the configuration ---------------------------------------------------------------------------------------------


def test_every_configuration_key_is_explained_and_no_other():
    """The tables are complete, and name nothing that doesn't exist."""
    shown = set()
    for part in re.split(r"^### ", TEXTS["docs/configuration.md"], flags=re.MULTILINE)[1:]:
        path, kind = re.match(r"`([\w.]+)`(?: with `kind: (\w+)`)?\n", part).groups()
        keys = re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)
        kinds = [kind] if kind else list(KINDS)
        for tier in kinds if path == "tiers.NAME" else [""]:
            shown |= {f"{path.replace('NAME', tier)}.{key}" for key in keys}
    # The four timeouts of a tier are shown as those of the server.
    assert shown == {re.sub(r"^(tiers\.\w+\.timeouts)\..*", r"\1", key) for key in all_keys()}


def fields(model: type[BaseModel], at: str) -> Iterator[tuple[str, str | None]]:
    """Every key of a section and its sections, with what is said of it."""
    for key, field in model.model_fields.items():
        yield f"{at}{key}", field.description
        if inner := section_of(field.annotation):
            yield from fields(inner, f"{at}{key}.")


@pytest.mark.parametrize("model", [AppConfig, *KINDS.values()], ids=lambda model: model.__name__)
def test_every_key_says_what_it_means(model):
    """A key is explained where it is declared: the docs and the editor's schema have their words from there."""
    assert [path for path, words in fields(model, "") if not words] == []


def test_every_section_says_what_it_is():
    """Above each table stands the docstring of its section."""
    assert all(section.words.endswith(".") for section in sections())


@pytest.mark.parametrize(("page", "block"), YAML, ids=[f"{page}-{at}" for at, (page, _) in enumerate(YAML)])
def test_every_configuration_that_is_shown_can_be_used(tmp_path, page, block):
    """A whole file is one that the server takes; a part of one fits into the built-in configuration."""
    path = tmp_path / "serve_config.yaml"
    if "applications:" not in block:
        whole = yaml.safe_load((ROOT / "serve_config.yaml").read_text(encoding="utf-8"))
        args = whole["applications"][0]["args"]
        for name, section in yaml.safe_load(block).items():
            args[name] |= section
        block = yaml.safe_dump(whole)
    path.write_text(block)

    read_file(path)


def test_the_readme_shows_a_configuration_of_ten_lines():
    """A person sees at a glance that there isn't more to it."""
    (block,) = (block for page, block in YAML if page == "README.md")

    assert block.count("\n") <= 10


# -- commands, files, links ----------------------------------------------------------------------------------------

TARGETS = {
    (page, target) for page in PAGES for target in re.findall(r"(?:^|`)make ([a-z-]+)", TEXTS[page], re.MULTILINE)
}


@pytest.mark.parametrize(("page", "target"), sorted(TARGETS))
def test_every_make_target_exists(page, target):
    """No command of the docs is missing from the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_make_help_lists_every_target():
    """Each target that a person may want says what it does, and a bare `make` is still `make serve`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", makefile, re.MULTILINE)[1].replace("\\\n", " ").split()
    told = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert [line.split()[1] for line in told.splitlines()] == re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE)
    assert {line.split()[1] for line in told.splitlines()} == set(phony)
    assert re.search(r"^([a-z-]+):", makefile, re.MULTILINE)[1] == "serve"


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page):
    """A module that moves takes its name in the docs along."""
    named = set(re.findall(rf"(?<![\w/.]){FILE}", TEXTS[page]))

    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", USERS_PAGES)
def test_modules_are_named_by_their_whole_path(page):
    """So that they can be found, and follow when they move."""
    assert re.findall(r"(?<![\w./])\w+\.py\b", TEXTS[page]) == []


def anchors(text: str) -> set[str]:
    """The places of a page that a link may lead to."""
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    """To a file of the project, and to a heading of it where one is named."""
    for target in re.findall(r"\]\(([^)\s]+)\)", TEXTS[page]):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            found = (ROOT / page).parent / path if path else ROOT / page
            assert found.exists(), target
            assert not anchor or anchor in anchors(found.read_text(encoding="utf-8")), target


def test_the_load_tests_open_with_their_figures():
    """One table of at most eight rows, each with the command that measures it, before anything else is said."""
    head = TEXTS["loadtests/README.md"].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in head.splitlines() if line.startswith("|")]

    assert [cell.partition(" ")[0] for cell in rows[0]] == ["measured", "figure", "against", "command"]
    assert 0 < len(rows[2:]) <= 8
    assert all(len(row) == 4 and row[3].startswith(("`make ", "`python -m loadtests.")) for row in rows[2:])


# -- HTTP ----------------------------------------------------------------------------------------------------------


def test_every_header_is_explained_and_no_other():
    """The headers that the code can send are those of the table."""
    source = (ROOT / "deployments/reports/report.py").read_text(encoding="utf-8")
    sent = set(re.findall(r'"(X-MLX-Stack-[A-Za-z-]+)"', source))
    table = TEXTS["docs/http.md"].partition("## Headers of an answer")[2].partition("\n## ")[0]
    shown = set(re.findall(r"^\| `(X-MLX-Stack-[A-Za-z-]+)`", table, re.MULTILINE))

    assert shown == sent


def routes() -> set[tuple[str, str]]:
    """Every method and path that the Router serves, without what Starlette adds to them."""
    return {(method, re.sub(r"\{(?:\w+_)?(\w+)(?::path)?\}", "{}", path)) for method, path in list_routes()}


def test_every_route_is_explained_and_no_other():
    """The routes of the table are those of the Router."""
    shown = re.findall(r"^\| `(GET|POST|DELETE) (/[^`]*)` \|", TEXTS["docs/http.md"], re.MULTILINE)

    assert {(method, re.sub(r"\{\w+\}", "{}", path)) for method, path in shown} == routes()
    assert len(shown) == len(routes())


def test_examples_are_run_where_they_stand():
    """The blocks that the end-to-end test runs are there, once each, in the README."""
    for name in ("curl", "python"):
        assert TEXTS["README.md"].count(f"<!-- example: {name} -->\n```") == 1
