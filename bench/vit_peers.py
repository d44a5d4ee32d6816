"""Whole vision transformers: Hinge's against PyTorch's (eager, compiled, DDP) and onnxruntime's, with the same mathematics and sizes.

Every peer runs in a process of its own, so that the memory of each can be told; they are asked for one sample each in turn, round after
round. The peers have the same weights and must have the same result before they are timed. Ours is `hinge bench vit`, started anew for every
sample; it checks its logits against the same formula in float64.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import ddp
from report import markdown_table

# name: batch, image, channels, patch, width, depth, heads, classes (as in src/bench/vit.cc)
MODELS = {
    "S/16": (8, 224, 3, 16, 384, 12, 6, 1000),
    "S/8": (2, 224, 3, 8, 384, 12, 6, 1000),
    "28px/4": (128, 28, 1, 4, 192, 6, 3, 10),
    "28px/2": (128, 28, 1, 2, 64, 6, 2, 10),
}
HINGE = Path(__file__).resolve().parent.parent / "build/release/bin/hinge"


# ---- A peer, in its own process -----------------------------------------------------------------------------------------------


def make_model(name: str, h: str):
    import torch
    import torch.nn.functional as F
    from torch import nn

    _, image, channels, patch, width, depth, heads, classes = MODELS[name]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            B, L, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(B, L, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            if h == "softmax":
                o = F.scaled_dot_product_attention(q, k, v)
            else:
                o = torch.relu(q @ k.transpose(-2, -1) * (width // heads) ** -0.5) / L @ v
            x = x + self.proj(o.transpose(1, 2).reshape(B, L, width))
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    class Vit(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(channels, width, patch, patch)
            self.position = nn.Parameter(torch.randn(1, (image // patch) ** 2, width) * width**-0.5)
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, classes)

        def forward(self, images):
            x = self.patch(images).flatten(2).transpose(1, 2) + self.position
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x).mean(1))

    return Vit()


def training_step(run, model, adam, images, labels):
    """A step of `model` through `run`, which is the model or wraps it; the loss."""
    import torch
    import torch.nn.functional as F

    adam.zero_grad(set_to_none=True)
    loss = F.cross_entropy(run(images), labels)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    return loss.detach()


def worker(kind: str, name: str, h: str, which: str, threads: int) -> None:
    """Prints "ready" and the first call's result (logits of the first image, or the loss), then for each line of input the seconds of one
    call; at the end of input its largest memory in bytes."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    batch, image, channels, *_, classes = MODELS[name]
    images, labels = torch.randn(batch, channels, image, image), torch.arange(batch) % classes
    model = make_model(name, h)
    if kind == "DDP":
        return run_ddp(model, images, labels, threads)
    if kind == "onnxruntime":
        import onnxruntime

        path = f"/tmp/hinge-peer-{os.getpid()}.onnx"
        torch.onnx.export(model.eval(), (images,), path, input_names=["x"], dynamo=False, opset_version=17)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        os.unlink(path)
        feed = {"x": images.numpy()}
        call = lambda: session.run(None, feed)[0][0].tolist()  # noqa: E731
    elif which == "infer":
        model.eval()
        run = torch.compile(model, dynamic=False) if kind == "torch.compile" else model

        def call():
            with torch.inference_mode():
                return run(images)[0].tolist()

    else:
        run = torch.compile(model, dynamic=False) if kind == "torch.compile" else model
        adam = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

        call = lambda: [training_step(run, model, adam, images, labels).item()]  # noqa: E731
    result = call()
    call()
    serve(call, result, largest_memory)


