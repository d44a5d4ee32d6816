"""Masks of hinge.attention against a dense reference in plain PyTorch: boolean, additive, windows, HSTU's."""

import math
import time

import eager
import pytest
import torch
import torch.nn.functional as F

import hinge

SHAPES = {  # B, Hq, Lq, Lk = 2, 4, 37, 53
    "full": (2, 4, 37, 53),
    "2-D": (37, 53),
    "padding": (2, 1, 1, 53),
    "heads": (4, 37, 53),
    "rows": (2, 1, 37, 1),
    "one": (1, 1, 1, 1),
}


def qkv(B=2, Hq=4, Hkv=2, Lq=37, Lk=53, D=16, dtype=torch.float64):
    return [torch.randn(B, H, L, D, dtype=dtype, requires_grad=True) for H, L in ((Hq, Lq), (Hkv, Lk), (Hkv, Lk))]


def random_mask(shape, additive):
    visible = torch.rand(shape) > 0.4
    if shape[-2] > 1:
        visible[..., 5:8, :] = False  # rows that see nothing
        visible[..., :20, 30:] = False
    if shape[-1] > 1:
        visible[..., 11:13] = False
    if not additive:
        return visible
    return torch.randn(shape, dtype=torch.float64).masked_fill(~visible, -math.inf).requires_grad_()


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("h", eager.ALL)
def test_mask_equals_eager(h, name, additive):
    torch.manual_seed(len(h) + len(name))
    for options in ({}, {"is_causal": True}, {"key_lengths": torch.tensor([40, 9])}, {"window": (9, None)}):
        if h != "softmax":
            options |= {"length_rule": "visible"}
        inputs = qkv()
        mask = random_mask(SHAPES[name], additive)
        ours = hinge.attention(*inputs, h=h, attn_mask=mask, **options)
        expected = eager.attention(*inputs, h=h, attn_mask=mask, **options)
        torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)
        differentiable = (*inputs, mask) if additive else inputs
        direction = torch.randn_like(ours)
        torch.testing.assert_close(
            torch.autograd.grad(ours, differentiable, direction),
            torch.autograd.grad(expected, differentiable, direction),
            rtol=1e-10,
            atol=1e-10,
        )


@pytest.mark.parametrize("h", ["relu", "silu", "softmax"])
def test_gradcheck_of_an_additive_mask(h):
    q, k, v = qkv(Hq=2, Hkv=1, Lq=5, Lk=6, D=4)
    for shape in ((2, 2, 5, 6), (5, 6), (2, 1, 1, 6), (2, 5, 1), (2, 1, 1), ()):
        mask = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        run = lambda *inputs: hinge.attention(*inputs[:3], h=h, attn_mask=inputs[3])  # noqa: E731
        assert torch.autograd.gradcheck(run, (q, k, v, mask), eps=1e-7, atol=1e-5, rtol=1e-4, nondet_tol=0)


@pytest.mark.parametrize("additive", [False, True])
def test_softmax_with_a_mask_equals_scaled_dot_product_attention(additive):
    q, k, v = qkv(Hkv=4, Lq=130, Lk=130, D=64, dtype=torch.float32)
    mask = torch.rand(130, 130) > 0.3
    if additive:
        mask = torch.randn(130, 130).masked_fill(~mask, -math.inf)
    torch.testing.assert_close(
        hinge.attention(q, k, v, h="softmax", attn_mask=mask), F.scaled_dot_product_attention(q, k, v, attn_mask=mask), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("h", eager.ALL)
def test_what_is_hidden_may_be_anything(h):
    q, k, v = qkv(Hkv=4)
    mask = random_mask((37, 53), additive=False)
    expected = hinge.attention(q, k, v, h=h, attn_mask=mask)
    direction = torch.randn_like(expected)
    expected_grads = torch.autograd.grad(expected, (q, k, v), direction)
    # Key 20 is seen by some rows, 11 and 12 by none.
    for keys, clean in (([11, 12], torch.ones(37, dtype=torch.bool)), ([20, 12], ~mask[:, 20])):
        bad_k, bad_v = k.detach().clone(), v.detach().clone()
        bad_k[:, :, keys], bad_v[:, :, keys] = math.nan, math.inf
        bad_k.requires_grad_(), bad_v.requires_grad_()
        ours = hinge.attention(q, bad_k, bad_v, h=h, attn_mask=mask)
        torch.testing.assert_close(ours[:, :, clean], expected[:, :, clean], rtol=1e-12, atol=1e-12)
        dq, _, _ = torch.autograd.grad(ours, (q, bad_k, bad_v), direction)
        torch.testing.assert_close(dq[:, :, clean], expected_grads[0][:, :, clean], rtol=1e-12, atol=1e-12)
    # A row that is NaN does not show in the gradients of keys that it does not see.
    bad_q = q.detach().clone()
    bad_q[:, :, 25] = math.nan
    bad_q.requires_grad_()
    _, dk, dv = torch.autograd.grad(hinge.attention(bad_q, k, v, h=h, attn_mask=mask), (bad_q, k, v), direction)
    without = mask.clone()
    without[25] = False
    _, expected_dk, expected_dv = torch.autograd.grad(hinge.attention(q, k, v, h=h, attn_mask=without), (q, k, v), direction)
    hidden = ~mask[25]
    torch.testing.assert_close(dk[:, :, hidden], expected_dk[:, :, hidden], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dv[:, :, hidden], expected_dv[:, :, hidden], rtol=1e-12, atol=1e-12)


def test_a_mask_of_all_or_nothing():
    q, k, v = qkv()
    torch.testing.assert_close(
        hinge.attention(q, k, v, attn_mask=torch.ones(37, 53, dtype=torch.bool)), hinge.attention(q, k, v), rtol=1e-13, atol=1e-13
    )
    for h in eager.ALL:
        out = hinge.attention(q, k, v, h=h, attn_mask=torch.zeros(37, 53, dtype=torch.bool))
        assert not out.any()
        assert not any(g.any() for g in torch.autograd.grad(out.sum(), (q, k, v)))


def test_statistics_count_what_is_visible():
    q, k, v = qkv(Hkv=4)
    mask = random_mask((4, 37, 53), additive=False)
    for h in ("relu", "sigmoid", "softmax"):
        w = eager.weights(q, k, h=h, attn_mask=mask)
        _, statistics = hinge.attention(q, k, v, h=h, attn_mask=mask, return_statistics=True)
        torch.testing.assert_close(statistics.weight_sum, w.sum(-1))
        torch.testing.assert_close(statistics.weight_log, torch.xlogy(w, w.abs()).sum(-1))
        zeros = ((w == 0) & mask).sum(-1) / mask.sum(-1).clamp_min(1).double()
        torch.testing.assert_close(statistics.zero_share, zeros)


@pytest.mark.parametrize("window", [(0, 0), (3, 0), (None, 2), (7, -1), (5, 4), (200, 200)])
@pytest.mark.parametrize("Lq,Lk", [(300, 300), (1, 300), (40, 300), (60, 20)])
@pytest.mark.parametrize("h", ["relu", "sigmoid", "identity", "softmax"])
def test_window_equals_eager(h, window, Lq, Lk):
    inputs = qkv(Lq=Lq, Lk=Lk)
    ours, expected = (f(*inputs, h=h, window=window) for f in (hinge.attention, eager.attention))
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)
    direction = torch.randn_like(ours)
    torch.testing.assert_close(
        torch.autograd.grad(ours, inputs, direction), torch.autograd.grad(expected, inputs, direction), rtol=1e-10, atol=1e-10
    )


