"""Check the zoo: `python -m tests.zoo [--only NAME ...] [--aspect NAME ...] [--table]`."""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.support.model_configs import CONFIGS
from tests.support.tiny_model import write_folder
from tests.zoo.aspects import ASPECTS, Specimen
from tests.zoo.families import find_family
from tests.zoo.faults import measure
from tests.zoo.rig import TOLERANCE, load_model
from tests.zoo.table import build_table


def write_model(folder: Path) -> Path:
    """Write the small model whose tokenizer all configurations have, with a template that has a place for tools."""
    write_folder(folder)
    with (folder / "chat_template.jinja").open("a", encoding="utf-8") as template:
        template.write("{% if tools %}{{ tools | tojson }}{% endif %}")
    return folder


def check_config(config: str, model: Path, folder: Path, aspects: Iterable[str] = ASPECTS) -> list[str]:
    """Return what isn't as expected: aspects that differ, excuses that have ended, a fault of mlx-lm that is mended."""
    family, found = find_family(config), []
    one = Specimen(config, family, load_model(config, model), folder)
    for aspect in aspects:
        try:
            ASPECTS[aspect](one)
        except Exception as error:  # whatever it is, the others are checked
            found += [] if aspect in family.excused else [f"{aspect}: {type(error).__name__}: {error}"]
        else:
            found += [f"{aspect}: the excuse has ended"] if aspect in family.excused else []
    if family.fault and measure(family.fault, one.loaded.model) <= TOLERANCE:
        found.append(f"mlx-lm's fault is mended: {family.fault}")
    return found


def main() -> int:
    """Print a line for each configuration; 0 only if each is as expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__.partition(":")[0])
    parser.add_argument("--only", nargs="*", metavar="NAME", help="configurations whose names begin so, such as qwen3")
    parser.add_argument("--aspect", nargs="*", choices=ASPECTS, default=ASPECTS, help="these aspects only")
    parser.add_argument("--table", action="store_true", help="print the table of docs/models.md, and check nothing")
    given = parser.parse_args()
    if given.table:
        print(build_table())
        return 0
    logging.disable(logging.WARNING)
    names = [name for name in CONFIGS if given.only is None or name.startswith(tuple(given.only))]
    differing = 0
    with tempfile.TemporaryDirectory() as place:
        model = write_model(Path(place) / "model")
        for name in names:
            began_s = time.monotonic()
            found = check_config(name, model, Path(place) / name, given.aspect)
            differing += bool(found)
            print(f"{name:24} {time.monotonic() - began_s:5.1f} s  {'; '.join(found) or 'as expected'}", flush=True)
    print(f"{len(names)} configurations, {differing} not as expected")
    return 1 if differing or not names else 0


if __name__ == "__main__":
    sys.exit(main())
