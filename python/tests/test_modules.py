"""hinge.Attention, the regulariser and attention maps, against plain tensor operations."""

import copy
import math

import eager
import pytest
import torch
from torch import nn

import hinge

B, L, C, H, D = 2, 9, 24, 4, 6


def plain(module, x, context=None, **options):
    """The module's formula in plain tensor operations, from its state dict."""
    state = module.state_dict()

    def linear(name, y):
        return y @ state[f"{name}.weight"].mT + state.get(f"{name}.bias", 0)

    source = x if context is None else context
    Hq, Hkv = module.num_heads, module.num_kv_heads
    if "qkv.weight" in state:
        widths = [Hq * D, Hkv * D, Hkv * D]
        q, k, v = (y.split(widths, -1)[i] for i, y in enumerate((linear("qkv", x), linear("qkv", source), linear("qkv", source))))
    elif "kv.weight" in state:
        q, (k, v) = linear("q", x), linear("kv", source).chunk(2, -1)
    else:
        q, k, v = linear("q_proj", x), linear("k_proj", source), linear("v_proj", source)
    q, k, v = (y.unflatten(-1, (-1, D)).transpose(1, 2) for y in (q, k, v))
    if "q_norm.weight" in state:
        q, k = (
            nn.functional.layer_norm(y, (D,), state[f"{n}_norm.weight"], state.get(f"{n}_norm.bias"), 1e-6) for n, y in (("q", q), ("k", k))
        )
    learned = {name: state[name] for name in ("alpha", "gain", "bias") if name in state}
    out = eager.attention(q, k, v, **(options | learned)).transpose(1, 2).flatten(2)
    if "rms_norm.weight" in state:
        out = out * (out.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * state["rms_norm.weight"]
    if "gate.weight" in state:
        gate = linear("gate", x)
        out = out * (gate.sigmoid() if module.sigmoid_gate else gate)
    return linear("proj", out)


CASES = {
    "defaults": ({}, {}),
    "preset": ({"preset": "relu-vit", "qk_norm": True}, {"h": "relu"}),
    "parts": ({"h": "gelu", "alpha": 0.5, "gain": 1.5, "bias": -0.1, "length_rule": "fixed", "length_n": 7.0, "scale": 0.3},
              {"h": "gelu", "alpha": 0.5, "gain": 1.5, "bias": -0.1, "length_rule": "fixed", "length_n": 7.0, "scale": 0.3}),
    "preset and parts": ({"preset": "reluformer", "gamma": 2.0, "alpha": 0.25}, {"h": "relu", "alpha": 0.25, "gain": math.sqrt(2) / 2}),
    "sigmoid": ({"preset": "sigmoid"}, {"h": "sigmoid", "alpha": 0.0, "bias_log_n": True}),
    "softmax of a relu preset": ({"preset": "reluformer", "h": "softmax"}, {"h": "softmax"}),
    "grouped heads": ({"num_kv_heads": 2, "qkv_bias": False}, {}),
    "separate, no biases": ({"projections": "separate", "num_kv_heads": 1, "qkv_bias": False, "proj_bias": False}, {}),
    "causal": ({"preset": "relu-vit", "is_causal": True}, {"is_causal": True, "length_rule": "visible"}),
    "causal, keys asked for": ({"length_rule": "keys", "is_causal": True}, {"is_causal": True, "length_rule": "keys"}),
    "learned": ({"learn_alpha": "head", "learn_gain": "layer", "learn_bias": "head", "alpha": 0.7}, {}),
    "linear gate": ({"gate": "linear"}, {}),
    "sigmoid gate, norm without bias": ({"gate": "sigmoid", "qk_norm": True, "qk_norm_bias": False}, {}),
    "rela": ({"preset": "rela"}, {"length_rule": "none"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_attention_is_its_formula(name):
    arguments, options = CASES[name]
    module = hinge.Attention(C, H, **arguments).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(B, L, C, dtype=torch.float64)
    torch.testing.assert_close(module(x), plain(module, x, **options), atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("projections", ["qkv", "q_kv", "separate"])
def test_attention_to_a_context(projections):
    module = hinge.Attention(C, H, projections=projections, num_kv_heads=2).double()
    x, context = torch.randn(B, L, C, dtype=torch.float64), torch.randn(B, 5, C, dtype=torch.float64)
    torch.testing.assert_close(module(x, context), plain(module, x, context), atol=1e-12, rtol=1e-9)


def test_lengths_and_offsets():
    module = hinge.Attention(C, H, preset="reluformer").eval()
    rows = [torch.randn(n, C) for n in (3, 7)]
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    offsets = torch.tensor([0, 3, 10])
    by_lengths = module(padded, key_lengths=torch.tensor([3, 7]))
    jagged = module(torch.cat(rows)[None], q_offsets=offsets, k_offsets=offsets)
    torch.testing.assert_close(jagged[0], torch.cat([by_lengths[0, :3], by_lengths[1]]))


def test_masks_and_windows():
    module = hinge.Attention(C, H, preset="reluformer").double()
    x = torch.randn(B, L, C, dtype=torch.float64)
    mask = torch.rand(B, 1, L, L) < 0.5
    mask[1, 0, 2] = False  # a row that sees nothing
    weights = torch.from_numpy(hinge.attention_maps(module, x, attn_mask=mask)[""])
    assert ((weights != 0) <= mask).all() and (weights[1, :, 2] == 0).all() and (weights[0] != 0).any()
    added = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -math.inf)
    torch.testing.assert_close(module(x, attn_mask=added), module(x, attn_mask=mask))
    near = (torch.arange(L)[:, None] - torch.arange(L)).abs() <= 2
    torch.testing.assert_close(module(x, window=(2, 2)), module(x, attn_mask=near))
    sparse = hinge.Attention(C, H, preset="sparsemax").double()
    assert ((torch.from_numpy(hinge.attention_maps(sparse, x, attn_mask=mask)[""]) != 0) <= mask).all()


def test_learned_numbers_start_where_the_config_says_and_get_gradients():
    module = hinge.Attention(C, H, preset="reluformer", learn_alpha="head", learn_gain="layer", learn_bias="layer")
    assert module.alpha.tolist() == [0.5] * H and module.gain.tolist() == pytest.approx([math.sqrt(2)]) and module.bias.tolist() == [0.0]
    module(torch.randn(B, L, C)).square().sum().backward()
    assert all((p.grad != 0).any() for p in (module.alpha, module.gain, module.bias))
    assert {"alpha", "gain", "bias"} <= module.state_dict().keys()


def test_state_dict_names_are_timms():
    module = hinge.Attention(C, H, qk_norm=True, gate="sigmoid")
    parts = {"qkv", "q_norm", "k_norm", "gate", "proj"}
    assert module.state_dict().keys() == {f"{part}.{kind}" for part in parts for kind in ("weight", "bias")}


def test_dropout_only_in_training():
    module = hinge.Attention(C, H, attn_drop=0.5, proj_drop=0.5)
    x = torch.randn(B, L, C)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


@pytest.mark.parametrize("rule", ["sparsemax", "entmax15"])
def test_sparse_presets(rule):
    module = hinge.Attention(C, H, preset=rule, is_causal=True).double()
    x = torch.randn(B, L, C, dtype=torch.float64, requires_grad=True)
    weights = torch.from_numpy(hinge.attention_maps(module, x)[""]).double()
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, L, dtype=torch.float64), atol=1e-6, rtol=0)
    assert (weights >= 0).all() and (weights.triu(1) == 0).all() and (weights.tril() == 0).any()
    q, k, _ = module.project(x, None)
    scores = q @ k.mT / math.sqrt(D)
    # On the support, scores less weights (sparsemax), or half the scores less their roots, are one number: the threshold.
    tau = (scores - weights if rule == "sparsemax" else scores / 2 - weights.sqrt()).masked_fill(weights == 0, math.nan)
    torch.testing.assert_close(tau.nan_to_num(-1e9).amax(-1), tau.nan_to_num(1e9).amin(-1), atol=1e-4, rtol=0)
    assert torch.autograd.gradcheck(lambda y: hinge._sparse.weights(rule, y, k.detach(), is_causal=True), q.detach()[:, :, :4].requires_grad_())


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_heads": 5}, "not a multiple"),
        ({"num_kv_heads": 3}, "not a multiple"),
        ({"gate": "yes"}, "gate must be one of none, linear, sigmoid"),
        ({"learn_alpha": True}, "learn_alpha must be one of none, layer, head"),
        ({"h": "softmax", "learn_gain": "head"}, "softmax has no gain"),
        ({"preset": "sparsemax", "alpha": 1.0}, "takes only"),
        ({"gamma": 2.0}, "gamma belongs to the preset reluformer"),
        ({"preset": "relu-vti"}, "relu-vit"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        hinge.Attention(C, **({"num_heads": H} | arguments))


def test_module_copies_compiles_and_moves():
    module = hinge.Attention(C, H, qk_norm=True, learn_alpha="head")
    x = torch.randn(B, L, C)
    expected = module(x)
    torch.testing.assert_close(copy.deepcopy(module)(x), expected)
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(module, fullgraph=True)(x), expected)
    torch.testing.assert_close(module.double()(x.double()).float(), expected)


# ---- Statistics and maps


def test_weights_are_those_of_the_formula():
    q, k = torch.randn(B, H, L, D), torch.randn(B, 2, 11, D)
    options = {"h": "gelu", "is_causal": True, "length_rule": "visible", "alpha": 0.5}
    torch.testing.assert_close(hinge.attention_weights(q, k, dropout_p=0.5, **options), eager.weights(q, k, **options))


def test_maps_of_a_model():
    model = nn.Sequential(hinge.Attention(C, H), hinge.Attention(C, H, h="softmax"))
    x = torch.randn(B, L, C)
    maps = hinge.attention_maps(model, x)
    assert maps.keys() == {"0", "1"} and maps["0"].shape == (B, H, L, L)
    assert maps["1"].sum(-1) == pytest.approx(1, abs=1e-5)
    q, k, _ = model[0].project(x, None)
    torch.testing.assert_close(torch.from_numpy(maps["0"]), eager.weights(q, k).detach())
    with pytest.raises(ValueError, match="no attention of Hinge's"):
        hinge.attention_maps(nn.Linear(C, C), x)


def plain_regulariser(weights, visible, margin=0.7):
    S, E = weights.sum(-1), torch.where(weights > 0, weights * weights.clamp_min(1e-300).log(), 0).sum(-1)
    seen = visible.expand_as(S).double()
    value = S.log().abs() + (S.log() - E / S - margin * seen.clamp_min(1 + 1e-9).log()).clamp_min(0)
    return torch.where(seen > 0, value, 0).mean()


@pytest.mark.parametrize("margin", [None, 0.2, math.inf])
def test_regulariser_is_its_formula(margin):
    # Positive queries and keys: no row is without weight.
    q, k = (torch.rand(B, H, L, D, dtype=torch.float64, requires_grad=True) for _ in range(2))
    options = {"h": "relu", "is_causal": True, "length_rule": "visible", "alpha": 0.5, "gain": 1.3}
    visible = torch.arange(1, L + 1)
    _, statistics = hinge.attention(q, k, torch.randn(B, H, L, D, dtype=torch.float64), return_statistics=True, **options)
    ours = hinge.regulariser(statistics, visible, margin)
    expected = plain_regulariser(eager.weights(q, k, **options), visible, 0.7 if margin is None else margin)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(torch.autograd.grad(ours, (q, k)), torch.autograd.grad(expected, (q, k)))


def test_regulariser_of_rows_without_weight_is_finite():
    q = -torch.ones(1, 1, 3, 4)
    _, statistics = hinge.attention(q.requires_grad_(), torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 4), return_statistics=True)
    value = hinge.regulariser(statistics, 3)
    value.backward()
    assert value > 0 and value.isfinite() and q.grad.isfinite().all()


def test_regulariser_opcheck():
    sums, logs = torch.rand(1, 1, 6, requires_grad=True), torch.randn(1, 1, 6, requires_grad=True)
    torch.library.opcheck(torch.ops.hinge.regulariser.default, (sums, logs, torch.full((6,), 9.0, dtype=torch.float64)))
