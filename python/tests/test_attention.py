"""hinge.attention against plain PyTorch: values, gradients, errors of float32, statistics, dropout, memory order, threads."""

import importlib.metadata
import inspect
import math
import sys
import typing

import eager
import pytest
import torch
import torch.nn.functional as F

import hinge


def qkv(B=2, Hq=4, Hkv=4, Lq=19, Lk=19, D=16, dtype=torch.float64, requires_grad=False):
    shapes = (B, Hq, Lq, D), (B, Hkv, Lk, D), (B, Hkv, Lk, D)
    return [torch.randn(shape, dtype=dtype).requires_grad_(requires_grad) for shape in shapes]


OPTIONS = {
    "default": {},
    "causal": {"is_causal": True},
    "causal, visible": {"is_causal": True, "length_rule": "visible"},
    "key lengths": {"key_lengths": torch.tensor([7, 23])},
    "key lengths, visible, log n": {"key_lengths": torch.tensor([7, 23]), "length_rule": "visible", "bias_log_n": True},
    "fixed": {"length_rule": "fixed", "length_n": 100.0, "alpha": 0.5},
    "none": {"length_rule": "none", "scale": 0.3},
    "numbers": {"gain": 2.0, "bias": -0.5, "alpha": 0.25},
}
FOR_SOFTMAX = ["default", "causal", "key lengths"]
CASES = [(h, name) for h in eager.ALL for name in OPTIONS if h != "softmax" or name in FOR_SOFTMAX]


