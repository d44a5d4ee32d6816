"""Hinge's attention inside the libraries that people use: whole models of timm and transformers, HSTU's reference path, flex_attention.

In one process, interleaved; every result is compared before anything is timed.

Models: a step of training or an inference of a ViT-S/16 with scaled_dot_product_attention, with hinge.replace_attention's softmax and with
its relu. Attention by itself is timed in the same rounds, at the model's shape. The time that it has in the model with SDPA, and what Hinge
saves of it, say how much faster the whole model could become; the last columns say how much of that came true.

HSTU: SiLU attention over jagged sequences as the PyTorch path of generative recommenders computes it: padded to the longest sequence, scores
as a matrix, a causal mask, divided by the longest length. relu by flex_attention: its scores are log relu(x), its softmax is undone by the
log-sum-exp that it returns. Compiled for CPUs it returns none (PyTorch 2.13): there, a key with a known weight shows what its softmax has
divided by.
"""

import gc
import math
import statistics
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from report import markdown_table
from torch.nn.attention.flex_attention import AuxRequest, flex_attention
from torchvision_operators import define_missing

BATCH, IMAGE, PATCH, WIDTH, DEPTH, HEADS, CLASSES = 8, 224, 16, 384, 12, 6, 1000
LENGTH, D = (IMAGE // PATCH) ** 2 + 1, WIDTH // HEADS
CASES = ["timm", "transformers", "hstu", "flex"]
PEERS = ["SDPA", "hinge softmax", "hinge relu"]


def eager_relu(q, k, v, *_, **__):
    return torch.relu(q @ k.mT / math.sqrt(q.shape[-1])) / k.shape[-2] @ v


class eager_relu_for_sdpa:
    """While it lasts, what calls scaled_dot_product_attention gets relu attention in plain tensor operations."""

    def __enter__(self):
        self.saved, F.scaled_dot_product_attention = F.scaled_dot_product_attention, eager_relu

    def __exit__(self, *_):
        F.scaled_dot_product_attention = self.saved


# ---- Whole models -------------------------------------------------------------------------------------------------------------


def timm_vit():
    define_missing()
    import timm

    return timm.create_model("vit_small_patch16_224", num_classes=CLASSES)


def transformers_vit():
    define_missing()
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=4 * WIDTH, image_size=IMAGE,
                       patch_size=PATCH, num_labels=CLASSES, attn_implementation="sdpa", attention_probs_dropout_prob=0.0,
                       hidden_dropout_prob=0.0)  # fmt: skip
    model = ViTForImageClassification(config)
    forward = model.forward
    model.forward = lambda images: forward(pixel_values=images).logits
    return model


def models(make) -> dict[str, torch.nn.Module]:
    import hinge

    made = {}
    for peer in PEERS:
        torch.manual_seed(0)
        made[peer] = make()
        if peer != "SDPA":
            hinge.replace_attention(made[peer], h=peer.split()[1])
    return made


def check_models(name: str, made: dict[str, torch.nn.Module], images: torch.Tensor) -> None:
    with torch.no_grad():
        expected = {"hinge softmax": made["SDPA"].eval()(images)}
        with eager_relu_for_sdpa():
            expected["hinge relu"] = made["SDPA"](images)
        for peer, logits in expected.items():
            error = (made[peer].eval()(images) - logits).abs().max() / logits.abs().max()
            if not error < 1e-4:
                sys.exit(f"{name} with {peer} is wrong: its logits are off by {error:.2g} of the largest one; nothing is measured")


