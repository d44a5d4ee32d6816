"""Whole translation models: Hinge's against PyTorch's nn.Transformer (eager, compiled, DDP) in training and CTranslate2 in decoding.

The same shape everywhere: 6+6 layers, width 512, FFN 1024, 4 heads, vocabulary 10,000, dropout 0.1, Adam. Every peer runs in a process of
its own; they are asked for one sample each in turn. Ours is `hinge bench translate`, started anew for every sample; its report says which
lengths the sequences of each batch have, and the peers take batches of the same, padded to the longest sequence of each.
"""

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ddp
from report import markdown_table

VOCABULARY, WIDTH, FFN_WIDTH, HEADS, DEPTH, BEAM = 10000, 512, 1024, 4, 6, 4
CASES = ("25", "256", "2048", "uneven", "decode")
HINGE = Path(__file__).resolve().parent.parent / "build/release/bin/hinge"


# ---- A peer, in its own process -----------------------------------------------------------------------------------------------


def training_call(kind: str, batches: list[list[int]]):
    """One step on each batch. As a rank of DDP: `batches` is its part of each."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    longest = max(max(lengths) for lengths in batches)

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, WIDTH)
            self.position = nn.Buffer(torch.randn(1, longest, WIDTH) * 0.02)
            self.dropout = nn.Dropout(0.1)
            self.transformer = nn.Transformer(WIDTH, HEADS, DEPTH, DEPTH, FFN_WIDTH, dropout=0.1, batch_first=True)

        def forward(self, source, target, causal, padding):
            x = self.dropout(self.embed(source) * WIDTH**0.5 + self.position[:, : source.shape[1]])
            y = self.dropout(self.embed(target) * WIDTH**0.5 + self.position[:, : target.shape[1]])
            h = self.transformer(
                x,
                y,
                tgt_mask=causal,
                tgt_is_causal=True,
                src_key_padding_mask=padding,
                tgt_key_padding_mask=padding,
                memory_key_padding_mask=padding,
            )
            return F.linear(h, self.embed.weight)

    torch.manual_seed(0)
    model = Translator()
    # Batches of one shape are compiled for it; of several, as torch.compile decides by itself.
    run = model
    if kind == "torch.compile":
        run = torch.compile(model, dynamic=False if len(batches) == 1 else None)
    elif kind == "DDP":
        run = nn.parallel.DistributedDataParallel(model)
    adam = torch.optim.Adam(model.parameters(), lr=1e-5, betas=(0.9, 0.98), fused=True)

    def padded_batch(lengths: list[int]):
        count, longest = len(lengths), max(lengths)
        source, target, labels = (torch.randint(3, VOCABULARY, (count, longest)) for _ in range(3))
        # Masks are additive and of the same type, so that nothing is converted in the step.
        causal = torch.triu(torch.full((longest, longest), -math.inf), diagonal=1)
        padding = None
        if min(lengths) < longest:
            beyond = torch.arange(longest)[None] >= torch.tensor(lengths)[:, None]
            padding = torch.zeros(count, longest).masked_fill_(beyond, -math.inf)
            labels[beyond] = -100
        return source, target, causal, padding, labels

    padded = [padded_batch(lengths) for lengths in batches]
    tokens = sum(sum(lengths) for lengths in batches)

    def call():
        for *inputs, labels in padded:
            adam.zero_grad(set_to_none=True)
            logits = run(*inputs)
            F.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1), label_smoothing=0.1).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
        return tokens

    return call


def ctranslate2_call(lengths: list[int], threads: int):
    """A model of random weights through CTranslate2's own specification, float32."""
    import ctranslate2
    import numpy as np
    from ctranslate2.specs import common_spec, transformer_spec

    random = np.random.default_rng(0)
    spec = transformer_spec.TransformerSpec.from_config((DEPTH, DEPTH), HEADS, pre_norm=False, activation=common_spec.Activation.RELU)

    def dense(layer, n, k):
        layer.weight = (random.standard_normal((n, k)) * k**-0.5).astype(np.float32)
        layer.bias = np.zeros(n, np.float32)

    def norm(layer):
        layer.gamma, layer.beta = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    def stack(side):
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = (random.standard_normal((VOCABULARY, WIDTH)) * WIDTH**-0.5).astype(np.float32)
        embeddings.multiply_by_sqrt_depth = True
        for layer in side.layer:
            norm(layer.self_attention.layer_norm)
            dense(layer.self_attention.linear[0], 3 * WIDTH, WIDTH)
            dense(layer.self_attention.linear[1], WIDTH, WIDTH)
            if hasattr(layer, "attention"):
                norm(layer.attention.layer_norm)
                dense(layer.attention.linear[0], WIDTH, WIDTH)
                dense(layer.attention.linear[1], 2 * WIDTH, WIDTH)
                dense(layer.attention.linear[2], WIDTH, WIDTH)
            norm(layer.ffn.layer_norm)
            dense(layer.ffn.linear_0, FFN_WIDTH, WIDTH)
            dense(layer.ffn.linear_1, WIDTH, FFN_WIDTH)

    stack(spec.encoder)
    stack(spec.decoder)
    dense(spec.decoder.projection, VOCABULARY, WIDTH)
    tokens = ["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(3, VOCABULARY)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=threads)
    source = [[tokens[3 + (7 * i + 11 * j) % (VOCABULARY - 3)] for j in range(length)] for i, length in enumerate(lengths)]

    def call():
        results = translator.translate_batch(
            source,
            beam_size=BEAM,
            max_batch_size=len(lengths),
            max_decoding_length=max(lengths) - 1,
            min_decoding_length=max(lengths) - 1,
        )
        return sum(len(result.hypotheses[0]) + 1 for result in results)

    return call


def worker(kind: str, threads: int) -> None:
    """Reads the lengths of the batches (JSON, a line), prints "ready", then for each line of input the tokens and the seconds of one call."""
    import torch

    torch.set_num_threads(threads)
    batches = json.loads(sys.stdin.readline())
    if kind == "DDP":
        return run_ddp(batches, threads)
    call = ctranslate2_call(batches[0], threads) if kind == "CTranslate2" else training_call(kind, batches)
    call(), call()
    serve(call)


def serve(call) -> None:
    """A peer's part of the talk with Peer."""
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        tokens = call()
        print(tokens, time.perf_counter() - start, flush=True)


def run_ddp(batches: list[list[int]], ranks: int) -> None:
    """DistributedDataParallel, one process per thread. Each has every n-th sequence of a batch, so that all have about as much to do."""

    def make_call(rank: int, ranks: int):
        call = training_call("DDP", [lengths[rank::ranks] for lengths in batches])
        call()
        return call, None

    tokens = sum(map(sum, batches))
    ddp.run(ranks, make_call, lambda call, *_: serve(lambda: (call(), tokens)[1]))


# ---- The comparison -----------------------------------------------------------------------------------------------------------


class Peer:
    def __init__(self, kind: str, batches: list[list[int]], threads: int):
        self.kind, self.rates, self.note = kind, [], ""
        arguments = [sys.executable, str(Path(__file__).with_name("peers.py")), "translate-worker", kind, str(threads)]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(batches) + "\n")
        self.process.stdin.flush()

    def ready(self) -> bool:
        while line := self.process.stdout.readline():
            if line.strip() == "ready":
                return True
        lines = [line for line in self.process.stderr.read().splitlines() if line.strip()]
        self.note = lines[-1][:160] if lines else "ended without a word"
        return False

    def sample(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        tokens, seconds = self.process.stdout.readline().split()
        self.rates.append(float(tokens) / float(seconds))

    def finish(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Ours:
    def __init__(self, case: str, attention: str, threads: int):
        self.kind, self.rates, self.note = f"ours {attention}", [], ""
        self.command = [str(HINGE), "bench", "translate", "--cases", case, "--attention", attention]
        self.command += ["--threads", str(threads), "--rounds", "1", "--json", "-"]

    def sample(self) -> list[list[int]]:
        """The lengths of the batches that were measured."""
        done = subprocess.run(self.command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(self.command)} failed: {done.stderr.strip()}")
        row = json.loads(done.stdout)["results"][0]
        self.rates.append(row["tokens_per_second"])
        return row["batches"]


def ratio_text(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def line(case: str, rate: dict[str, float]) -> list[str]:
    """A row of the table, by tokens/s of all that were measured."""
    ours = ("ours softmax", "ours reluformer")
    shown = [f"{rate[kind]:.0f}" if kind in rate else "-" for kind in (*ours, "eager", "torch.compile", "DDP", "CTranslate2")]
    fastest = max((rate[kind] for kind in rate if kind not in ours), default=math.nan)
    ratios = [ratio_text(rate[kind] / fastest) for kind in ours]
    softmax, reluformer = (rate[kind] for kind in ours)
    return [case, *shown, *ratios, ratio_text(reluformer / softmax)]


HEAD = ["case", "ours, softmax", "ours, ReLUFormer", "eager", "compiled", "DDP", "CTranslate2"]
HEAD += ["softmax / fastest peer", "ReLUFormer / fastest peer", "ReLUFormer / softmax"]


def compare(options) -> tuple[str, list[dict]]:
    if not HINGE.exists():
        sys.exit(f"{HINGE} is not there: build it with `make build`")
    rows, lines, notes = [], [], []
    for case in options.cases:
        print(f"{case} ...", file=sys.stderr, flush=True)
        batches = Ours(case, "softmax", options.threads).sample()
        kinds = ["CTranslate2"] if case == "decode" else ["eager", "torch.compile"]
        if case != "decode" and options.threads > 1 and min(map(len, batches)) >= options.threads:
            kinds.append("DDP")
        peers = [Peer(kind, batches, options.threads) for kind in kinds]
        ready = [peer for peer in peers if peer.ready()]
        ours = [Ours(case, attention, options.threads) for attention in ("softmax", "reluformer")]
        for _ in range(options.rounds):
            for each in [*ours, *ready]:
                each.sample()
        for peer in ready:
            peer.finish()
        rate = {each.kind: statistics.median(each.rates) for each in [*ours, *ready]}
        for each in [*ours, *peers]:
            row = {"peer": each.kind, "case": case, "threads": options.threads}
            row |= {"tokens_per_second": rate[each.kind], "slowest": min(each.rates), "fastest": max(each.rates)} if each.rates else {"note": each.note}
            rows.append(row)
        notes += [f"* {peer.kind}, {case}: {peer.note}" for peer in peers if peer not in ready]
        lines.append(line(case, rate))
    table = markdown_table(HEAD, lines)
    return (table + "\n\nNot measured:\n\n" + "\n".join(notes) if notes else table), rows