def test_a_window_saves_the_work_of_the_other_keys():
    q, k, v = (torch.randn(1, 1, 8192, 16, requires_grad=True) for _ in range(3))

    def seconds(**options):  # of processor time
        samples = []
        for _ in range(3):
            start = time.process_time()
            hinge.attention(q, k, v, **options).sum().backward()
            samples.append(time.process_time() - start)
        return min(samples)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert seconds(window=(40, 20)) < seconds() / 8  # it sees 61 of 8192 keys
    finally:
        torch.set_num_threads(threads)


def test_a_window_may_be_jagged():
    q, k, v = qkv(B=1, Lq=90, Lk=90)
    offsets = torch.tensor([0, 31, 31, 90])
    ours = hinge.attention(q, k, v, window=(4, 2), q_offsets=offsets, k_offsets=offsets)
    pieces = [hinge.attention(*(t[:, :, i:j] for t in (q, k, v)), window=(4, 2)) for i, j in zip(offsets, offsets[1:])]
    torch.testing.assert_close(ours, torch.cat(pieces, dim=2))


def hstu_mask(length, targets, max_attn_len, context, full):
    """[length, length], bool: what each item of a sequence sees, written item by item."""
    first_target = length - targets
    number = [min(max(i - max(context - 1, 0), 0), first_target - max(context - 1, 0)) for i in range(length)]
    visible = torch.eye(length, dtype=torch.bool)
    for i in range(length):
        for j in range(length):
            distance = number[i] - number[j]
            is_full = full > 0 and i >= first_target - full
            if distance > 0 and (max_attn_len == 0 or distance <= max_attn_len or is_full):
                visible[i, j] = True
            if i < context and j < first_target:
                visible[i, j] = True
    return visible


@pytest.mark.parametrize("context", [0, 1, 5])
@pytest.mark.parametrize("max_attn_len, full", [(0, 0), (1, 0), (1, 9), (20, 0), (20, 1), (20, 200)])
@pytest.mark.parametrize("with_targets", [False, True])
def test_hstu_equals_a_dense_reference(with_targets, max_attn_len, full, context):
    lengths, targets = [60, 5, 0, 131], [7, 0, 0, 30] if with_targets else [0] * 4
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    inputs = qkv(B=1, Hkv=4, Lq=sum(lengths), Lk=sum(lengths))
    options = {"h": "silu", "length_rule": "fixed", "length_n": 150.0}
    ours = hinge.attention(
        *inputs,
        is_causal=True,
        q_offsets=offsets,
        k_offsets=offsets,
        num_targets=torch.tensor(targets) if with_targets else None,
        max_attn_len=max_attn_len,
        contextual_seq_len=context,
        min_full_attn_seq_len=full,
        **options,
    )
    mask = torch.block_diag(*(hstu_mask(n, t, max_attn_len, context, full) for n, t in zip(lengths, targets))).bool()
    expected = eager.attention(*inputs, attn_mask=mask, **options)
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)
    direction = torch.randn_like(ours)
    torch.testing.assert_close(
        torch.autograd.grad(ours, inputs, direction), torch.autograd.grad(expected, inputs, direction), rtol=1e-10, atol=1e-10
    )
