"""hinge train under torchrun: several processes, agents on several "nodes", and restarts after a crash."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from command import HINGE, needs_hinge

TORCHRUN = pathlib.Path(sys.executable).parent / "torchrun"

pytestmark = [
    needs_hinge,
    pytest.mark.skipif(not TORCHRUN.exists(), reason=f"there is no {TORCHRUN}"),
]

CONFIG = """
task = "vision"
[model]
image_size = 8
channels = 1
classes = 0
patch = 4
width = 16
depth = 1
heads = 2
dropout = 0.05
ffn.width = 32
[data]
format = "synthetic"
synthetic_count = 64
synthetic_classes = 4
synthetic_size = 8
synthetic_channels = 1
train_pp = "pad_crop(1)|flip_lr|value_range(-1,1)"
mixup = 0.2
[optim]
batch = 16
steps = STEPS
lr = 3e-3
[train]
shards = 4
workers = 1
threads = 1
checkpoint_every = 1
"""


def weights(run, step):
    return (run / f"checkpoints/step-{step:08}/weights.safetensors").read_bytes()


def config(folder, steps):
    path = folder / f"{steps}.toml"
    path.write_text(CONFIG.replace("STEPS", str(steps)))
    return path


def torchrun(*arguments):
    command = [TORCHRUN, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@pytest.fixture
def alone(tmp_path):
    run = tmp_path / "alone"
    subprocess.run([HINGE, "train", config(tmp_path, 24), "--out", run], check=True, capture_output=True)
    return weights(run, 24)


def test_processes_of_one_machine(tmp_path, alone):
    run = tmp_path / "run"
    process = torchrun("--standalone", "--nproc-per-node", 2, "--no-python", HINGE, "train", config(tmp_path, 24), "--out", run)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    assert "rank 0 of 2 at" in said
    assert weights(run, 24) == alone


@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_an_agent_for_each_node(tmp_path, alone, backend):
    run, port = tmp_path / "run", free_port()
    meeting = {
        "static": lambda node: ["--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", port],
        "c10d": lambda node: ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "study", "--local-addr", "127.0.0.1"],
    }[backend]
    command = ["--no-python", HINGE, "train", config(tmp_path, 24), "--out", run]
    nodes = [torchrun("--nnodes", 2, "--nproc-per-node", 1, *meeting(node), *command) for node in range(2)]
    said = [node.communicate()[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    assert weights(run, 24) == alone


def rank_process(agent, rank):
    """The process of a rank below torchrun's."""
    for child in pathlib.Path(f"/proc/{agent}/task/{agent}/children").read_text().split():
        try:
            if f"\0RANK={rank}\0".encode() in pathlib.Path(f"/proc/{child}/environ").read_bytes():
                return int(child)
        except OSError:
            pass
    return None


def test_max_restarts_goes_on_after_a_kill(tmp_path):
    # Long enough that the kill comes before its end.
    steps, run = 200, tmp_path / "run"
    undisturbed = tmp_path / "undisturbed"
    subprocess.run([HINGE, "train", config(tmp_path, steps), "--out", undisturbed], check=True, capture_output=True)
    process = torchrun("--standalone", "--nproc-per-node", 2, "--max-restarts", 3, "--monitor-interval", "0.1", "--no-python", HINGE, "train",
                       config(tmp_path, steps), "--out", run, "--or-resume")  # fmt: skip
    killed = None
    while killed is None and process.poll() is None:
        if list(run.glob("checkpoints/step-*/checkpoint.json")):
            killed = rank_process(process.pid, 1)
        time.sleep(0.002)
    if killed:
        os.kill(killed, signal.SIGKILL)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    assert killed, said
    assert "rank 1" in said and "was lost" in said
    assert weights(run, steps) == weights(undisturbed, steps)
    shutil.rmtree(run)
