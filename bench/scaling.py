#!/usr/bin/env python3
"""Training over processes: what it measures, and what models of the exchange say about more machines and other links.

  bench/scaling.py measure --json out/scaling.json           1, 2 and 4 processes of one thread, then as network namespaces (root)
  bench/scaling.py model [--measured out/scaling.json]       seconds per step at 2 to 1,024 machines, for S/16 and L/16
  bench/scaling.py sequence                                  attention split over the tokens, on links of several speeds (root)

Only the standard library is needed.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[1]
HINGE = ROOT / "build/release/bin/hinge"

# S/16 at 64 pixels: the real width and depth, so the real gradient, with short sequences, so that a step takes seconds.
CONFIG = """
task = "vision"
[model]
size = "S/16"
image_size = {pixels}
classes = 1000
[data]
format = "synthetic"
synthetic_count = 256
synthetic_classes = 1000
synthetic_size = {pixels}
train_pp = "value_range(-1,1)"
eval_pp = "value_range(-1,1)"
[optim]
batch = {batch}
steps = {steps}
[train]
shards = 4
workers = {workers}
threads = 1
eval_every = 10000
checkpoint_every = 10000
"""


def status(run):
    return json.loads((run / "status.json").read_text())["values"]


def measure_one(folder, name, arguments, processes, namespaces, rate):
    stem = "".join(letter if letter.isalnum() else "-" for letter in name)
    config, run = folder / f"{stem}.toml", folder / stem
    config.write_text(CONFIG.format(workers=arguments.workers, steps=arguments.steps,
                                    batch=arguments.batch, pixels=arguments.pixels))  # fmt: skip
    train = ["train", config, "--out", run]
    if namespaces:
        sys.path.insert(0, str(ROOT / "python/tests"))
        from machines import ADDRESSES, Machines

        with Machines(rate=rate) as two:
            launch = ["launch", "-n", str(processes // 2), "--nodes", ",".join(ADDRESSES)]
            command = lambda i: ["env", "HINGE_TOKEN=bench", HINGE, *launch, "--node", str(i), "--", *train]  # noqa: E731
            started = [two.start(i, command(i), stdout=subprocess.DEVNULL) for i in range(2)]
            codes = [process.wait() for process in started]
        if any(codes):
            sys.exit(f"{name}: exit codes {codes}")
    else:
        launch = ["launch", "-n", str(processes), "--"] if processes > 1 else []
        subprocess.run([HINGE, *launch, *train], check=True, stdout=subprocess.DEVNULL)
    values = status(run)
    steps = arguments.steps
    result = {"name": name, "processes": processes, "images_per_second": values["images_per_second"],
              "seconds_per_step": values["train_seconds"] / steps, "parameters": values["parameters"], "flops": values["flops"]}  # fmt: skip
    if processes > 1:
        busy, waited = values["exchange_seconds"], values["exchange_waited_seconds"]
        result |= {"bytes_per_step": values["bytes_sent"] / steps, "exchange_per_step": busy / steps, "waited_per_step": waited / steps,
                   "hidden_share": max(0.0, 1 - waited / busy) if busy else 1.0}  # fmt: skip
    return result


def measure(arguments):
    cases = [("one process, 1 worker", 1, 1, False, None), ("one process, 2 workers", 1, 2, False, None),
             ("2 processes", 2, 1, False, None), ("one process, 4 workers", 1, 4, False, None), ("4 processes", 4, 1, False, None)]  # fmt: skip
    if not arguments.local:
        cases += [("2 namespaces, veth", 2, 1, True, None), ("2 namespaces, 1 Gbit/s", 2, 1, True, "1gbit"),
                  ("2 namespaces, 100 Mbit/s", 2, 1, True, "100mbit")]  # fmt: skip
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, processes, workers, namespaces, rate in cases:
            arguments.workers = workers
            results.append(measure_one(pathlib.Path(folder), name, arguments, processes, namespaces, rate))
    print("| | images/s | s per step | MB sent per step | exchange, s per step | of it hidden |\n|---|---:|---:|---:|---:|---:|")
    for result in results:
        cells = [result["name"], f"{result['images_per_second']:.1f}", f"{result['seconds_per_step']:.3f}"]
        if "bytes_per_step" in result:
            cells += [f"{result['bytes_per_step'] / 1e6:.1f}", f"{result['exchange_per_step']:.3f}", f"{100 * result['hidden_share']:.0f}%"]
        else:
            cells += ["-", "-", "-"]
        print("| " + " | ".join(cells) + " |")
    if arguments.json:
        pathlib.Path(arguments.json).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1))


# Parameters, and floating-point operations of forward and backward for an image of 224 x 224 pixels.
MODELS = {"S/16": (22.1e6, 27.6e9), "L/16": (304e6, 369e9)}


def seconds_per_step(parameters, compute, machines, bandwidth, latency, memory=5e9):
    """Compute, the exchange, and the part of the exchange that is not hidden. The terms are those of docs/scaling.md."""
    gradient = 4 * parameters
    first, other = 1 << 20, 25 << 20
    buckets = 1 + math.ceil(max(0, gradient - first) / other)
    if machines == 1:
        return compute, 0.0, 0.0
    wire = 2 * gradient * (machines - 1) / machines / bandwidth
    rounds = buckets * machines * latency
    exchange = wire + rounds + gradient / memory
    last = exchange / buckets  # nothing hides the last bucket
    hideable = 2 / 3 * compute * (1 - first / gradient)
    waited = max(last, exchange - hideable) + machines * latency  # then all learn each other's losses
    return compute + waited, exchange, waited


def model(arguments):
    share = f"{arguments.total} images per step on all together" if arguments.total else f"{arguments.images} images per step"
    print(f"Each machine: {arguments.gflops:.0f} GFLOP/s, {share}; "
          f"network: {arguments.gbits:g} Gbit/s, {1e6 * arguments.latency:.0f} us")  # fmt: skip
    print("| model | machines | s per step | exchange, s | not hidden, s | efficiency |\n|---|---:|---:|---:|---:|---:|")
    for name, (parameters, flops) in MODELS.items():
        for machines in (1, 2, 8, 64, 256, 1024):
            images = arguments.total / machines if arguments.total else arguments.images
            compute = images * flops / (1e9 * arguments.gflops)
            step, exchange, waited = seconds_per_step(parameters, compute, machines, arguments.gbits * 1e9 / 8, arguments.latency)
            print(f"| {name} | {machines} | {step:.2f} | {exchange:.2f} | {waited:.2f} | {100 * compute / step:.0f}% |")
    if not arguments.measured:
        return
    print("\nThe same formula for what was measured:\n| | s per step | model |\n|---|---:|---:|")
    results = json.loads(pathlib.Path(arguments.measured).read_text())
    alone = {1: results[0]["seconds_per_step"]}
    for result in results:
        if result["name"].startswith("one process"):
            alone[int(result["name"].split()[2])] = result["seconds_per_step"]
    rates = {"veth": None, "1 Gbit/s": 1.0, "100 Mbit/s": 0.1}
    for result in results:
        if result["processes"] == 1:
            continue
        network = result["name"].split(", ")[-1]
        gbits = rates.get(network) or arguments.local_gbits
        # The processes share this machine's cores: their compute is that of as many workers of one process.
        compute = alone.get(result["processes"], alone[1])
        step, _, _ = seconds_per_step(result["parameters"], compute, result["processes"], gbits * 1e9 / 8, 50e-6)
        print(f"| {result['name']} | {result['seconds_per_step']:.3f} | {step:.3f} |")


# Links between two machines: bits per second and seconds in one direction; None: what there is.
LINKS = {
    "veth": (None, None), "1 Gbit/s": ("1gbit", None), "100 Mbit/s": ("100mbit", None),
    "1 ms": (None, 0.001), "10 ms": (None, 0.01),
}  # fmt: skip
RATES = {None: None, "1gbit": 1e9, "100mbit": 1e8}


def sequence_on(link, arguments, folder):
    rate, delay = LINKS[link]
    sys.path.insert(0, str(ROOT / "python/tests"))
    from machines import ADDRESSES, Machines

    out = folder / "sequence.json"
    bench = ["bench", "sequence", "--tokens", arguments.tokens, "--heads", arguments.heads, "--kv-heads", arguments.kv_heads,
             "--width", arguments.width, "--batch", arguments.batch, "--rounds", arguments.rounds, "--kinds", arguments.kinds,
             "--threads", 1]  # fmt: skip
    bench += ["--causal"] if arguments.causal else []
    with Machines(relayed=delay is not None, rate=rate) as two:
        if delay:
            two.relay.delay = delay
        launch = ["launch", "-n", arguments.processes, "--nodes", ",".join(ADDRESSES)]
        command = lambda i: ["env", "HINGE_TOKEN=bench", HINGE, *launch, "--node", i, "--", *bench]  # noqa: E731
        commands = [command(0) + ["--json", out], command(1)]
        started = [two.start(i, commands[i], stdout=subprocess.DEVNULL) for i in range(2)]
        codes = [process.wait() for process in started]
    if any(codes):
        sys.exit(f"{link}: exit codes {codes}")
    return json.loads(out.read_text())


def sequence(arguments):
    """Attention of one layer: what is sent, the time, and that of computing + round trips + bytes / bandwidth beside it."""
    links = list(LINKS) if not arguments.links else arguments.links.split(",")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for link in links:
            results[link] = sequence_on(link, arguments, pathlib.Path(folder))
    first = results[links[0]]
    print(f"{first['cpu']}, {first['simd']}; {first['ranks']} ranks of {first['threads']} thread, 2 machines (network namespaces); "
          f"batch {first['batch']}, {first['tokens']} tokens, {first['heads']} heads ({first['kv_heads']} of keys), D {first['width']}"
          f"{', causal' if first['causal'] else ''}, float32; medians of {arguments.rounds}\n")  # fmt: skip
    print("| | travels | pass | rounds | messages | MB sent | computing, ms | " + " | ".join(f"{link}, ms" for link in links) + " |")
    print("|---|---|---|---:|---:|---:|---:|" + "---:|" * len(links))
    for i, row in enumerate(first["rows"]):
        cells = [row["kind"], row["travels"], row["pass"], row["rounds"], row["messages"], f"{row['bytes'] / 1e6:.3f}",
                 f"{row['alone_ms']:.1f}" if row["travels"] else ""]  # fmt: skip
        for link in links:
            one = results[link]["rows"][i]
            cells.append(f"{one['median_ms']:.1f}")
            rate, delay = RATES[LINKS[link][0]], LINKS[link][1]
            if rate or delay:
                # A round is a round trip: Gloo sends once the receiver has said that it waits.
                model = one["alone_ms"] + one["rounds"] * 2e3 * (delay or 0) + 8e3 * one["bytes"] / (rate or 1e99)
                cells[-1] += f" ({model:.1f})"
        print("| " + " | ".join(map(str, cells)) + " |")
    print("\nIn brackets: computing + round trips + bytes / bandwidth, of what the link's name says.")
    if arguments.json:
        pathlib.Path(arguments.json).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("--steps", type=int, default=10)
    one.add_argument("--batch", type=int, default=64)
    one.add_argument("--pixels", type=int, default=64)
    one.add_argument("--local", action="store_true", help="no namespaces")
    one.add_argument("--json")
    two = commands.add_parser("model")
    two.add_argument("--gflops", type=float, default=447, help="of a machine in training (docs/benchmarks.md)")
    two.add_argument("--images", type=int, default=64, help="of a machine in a step")
    two.add_argument("--total", type=int, help="images of a step on all machines together, instead of --images")
    two.add_argument("--gbits", type=float, default=10)
    two.add_argument("--latency", type=float, default=50e-6, help="seconds of a message")
    two.add_argument("--local-gbits", type=float, default=20, help="of loopback and veth")
    two.add_argument("--measured", help="compare with the results of measure --json")
    three = commands.add_parser("sequence")
    three.add_argument("--links", help=f"some of {', '.join(LINKS)}, separated by commas; all")
    three.add_argument("--processes", type=int, default=1, help="of each of the two machines")
    for name, value in (("tokens", 4096), ("batch", 1), ("heads", 6), ("width", 64), ("rounds", 7)):
        three.add_argument(f"--{name}", type=int, default=value)
    three.add_argument("--kv-heads", type=int, help="heads of keys and values; as many as --heads")
    three.add_argument("--kinds", default="relu,relu/keys,softmax,softmax/keys")
    three.add_argument("--causal", action="store_true")
    three.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.command == "sequence":
        arguments.kv_heads = arguments.kv_heads or arguments.heads
    {"measure": measure, "model": model, "sequence": sequence}[arguments.command](arguments)


if __name__ == "__main__":
    main()