def measure_models(name: str, make, rounds: int) -> list[dict]:
    import hinge

    made = models(make)
    torch.manual_seed(1)
    images, labels = torch.randn(BATCH, 3, IMAGE, IMAGE), torch.arange(BATCH)
    check_models(name, made, images)
    optimisers = {peer: torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True) for peer, model in made.items()}
    q, k, v, grad = (torch.randn(BATCH, LENGTH, HEADS, D).transpose(1, 2) for _ in range(4))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    attentions = {
        "SDPA": F.scaled_dot_product_attention,
        "hinge softmax": lambda q, k, v: hinge.attention(q, k, v, h="softmax"),
        "hinge relu": lambda q, k, v: hinge.attention(q, k, v, h="relu"),
    }

    def train(peer):
        optimisers[peer].zero_grad(set_to_none=True)
        F.cross_entropy(made[peer].train()(images), labels).backward()
        optimisers[peer].step()

    def infer(peer):
        with torch.inference_mode():
            made[peer].eval()(images)

    def attention_forward(peer):
        with torch.inference_mode():
            for _ in range(DEPTH):
                attentions[peer](q, k, v)

    def attention_both(peer):
        for _ in range(DEPTH):
            torch.autograd.grad(attentions[peer](*leaves), leaves, grad)

    rows = []
    for which, whole, alone in (("training", train, attention_both), ("inference", infer, attention_forward)):
        calls = {(peer, part): (lambda f=f, peer=peer: f(peer)) for peer in PEERS for part, f in (("model", whole), ("attention", alone))}
        times = in_turn(calls, rounds)
        sdpa, alone_sdpa = times["SDPA", "model"], times["SDPA", "attention"]
        for peer in PEERS:
            model, alone_ours = times[peer, "model"], times[peer, "attention"]
            saved = alone_sdpa - alone_ours
            rows.append({
                "case": name, "pass": which, "peer": peer, "model_ms": model * 1e3, "attention_ms": alone_ours * 1e3,
                "attention_share": alone_ours / model, "speedup": sdpa / model, "possible_speedup": sdpa / (sdpa - saved),
                "share_of_gain": (sdpa - model) / saved if saved > 0.01 * sdpa else None, "rounds": rounds,
            })  # fmt: skip
            show(rows[-1])
    return rows


# ---- One attention ------------------------------------------------------------------------------------------------------------


def hstu_reference(q, k, v, places, batch, longest):
    """q, k, v [T, H, D] of sequences that follow one another; SiLU of the scores, divided by the longest length, causal. `places`: where each
    row is when sequences are padded to the longest."""
    H = q.shape[1]
    padded = (x.new_zeros(batch * longest, H, D).index_copy(0, places, x) for x in (q, k, v))
    q, k, v = (x.view(batch, longest, H, D).transpose(1, 2) for x in padded)
    weights = F.silu(q @ k.mT / math.sqrt(D)) / longest
    return (weights.tril() @ v).transpose(1, 2).reshape(batch * longest, H, D)[places]


def measure_hstu(rounds: int) -> list[dict]:
    import hinge

    torch.manual_seed(2)
    rows = []
    for B, H, longest in ((32, 4, 200), (8, 4, 1000)):
        # Histories are as long as about half of the longest on average.
        lengths = torch.randint(1, longest + 1, (B,))
        lengths[0] = longest
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        places = torch.cat([torch.arange(n) + row * longest for row, n in enumerate(lengths.tolist())])
        q, k, v, grad = (torch.randn(int(offsets[-1]), H, D) for _ in range(4))
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]

        def ours(q, k, v):
            q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
            options = {"length_rule": "fixed", "length_n": float(longest), "is_causal": True, "q_offsets": offsets, "k_offsets": offsets}
            out = hinge.attention(q, k, v, h="silu", **options)
            return out[0].transpose(0, 1)

        def reference(q, k, v):
            return hstu_reference(q, k, v, places, B, longest)

        doubles = [x.double().requires_grad_() for x in (q, k, v)]
        expected = reference(*doubles)
        expected = [expected, *torch.autograd.grad(expected, doubles, grad.double())]

        def error(function):
            out = function(*leaves)
            got = [out, *torch.autograd.grad(out, leaves, grad)]
            return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(got, expected))

        errors = {"HSTU's PyTorch path": error(reference), "hinge silu": error(ours)}
        require_right("HSTU", errors["hinge silu"])
        for which, both in (("forward", False), ("forward+backward", True)):
            functions = {"HSTU's PyTorch path": reference, "hinge silu": ours}
            rows += compare_all(f"HSTU, B {B}, H {H}, up to {longest} tokens", which, functions, errors, leaves, grad if both else None, rounds)
    return rows


def flex_relu(q, k, v):
    """relu attention in the way of attention-gym: exp(log relu(x)) is relu(x), and out * exp(lse) is without the division of softmax."""

    def log_relu(score, b, h, q, kv):
        return torch.log(torch.relu(score))

    out, more = flex_attention(q, k, v, score_mod=log_relu, return_aux=AuxRequest(lse=True))
    return out * more.lse.exp()[..., None] / k.shape[-2]


def flex_relu_compiled():
    """The same, compiled: one key more has the weight 1, and the value 1 in a column of its own, which the softmax makes 1 by its divisor."""

    def run(q, k, v):
        L = k.shape[-2]

        def log_relu(score, b, h, q, kv):
            return torch.where(kv == L, 0.0, torch.log(torch.relu(score)))

        v = F.pad(v, (0, 1, 0, 1))
        v[..., L, -1] = 1
        out = flex_attention(q, F.pad(k, (0, 0, 0, 1)), v, score_mod=log_relu)
        return out[..., :-1] / out[..., -1:] / L

    return torch.compile(run, dynamic=False)


