"""What hinge train writes, read back by the packages that own the formats: tensorboard and safetensors."""

import json
import math
import signal
import subprocess
import time

import numpy as np
import pytest
from command import HINGE, needs_hinge

pytestmark = needs_hinge

CONFIG = """
[model]
image_size = 8
channels = 1
classes = 0
patch = 4
width = 16
depth = 1
ffn.width = 32
heads = 2
[data]
format = "synthetic"
synthetic_count = 64
synthetic_classes = 4
synthetic_size = 8
synthetic_channels = 1
[optim]
batch = 16
steps = 24
lr = 3e-3
[train]
threads = 1
log_steps = 4
eval_every = 2
checkpoint_every = 0.25
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was stopped once and went on, so that there are two event files."""
    folder = tmp_path_factory.mktemp("runs")
    config = folder / "tiny.toml"
    config.write_text(CONFIG)
    run = folder / "run"
    process = subprocess.Popen([HINGE, "train", config, "--out", run], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(run.glob("checkpoints/step-*")):
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)  # SIGINT is ignored by what scripts start in the background
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert "Stopped after step" in out
    subprocess.run([HINGE, "train", "--resume", run], check=True, capture_output=True)
    return run


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_tensorboard_reads_what_metrics_hold(run):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert len(list(run.glob("events.out.tfevents.*"))) == 2
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    lines = metrics(run)
    tags = {key for line in lines for key in line if "/" in key}
    assert tags == set(events.Tags()["scalars"])
    assert {"train/loss", "train/accuracy", "train/lr", "eval/accuracy", "eval/top5", "eval/loss"} <= tags
    for tag in tags:
        expected = [(line["step"], line[tag]) for line in lines if tag in line]
        read = [(event.step, event.value) for event in events.Scalars(tag)]
        assert [step for step, _ in read] == [step for step, _ in expected], tag
        assert all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-30) for (_, a), (_, b) in zip(read, expected)), tag


def test_safetensors_reads_the_checkpoint(run):
    safetensors_numpy = pytest.importorskip("safetensors.numpy")
    from safetensors import safe_open

    checkpoint = run / "checkpoints/step-00000024"
    weights = safetensors_numpy.load_file(checkpoint / "weights.safetensors")
    assert weights["patch_embed.proj.weight"].shape == (16, 1, 4, 4)
    assert weights["blocks.0.attn.qkv.weight"].shape == (48, 16)
    assert weights["head.weight"].shape == (4, 16)
    assert all(value.dtype == np.float32 and np.isfinite(value).all() for value in weights.values())
    assert np.abs(weights["head.weight"]).max() > 0, "it starts at zero and is trained"
    # patches 16 x 16, positions 4 x 16, block with two norms of each head's 8, last norm, head; biases everywhere
    block = 4 * 16 + 4 * (16 * 16 + 16) + 2 * 16 * 32 + 32 + 16 + 2 * 2 * 8
    assert sum(value.size for value in weights.values()) == (16 * 16 + 16) + 4 * 16 + block + 2 * 16 + (4 * 16 + 4)
    with safe_open(checkpoint / "weights.safetensors", framework="np") as file:
        metadata = file.metadata()
    assert metadata.pop("format") == "pt"
    assert set(metadata) == {f"crc32c.{name}" for name in weights}, "each tensor has its checksum"
    state = safetensors_numpy.load_file(checkpoint / "state.safetensors")
    assert set(state) == {f"{moment}.{name}" for moment in "mv" for name in weights}
    assert all((state[name] >= 0).all() for name in state if name.startswith("v."))
    description = json.loads((checkpoint / "checkpoint.json").read_text())
    assert description["step"] == 24
    assert description["state"]["classes"] == ["class 0", "class 1", "class 2", "class 3"]


def test_status_and_config_are_plain_files(run):
    status = json.loads((run / "status.json").read_text())
    assert status["state"] == "done" and status["step"] == 24
    assert "width = 16" in (run / "config.toml").read_text()
