"""The package as it is installed: types, one OpenMP, and the notebook of docs/."""

import pathlib
import re
import subprocess
import sys

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


def test_one_openmp_in_the_process():
    hinge.attention(*(torch.randn(2, 4, 300, 16) for _ in range(3)))
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    loaded = {line.split()[-1] for line in maps if re.search(r"lib(gomp|iomp|omp)[-.\d]", line)}
    assert len(loaded) == 1 and "torch" in loaded.pop()


def test_every_activation_has_a_feed_forward_twin():
    assert hinge.models.ACTIVATIONS.keys() == set(hinge.activations())
