"""The models that the hinge command trains, as torch modules: what hinge.load_run makes. Parameters have the names of a run's weights.

Each takes the table [model] of a run's config.toml, in which every key is given.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .modules import NORM_EPS, Attention

Config = Mapping[str, Any]

#: The activations of feed-forward layers, by the names that hinge.activations() has for them.
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": lambda x: F.softplus(x, threshold=60),
    "identity": lambda x: x,
    "relu6": F.relu6,
    "sigmoid": F.sigmoid,
    "silu": F.silu,
    "softmax": lambda x: F.softmax(x, -1),
}


# ---- Attention of a config --------------------------------------------------------------------------------------------------------


def _given(value: Any) -> Any:
    """None for the number "none" and for the empty word, which is how a config says that nothing is given."""
    return None if value in ("none", "") else value


def overridden(base: Config, own: Config) -> dict[str, Any]:
    """What `own` gives in the place of what `base` gives, as in src/nn/attention.h: with a preset of its own, an attention takes only
    qk_norm, qk_norm_bias, gate, dropout and gamma from the base."""

    def is_given(key: str) -> bool:
        return own[key] != "" if key in ("length", "gate", "learn_alpha", "learn_gain", "learn_bias") else _given(own[key]) is not None

    always = ("qk_norm", "qk_norm_bias", "gate", "dropout", "gamma")
    with_preset = ("preset", "h", "alpha", "gain", "bias", "learn_alpha", "learn_gain", "learn_bias")
    result = {key: own[key] for key in (*always, *with_preset, "length", "length_n")}
    inherited = list(always)
    if not is_given("preset"):
        inherited += with_preset
        if not is_given("length"):
            inherited += ["length", "length_n"] if _given(own["length_n"]) is None else ["length"]
    return result | {key: base[key] for key in inherited if not is_given(key)}


class _Shared(nn.Module):
    """Numbers that all attentions of a model share."""


class _Attentions:
    """Makes the attentions of one model, and what they share."""

    def __init__(self, width: int, heads: int) -> None:
        self.width, self.heads = width, heads
        self.shared = _Shared()

    def make(self, config: Config, kind: type[Attention] = Attention, **more: Any) -> Attention:
        preset = _given(config["preset"])
        parts = {name: _given(config[name]) for name in ("h", "alpha", "gain", "bias", "length_n")}
        parts["length_rule"] = config["length"] or None
        learned = {name: config[f"learn_{name}"] or "none" for name in ("alpha", "gain", "bias")}
        gamma = _given(config["gamma"])
        sharings = {f"learn_{name}": "layer" if sharing == "model" else sharing for name, sharing in learned.items()}
        options: dict[str, Any] = parts | sharings | more
        attention = kind(
            self.width,
            self.heads,
            preset=preset,
            gamma=gamma if gamma is not None and preset == "reluformer" else 1.0,
            qk_norm=_given(config["qk_norm"]) or False,
            qk_norm_bias=config["qk_norm_bias"] is not False,
            gate=config["gate"] or "none",
            attn_drop=_given(config["dropout"]) or 0.0,
            **options,
        )
        for name, sharing in learned.items():
            if sharing == "model":
                if not hasattr(self.shared, name):
                    setattr(self.shared, name, getattr(attention, name))
                attention.share(name, getattr(self.shared, name))
        return attention


# ---- Blocks -----------------------------------------------------------------------------------------------------------------------


class FeedForward(nn.Module):
    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        normed = config["activation"] == "softmax_norm"
        self.activation = ACTIVATIONS["softmax" if normed else config["activation"]]
        self.fc1 = nn.Linear(width, config["width"])
        self.drop = nn.Dropout(config["dropout"])
        self.fc2 = nn.Linear(config["width"], width, bias=not normed)
        self.norm: nn.Module = nn.LayerNorm(width, eps=NORM_EPS) if normed else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(self.fc2(self.drop(self.activation(self.fc1(x)))))
        return result


class Block(nn.Module):
    """Self-attention, in a decoder cross-attention, feed-forward, each with its norm before it or behind its sum with the residual."""

    def __init__(
        self, config: Config, attentions: _Attentions, attention: Config, cross: Config | None, drop_path: float, is_causal: bool
    ) -> None:
        super().__init__()
        width = attentions.width
        self.pre = config["norm"] == "pre"
        self.norm1 = nn.LayerNorm(width, eps=NORM_EPS)
        self.attn = attentions.make(attention, is_causal=is_causal)
        self.norm2 = nn.LayerNorm(width, eps=NORM_EPS)
        if cross is not None:
            self.cross_attn = attentions.make(cross, projections="q_kv")
            self.norm3 = nn.LayerNorm(width, eps=NORM_EPS)
        self.mlp = FeedForward(config["ffn"], width)
        self.drop = nn.Dropout(config["dropout"])
        self.drop_path = drop_path

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None, offsets: Any = None) -> torch.Tensor:
        """offsets: of jagged sequences, the tokens' own and the context's; each sequence drops its path by itself."""
        own, other = offsets if offsets is not None else (None, None)

        def branch(x: torch.Tensor, norm: Callable[..., torch.Tensor], layer: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
            result: torch.Tensor = self.drop(layer(norm(x) if self.pre else x))
            if self.training and self.drop_path > 0:
                sequences = len(x) if own is None else len(own) - 1
                factors = torch.empty(sequences, 1, 1, dtype=x.dtype, device=x.device).bernoulli_(1 - self.drop_path) / (1 - self.drop_path)
                result = result * (factors if own is None else factors[:, 0].repeat_interleave(own.diff(), 0))
            return x + result if self.pre else norm(x + result)

        jagged = {} if own is None else {"q_offsets": own, "k_offsets": own}
        x = branch(x, self.norm1, lambda y: self.attn(y, **jagged))
        if context is not None:
            x = branch(x, self.norm2, lambda y: self.cross_attn(y, context, q_offsets=own, k_offsets=other))
        return branch(x, self.norm3 if context is not None else self.norm2, self.mlp)


def _drop_path(last: float, block: int, depth: int) -> float:
    """Stochastic depth grows from 0 at the first block to `last` at the last one."""
    return last * block / (depth - 1) if depth > 1 else last


# ---- Vision -----------------------------------------------------------------------------------------------------------------------


class _ConvNorm(nn.Module):
    """A convolution of 3 x 3 pixels without a bias, a layer norm over the channels, relu."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.norm = nn.LayerNorm(width, eps=NORM_EPS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.conv(x).movedim(1, -1)).movedim(-1, 1))


