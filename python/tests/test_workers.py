"""bench/workers.py: the rates of trainings side by side, and how they compare."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_way_is_measured():
    small = ["data.format=synthetic", "data.synthetic_count=64", "data.synthetic_size=28", "data.eval=train", "model.channels=3"]
    small += ["optim.warmup_steps=0"]
    command = [sys.executable, ROOT / "bench/workers.py", ROOT / "configs/vit/demo.toml", "--hinge", ROOT / "build/release/bin/hinge"]
    command += ["--steps", "2", "--rounds", "1"] + [argument for change in small for argument in ("--set", change)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert table[0][:4] == ["config", "other load", "default", "one worker"]
    assert [row[1] for row in table[2:]] == ["none", "one busy process"]
    for row in table[2:]:
        default, one_worker, processes, to_one, to_processes = map(float, row[2:])
        assert min(default, one_worker, processes) > 0
        assert to_one == pytest.approx(default / one_worker, rel=0.1, abs=0.01)  # the rates are rounded
        assert to_processes == pytest.approx(default / processes, rel=0.1, abs=0.01)


def test_a_training_that_fails_is_shown():
    command = [sys.executable, ROOT / "bench/workers.py", ROOT / "configs/vit/demo.toml", "--hinge", ROOT / "build/release/bin/hinge"]
    done = subprocess.run([*command, "--set", "data.format=synthetic", "--set", "model.depht=4"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "model.depht" in done.stderr and "model.depth" in done.stderr
