"""The op inside PyTorch's machinery: opcheck, torch.compile without a graph break, dynamic shapes."""

import eager
import pytest
import torch
import torch._dynamo.testing

import hinge

OPTIONS = {
    "default": {},
    "causal softmax": {"h": "softmax", "causal": True},
    "key lengths": {"h": "silu", "key_lengths": torch.tensor([3, 7]), "length_rule": "visible"},
    "learned": {"gain": torch.rand(4), "bias": torch.randn(1), "alpha": torch.rand(4), "h": "gelu"},
    "dropout": {"dropout": 0.2, "seed": torch.tensor([5])},
    "fixed length": {"h": "sigmoid", "length_rule": "fixed", "length_n": 9.0, "bias_log_n": True},
    "linear order": {"h": "identity", "identity_order": "linear", "causal": True},
    "mask": {"attn_mask": torch.rand(2, 1, 7, 7) > 0.3, "causal": True},
    "additive mask": {"h": "silu", "attn_mask": torch.randn(4, 7, 7)},
    "window": {"window": [2, 1], "length_rule": "visible"},
    "hstu": {"h": "silu", "causal": True, "num_targets": torch.tensor([2, 0]), "max_attn_len": 3, "contextual_seq_len": 1, "min_full_attn_seq_len": 2},
    "jagged": {"q_offsets": torch.tensor([0, 2, 7]), "k_offsets": torch.tensor([0, 3, 7]), "length_rule": "visible"},
}


def qkv(Hkv=2, dtype=torch.float32, requires_grad=True, L=7, merged=False, B=2):
    def make(H):
        if merged:
            return torch.randn(B, L, H, 8, dtype=dtype, requires_grad=requires_grad).transpose(1, 2)
        return torch.randn(B, H, L, 8, dtype=dtype, requires_grad=requires_grad)

    return make(4), make(Hkv), make(Hkv)


def batch(name):
    return 1 if "q_offsets" in OPTIONS[name] else 2


def learned(options, requires_grad=True):
    """The options, with leaves that require grad for gain, bias, alpha and an additive mask."""
    return {
        name: value.clone().requires_grad_(requires_grad) if name in ("gain", "bias", "alpha", "attn_mask") and value.is_floating_point()
        else value
        for name, value in options.items()
    }


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_opcheck_attention(name, merged):
    torch.library.opcheck(torch.ops.hinge.attention.default, qkv(merged=merged, B=batch(name)), learned(OPTIONS[name]))


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_opcheck_attention_with_statistics(name, statistics):
    options = learned(OPTIONS[name]) | {"statistics": statistics}
    torch.library.opcheck(torch.ops.hinge.attention_with_statistics.default, qkv(B=batch(name)), options)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_opcheck_attention_backward(name, merged):
    q, k, v = qkv(requires_grad=False, merged=merged, B=batch(name))
    options = OPTIONS[name]
    out, weight_sum, weight_log, *_, lse = torch.ops.hinge.attention_with_statistics(q, k, v, **options)
    saved = (out, lse, weight_log) if options.get("h") == "softmax" else (None, None, None)
    for wanted in ([True] * 4, [False, True, False, True]):
        arguments = (torch.randn_like(out), torch.randn_like(weight_sum), torch.randn_like(weight_log), q, k, v, *saved)
        torch.library.opcheck(torch.ops.hinge.attention_backward.default, arguments, options | {"wanted": wanted})
    torch.library.opcheck(
        torch.ops.hinge.attention_backward.default,
        (None, torch.randn_like(weight_sum), None, q, k, v, *saved),
        options | {"wanted": [True] * 4},
    )


def block(x, w, alpha, h):
    """Projection, attention with statistics, merged heads."""
    B, L, C = x.shape
    q, k, v = (x @ w).view(B, L, 3, 4, C // 4).transpose(1, 3).unbind(2)
    out, statistics = hinge.attention(q, k, v, h=h, is_causal=True, return_statistics=True, **({} if alpha is None else {"alpha": alpha}))
    return out.transpose(1, 2).reshape(B, L, C), statistics.weight_sum, statistics.weight_log


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("h", ["relu", "sigmoid", "softmax"])
def test_compile_equals_eager_without_a_graph_break(h, dynamic):
    torch.compiler.reset()
    w = torch.randn(32, 96, requires_grad=True)
    alpha = None if h == "softmax" else torch.rand(4, requires_grad=True)
    parameters = [w] if alpha is None else [w, alpha]
    compiled = torch.compile(block, fullgraph=True, dynamic=dynamic)
    for B, L in ((2, 9), (3, 14), (3, 21)) if dynamic else ((2, 9),):
        x = torch.randn(B, L, 32)
        ours, expected = compiled(x, w, alpha, h), block(x, w, alpha, h)
        torch.testing.assert_close(ours, expected)
        assert [t.stride() for t in ours] == [t.stride() for t in expected]
        loss = [sum(t.square().sum() for t in outputs) for outputs in (ours, expected)]
        torch.testing.assert_close(torch.autograd.grad(loss[0], parameters), torch.autograd.grad(loss[1], parameters))


def test_other_lengths_do_not_recompile():
    torch.compiler.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda q, k, v: hinge.attention(q, k, v), fullgraph=True, dynamic=True, backend=counter)
    compiled(*qkv(L=6))
    compilations = counter.frame_count
    for L in (11, 17):
        q, k, v = qkv(L=L)
        torch.testing.assert_close(compiled(q, k, v), hinge.attention(q, k, v))
    assert counter.frame_count == compilations


def test_dropout_and_numbers_compile():
    torch.compiler.reset()
    q, k, v = qkv()
    compiled = torch.compile(lambda q, k, v: hinge.attention(q, k, v, dropout_p=0.5, gain=2.0, alpha=0.5), fullgraph=True)
    first, second = compiled(q, k, v), compiled(q, k, v)
    assert not torch.equal(first, second)
    first.sum().backward()
    assert q.grad.isfinite().all()
    seeded = torch.compile(lambda q, k, v: hinge.attention(q, k, v, dropout_p=0.5, seed=3), fullgraph=True)
    torch.testing.assert_close(seeded(q, k, v), hinge.attention(q, k, v, dropout_p=0.5, seed=3))


def test_inference_mode():
    with torch.inference_mode():
        q, k, v = qkv(requires_grad=False)
        torch.testing.assert_close(hinge.attention(q, k, v), eager.attention(q, k, v))
