"""The package as it is installed: types, one OpenMP, and the notebook of docs/."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest
import torch

import hinge

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_types_are_strict():
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "python/pyproject.toml", ROOT / "python/hinge"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_types_reach_the_user(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(
        "import torch, hinge\n"
        "out: torch.Tensor = hinge.attention(torch.rand(1, 1, 2, 4), torch.rand(1, 1, 2, 4), torch.rand(1, 1, 2, 4))\n"
        "module: torch.nn.Module = hinge.Attention(8, 2, h='relu')\n"
        "names: list[int] = hinge.replace_attention(module)\n"
    )
    run = subprocess.run([sys.executable, "-m", "mypy", "--strict", tmp_path / "user.py"], capture_output=True, text=True, cwd=tmp_path)
    errors = [line for line in run.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1 and "user.py:4" in errors[0] and "list[str]" in errors[0], run.stdout + run.stderr


def libraries_of_a_process(pattern: str, **options) -> tuple[str, list[str]]:
    """The package that a new process finds, and the libraries that it has loaded after a call: other tests load more into this one. The
    process has none of the packages that torch does without."""
    program = (
        "import re, sys\n"
        "sys.modules.update(dict.fromkeys(('numpy', 'safetensors', 'timm', 'transformers')))\n"
        "import torch, hinge\n"
        "hinge.attention(*(torch.randn(2, 4, 300, 16) for _ in range(3)))\n"
        "print(hinge.__file__)\n"
        "print(*sorted({line.split()[-1] for line in open('/proc/self/maps') if re.search(sys.argv[1], line)}), sep='\\n')\n"
    )
    run = subprocess.run([sys.executable, "-c", program, pattern], capture_output=True, text=True, **options)
    assert run.returncode == 0, run.stderr
    package, *libraries = run.stdout.splitlines()
    return package, libraries


def test_one_openmp_in_the_process():
    _, libraries = libraries_of_a_process(r"lib(gomp|iomp|omp)[-.\d]")
    assert len(libraries) == 1 and "torch" in libraries[0], libraries


@pytest.mark.skipif(not list((ROOT / "dist").glob("*.whl")), reason="there is no wheel in dist/: run `make wheel`")
def test_the_wheel_needs_nothing_but_torch(tmp_path):
    wheel = max((ROOT / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
        names = file.namelist()
        metadata = file.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert "hinge/py.typed" in names and not any("gomp" in name or "torch" in name for name in names)
    assert f"Requires-Dist: torch=={torch.__version__.split('+')[0]}" in metadata
    package, libraries = libraries_of_a_process("hwy|gomp", cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert package.startswith(str(tmp_path)), "not the one that is installed"
    assert len(libraries) == 2 and any(str(tmp_path) in path and "hwy" in path for path in libraries), libraries
    assert any("torch/lib/libgomp" in path for path in libraries), libraries


def test_the_notebook_runs_and_draws():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "docs/attention.ipynb", 4)
    pictures = [picture_count(cell) for cell in notebook.cells]
    assert sum(pictures) == 4, "it is stored with its pictures"
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    assert [picture_count(cell) for cell in notebook.cells] == pictures


def picture_count(cell):
    return sum("image/png" in output.get("data", {}) for output in cell.get("outputs", []))


def test_every_activation_has_a_feed_forward_twin():
    assert hinge.models.ACTIVATIONS.keys() == set(hinge.activations())
