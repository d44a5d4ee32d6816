"""bfloat16 and float16: values, gradients, autocast. float32 is inside, so errors are those of rounding inputs and results."""

import eager
import pytest
import torch
import torch.nn.functional as F

import hinge

HALF = [torch.bfloat16, torch.float16]


def qkv(L=197, D=64, Dv=None, requires_grad=False):
    return [torch.randn(2, 3, L, width).requires_grad_(requires_grad) for width in (D, D, Dv or D)]


def largest_and_rms(a, exact):
    difference = a.double() - exact
    return difference.abs().max().item(), difference.square().mean().sqrt().item()


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": torch.rand(197, 197) > 0.3}], ids=["all", "causal", "mask"])
@pytest.mark.parametrize("h", eager.ALL)
def test_error_is_at_most_twice_that_of_eager(h, options, dtype):
    torch.manual_seed(1)
    inputs = [t.to(dtype) for t in qkv()]
    direction = torch.randn(2, 3, 197, 64).to(dtype)

    def run(function, dtype):
        q, k, v = (t.to(dtype, copy=True).requires_grad_() for t in inputs)
        out = function(q, k, v, h=h, **options)
        assert out.dtype == dtype
        return out.detach(), *torch.autograd.grad(out, (q, k, v), direction.to(dtype))

    exact = run(eager.attention, torch.float64)
    for name, ours, theirs, reference in zip(("out", "dq", "dk", "dv"), run(hinge.attention, dtype), run(eager.attention, dtype), exact):
        assert ours.dtype == dtype
        for what, a, b in zip(("largest", "rms"), largest_and_rms(ours, reference), largest_and_rms(theirs, reference)):
            assert a <= 2 * b, f"{name}: {what} error {a:.3e}, eager {b:.3e}"


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("h", ["relu", "softmax"])
def test_is_float32_rounded_once(h, dtype):
    q, k, v = (t.to(dtype) for t in qkv(Dv=32))
    out, statistics = hinge.attention(q, k, v, h=h, return_statistics=True)
    expected, of_expected = hinge.attention(q.float(), k.float(), v.float(), h=h, return_statistics=True)
    assert torch.equal(out, expected.to(dtype))
    assert all(s.dtype == torch.float32 and torch.equal(s, e) for s, e in zip(statistics, of_expected))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_memory_order_is_kept(dtype):
    packed = torch.randn(2, 37, 3, 4, 16, dtype=dtype, requires_grad=True)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    out = hinge.attention(q, k, v)
    assert out.transpose(1, 2).is_contiguous()
    assert all(g.transpose(1, 2).is_contiguous() for g in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_parameters_and_masks_may_be_of_the_same_type(dtype):
    q, k, v = (t.to(dtype) for t in qkv(L=20))
    options = {"gain": torch.rand(3), "bias": torch.randn(1), "alpha": torch.rand(3), "attn_mask": torch.randn(20, 20)}
    options = {name: value.to(dtype).requires_grad_() for name, value in options.items()}
    gradients = torch.autograd.grad(hinge.attention(q, k, v, h="silu", **options).sum(), list(options.values()))
    assert all(g.dtype == dtype and g.shape == o.shape for g, o in zip(gradients, options.values()))
    wide = {name: value.detach().float().requires_grad_() for name, value in options.items()}
    out = hinge.attention(q.float(), k.float(), v.float(), h="silu", **wide).to(dtype)
    expected = torch.autograd.grad(out.sum(), list(wide.values()))
    torch.testing.assert_close(gradients, tuple(e.to(dtype) for e in expected))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_autocast_casts_as_for_scaled_dot_product_attention(dtype):
    q, k, v = qkv(L=50, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        out, theirs = hinge.attention(q, k, v, h="softmax"), F.scaled_dot_product_attention(q, k, v)
        assert hinge.attention(q.double(), k.double(), v.double()).dtype == torch.float64
    assert out.dtype == theirs.dtype == dtype
    assert torch.equal(out, hinge.attention(q.to(dtype), k.to(dtype), v.to(dtype), h="softmax"))
    gradients = torch.autograd.grad(out.float().square().sum(), (q, k, v))
    assert all(g.dtype == torch.float32 for g in gradients)
    with torch.autocast("cpu", dtype=dtype, enabled=False):
        assert hinge.attention(q, k, v).dtype == torch.float32


def test_autocast_in_a_layer():
    layer = torch.nn.Linear(64, 192)
    x = torch.randn(2, 30, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        q, k, v = layer(x).view(2, 30, 3, 4, 16).transpose(1, 3).unbind(2)
        loss = hinge.attention(q, k, v).float().square().sum()
    loss.backward()
    assert layer.weight.grad.dtype == torch.float32 and layer.weight.grad.isfinite().all()


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("h", ["relu", "softmax"])
def test_opcheck(h, dtype):
    q, k, v = (torch.randn(2, 4, 7, 8, dtype=dtype, requires_grad=True) for _ in range(3))
    torch.library.opcheck(torch.ops.hinge.attention_with_statistics.default, (q, k, v), {"h": h})
    torch.library.opcheck(torch.ops.hinge.attention.default, (q, k, v), {"h": h, "attn_mask": torch.rand(7, 7) > 0.3})
