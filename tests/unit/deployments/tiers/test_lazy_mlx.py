"""MLX's modules are imported by the first use of theirs, and by nothing else."""

import subprocess
import sys

from tests.support.repository import ROOT

CODE = """
import sys
from deployments.tiers.lazy_mlx import mlx_caches, mx
print("mlx.core" in sys.modules, "mlx_lm" in sys.modules)
import mlx.core
print(mx.array is mlx.core.array, mlx_caches.KVCache.__name__)
print("array" in vars(mx))
"""


def test_attributes_are_those_of_the_module():
    """Law: nothing is imported with the proxies; what they give is what the module has, looked up once."""
    out = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, cwd=ROOT)

    assert out.stdout.split() == ["False", "False", "True", "KVCache", "True"]
