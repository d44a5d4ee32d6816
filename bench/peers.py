"""Hinge against what PyTorch offers for the same work, in one process, interleaved.

    pip install torch==2.13.0 numpy setuptools wheel && pip install --no-build-isolation ./python
    python bench/peers.py attention --markdown docs/benchmarks.md --json peers.json --plot docs/peers.svg
    python bench/peers.py vit --markdown docs/benchmarks.md --json peers-vit.json      (needs build/release/bin/hinge)
    python bench/peers.py gemm --threads 1 --workers 2                                 (the same)
    python bench/peers.py inside --markdown docs/benchmarks.md                         (needs timm and transformers)

Every result is compared with float64 before anything is timed. Then all peers are timed in turn, round after round, so that a machine that
changes its speed changes it for all. Legend: B batch, H heads, L length, D head width. Flops counted: forward 4 B H L^2 D,
forward+backward 12 B H L^2 D, whatever a peer really computes. Needs g++ for torch.compile.
"""

import argparse
import gc
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

import gemm_peers
import inside_peers
import translate_peers
import vit_peers
from busy import busy_processes
from report import line_chart, markdown_table, region, require_writable, simd_name, write_atomically, write_markdown

D = 64
LENGTHS = [50, 197, 785, 1024, 4096, 8192]
PASSES = ["forward", "forward+backward"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def batch_and_heads(length: int) -> tuple[int, int]:
    return (8, 6) if length < 1024 else (1, 6)


# ---- The peers ----------------------------------------------------------------------------------------------------------------


def eager_relu(q, k, v):
    return torch.relu(q @ k.mT * (1 / math.sqrt(D))) / k.shape[-2] @ v


def eager_softmax(q, k, v):
    return torch.softmax(q @ k.mT * (1 / math.sqrt(D)), -1) @ v


@dataclass
class Peer:
    name: str
    ours: bool
    h: str  # "relu" or "softmax": what it computes
    make: Callable[[], Callable]  # anew for each problem, so that nothing compiled for another shape is measured
    # L x L float32 matrices in memory at once, a head: forward, forward+backward.
    matrices: tuple[float, float] = (0, 0)
    dtype: str = "float32"


def hinge_package():
    try:
        import hinge
    except ImportError as error:
        sys.exit(f"cannot import hinge ({error}): install it with `pip install --no-build-isolation ./python`")
    return hinge


def make_peers(dtypes: list[str]) -> list[Peer]:
    """All of float32; of several dtypes or another one, Hinge and PyTorch's fused attention in each."""
    hinge = hinge_package()
    peers = [
        Peer("ours relu", True, "relu", lambda: lambda q, k, v: hinge.attention(q, k, v, h="relu")),
        Peer("ours softmax", True, "softmax", lambda: lambda q, k, v: hinge.attention(q, k, v, h="softmax")),
        Peer("eager relu", False, "relu", lambda: eager_relu, (3, 6)),
        Peer("eager softmax", False, "softmax", lambda: eager_softmax, (3, 6)),
        Peer("SDPA", False, "softmax", lambda: F.scaled_dot_product_attention),
        Peer("torch.compile relu", False, "relu", lambda: torch.compile(eager_relu, dynamic=False), (3, 6)),
        Peer("flex_attention", False, "softmax", lambda: torch.compile(flex_attention, dynamic=False)),
    ]
    if dtypes == ["float32"]:
        return peers
    fused = [peer for peer in peers if peer.ours or peer.name == "SDPA"]
    return [peer if dtype == "float32" else replace(peer, name=f"{peer.name}, {dtype}", dtype=dtype) for dtype in dtypes for peer in fused]


# ---- One problem --------------------------------------------------------------------------------------------------------------


def on_grid(*shape: int) -> torch.Tensor:
    """Normal numbers as multiples of 1/16: scores are then exact in float32, and float64 sees the same signs before relu."""
    return torch.round(torch.randn(*shape) * 16) / 16


class Problem:
    def __init__(self, length: int):
        self.length = length
        self.B, self.H = batch_and_heads(length)
        torch.manual_seed(length)
        self.q, self.k, self.v, self.grad_out = (on_grid(self.B, self.H, length, D) for _ in range(4))  # [B, H, L, D]
        # All of it is exact in every dtype.
        self.inputs = {name: [x.to(dtype) for x in (self.q, self.k, self.v)] for name, dtype in DTYPES.items()}
        self.grad_outs = {name: self.grad_out.to(dtype) for name, dtype in DTYPES.items()}
        self.leaves = {name: [x.clone().requires_grad_() for x in inputs] for name, inputs in self.inputs.items()}

    def flops(self, which: str) -> float:
        return (4.0 if which == "forward" else 12.0) * self.B * self.H * self.length**2 * D

    def run(self, function: Callable, which: str, dtype: str) -> list[torch.Tensor]:
        if which == "forward":
            with torch.no_grad():
                return [function(*self.inputs[dtype])]
        leaves = self.leaves[dtype]
        out = function(*leaves)
        return [out, *torch.autograd.grad(out, leaves, self.grad_outs[dtype])]

    def expected(self, h: str) -> list[torch.Tensor]:
        """Output and gradients of the first head in float64, [L, D] each."""
        q, k, v = (x[0, 0].double().requires_grad_() for x in (self.q, self.k, self.v))
        scores = q @ k.mT / math.sqrt(D)
        out = (torch.relu(scores) / self.length if h == "relu" else torch.softmax(scores, -1)) @ v
        return [x.detach() for x in (out, *torch.autograd.grad(out, (q, k, v), self.grad_out[0, 0].double()))]

    def error(self, results: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
        """Largest error as a share of what rounding allows: eps 8 sqrt(L D) (rms + |expected|)."""
        worst = 0.0
        for got, want in zip(results, expected):
            allowed = torch.finfo(got.dtype).eps * 8 * math.sqrt(self.length * D) * (want.square().mean().sqrt() + want.abs())
            error = ((got[0, 0].double() - want).abs() / allowed).max().item()
            worst = max(worst, math.inf if math.isnan(error) else error)
        return worst


def available_bytes() -> int:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))


