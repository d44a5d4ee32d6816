"""Builds the kernels and the torch op of this repository into hinge/_C.so, against the installed PyTorch.

    pip install --no-build-isolation ./python

Without --no-build-isolation, pip builds against the PyTorch that pyproject.toml names, in an environment of its own. Either way the package
depends on exactly the PyTorch that it was built against; with another one it might not load.

The sources are those of the C++ system (../src), so the package is built from a checkout of the whole repository.
Needs a C++20 compiler and Highway (Debian: g++ libhwy-dev); with ninja the files compile in parallel.
"""

import os
import re
from pathlib import Path

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

ROOT = Path(__file__).resolve().parent.parent
# The op and what it stands on; the dense layers beside it need oneDNN, and PyTorch has its own.
SOURCES = [
    *sorted(ROOT.glob("src/kernels/attention*.cc")),
    ROOT / "src/kernels/cpu.cc",
    ROOT / "src/kernels/row_regulariser.cc",
    *sorted(ROOT.glob("src/ops/attention*.cc")),
    ROOT / "src/ops/parallel.cc",
    ROOT / "src/ops/regulariser.cc",
]
HEADERS = [
    *sorted(ROOT.glob("include/hinge/**/*.h")),
    *sorted(ROOT.glob("src/kernels/*.h")),
    *sorted(ROOT.glob("src/ops/*.h")),
    ROOT / "src/support/nearest.h",
]
if not all(source.exists() for source in SOURCES):
    raise SystemExit(f"hinge: no sources in {ROOT / 'src'}. Build from a checkout of the whole repository: pip install ./python")

VERSION = re.search(r"project\(hinge VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]

# As the CMake build has it: no -march (Highway chooses at run time), no fused multiply-adds but those that the source asks for.
# -fopenmp: at::parallel_for is an OpenMP loop in a header.
FLAGS = ["-std=c++20", "-O2", "-ffp-contract=off", "-fopenmp", "-fvisibility=hidden", "-g0"]

os.chdir(Path(__file__).resolve().parent)
setup(
    version=VERSION,
    install_requires=["torch==" + torch.__version__.split("+")[0]],
    ext_modules=[
        CppExtension(
            "hinge._C",
            sources=[os.path.relpath(source) for source in SOURCES],
            depends=[os.path.relpath(header) for header in HEADERS],
            include_dirs=[str(ROOT / "include"), str(ROOT / "src")],
            extra_compile_args=FLAGS,
            extra_link_args=["-fopenmp"],
            libraries=["hwy"],
        )
    ],
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)},
    options={"build": {"build_base": os.path.relpath(ROOT / "build" / "python")}},
)
