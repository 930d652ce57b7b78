"""MLX's modules, imported when the engine thread first uses them.

A machine without MLX can import every module of this package, and the matrix library must be in the process before MLX
is (`mlx/loading.py`).
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["mlx_caches", "mx"]


class _LazyModule:
    """Looks each attribute up in the module of this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(sys.modules.get(self._name) or importlib.import_module(self._name), attribute)


mx: Any = _LazyModule("mlx.core")
mlx_caches: Any = _LazyModule("mlx_lm.models.cache")