class _PatchEmbed(nn.Module):
    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, patch)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens: torch.Tensor = self.proj(x).flatten(2).transpose(1, 2)
        return tokens


class _PreLogits(nn.Module):
    def __init__(self, width: int, rep_size: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, rep_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.fc(x))


class _AttentionPool(Attention):
    """A learned query attends to all tokens; a feed-forward layer behind it."""

    def __init__(self, width: int, heads: int, *, ffn: Config, **options: Any) -> None:
        super().__init__(width, heads, projections="q_kv", **options)
        self.latent = nn.Parameter(torch.zeros(1, 1, width))
        self.norm = nn.LayerNorm(width, eps=NORM_EPS)
        self.mlp = FeedForward(ffn, width)

    def forward(self, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        probe = self.latent.expand(len(x), 1, -1)
        out = self.finish(probe, self.attended(probe, x)[0])
        pooled: torch.Tensor = out + self.mlp(self.norm(out))
        return pooled.squeeze(1)


class VisionTransformer(nn.Module):
    """A vision transformer of the hinge command: images ``[B, channels, height, width]`` give logits ``[B, classes]``."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, depth, patch, channels = config["width"], config["depth"], config["patch"], config["channels"]
        self.image_size, self.channels, self.pool = config["image_size"], channels, config["pool"]
        self.pool_first = config["pool_first"]
        side = self.image_size // patch
        self.stem: nn.Module = nn.Identity()
        if config["stem"] == "conv":
            self.stem = nn.Sequential(*_stem(channels, width, patch))
            channels, patch = width, 1
        self.patch_embed = _PatchEmbed(channels, width, patch)
        if config["position"] == "learned":
            self.pos_embed: torch.Tensor = nn.Parameter(torch.zeros(1, side * side, width))
        else:
            self.register_buffer("pos_embed", _sinusoidal_positions_2d(side, width), persistent=False)
        if self.pool == "tok":
            self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.drop = nn.Dropout(config["dropout"])
        attentions = _Attentions(width, config["heads"])
        base = {key: value for key, value in config["attention"].items() if key != "first"}
        first = overridden(base, config["attention"]["first"])
        first_blocks = config["attention"]["first"]["blocks"]
        self.blocks = nn.ModuleList(
            Block(config, attentions, first if i < first_blocks else base, None, _drop_path(config["drop_path"], i, depth), False)
            for i in range(depth)
        )
        if len(attentions.shared._parameters):
            self.attention = attentions.shared
        self.norm: nn.Module = nn.LayerNorm(width, eps=NORM_EPS) if config["norm"] == "pre" else nn.Identity()
        if self.pool == "map":  # with the fixed numbers of the attention only
            without = dict.fromkeys(("gate", "dropout", "learn_alpha", "learn_gain", "learn_bias"), "none") | {"qk_norm": False}
            self.attn_pool = attentions.make(base | without, _AttentionPool, ffn=config["ffn"])
        rep_size = config["rep_size"]
        self.pre_logits: nn.Module = _PreLogits(width, rep_size) if rep_size > 0 else nn.Identity()
        self.head = nn.Linear(rep_size or width, config["classes"])

    def forward_features(self, images: torch.Tensor) -> torch.Tensor:
        """The tokens that leave the last block, ``[B, tokens, width]``, before the last norm."""
        if images.shape[1:] != (self.channels, self.image_size, self.image_size):
            raise ValueError(
                f"the model takes images [B, {self.channels}, {self.image_size}, {self.image_size}], got the shape {tuple(images.shape)}"
            )
        x = self.patch_embed(self.stem(images)) + self.pos_embed
        if self.pool == "tok":
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        tokens: torch.Tensor = self.drop(x)
        for block in self.blocks:
            tokens = block(tokens)
        return tokens

    def forward_head(self, x: torch.Tensor, pre_logits: bool = False) -> torch.Tensor:
        """The logits of these tokens, or what the head gets of them."""
        if self.pool_first:
            x = self.norm(x.mean(1))
        elif self.pool == "gap":
            x = self.norm(x).mean(1)
        elif self.pool == "tok":
            x = self.norm(x[:, 0])
        else:
            x = self.attn_pool(self.norm(x))
        features: torch.Tensor = self.pre_logits(x)
        if not pre_logits:
            features = self.head(features)
        return features

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.forward_head(self.forward_features(images))


def _stem(channels: int, width: int, patch: int) -> list[nn.Module]:
    """As in src/nn/conv_stem.cc: the first keeps the size, each further one halves it; channels grow twofold, in multiples of 8."""
    halvings = patch.bit_length() - 1
    layers: list[nn.Module] = []
    for i in range(halvings + 1):
        out = width if i == halvings else max((width >> (halvings - i)) // 8, 1) * 8
        layers.append(_ConvNorm(channels, out, 1 if i == 0 else 2))
        channels = out
    return layers


def _sinusoidal_positions_2d(side: int, width: int) -> torch.Tensor:
    n = width // 4
    omega = 10000.0 ** (-torch.arange(n, dtype=torch.float64) / max(n - 1, 1))
    steps = torch.arange(side, dtype=torch.float64)
    y, x = steps.repeat_interleave(side)[:, None] * omega, steps.repeat(side)[:, None] * omega
    return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], 1).float()[None]


# ---- Translation ------------------------------------------------------------------------------------------------------------------


def _sinusoidal_positions(length: int, width: int) -> torch.Tensor:
    angle = torch.arange(length, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack([angle.sin(), angle.cos()], 2).reshape(length, width).float()


class _Stack(nn.Module):
    """Blocks 0, 1, ...; beside them what belongs to their side of the model: embedding, positions, last norm."""

    norm: nn.Module
    embedding: nn.Embedding
    positions: nn.Embedding

    def __init__(self, blocks: Iterable[Block]) -> None:
        super().__init__()
        self.depth = 0
        for block in blocks:
            self.add_module(str(self.depth), block)
            self.depth += 1

    def forward(self, x: torch.Tensor, context: torch.Tensor | None, offsets: Any) -> torch.Tensor:
        for i in range(self.depth):
            x = self.get_submodule(str(i))(x, context, offsets)
        return self.norm(x) if hasattr(self, "norm") else x


class TranslationModel(nn.Module):
    """An encoder-decoder of the hinge command: sequences of source and target tokens give logits of what follows each target token.

    Sequences are given as lists of lists or of tensors of token numbers, without padding; the target's begin with the begin of sentence.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, vocabulary = config["width"], config["vocabulary"]
        self.width, self.vocabulary, self.max_length, self.tied = width, vocabulary, config["max_length"], config["tied"]
        attentions = _Attentions(width, config["heads"])
        base = config["attention"]

        def stack(side: str, cross: Config | None) -> _Stack:
            own = _given(config[side]["depth"])
            depth: int = config["depth"] if own is None else own
            attention = overridden(base, config[side]["attention"])
            paths = [_drop_path(config["drop_path"], i, depth) for i in range(depth)]
            blocks = _Stack(Block(config, attentions, attention, cross, path, side == "decoder") for path in paths)
            if config["norm"] == "pre":
                blocks.norm = nn.LayerNorm(width, eps=NORM_EPS)
            if not self.tied:
                blocks.embedding = nn.Embedding(vocabulary, width)
            if config["position"] == "learned":
                blocks.positions = nn.Embedding(self.max_length, width)
            return blocks

        self.encoder = stack("encoder", None)
        self.decoder = stack("decoder", overridden(base, config["cross"]["attention"]))
        if self.tied:
            self.embedding = nn.Embedding(vocabulary, width)
        else:
            self.output = nn.Linear(width, vocabulary, bias=False)
        if len(attentions.shared._parameters):
            self.attention = attentions.shared
        if config["position"] != "learned":
            self.register_buffer("fixed_positions", _sinusoidal_positions(self.max_length, width), persistent=False)
        self.drop = nn.Dropout(config["dropout"])

    def _embedded(self, side: _Stack, tokens: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        lengths = offsets.diff()
        places = torch.arange(len(tokens), device=tokens.device) - offsets[:-1].repeat_interleave(lengths)
        table = side.positions.weight if hasattr(side, "positions") else self.get_buffer("fixed_positions")
        embedding = self.embedding if self.tied else side.embedding
        x: torch.Tensor = self.drop(embedding(tokens) * math.sqrt(self.width) + table[places])
        return x[None]  # [1, L, C]

    def _joined(self, what: str, sequences: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens [L] and offsets [sequences + 1] of sequences that follow one another."""
        device = next(self.parameters()).device
        rows = [torch.as_tensor(sequence, dtype=torch.int64, device=device) for sequence in sequences]
        for i, row in enumerate(rows):
            if row.dim() != 1 or not 0 < len(row) <= self.max_length:
                raise ValueError(f"{what} {i} must be one row of 1 to {self.max_length} tokens, got the shape {tuple(row.shape)}")
            if row.min() < 0 or row.max() >= self.vocabulary:
                raise ValueError(f"{what} {i} has tokens from {row.min()} to {row.max()}, the vocabulary has {self.vocabulary}")
        if not rows:
            raise ValueError(f"{what}: there are no sequences")
        lengths = torch.tensor([0] + [len(row) for row in rows], device=device)
        return torch.cat(rows), lengths.cumsum(0)

    def forward(self, source: Sequence[Any], target: Sequence[Any]) -> list[torch.Tensor]:
        """A tensor of logits ``[tokens, vocabulary]`` for each target sequence; row t is about what follows its token t."""
        if len(source) != len(target):
            raise ValueError(f"there are {len(source)} source sequences and {len(target)} target sequences")
        source_tokens, source_offsets = self._joined("source", source)
        target_tokens, target_offsets = self._joined("target", target)
        context = self.encoder(self._embedded(self.encoder, source_tokens, source_offsets), None, (source_offsets, None))
        y = self.decoder(self._embedded(self.decoder, target_tokens, target_offsets), context, (target_offsets, source_offsets))
        logits = F.linear(y[0], self.embedding.weight) if self.tied else self.output(y[0])
        return list(logits.split(target_offsets.diff().tolist()))
