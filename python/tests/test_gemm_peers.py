"""The comparison of dense products (bench/gemm_peers.py): its peer runs, and its rows hold rates and their ratio."""

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import gemm_peers  # noqa: E402


def test_worker_times_every_kind():
    command = [sys.executable, BENCH / "peers.py", "gemm-worker", "1"]
    shapes = [[kind, 5, 7, 3] for kind in ("forward", "infer", "data", "weight")]
    done = subprocess.run(command, input=json.dumps(shapes) + "\n", capture_output=True, text=True, check=True)
    seconds = json.loads(done.stdout)
    assert len(seconds) == 4 and min(seconds) > 0


def test_rows_compare_turn_by_turn():
    product = gemm_peers.Product({"model": "S/16", "layer": "qkv", "kind": "data", "R": 10, "N": 100, "K": 1000, "gflops": 1})
    product.ours, product.peer, product.peaks = [1e-3, 2e-3, 4e-3], [2e-3, 2e-3, 2e-3], [4, 4, 4]
    row = product.as_json(Namespace(threads=1, workers=2))
    assert row["ours_to_pytorch"] == 1
    assert abs(row["gflops"] - 1) < 1e-9 and abs(row["percent_of_peak"] - 25) < 1e-9 and abs(row["pytorch_gflops"] - 1) < 1e-9