def measure_flex(rounds: int) -> list[dict]:
    import hinge

    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    rows = []
    for B, H, L in ((8, 6, 197), (1, 6, 1024)):
        torch.manual_seed(3)
        q, k, v = (torch.randn(B, H, L, D) for _ in range(3))
        expected = eager_relu(*(x.double() for x in (q, k, v)))
        functions = {
            "flex_attention, compiled": flex_relu_compiled(),
            "flex_attention, uncompiled": flex_relu,
            "hinge relu": lambda q, k, v: hinge.attention(q, k, v, h="relu"),
        }
        errors = {}
        with torch.no_grad():
            for name, function in functions.items():
                errors[name] = ((function(q, k, v) - expected).abs().max() / expected.abs().max()).item()
        require_right("relu", errors["hinge relu"])
        rows += compare_all(f"relu, B {B}, H {H}, L {L}", "forward", functions, errors, [q, k, v], None, rounds)
    return rows


def require_right(name: str, error: float) -> None:
    if not error < 1e-5:
        sys.exit(f"{name}: Hinge's result is off by {error:.2g} of the largest number; nothing is measured")


def compare_all(case, which, functions, errors, inputs, grad, rounds) -> list[dict]:
    def call(function):
        if grad is None:
            with torch.no_grad():
                return function(*(x.detach() for x in inputs))
        return torch.autograd.grad(function(*inputs), inputs, grad)

    times = in_turn({name: (lambda f=f: call(f)) for name, f in functions.items()}, rounds)
    first = next(iter(functions))
    rows = [
        {"case": case, "pass": which, "peer": name, "ms": times[name] * 1e3, "error": errors[name], "speedup": times[first] / times[name], "rounds": rounds}
        for name in functions
    ]
    for row in rows:
        show(row)
    return rows


# ---- All of it ----------------------------------------------------------------------------------------------------------------


def in_turn(calls: dict, rounds: int) -> dict:
    """The median seconds of each call; in every round each has its turn, beginning with another one."""
    samples = {name: [] for name in calls}
    for call in calls.values():
        call()  # warm
    gc.collect()
    gc.disable()
    names = list(calls)
    for number in range(rounds):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            begin = time.perf_counter()
            calls[name]()
            samples[name].append(time.perf_counter() - begin)
    gc.enable()
    return {name: statistics.median(times) for name, times in samples.items()}


def compare(options) -> tuple[str, list[dict]]:
    torch.set_num_threads(options.threads)
    unknown = set(options.cases) - set(CASES)
    if unknown:
        sys.exit(f"--cases: unknown {', '.join(sorted(unknown))}; known are {', '.join(CASES)}")
    whole, single = [], []
    for case in options.cases:
        print(f"{case} ...", file=sys.stderr, flush=True)
        if case in ("timm", "transformers"):
            whole += measure_models(case, timm_vit if case == "timm" else transformers_vit, options.rounds)
        else:
            single += measure_hstu(options.rounds) if case == "hstu" else measure_flex(options.rounds)
    return tables(whole, single), whole + single


def cells(row: dict) -> list[str]:
    """A row as the tables have it."""
    if "ms" in row:
        return [row["case"], row["pass"], row["peer"], f"{row['ms']:.2f}", f"{row['speedup']:.2f}", f"{row['error']:.1e}"]
    gain = "-" if row["share_of_gain"] is None else f"{row['share_of_gain']:.0%}"
    return [row["case"], row["pass"], row["peer"], f"{row['model_ms']:.0f}", f"{row['attention_share']:.0%}", f"{row['speedup']:.2f}",
            f"{row['possible_speedup']:.2f}", gain]  # fmt: skip


def show(row: dict) -> None:
    print("  " + " | ".join(cells(row)), file=sys.stderr, flush=True)


def tables(whole: list[dict], single: list[dict]) -> str:
    text = []
    if whole:
        head = [f"ViT-S/16, {BATCH} images", "pass", "attention", "model, ms", "of it attention", "speed-up", "possible", "share of the gain"]
        text.append(markdown_table(head, [cells(row) for row in whole]))
    if single:
        head = ["attention", "pass", "by", "ms", "speed-up", "largest error / largest value"]
        text.append(markdown_table(head, [cells(row) for row in single]))
    return "\n\n".join(text)
