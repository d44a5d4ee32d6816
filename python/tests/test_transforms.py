"""What PyTorch does to functions: torch.func, torch.export, checkpointing, gradient accumulation, forked workers."""

import pytest
import torch
import torch.utils.checkpoint
import torch.utils.data

import hinge


def qkv(B=3, H=2, L=11, D=8, requires_grad=False):
    return [torch.randn(B, H, L, D, requires_grad=requires_grad) for _ in range(3)]


def with_statistics(q, k, v, **options):
    out, statistics = hinge.attention(q, k, v, return_statistics=True, **options)
    return torch.cat([out.flatten(), statistics.weight_sum.flatten(), statistics.weight_log.flatten()])


FUNCTIONS = {h: (hinge.attention, {"h": h, "is_causal": True}) for h in hinge.activations()} | {
    "mask": (hinge.attention, {"h": "silu", "attn_mask": torch.rand(11, 11) > 0.3, "length_rule": "visible", "window": (6, None)}),
    "lengths and dropout": (hinge.attention, {"h": "gelu", "key_lengths": torch.tensor([3, 11, 7]), "dropout_p": 0.3, "seed": 5}),
    "statistics": (with_statistics, {"h": "sigmoid"}),
    "statistics of softmax": (with_statistics, {"h": "softmax"}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_func_grad_equals_autograd(name):
    function, options = FUNCTIONS[name]
    inputs = qkv(requires_grad=True)
    loss = lambda q, k, v: function(q, k, v, **options).square().sum()  # noqa: E731
    got = torch.func.grad(loss, argnums=(0, 1, 2))(*inputs)
    torch.testing.assert_close(got, torch.autograd.grad(loss(*inputs), inputs))


@pytest.mark.parametrize("wanted", [(0, 1, 2, 3), (1, 3)])
def test_func_grad_of_learned_options(wanted):
    q, k, v = qkv()
    loss = lambda *given: hinge.attention(q, k, v, h="silu", **dict(zip(("alpha", "gain", "bias", "attn_mask"), given))).square().sum()  # noqa: E731
    given = [tensor.requires_grad_() for tensor in (torch.rand(2), torch.rand(1), torch.randn(2), torch.randn(2, 11, 11))]
    got = torch.func.grad(loss, argnums=wanted)(*given)
    torch.testing.assert_close(got, torch.autograd.grad(loss(*given), [given[i] for i in wanted]))


def test_func_grad_under_autocast():
    inputs = qkv(requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = lambda q, k, v: hinge.attention(q, k, v).float().square().sum()  # noqa: E731
        got, expected = torch.func.grad(loss, argnums=(0, 1, 2))(*inputs), torch.autograd.grad(loss(*inputs), inputs)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_gradients_of_each_sample():
    module, x = hinge.Attention(16, 2, learn_alpha="head", qk_norm=True), torch.randn(4, 7, 16)
    loss = lambda parameters, x: torch.func.functional_call(module, parameters, x[None]).square().sum()  # noqa: E731
    got = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(module.named_parameters()), x)
    for i in range(4):
        expected = torch.autograd.grad(module(x[i : i + 1]).square().sum(), list(module.parameters()))
        torch.testing.assert_close([got[name][i] for name, _ in module.named_parameters()], list(expected))


def test_jacobian_equals_autograd():
    q, k, v = (tensor.double() for tensor in qkv(B=1, L=3, D=2))
    function = lambda q: hinge.attention(q, k, v, h="silu")  # noqa: E731
    torch.testing.assert_close(torch.func.jacrev(function)(q), torch.autograd.functional.jacobian(function, q))


def test_second_and_forward_derivatives_are_errors():
    q, k, v = qkv()
    slope = torch.func.grad(lambda q: hinge.attention(q, k, v).square().sum())
    with pytest.raises(RuntimeError, match="hinge::attention: its gradients cannot be differentiated once more"):
        torch.func.grad(lambda q: slope(q).sum())(q)
    with pytest.raises(NotImplementedError, match="forward mode AD"):
        torch.func.jvp(lambda q: hinge.attention(q, k, v), (q,), (q,))


def test_vmap():
    q, k, v = (torch.stack(ts) for ts in zip(*(qkv() for _ in range(4))))
    out = torch.vmap(lambda q, k, v: hinge.attention(q, k, v))(q, k, v)
    torch.testing.assert_close(out, torch.stack([hinge.attention(*each) for each in zip(q, k, v)]))


class Attends(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.projection = torch.nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = self.projection(x).unflatten(-1, (3, 4, 8)).transpose(1, 3).unbind(2)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return hinge.attention(q, k, v, attn_mask=mask, window=(5, None)).transpose(1, 2).flatten(2)


def test_export():
    module, x = Attends(), torch.randn(2, 13, 32)
    program = torch.export.export(module, (x,))
    torch.testing.assert_close(program.module()(x), module(x))
    assert any("hinge.attention" in str(node.target) for node in program.graph.nodes)


def test_aot_inductor(tmp_path):
    module, x = Attends(), torch.randn(2, 13, 32)
    with torch.no_grad():
        package = torch._inductor.aoti_compile_and_package(torch.export.export(module, (x,)), package_path=str(tmp_path / "a.pt2"))
        torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), module(x))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_gives_the_same_gradients(use_reentrant):
    q, k, v = qkv(L=40, requires_grad=True)

    def run(q, k, v):
        return hinge.attention(q, k, v, h="gelu", dropout_p=0.2, attn_mask=mask)

    mask = torch.rand(40, 40) > 0.3
    torch.manual_seed(5)
    expected = torch.autograd.grad(run(q, k, v).square().sum(), (q, k, v))
    torch.manual_seed(5)
    torch.utils.checkpoint.checkpoint(run, q, k, v, use_reentrant=use_reentrant).square().sum().backward()
    assert all(torch.equal(t.grad, e) for t, e in zip((q, k, v), expected))


def test_gradient_accumulation_gives_the_sum():
    module, x = Attends(), torch.randn(4, 13, 32)
    module(x).square().sum().backward()
    expected = module.projection.weight.grad.clone()
    module.zero_grad()
    for part in x.split(1):
        module(part).square().sum().backward()
    torch.testing.assert_close(module.projection.weight.grad, expected, rtol=1e-4, atol=1e-4)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        torch.manual_seed(i)
        return hinge.attention(*qkv(L=150), h="relu")


def test_data_loader_workers_forked_after_the_first_call():
    expected = [Rows()[i] for i in range(4)]
    loader = torch.utils.data.DataLoader(Rows(), num_workers=2, batch_size=None, multiprocessing_context="fork", timeout=60)
    assert all(torch.equal(a, b) for a, b in zip(loader, expected, strict=True))