def serve(call, result, memory) -> None:
    """A peer's part of the talk with PeerProcess."""
    print("ready", json.dumps(result), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        call()
        print(time.perf_counter() - start, flush=True)
    print(memory(), flush=True)


def run_ddp(model, images, labels, ranks: int) -> None:
    """DistributedDataParallel, one process per thread."""

    def make_call(rank: int, ranks: int):
        import torch
        import torch.distributed as dist

        run = torch.nn.parallel.DistributedDataParallel(model)
        adam = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        part = images.tensor_split(ranks)[rank], labels.tensor_split(ranks)[rank]
        call = lambda: training_step(run, model, adam, *part)  # noqa: E731
        loss = call()
        dist.all_reduce(loss)
        return call, [loss.item() / ranks]

    ddp.run(ranks, make_call, lambda call, result, others: serve(call, result, lambda: sum(largest_memory(p) for p in ["self", *(o.pid for o in others)])))


def largest_memory(process: int | str = "self") -> int:
    """In bytes. Not getrusage's: that one begins with the size of the program that started this one."""
    line = next(line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


# ---- The comparison -----------------------------------------------------------------------------------------------------------


class PeerProcess:
    def __init__(self, kind: str, name: str, h: str, which: str, threads: int):
        self.kind, self.samples, self.memory, self.note, self.result = kind, [], 0, "", []
        arguments = [sys.executable, str(Path(__file__).with_name("peers.py")), "vit-worker", kind, name, h, which, str(threads)]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ready(self) -> bool:
        while line := self.process.stdout.readline():
            if line.startswith("ready "):
                self.result = json.loads(line.removeprefix("ready "))
                return True
        lines = [line for line in self.process.stderr.read().splitlines() if line.strip()]
        self.note = lines[-1][:160] if lines else "ended without a word"
        return False

    def sample(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.samples.append(float(self.process.stdout.readline()))

    def finish(self) -> None:
        self.process.stdin.close()
        self.memory = int(self.process.stdout.readline())
        self.process.wait()


def require_same(peers: list[PeerProcess]) -> None:
    """The peers compute the same thing, up to the rounding of float32 in some dozen layers."""
    for peer in peers[1:]:
        first = peers[0]
        limit = 1e-3 * max(map(abs, first.result))
        if not all(abs(a - b) <= limit for a, b in zip(first.result, peer.result, strict=True)):
            sys.exit(f"{peer.kind} has another result than {first.kind}: {peer.result[:3]} ... against {first.result[:3]} ...; nothing is measured")


class Ours:
    kind = "ours"

    def __init__(self, name: str, h: str, which: str, threads: int):
        self.samples, self.memory, self.note, self.peaks, self.flops = [], 0, "", [], 0.0
        attention = "softmax" if h == "softmax" else "relu-vit"
        self.command = [str(HINGE), "bench", "vit", "--models", name, "--attention", attention, "--pass", which]
        self.command += ["--threads", str(threads), "--rounds", "1", "--json", "-"]

    def sample(self) -> None:
        done = subprocess.run(self.command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(self.command)} failed: {done.stderr.strip()}")
        report = json.loads(done.stdout)
        row = report["results"][0]
        self.samples.append(row["median_ms"] * 1e-3)
        self.flops = row["gflops"] * row["median_ms"] * 1e6
        self.peaks.append(report["machine"]["fma_peak_gflops"])
        self.memory = max(self.memory, report["memory_bytes"])


def compare(options) -> tuple[str, list[dict]]:
    if not HINGE.exists():
        sys.exit(f"{HINGE} is not there: build it with `make build`")
    rows, lines, notes = [], [], []
    for name in options.models:
        for which in options.passes:
            for h in ("relu", "softmax"):
                print(f"{name}, {which}, {h} ...", file=sys.stderr, flush=True)
                kinds = ["eager", "torch.compile"] + (["onnxruntime"] if which == "infer" else ["DDP"] if options.threads > 1 else [])
                peers = [PeerProcess(kind, name, h, which, options.threads) for kind in kinds]
                ready = [peer for peer in peers if peer.ready()]
                require_same(ready)
                notes += [f"* {peer.kind}, {name}, {which}, {h}: {peer.note}" for peer in peers if peer.note]
                ours = Ours(name, h, which, options.threads)
                for _ in range(options.rounds):
                    for each in [ours, *ready]:
                        each.sample()
                for peer in ready:
                    peer.finish()
                peak = statistics.median(ours.peaks)
                for each in [ours, *peers]:
                    row = {"peer": each.kind, "model": name, "pass": which, "h": h, "batch": MODELS[name][0], "threads": options.threads}
                    if each.samples:
                        seconds = statistics.median(each.samples)
                        row |= {"median_ms": seconds * 1e3, "fastest_ms": min(each.samples) * 1e3, "slowest_ms": max(each.samples) * 1e3}
                        row |= {"gflops": ours.flops / seconds * 1e-9, "percent_of_peak": ours.flops / seconds * 1e-7 / peak}
                        row |= {"memory_mb": each.memory / 2**20, "fma_peak_gflops": peak}
                    else:
                        row["note"] = each.note
                    rows.append(row)
                lines.append(line(name, which, h, rows[-1 - len(peers) :]))
                print("  " + " | ".join(lines[-1]), file=sys.stderr, flush=True)
    head = ["model, batch", "pass", "h", "ours", "% of peak", "eager", "compiled", "DDP or onnxruntime", "ours / fastest peer", "memory, MB: ours, eager, compiled, DDP or onnxruntime"]
    return markdown_table(head, lines) + ("\n\nNot measured:\n\n" + "\n".join(notes) if notes else ""), rows


def line(name: str, which: str, h: str, rows: list[dict]) -> list[str]:
    at = {row["peer"]: row for row in rows}

    def rate(kind: str) -> str:
        row = at.get(kind, {})
        return f"{row['gflops']:.0f}" if "gflops" in row else "-"

    ours = at["ours"]
    fastest = max((row["gflops"] for row in rows if row["peer"] != "ours" and "gflops" in row), default=math.nan)
    ratio = ours["gflops"] / fastest
    memory = ", ".join(f"{row['memory_mb']:.0f}" if "memory_mb" in row else "-" for row in rows)
    return [
        f"{name}, {MODELS[name][0]}",
        which,
        h,
        rate("ours"),
        f"{ours['percent_of_peak']:.0f}",
        rate("eager"),
        rate("torch.compile"),
        rate("DDP" if which == "train" else "onnxruntime"),
        f"{ratio:.2f}",
        memory,
    ]
