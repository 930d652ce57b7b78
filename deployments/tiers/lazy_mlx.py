"""MLX's modules, imported when the engine thread first uses them.

A machine without MLX can import every module of this package. An attribute is looked up once;
later uses cost what an attribute costs.
"""

from __future__ import annotations

import importlib
from typing import Any


class _LazyModule:
    """Has the attributes of the module of this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, found)
        return found


mx: Any = _LazyModule("mlx.core")
mlx_caches: Any = _LazyModule("mlx_lm.models.cache")
