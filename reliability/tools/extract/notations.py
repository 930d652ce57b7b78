"""Who reads which notation in the open: by the `reader` of its row in the table of call formats."""

from __future__ import annotations

from reliability.tools.extract.children import read_children
from reliability.tools.extract.markup import read_attributes, read_elements, read_pairs
from reliability.tools.extract.payloads import read_braces, read_json, read_named
from reliability.tools.extract.pythonic import read_python
from reliability.tools.extract.sections import read_flowers, read_sections
from reliability.tools.format_row import Reader

__all__ = ["OPEN_READERS"]

OPEN_READERS = {
    Reader.ELEMENTS: read_elements,
    Reader.CHILDREN: read_children,
    Reader.SECTIONS: read_sections,
    Reader.FLOWERS: read_flowers,
    Reader.ATTRIBUTES: read_attributes,
    Reader.PAIRS: read_pairs,
    Reader.NAMED: read_named,
    Reader.BRACES: read_braces,
    Reader.PYTHON: read_python,
    Reader.JSON: read_json,
}
