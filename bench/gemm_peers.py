"""The dense products of the models: ours (oneDNN's, or whatever `hinge bench gemm` measures) against PyTorch's mm.

A process of PyTorch and `hinge bench gemm` take turns, model after model and round after round: what is compared was measured within
seconds. Both sides check their results before anything is timed.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from report import markdown_table

MODELS = ["S/16", "S/8", "28px/4", "28px/2", "iwslt", "decode", "decode/1"]  # as in src/bench/gemm.cc
HINGE = Path(__file__).resolve().parent.parent / "build/release/bin/hinge"
SAMPLE_FLOPS = 2e8  # shorter products are repeated until a sample has as many, as in src/bench/gemm.cc


# ---- PyTorch, in its own process ----------------------------------------------------------------------------------------------


def make_call(kind: str, R: int, N: int, K: int):
    """A layer y = x w^T, x [R, K], w [N, K]: forward and infer y, data dx = dy w, weight dw = dy^T x; checked."""
    import torch

    forward = kind in ("forward", "infer")
    a = torch.randn(R, K if forward else N)
    b = torch.randn(R if kind == "weight" else N, K)
    left, right = (a.t() if kind == "weight" else a), (b.t() if forward else b)
    out = torch.mm(left, right)
    wide, allowed = left[:8].double() @ right.double(), left[:8].double().abs() @ right.double().abs()
    error = ((out[:8] - wide).abs() / allowed).max().item()
    if not error <= left.shape[1] * torch.finfo(torch.float32).eps:
        sys.exit(f"torch.mm is wrong for {kind} of R {R}, N {N}, K {K}: relative error {error:.3g}; nothing is measured")
    return lambda: torch.mm(left, right, out=out)


def worker(threads: int) -> None:
    """For each line of input, a list of [kind, R, N, K] as JSON, a line with the seconds of one product each."""
    import torch

    torch.set_num_threads(threads)
    calls = {}
    for line in sys.stdin:
        seconds = []
        for kind, R, N, K in json.loads(line):
            if (kind, R, N, K) not in calls:
                calls[kind, R, N, K] = make_call(kind, R, N, K)
            call, repeats = calls[kind, R, N, K], max(1, int(SAMPLE_FLOPS / (2 * R * N * K)))
            for _ in range(repeats + 1):
                call()
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            seconds.append((time.perf_counter() - start) / repeats)
        print(json.dumps(seconds), flush=True)


# ---- The comparison -----------------------------------------------------------------------------------------------------------


def ours(model: str, options) -> dict:
    command = [str(HINGE), "bench", "gemm", "--models", model, "--threads", str(options.threads), "--workers", str(options.workers)]
    done = subprocess.run([*command, "--rounds", "1", "--json", "-"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


class Product:
    """One shape and kind with its samples."""

    def __init__(self, row: dict):
        self.about = {key: row[key] for key in ("model", "layer", "kind", "R", "N", "K")}
        self.ours, self.peer, self.peaks = [], [], []  # seconds, and GFLOP/s

    def as_json(self, options) -> dict:
        flops = 2e-9 * self.about["R"] * self.about["N"] * self.about["K"]
        peak, rate, peer = statistics.median(self.peaks), flops / statistics.median(self.ours), flops / statistics.median(self.peer)
        row = self.about | {"threads": options.threads, "workers": options.workers, "gflops": rate, "percent_of_peak": 100 * rate / peak}
        row |= {"pytorch_gflops": peer, "pytorch_percent_of_peak": 100 * peer / peak}
        return row | {"ours_to_pytorch": statistics.median(b / a for a, b in zip(self.ours, self.peer))}


def compare(options) -> tuple[str, list[dict]]:
    if not HINGE.exists():
        sys.exit(f"{HINGE} is not there: build it with `make build`")
    command = [sys.executable, str(Path(__file__).with_name("peers.py")), "gemm-worker", str(options.threads)]
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    products: dict[tuple, Product] = {}
    for number in range(options.rounds + 1):
        print(f"round {number} of {options.rounds} ...", file=sys.stderr, flush=True)
        for model in options.models:
            report = ours(model, options)
            rows = report["results"]
            peer.stdin.write(json.dumps([[row["kind"], row["R"], row["N"], row["K"]] for row in rows]) + "\n")
            peer.stdin.flush()
            answer = peer.stdout.readline()
            if not answer:
                sys.exit(f"PyTorch's process ended with code {peer.wait()}")
            if number == 0:  # warms both up
                continue
            for row, seconds in zip(rows, json.loads(answer), strict=True):
                product = products.setdefault((row["kind"], row["R"], row["N"], row["K"]), Product(row))
                product.ours.append(row["median_ms"] * 1e-3)
                product.peer.append(seconds)
                product.peaks.append(report["machine"]["fma_peak_gflops"])
    peer.stdin.close()
    peer.wait()

    rows = [product.as_json(options) for product in products.values()]
    lines = [
        [f"{row['model']} {row['layer']}", row["kind"], f"{row['R']}, {row['N']}, {row['K']}", f"{row['gflops']:.0f}"]
        + [f"{row['percent_of_peak']:.0f}", f"{row['pytorch_gflops']:.0f}", f"{row['ours_to_pytorch']:.2f}"]
        for row in rows
    ]
    return markdown_table(["product", "kind", "R, N, K", "ours", "% of peak", "PyTorch", "ours / PyTorch"], lines), rows
