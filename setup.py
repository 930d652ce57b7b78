"""Builds what `pyproject.toml` can't declare: the C extension that computes steps on the CPU of a Linux machine.

It is built with the system's C compiler, or with the one in the package `ziglang` where the system has none. Without
either the package is installed without it, and MLX's own code computes (`deployments/tiers/mlx/cpu/step.py`).
"""

import importlib.util
import os
import platform
import shutil
import sys
import sysconfig

from setuptools import Extension, setup

FOLDER = "deployments/tiers/mlx/cpu"
KINDS = {"_step_avx2": ["-mavx2", "-mfma"], "_step_avx512": ["-mavx512f", "-mfma", "-DWIDE"]}
# Like the flags of every release build; a product and a sum may be one instruction.
FLAGS = ["-O3", "-g0", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden", "-pthread"]
COMPILER = "ziglang==0.17.0"


def find_compiler() -> str | None:
    """Find a command that compiles: the one that Python was built with, another one of the system, or ziglang's."""
    for command in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        if command and shutil.which(command.split()[0]):
            return command
    return f"{sys.executable} -m ziglang cc" if importlib.util.find_spec("ziglang") else None


def list_extensions() -> list[Extension]:
    """List the extension for each kind of processor; none where it can't run. It uses nothing of Python's C API."""
    headers = [f"{FOLDER}/{name}.h" for name in ("attention", "lanes", "products", "threads")]
    return [
        Extension(
            f"{FOLDER.replace('/', '.')}.{name}",
            [f"{FOLDER}/step.c"],
            depends=headers,
            extra_compile_args=[*FLAGS, *flags],
            py_limited_api=True,
            optional=True,
        )
        for name, flags in KINDS.items()
        if (sys.platform, platform.machine()) == ("linux", "x86_64")
    ]


extensions, compiler = list_extensions(), find_compiler()
if compiler:
    os.environ["CC"] = compiler
setup(ext_modules=extensions, setup_requires=[COMPILER] if extensions and not compiler else [])