def seconds_per_call(function: Callable, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


@dataclass
class Row:
    peer: str
    ours: bool
    h: str
    which: str
    B: int
    H: int
    L: int
    threads: int
    note: str = ""  # why there is no number
    samples: list[float] = field(default_factory=list)  # seconds
    flops: float = 0.0
    dtype: str = "float32"

    def gflops(self, quantile: float = 0.5) -> float:
        """Of the sample at this quantile of the times; nan without samples."""
        if not self.samples:
            return math.nan
        times = sorted(self.samples)
        place = quantile * (len(times) - 1)
        low, share = int(place), place - int(place)
        return self.flops / (times[low] * (1 - share) + times[min(low + 1, len(times) - 1)] * share) * 1e-9

    def as_json(self) -> dict:
        row = {"peer": self.peer, "h": self.h, "pass": self.which, "B": self.B, "H": self.H, "L": self.L, "D": D, "threads": self.threads, "dtype": self.dtype}
        if not self.samples:
            return row | {"note": self.note}
        return row | {
            "median_ms": statistics.median(self.samples) * 1e3,
            "fastest_ms": min(self.samples) * 1e3,
            "slowest_ms": max(self.samples) * 1e3,
            "gflops": self.gflops(),
            "gflops_lower_quartile": self.gflops(0.75),
            "gflops_upper_quartile": self.gflops(0.25),
            "rounds": len(self.samples),
        }


def measure(problem: Problem, which: str, peers: list[Peer], threads: int, options: argparse.Namespace) -> list[Row]:
    """Checks every peer on one problem, then times all that can run it."""
    rows, calls = [], {}
    expected = {h: problem.expected(h) for h in ("relu", "softmax")}
    for peer in peers:
        row = Row(peer.name, peer.ours, peer.h, which, problem.B, problem.H, problem.length, threads, flops=problem.flops(which), dtype=peer.dtype)
        rows.append(row)
        needed = peer.matrices[PASSES.index(which)] * problem.B * problem.H * problem.length**2 * 4
        if needed > 0.8 * available_bytes():
            row.note = f"needs {needed / 2**30:.1f} GiB"
            continue
        function = peer.make()
        try:
            results = problem.run(function, which, peer.dtype)
        except Exception as error:  # a peer that cannot do this: say why, go on
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            row.note = f"{type(error).__name__}: {reason}"[:160]
            continue
        error = problem.error(results, expected[peer.h])
        del results
        if not error <= 1:
            if peer.ours:
                sys.exit(f"{peer.name} {which} at L {problem.length} is wrong: {error:.3g} times the allowed error; nothing more is measured")
            row.note = f"wrong result: {error:.3g} times the allowed error"
            continue
        calls[peer.name] = lambda function=function, dtype=peer.dtype: problem.run(function, which, dtype)
    del expected

    # Warm up, find how often a short call must be repeated, and how many rounds fit into the time.
    repeats, round_seconds = {}, 0.0
    for name, call in calls.items():
        call()
        once = seconds_per_call(call, 1)
        repeats[name] = max(1, min(10000, math.ceil(options.sample_seconds / max(once, 1e-9))))
        round_seconds += once * (repeats[name] + 1)
    rounds = max(3, min(options.rounds, int(options.case_seconds / max(round_seconds, 1e-9))))
    by_name = {row.peer: row for row in rows}
    names = list(calls)
    gc.collect()
    gc.disable()
    for number in range(rounds):
        start = number % max(1, len(names))
        for name in names[start:] + names[:start]:
            if repeats[name] > 1:
                calls[name]()  # a short call starts with its data in the cache
            by_name[name].samples.append(seconds_per_call(calls[name], repeats[name]))
    gc.enable()
    return rows


# ---- Tables -------------------------------------------------------------------------------------------------------------------


def ratio_text(ratio: float) -> str:
    return "-" if math.isnan(ratio) else f"{ratio:.2f}"


def tables(rows: list[Row]) -> str:
    text = []
    notes: dict[tuple[str, str, str], list[int]] = {}  # peer, pass, reason: lengths
    for threads in sorted({row.threads for row in rows}, reverse=True):
        for which in PASSES:
            part = [row for row in rows if row.threads == threads and row.which == which]
            if not part:
                continue
            lengths = list(dict.fromkeys(row.L for row in part))
            at = {(row.peer, row.L): row for row in part}
            lines = []
            for name in dict.fromkeys(row.peer for row in part):
                cells = []
                for length in lengths:
                    row = at[name, length]
                    if row.samples:
                        cells.append(f"{row.gflops():.0f} ({row.gflops(0.75):.0f}-{row.gflops(0.25):.0f})")
                    else:
                        cells.append("-")
                        missing = notes.setdefault((name, which, row.note), [])
                        if length not in missing:
                            missing.append(length)
                lines.append([name, *cells])

            def rate(name, length):
                return at[name, length].gflops() if (name, length) in at else math.nan

            def fastest(length):
                measured = [row for row in part if row.L == length and not row.ours and row.dtype == "float32" and row.samples]
                return max(measured, key=Row.gflops, default=None)

            best = [fastest(length) for length in lengths]
            lines.append(["fastest of all peers", *(row.peer if row else "-" for row in best)])
            lines.append(
                ["ours relu / fastest of all"]
                + [ratio_text(rate("ours relu", length) / (row.gflops() if row else math.nan)) for length, row in zip(lengths, best)]
            )
            lines.append(
                ["ours relu / eager relu"]
                + [ratio_text(rate("ours relu", length) / rate("eager relu", length)) for length in lengths]
            )
            lines.append(
                ["ours softmax / SDPA"]
                + [ratio_text(rate("ours softmax", length) / rate("SDPA", length)) for length in lengths]
            )
            for name, dtype in dict.fromkeys((row.peer, row.dtype) for row in part if row.ours and row.dtype != "float32"):
                wide = name.removesuffix(f", {dtype}")
                if (wide, lengths[0]) in at:
                    lines.append([f"{wide}, time in {dtype} / float32"] + [ratio_text(rate(wide, length) / rate(name, length)) for length in lengths])
            head = [f"{which}, {threads} thread{'s' if threads > 1 else ''}"]
            head += ["{}, {}, {}".format(*batch_and_heads(length), length) for length in lengths]
            text.append(markdown_table(head, lines))
    result = "GFLOP/s, median (quartiles), by B, H, L.\n\n" + "\n\n".join(text)
    if notes:
        result += "\n\nNot measured:\n\n" + "\n".join(
            f"* {name}, {which}, L {', '.join(map(str, missing))}: {note}" for (name, which, note), missing in notes.items()
        )
    return result


def cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def simd() -> str:
    return simd_name(hinge_package().simd_target())


# ---- Commands -----------------------------------------------------------------------------------------------------------------


def require_outputs(options: argparse.Namespace) -> None:
    for path in (options.json, getattr(options, "plot", None)):
        if path:
            require_writable(path)
    if options.markdown:
        require_writable(options.markdown, region_of(options))


def region_of(options: argparse.Namespace) -> str:
    return region(f"peers {options.command}", cpu_model(), simd())


def attention(options: argparse.Namespace) -> None:
    require_outputs(options)
    peers = make_peers(options.dtypes)
    rows: list[Row] = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        for length in options.lengths:
            problem = Problem(length)
            for which in PASSES:
                torch._dynamo.reset()  # compiled code is made for one shape and one number of threads
                print(f"L {length}, {which}, {threads} thread(s) ...", file=sys.stderr, flush=True)
                rows += measure(problem, which, peers, threads, options)

    machine = {"cpu": cpu_model(), "simd": simd(), "cores": len(os.sched_getaffinity(0)), "torch": torch.__version__}
    about = f"{machine['cpu']}, {machine['simd']}, {machine['cores']} cores, PyTorch {machine['torch']}, {', '.join(options.dtypes)}, D {D}"
    command = "python bench/peers.py " + " ".join(sys.argv[1:])
    text = f"`{command}`\n\n{about}. {tables(rows)}"
    print(text)
    if options.json:
        results = {"machine": machine, "results": [row.as_json() for row in rows]}
        write_atomically(options.json, json.dumps(results, indent=2) + "\n")
    if options.markdown:
        write_markdown(options.markdown, region_of(options), text)
    if options.plot:
        threads, panels = max(options.threads), []
        for which in PASSES:
            series: dict[str, dict[int, float]] = {}
            for row in rows:
                if row.threads == threads and row.which == which and row.samples:
                    series.setdefault(row.peer, {})[row.L] = row.gflops()
            panels.append((which, "length L (B 8 below 1024, B 1 from there on)", series))
        title = f"Attention on {threads} thread{'s' if threads > 1 else ''}"
        write_atomically(options.plot, line_chart(title, about, "GFLOP/s", panels))


def models(options: argparse.Namespace, compare, unit: str) -> None:
    require_outputs(options)
    with busy_processes(options.busy):
        table, rows = compare(options)
    beside = f", next to {options.busy} busy process{'es' if options.busy > 1 else ''}" if options.busy else ""
    about = f"{cpu_model()}, {simd()}, {options.threads} threads, PyTorch {torch.__version__}, float32; {unit}, medians of {options.rounds} rounds{beside}"
    text = f"`python bench/peers.py {' '.join(sys.argv[1:])}`\n\n{about}.\n\n{table}"
    print(text)
    if options.json:
        write_atomically(options.json, json.dumps({"machine": {"cpu": cpu_model(), "simd": simd(), "torch": torch.__version__}, "results": rows}, indent=2) + "\n")
    if options.markdown:
        write_markdown(options.markdown, region_of(options), text)


def whole_numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of different whole numbers, such as 50,197")
    return numbers


def known_dtypes(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in DTYPES]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; known are {', '.join(DTYPES)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("attention", help="forward and forward+backward of attention", allow_abbrev=False)
    cores = len(os.sched_getaffinity(0))
    what = command.add_argument_group("what to measure")
    what.add_argument("--lengths", type=whole_numbers, metavar="LIST", help="lengths L (default: 50,197,785,1024,4096,8192)")
    what.add_argument("--threads", type=whole_numbers, metavar="LIST", default=sorted({1, min(2, cores)}), help="threads (default: 1,2)")
    what.add_argument("--dtypes", type=known_dtypes, metavar="LIST", default=["float32"], help=f"out of {','.join(DTYPES)}; with others than float32, only Hinge and SDPA (default: float32)")
    what.add_argument("--quick", action="store_true", help="three lengths, 3 rounds: a first look")
    output = command.add_argument_group("output")
    output.add_argument("--json", metavar="FILE", help="write the numbers")
    output.add_argument(
        "--markdown", metavar="FILE", help="write the tables; an existing FILE must have the marks <!-- begin: peers attention VENDOR SIMD --> and end, such as AMD AVX2"
    )
    output.add_argument("--plot", metavar="FILE", help="draw GFLOP/s over L as SVG")
    for name, help, chosen, known in (
        ("gemm", "dense products of the models", "--models", gemm_peers.MODELS),
        ("vit", "training steps and inference of whole vision transformers", "--models", list(vit_peers.MODELS)),
        ("translate", "training steps and decoding of whole translation models", "--cases", list(translate_peers.CASES)),
        ("inside", "whole models of timm and transformers, HSTU's reference path, relu by flex_attention", "--cases", inside_peers.CASES),
    ):
        command = commands.add_parser(name, help=help, allow_abbrev=False)
        command.add_argument(chosen, type=lambda text: text.split(","), default=known, metavar="LIST", help=f"out of {','.join(known)} (default: all)")
        command.add_argument("--threads", type=int, default=min(2, cores), help="threads (default: 2)")
        if name == "gemm":
            command.add_argument("--workers", type=int, default=1, help="cut the batch for as many workers, and measure the part of one (default: 1)")
        if name == "vit":
            passes = ["train", "infer"]
            command.add_argument("--passes", type=lambda text: text.split(","), default=passes, metavar="LIST", help="out of train,infer (default: both)")
        command.add_argument("--rounds", type=int, default=7, help="samples of every case (default: 7)")
        command.add_argument("--busy", type=int, default=0, metavar="N", help="measure next to N processes that keep a core busy (default: 0)")
        command.add_argument("--json", metavar="FILE", help="write the numbers")
        command.add_argument("--markdown", metavar="FILE", help=f"write the table; an existing FILE must have the marks <!-- begin: peers {name} VENDOR SIMD --> and end, such as AMD AVX2")
    command = commands.add_parser("gemm-worker")  # the peer of `gemm`
    command.add_argument("threads")
    command = commands.add_parser("vit-worker")  # one peer of `vit`
    for name in ("kind", "model", "h", "which", "threads"):
        command.add_argument(name)
    command = commands.add_parser("translate-worker")  # one peer of `translate`
    for name in ("kind", "threads"):
        command.add_argument(name)
    options = parser.parse_args()
    if options.command == "gemm":
        return models(options, gemm_peers.compare, "GFLOP/s")
    if options.command == "gemm-worker":
        return gemm_peers.worker(int(options.threads))
    if options.command == "vit":
        return models(options, vit_peers.compare, "GFLOP/s")
    if options.command == "translate":
        return models(options, translate_peers.compare, "target tokens/s")
    if options.command == "inside":
        return models(options, inside_peers.compare, "milliseconds")
    if options.command == "translate-worker":
        return translate_peers.worker(options.kind, int(options.threads))
    if options.command == "vit-worker":
        return vit_peers.worker(options.kind, options.model, options.h, options.which, int(options.threads))
    if options.lengths is None:
        options.lengths = [50, 197, 785] if options.quick else LENGTHS
    options.rounds = 3 if options.quick else 15
    options.sample_seconds = 0.005 if options.quick else 0.02  # shorter calls are repeated until a sample lasts this long
    options.case_seconds = 10 if options.quick else 60  # fewer rounds, but at least 3, where they would last longer
    attention(options)


if __name__ == "__main__":
    main()
