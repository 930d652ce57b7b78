"""Load YAML that a person wrote: a key that stands twice in one mapping is refused, of which YAML takes the last."""

from __future__ import annotations

from typing import Any

import yaml

_MERGE = "<<"


class _UniqueKeys(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node, keys = super().compose_mapping_node(anchor), set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != _MERGE:
                if key.value in keys:
                    raise yaml.composer.ComposerError(None, None, "this key stands here twice", key.start_mark)
                keys.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (AttributeError, KeyError):  # of `!!timestamp soon`, and of `!!bool soon`, which quotes it
            raise yaml.constructor.ConstructorError(None, None, "not what its tag says", node.start_mark) from None


def load_yaml(text: str) -> Any:
    """Load the one document of a text. Raises yaml.YAMLError; ValueError: a date that doesn't exist; RecursionError."""
    return yaml.load(text, Loader=_UniqueKeys)
