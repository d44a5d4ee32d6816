"""What the exact zeros of trained relu attention save, in time: the attention of each block of a run of `hinge train`, on the queries, keys
and values that its test images give, beside independent normal numbers of the same shapes, of which next to no group of weights is zero.

    hinge train configs/vit/small28.toml --set model.patch=2 --out runs/L196
    python bench/zeros.py runs/L196

Runs on Fashion-MNIST only. Both take turns; medians. Needs the Python package (`make python`).
"""

import argparse
import gzip
import statistics
import time
from pathlib import Path

import hinge
import hinge.modules
import torch
from report import markdown_table


def test_images(run: hinge.runs.Run, count: int) -> torch.Tensor:
    """[count, 1, 28, 28], as the run's models see them."""
    data = run.config["data"]
    if data["format"] != "fashion-mnist" or data["eval_pp"] != "value_range(-1,1)":
        raise SystemExit(f"{run.folder} is not a run on Fashion-MNIST whose images are only brought to -1 ... 1")
    folder = Path(data["path"] or "/usr/share/datasets/fashion-mnist")
    with gzip.open(folder / "t10k-images-idx3-ubyte.gz") as file:
        file.read(16)
        pixels = torch.frombuffer(bytearray(file.read(count * 28 * 28)), dtype=torch.uint8)
    return pixels.view(count, 1, 28, 28).float() / 127.5 - 1


def attention_calls(model: torch.nn.Module, images: torch.Tensor) -> list[tuple[list[torch.Tensor], dict]]:
    """q, k, v and the options of each block's attention."""
    calls = []
    original = hinge.modules.attend

    def recorded(module, q, k, v, **options):
        calls.append(([tensor.detach() for tensor in (q, k, v)], options))
        return original(module, q, k, v, **options)

    hinge.modules.attend = recorded
    try:
        with torch.no_grad():
            model(images)
    finally:
        hinge.modules.attend = original
    return calls


def forward(tensors: list[torch.Tensor], options: dict) -> None:
    with torch.no_grad():
        hinge.attention(*tensors, **options)


def forward_and_backward(tensors: list[torch.Tensor], options: dict) -> None:
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    out = hinge.attention(*leaves, **options)
    out.backward(tensors[2])


def speedup(trained: list[torch.Tensor], random: list[torch.Tensor], options: dict, work, rounds: int) -> float:
    """Time on random numbers by time on those of the trained model."""
    seconds: dict[str, list[float]] = {"trained": [], "random": []}
    for _ in range(rounds):
        for name, tensors in (("trained", trained), ("random", random)):
            start = time.perf_counter()
            for _ in range(5):
                work(tensors, options)
            seconds[name].append(time.perf_counter() - start)
    return statistics.median(seconds["random"][1:]) / statistics.median(seconds["trained"][1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="runs of hinge train")
    parser.add_argument("--images", type=int, default=64, help="test images (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=30, help="samples of every case (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(default: %(default)s)")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = []
    for folder in options.runs:
        model = hinge.load_run(folder, "latest")
        for block, (tensors, call) in enumerate(attention_calls(model, test_images(model.run, options.images))):
            random = [torch.randn(tensor.shape) for tensor in tensors]
            call = {name: value for name, value in call.items() if name != "return_statistics"}
            _, numbers = hinge.attention(*tensors, **call, return_statistics=True)
            rows.append([
                Path(folder).name, str(tensors[0].shape[2]), str(block),
                f"{numbers.zero_share.mean().item():.0%}", f"{numbers.skipped_share.mean().item():.0%}",
                f"{speedup(tensors, random, call, forward, options.rounds):.2f}",
                f"{speedup(tensors, random, call, forward_and_backward, options.rounds):.2f}",
            ])  # fmt: skip
    print(markdown_table(["run", "tokens", "block", "zero weights", "skipped", "speed, forward", "speed, forward + backward"], rows))


if __name__ == "__main__":
    main()