@pytest.mark.parametrize("Hkv", [4, 2, 1])
@pytest.mark.parametrize("h,name", CASES)
def test_equals_eager(h, name, Hkv):
    q, k, v = qkv(Lq=19, Lk=31, Hkv=Hkv, requires_grad=True)
    ours = hinge.attention(q, k, v, h=h, **OPTIONS[name])
    expected = eager.attention(q, k, v, h=h, **OPTIONS[name])
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)
    direction = torch.randn_like(ours)
    grads = torch.autograd.grad(ours, (q, k, v), direction)
    expected_grads = torch.autograd.grad(expected, (q, k, v), direction)
    torch.testing.assert_close(grads, expected_grads, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("D,Dv", [(16, 48), (24, 7)])
@pytest.mark.parametrize("h", eager.ALL)
def test_values_of_another_width_equal_eager(h, D, Dv):
    q, k, _ = qkv(Lq=70, Lk=31, Hkv=2, D=D, requires_grad=True)
    v = torch.randn(2, 2, 31, Dv, dtype=torch.float64, requires_grad=True)
    ours, expected = (f(q, k, v, h=h, is_causal=True) for f in (hinge.attention, eager.attention))
    assert ours.shape == (2, 4, 70, Dv)
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)
    direction = torch.randn_like(ours)
    torch.testing.assert_close(
        torch.autograd.grad(ours, (q, k, v), direction), torch.autograd.grad(expected, (q, k, v), direction), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("h", eager.ALL)
def test_gradcheck(h):
    q, k, v = qkv(Hq=4, Hkv=2, Lq=5, Lk=7, D=6, requires_grad=True)
    if h == "softmax":
        parameters = []
    else:
        parameters = [torch.rand(4).double() + 0.5, torch.randn(4).double(), torch.rand(1).double()]

    def run(q, k, v, *parameters):
        options = dict(zip(("gain", "bias", "alpha"), parameters))
        if parameters:
            options["length_rule"] = "visible"
        out, statistics = hinge.attention(q, k, v, h=h, is_causal=True, return_statistics=True, **options)
        return out, statistics.weight_sum, statistics.weight_log

    inputs = (q, k, v, *(p.requires_grad_() for p in parameters))
    assert torch.autograd.gradcheck(run, inputs, eps=1e-7, atol=1e-5, rtol=1e-4, nondet_tol=0)


@pytest.mark.parametrize("h", ["relu", "silu", "softmax"])
def test_gradcheck_with_dropout_and_jagged_sequences(h):
    q, k, v = qkv(B=1, Hq=2, Hkv=2, Lq=9, Lk=8, D=4, requires_grad=True)
    offsets = {"q_offsets": torch.tensor([0, 4, 4, 9]), "k_offsets": torch.tensor([0, 3, 5, 8])}
    run = lambda q, k, v: hinge.attention(q, k, v, h=h, dropout_p=0.3, seed=5, is_causal=True, **offsets)  # noqa: E731
    assert torch.autograd.gradcheck(run, (q, k, v), eps=1e-7, atol=1e-5, rtol=1e-4, nondet_tol=0)


def worst_and_rms(a, exact):
    difference = a.double() - exact
    return difference.abs().max().item(), difference.square().mean().sqrt().item()


FLOAT32 = {h: {"h": h} for h in eager.ALL} | {
    "causal reluformer": {"is_causal": True, **hinge.preset("reluformer")},
    "causal softmax": {"is_causal": True, "h": "softmax"},
    "sigmoid attention": hinge.preset("sigmoid"),
}


@pytest.mark.parametrize("L,D", [(50, 64), (197, 64), (333, 80), (1024, 64)])
@pytest.mark.parametrize("name", FLOAT32)
def test_float32_error_is_at_most_twice_that_of_eager(name, L, D):
    inputs = qkv(B=1, Hq=2, Hkv=2, Lq=L, Lk=L, D=D, dtype=torch.float32)
    direction = torch.randn(1, 2, L, D)

    def run(function, dtype):
        q, k, v = (t.to(dtype, copy=True).requires_grad_() for t in inputs)
        out = function(q, k, v, **FLOAT32[name])
        return out.detach(), *torch.autograd.grad(out, (q, k, v), direction.to(dtype))

    exact = run(eager.attention, torch.float64)
    ours, theirs = run(hinge.attention, torch.float32), run(eager.attention, torch.float32)
    for result, a, b, reference in zip(("out", "dq", "dk", "dv"), ours, theirs, exact):
        (our_worst, our_rms), (their_worst, their_rms) = worst_and_rms(a, reference), worst_and_rms(b, reference)
        assert our_worst <= 2 * their_worst, f"{result}: largest error {our_worst:.3e}, eager {their_worst:.3e}"
        assert our_rms <= 2 * their_rms, f"{result}: rms error {our_rms:.3e}, eager {their_rms:.3e}"


@pytest.mark.parametrize("is_causal", [False, True])
def test_softmax_equals_scaled_dot_product_attention(is_causal):
    q, k, v = qkv(B=2, Hq=3, Hkv=3, Lq=130, Lk=130, D=64, dtype=torch.float32, requires_grad=True)
    ours = hinge.attention(q, k, v, h="softmax", is_causal=is_causal)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    direction = torch.randn_like(ours)
    torch.testing.assert_close(
        torch.autograd.grad(ours, (q, k, v), direction), torch.autograd.grad(expected, (q, k, v), direction), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("h", eager.ALL)
def test_statistics(h):
    q, k, v = qkv(Lk=23)
    w = eager.weights(q, k, h=h, is_causal=True)
    out, statistics = hinge.attention(q, k, v, h=h, is_causal=True, return_statistics=True)
    visible = eager.visible_keys(19, 23, is_causal=True)
    torch.testing.assert_close(out, w @ v)
    torch.testing.assert_close(statistics.weight_sum, w.sum(-1))
    torch.testing.assert_close(statistics.weight_log, torch.xlogy(w, w.abs()).sum(-1))
    torch.testing.assert_close(statistics.zero_share, ((w == 0) & visible).sum(-1) / visible.sum(-1).double())
    assert statistics.skipped_share.shape == (2, 4)
    assert not statistics.zero_share.requires_grad and not statistics.skipped_share.requires_grad


def test_learned_parameters_get_the_gradients_of_eager():
    q, k, v = qkv(requires_grad=True)
    parameters = {"gain": torch.rand(4), "bias": torch.randn(1), "alpha": torch.rand(4, dtype=torch.float64)}
    parameters = {name: p.requires_grad_() for name, p in parameters.items()}
    direction = torch.randn_like(q)
    ours = torch.autograd.grad(hinge.attention(q, k, v, h="silu", **parameters), list(parameters.values()), direction)
    expected = torch.autograd.grad(eager.attention(q, k, v, h="silu", **parameters), list(parameters.values()), direction)
    for a, b, p in zip(ours, expected, parameters.values()):
        assert a.dtype == p.dtype and a.shape == p.shape
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("h,expected", [("relu", 3), ("sigmoid", 3), ("softmax", 5)])
def test_only_inputs_are_saved_for_backward(h, expected):
    q, k, v = qkv(requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        hinge.attention(q, k, v, h=h)
    assert len(saved) == expected


def test_jagged_equals_one_by_one():
    q, k, v = qkv(B=1, Lq=20, Lk=26)
    q_offsets, k_offsets = torch.tensor([0, 5, 5, 20]), torch.tensor([0, 9, 12, 26])
    out = hinge.attention(q, k, v, is_causal=True, q_offsets=q_offsets, k_offsets=k_offsets)
    pieces = [
        hinge.attention(q[:, :, i:j], k[:, :, m:n], v[:, :, m:n], is_causal=True)
        for i, j, m, n in zip(q_offsets, q_offsets[1:], k_offsets, k_offsets[1:])
    ]
    torch.testing.assert_close(out, torch.cat(pieces, dim=2))


def test_padding_and_batch_mates_do_not_matter_with_visible_lengths():
    q, k, v = qkv(B=1, Lk=12)
    alone = hinge.attention(q, k, v, length_rule="visible", alpha=0.5)
    padded = [torch.cat([t, torch.full((1, 4, 9, 16), math.nan, dtype=t.dtype)], dim=2) for t in (k, v)]
    mate = [torch.cat([t, torch.randn_like(t)]) for t in (q, *padded)]
    out = hinge.attention(*mate, length_rule="visible", alpha=0.5, key_lengths=torch.tensor([12, 21]))
    torch.testing.assert_close(out[:1], alone)


def test_dropout_follows_the_generator_and_keeps_the_expectation():
    q, k, v = qkv(B=1, Hq=1, Hkv=1, Lq=8, Lk=64)
    torch.manual_seed(3)
    first, second = (hinge.attention(q, k, v, h="sigmoid", dropout_p=0.25) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(first, hinge.attention(q, k, v, h="sigmoid", dropout_p=0.25))
    assert not torch.equal(first, second)
    assert torch.equal(hinge.attention(q, k, v, dropout_p=0.5, seed=9), hinge.attention(q, k, v, dropout_p=0.5, seed=9))

    mean = torch.stack([hinge.attention(q, k, v, h="sigmoid", dropout_p=0.25) for _ in range(2000)])
    expected = hinge.attention(q, k, v, h="sigmoid")
    deviation = mean.std(dim=0) / math.sqrt(2000)
    assert ((mean.mean(dim=0) - expected).abs() < 6 * deviation).all()


def test_packed_projection_is_read_in_place_and_merging_heads_is_free():
    B, L, H, D = 2, 37, 4, 16
    packed = torch.randn(B, L, 3, H, D, requires_grad=True)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    out = hinge.attention(q, k, v)
    assert out.transpose(1, 2).is_contiguous()
    assert torch.equal(out, hinge.attention(q.contiguous(), k.contiguous(), v.contiguous()))
    grads = torch.autograd.grad(out.sum(), (q, k, v), retain_graph=True)
    assert all(g.transpose(1, 2).is_contiguous() for g in grads)
    (grad,) = torch.autograd.grad(out.sum(), packed)
    assert torch.equal(grad, torch.stack([g.transpose(1, 2) for g in grads], dim=2))


@pytest.mark.parametrize("h", eager.ALL)
def test_threads_do_not_change_a_bit(h):
    inputs = qkv(B=1, Hq=3, Hkv=3, Lq=300, Lk=300, D=32, dtype=torch.float32, requires_grad=True)
    threads = torch.get_num_threads()

    def run(count):
        torch.set_num_threads(count)
        out = hinge.attention(*inputs, h=h)
        return out.detach(), *torch.autograd.grad(out.square().sum(), inputs)

    try:
        one, two = run(1), run(2)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(one, two))


@pytest.mark.parametrize("B,Lq,Lk", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_empty(B, Lq, Lk):
    q, k, v = qkv(B=B, Lq=Lq, Lk=Lk, requires_grad=True)
    out = hinge.attention(q, k, v)
    assert out.shape == q.shape and not out.any()
    assert all(not g.any() for g in torch.autograd.grad(out.sum(), (q, k, v)))


def test_meta_device():
    q, k, v = (torch.empty(2, 5, 4, 8, device="meta").transpose(1, 2) for _ in range(3))
    out, statistics = hinge.attention(q, k, v, return_statistics=True)
    assert out.device.type == "meta" and out.shape == (2, 4, 5, 8) and out.transpose(1, 2).is_contiguous()
    assert statistics.weight_sum.shape == (2, 4, 5) and statistics.skipped_share.shape == (2, 4)


def test_wrong_inputs_on_the_meta_device():
    q, k, v = (torch.empty(2, 4, 5, 8, device="meta") for _ in range(3))
    for inputs, message in (
        ((torch.zeros(2, 4, 5, 8), k, v), "must be on one device, got cpu for query and meta for key"),
        ((q, k, v.double()), "must have one dtype, got torch.float32 for query and torch.float64 for value"),
        ((q.int(), k.int(), v.int()), "query has dtype torch.int32"),
        ((q, k[:, :3], v[:, :3]), "must be a multiple of the number of key and value heads, got 4 and 3"),
        ((q, k[:1], v[:1]), "one batch size, got 2 and 1"),
        ((q, k[..., :7], v[..., :7]), "one head width, got 8 and 7"),
        ((q, k, v[:, :, :4]), "one shape"),
        ((q[0], k, v), "must have four dimensions"),
    ):
        with pytest.raises(RuntimeError, match=message):
            hinge.attention(*inputs)


# What a tensor of such a device would be given to, on the tensors that there are here.
@pytest.mark.parametrize("device", ["CUDA", "MPS", "XPU"])
@pytest.mark.parametrize("h", ["relu", "gelu", "softmax"])
def test_other_devices_take_the_composite_path(device, h):
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, device))
    options = {"h": h, "causal": True, "key_lengths": torch.tensor([3, 19])}
    q, k, v = qkv()
    with torch.no_grad():
        forward, backward = torch.ops.hinge.attention_with_statistics.default, torch.ops.hinge.attention_backward.default
        ours = forward(q, k, v, statistics=True, **options)
        theirs = forward.redispatch(keys, q, k, v, statistics=True, **options)
        for fused, composite in zip(ours[:4], theirs[:4]):
            torch.testing.assert_close(composite, fused)
        assert not theirs[4].any(), "the composite path skips nothing"
        saved = (ours[0], ours[5], ours[2]) if h == "softmax" else (None, None, None)
        arguments = (torch.randn_like(q), torch.randn_like(ours[1]), torch.randn_like(ours[2]), q, k, v, *saved)
        wanted = {"wanted": [False] * 4}
        for fused, composite in zip(backward(*arguments, **wanted, **options)[:3], backward.redispatch(keys, *arguments, **wanted, **options)[:3]):
            torch.testing.assert_close(composite, fused)


def test_presets():
    assert hinge.presets() == ["relu-vit", "reluformer", "relu2", "sigmoid", "silu", "linear", "softmax"]
    q, k, v = qkv()
    for name in hinge.presets():
        options = hinge.preset(name)
        torch.testing.assert_close(
            hinge.attention(q, k, v, is_causal=True, **options), eager.attention(q, k, v, is_causal=True, **options)
        )
    assert hinge.preset("reluformer", gamma=2.0)["gain"] == pytest.approx(math.sqrt(2) / 2)
    assert hinge.preset("sigmoid") == {"h": "sigmoid", "alpha": 0.0, "gain": 1.0, "bias_log_n": True, "length_rule": "visible"}


OP_NAMES = {"is_causal": "causal", "dropout_p": "dropout"}  # ours are those of scaled_dot_product_attention


def op_options():
    return [argument for argument in torch.ops.hinge.attention.default._schema.arguments if argument.kwarg_only]


def defaults_of_the_op():
    """The options and their defaults, as the list in include/hinge/ops/attention.h has them, under the names of the Python function."""
    names = {theirs: ours for ours, theirs in OP_NAMES.items()}
    defaults = {argument.name: argument.default_value for argument in op_options()} | torch.ops.hinge.per_head_defaults()
    return {names.get(name, name): default for name, default in defaults.items()}


def test_signature_and_docstring_have_the_options_of_the_op():
    parameters = inspect.signature(hinge.attention).parameters.values()
    ours = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "return_statistics"}
    assert ours == defaults_of_the_op()
    documented = hinge.attention.__doc__.partition("Args:")[2].partition("Returns:")[0]
    described = {name for line in documented.splitlines() if line[8:9].isalpha() for name in line.partition(":")[0].split(",")}
    assert {name.strip() for name in described} == {"query", "key", "value", "return_statistics", *ours}


def test_the_types_of_options_are_those_of_the_signature():
    module = sys.modules["hinge.attention"]
    signature = typing.get_type_hints(hinge.attention)
    options = {name: signature[name] for name, p in inspect.signature(hinge.attention).parameters.items() if p.kind is p.KEYWORD_ONLY}
    del options["return_statistics"]
    assert typing.get_type_hints(module._Options) == options


def test_the_ops_share_their_options():
    def options(op):
        return {a.name: (str(a.type), a.default_value) for a in op.default._schema.arguments if a.kwarg_only}

    ours = options(torch.ops.hinge.attention)
    assert options(torch.ops.hinge.attention_with_statistics) == ours | {"statistics": ("bool", True)}
    assert {name: option for name, option in options(torch.ops.hinge.attention_backward).items() if name != "wanted"} == ours


@pytest.mark.parametrize("op", ["attention", "attention_with_statistics"])
def test_every_option_reaches_the_op(op, monkeypatch):
    given, seen = {name: torch.tensor([0.5]) for name in defaults_of_the_op()}, {}
    monkeypatch.setattr(torch.ops.hinge, op, lambda _q, _k, _v, **options: seen.update(options) or [None] * 6)
    hinge.attention(*qkv(), **given, return_statistics=op == "attention_with_statistics")
    assert len(seen) == len(given)
    assert all(seen[OP_NAMES.get(name, name)] is value for name, value in given.items())


@pytest.mark.parametrize("name", torch.ops.hinge.per_head_defaults())
def test_the_default_of_a_per_head_option_may_be_given(name):
    default = torch.ops.hinge.per_head_defaults()[name]
    q, k, v = qkv()
    expected = hinge.attention(q, k, v, h="silu")
    assert torch.equal(hinge.attention(q, k, v, h="silu", **{name: default}), expected)
    torch.testing.assert_close(hinge.attention(q, k, v, h="silu", **{name: torch.tensor([default])}), expected)
    hinge.attention(q, k, v, h="softmax", **{name: default})  # it takes none, but this says nothing


def test_parameters_changed_before_backward_are_an_error():
    q, k, v = qkv(requires_grad=True)
    gain = torch.ones(4, requires_grad=True)
    out = hinge.attention(q, k, v, gain=gain)
    with torch.no_grad():
        gain.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_names():
    assert hinge.activations() == eager.ALL
    assert hinge.simd_target()


def test_requires_the_torch_that_it_was_built_against():
    assert "torch==" + torch.__version__.split("+")[0] in importlib.metadata.requires("hinge")


ERRORS = [
    ({"h": "rely"}, r'unknown h "rely"; there are relu, relu2, .*, softmax; did you mean "relu"\?'),
    ({"length_rule": "key"}, r'unknown length_rule "key"; there are none, fixed, keys, visible; did you mean "keys"\?'),
    ({"h": "identity", "identity_order": "fastest"}, 'unknown identity_order "fastest"; there are auto, quadratic, linear$'),
    ({"identity_order": "linear"}, 'identity_order is for h = "identity" only, got h = "relu"'),
    ({"alpha": math.nan}, "alpha must be finite, got nan for head 0"),
    ({"gain": torch.tensor([1.0, 1.0, math.inf, 1.0])}, "gain must be finite, got inf for head 2"),
    ({"bias": math.nan}, "bias must be finite, got nan for head 0"),
    ({"h": "identity", "identity_order": "linear", "dropout_p": 0.1}, 'identity_order = "linear" makes no single weights'),
    ({"scale": math.inf}, "scale must be finite, got inf"),
    ({"length_rule": "fixed", "length_n": -1.0}, "length_n must be positive and finite, got -1"),
    ({"length_n": 5.0}, 'length_n is for length_rule = "fixed" only, got 5 with length_rule = "keys"'),
    ({"h": "softmax", "length_n": 5.0}, 'length_n is for length_rule = "fixed" only, got 5 with length_rule = "keys"'),
    ({"h": "softmax", "gain": 2.0}, "softmax takes no gain"),
    ({"h": "softmax", "length_rule": "visible"}, "softmax takes no length rule"),
    ({"gain": torch.ones(3)}, r"gain must have 1 element or one for each of the 4 query heads, got the shape \[3\]"),
    ({"dropout_p": 1.5}, r"dropout must be in \[0, 1\), got 1.5"),
    ({"key_lengths": torch.tensor([3, 20])}, "key_lengths must be between 0 and the number of keys, 19, got 20 for batch row 1"),
    ({"attn_mask": torch.ones(3, 19)}, r"attn_mask must broadcast to .*, \[2, 4, 19, 19\], got the shape \[3, 19\]"),
    ({"attn_mask": torch.ones(19, 19, dtype=torch.int32)}, "attn_mask has dtype Int; it must be bool"),
    ({"window": (3,)}, r"window must be two numbers, \(left, right\), got 1"),
    ({"window": (-2, 0)}, r"window must be \(left, right\) with numbers of keys, or -1 for no bound, got \(-2, 0\)"),
    ({"h": "identity", "identity_order": "linear", "window": (2, 0)}, 'identity_order = "linear" sums over the first keys'),
    ({"max_attn_len": 3}, "max_attn_len belongs to the mask of HSTU, which is causal"),
    ({"max_attn_len": 3, "is_causal": True, "window": (1, 1)}, "window and the mask of HSTU exclude each other"),
    ({"min_full_attn_seq_len": 3, "is_causal": True}, "min_full_attn_seq_len says which rows ignore max_attn_len"),
    ({"num_targets": torch.tensor([3]), "is_causal": True}, "num_targets must have one element for each of the 2 sequences, got 1"),
    ({"num_targets": torch.tensor([3, 18]), "is_causal": True, "contextual_seq_len": 2}, "num_targets and contextual_seq_len must fit"),
    ({"q_offsets": torch.tensor([0, 19])}, "q_offsets and k_offsets go together, got only q_offsets"),
]


@pytest.mark.parametrize("options,message", ERRORS)
def test_errors(options, message):
    with pytest.raises(RuntimeError, match="^hinge::attention: " + message):
        hinge.attention(*qkv(), **options)


def test_errors_of_inputs():
    q, k, v = qkv(dtype=torch.float32)
    with pytest.raises(RuntimeError, match="query has dtype Int; float32, float64, bfloat16 and float16 are supported, cast it"):
        hinge.attention(q.int(), k.int(), v.int())
    with pytest.raises(RuntimeError, match="must have one dtype, got Float for query and Double for key"):
        hinge.attention(q, k.double(), v)
    with pytest.raises(RuntimeError, match="must have four dimensions"):
        hinge.attention(q[0], k, v)
    with pytest.raises(RuntimeError, match="must be a multiple of the number of key and value heads, got 4 and 3"):
        hinge.attention(q, k[:, :3], v[:, :3])
    nested = torch.nested.nested_tensor([torch.randn(3, 4, 16), torch.randn(5, 4, 16)], layout=torch.jagged).transpose(1, 2)
    with pytest.raises(TypeError, match="nested tensors are not supported: .* with q_offsets"):
        hinge.attention(nested, nested, nested)
    with pytest.raises(RuntimeError, match="dropout needs a seed"):
        torch.ops.hinge.attention(q, k, v, dropout=0.1)


def test_double_backward_is_one_clear_error():
    q, k, v = qkv(requires_grad=True)
    (dq,) = torch.autograd.grad(hinge.attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="hinge::attention: its gradients cannot be differentiated once more"):
        dq.sum().backward()


def test_docstring_example():
    import doctest

    globs = {"hinge": hinge, "torch": torch}
    example = doctest.DocTestParser().get_doctest(hinge.attention.__doc__, globs, "attention", None, None)
    assert doctest.DocTestRunner().run(example).failed == 0
