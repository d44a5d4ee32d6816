"""The rate of `hinge train` with its default workers, with one worker that has all threads, and of independent one-thread trainings, one per
core, with their share of the batch each, added up; alone, and next to one busy process. All take turns. Standard library only.

    python3 bench/workers.py configs/vit/demo.toml configs/vit/fashion.toml --rounds 3
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from busy import busy_processes
from report import markdown_table



def train(hinge: str, config: str, steps: int, changes: list[str], out: Path) -> subprocess.Popen:
    """A training of a few steps that has started. Nothing is evaluated before its end."""
    command = [hinge, "train", config, "--out", str(out)]
    for change in [f"optim.steps={steps}", "train.eval_every=1000", "train.checkpoint_every=1000", *changes]:
        command += ["--set", change]
    environment = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def rate(processes: list[tuple[subprocess.Popen, Path]]) -> tuple[float, str]:
    """Waits for trainings that run side by side; the sum of their rates, and its unit."""
    total, unit = 0.0, ""
    for process, out in processes:
        output, _ = process.communicate()
        if process.returncode:
            for other, _ in processes:
                other.kill()
            sys.exit(f"{' '.join(process.args)} failed:\n{output}")
        values = json.loads((out / "status.json").read_text())["values"]
        name = next(name for name in values if name.endswith("_per_second"))
        total, unit = total + values[name], name.removesuffix("_per_second") + "/s"
    return total, unit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", help="configs of hinge train")
    parser.add_argument("--hinge", default="build/release/bin/hinge", help="the command (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=400, help="steps of a sample (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="samples of every case (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of every config")
    options = parser.parse_args()

    cores = len(os.sched_getaffinity(0))
    rows = []
    for config in options.configs:
        text = Path(config).read_text()
        batch = int(re.search(r"^batch = (\d+)", text, re.MULTILINE).group(1))
        together = {
            "default": [],
            "one worker": ["train.workers=1", f"train.threads={cores}"],
        }
        alone = ["train.workers=1", "train.threads=1", f"optim.batch={batch // cores}"]
        for busy in (0, 1):
            samples: dict[str, list[float]] = {}
            for _ in range(options.rounds):
                for name in [*together, f"{cores} processes"]:
                    with tempfile.TemporaryDirectory() as folder, busy_processes(busy):
                        outs = [Path(folder) / str(k) for k in range(1 if name in together else cores)]
                        changes = options.set + together.get(name, alone)
                        started = [(train(options.hinge, config, options.steps, changes, out), out) for out in outs]
                        value, unit = rate(started)
                    samples.setdefault(name, []).append(value)
            medians = {name: statistics.median(values) for name, values in samples.items()}
            line = [f"{config}, {unit}", "one busy process" if busy else "none", *(f"{medians[name]:.0f}" for name in samples)]
            line += [f"{medians['default'] / medians[name]:.2f}" for name in list(samples)[1:]]
            rows.append(line)
            print(line, {name: [round(v) for v in values] for name, values in samples.items()}, file=sys.stderr, flush=True)
    names = ["default", "one worker", f"{cores} processes"]
    print(markdown_table(["config", "other load", *names, *(f"default / {name}" for name in names[1:])], rows))


if __name__ == "__main__":
    main()
