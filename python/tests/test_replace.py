"""hinge.replace_attention in models of timm and of torch.nn: the same outputs with softmax, trained with relu, clear errors."""

import eager
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hinge


@pytest.fixture(scope="module")
def timm():
    return pytest.importorskip("timm")


def tiny_vit(timm, **options):
    arguments = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": 5} | options
    return timm.models.vision_transformer.VisionTransformer(**arguments).eval()


IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("options", [{}, {"qk_norm": True}, {"qkv_bias": False, "class_token": False, "global_pool": "avg"}])
def test_timm_vit_with_softmax_equals_its_own(timm, options):
    model = tiny_vit(timm, **options)
    expected, state = model(IMAGES), {name: value.clone() for name, value in model.state_dict().items()}
    parameters = list(model.parameters())
    assert hinge.replace_attention(model, h="softmax") == ["blocks.0.attn", "blocks.1.attn"]
    torch.testing.assert_close(model(IMAGES), expected, atol=1e-5, rtol=1e-5)
    assert not model.training and all(a is b for a, b in zip(model.parameters(), parameters, strict=True)), "an optimiser keeps its parameters"
    assert model.state_dict().keys() == state.keys()
    model.load_state_dict(state)


def test_timm_vit_with_relu_is_the_formula(timm, monkeypatch):
    model = tiny_vit(timm, qk_norm=True)
    with torch.no_grad():
        monkeypatch.setattr(F, "scaled_dot_product_attention", lambda q, k, v, **_: eager.attention(q, k, v, h="relu", alpha=0.5))
        expected = model(IMAGES)
        monkeypatch.undo()
        hinge.replace_attention(model, h="relu", alpha=0.5)
        torch.testing.assert_close(model(IMAGES), expected, atol=1e-5, rtol=1e-5)


def losses(model, forward, steps=12):
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    history = []
    for _ in range(steps):
        adam.zero_grad()
        loss = F.cross_entropy(forward(), torch.tensor([0, 1]))
        loss.backward()
        adam.step()
        history.append(loss.item())
    return history


@pytest.mark.parametrize("options", [{"h": "relu"}, {"preset": "sigmoid"}, {"h": "relu", "learn_alpha": "head"}])
def test_timm_vit_trains(timm, options):
    model = tiny_vit(timm).train()
    hinge.replace_attention(model, **options)
    history = losses(model, lambda: model(IMAGES))
    assert history[-1] < 0.5 * history[0]
    if "learn_alpha" in options:
        assert model.blocks[0].attn.alpha.shape == (3,) and (model.blocks[0].attn.alpha != 1).all()


@pytest.mark.parametrize("mask", ["bool", "added", "causal"])
def test_timm_masks(timm, mask):
    own = tiny_vit(timm).blocks[0].attn
    x, visible = torch.randn(2, 7, 48), (torch.rand(2, 1, 7, 7) < 0.6) | torch.eye(7, dtype=torch.bool)
    arguments = {"bool": {"attn_mask": visible}, "added": {"attn_mask": torch.randn(3, 7, 7)}, "causal": {"is_causal": True}}[mask]
    expected = own(x, **arguments)
    holder = nn.ModuleList([own])
    hinge.replace_attention(holder, h="softmax")
    torch.testing.assert_close(holder[0](x, **arguments), expected, atol=1e-5, rtol=1e-5)


def test_timm_maps_and_gradient_checkpointing(timm):
    model = tiny_vit(timm)
    hinge.replace_attention(model, h="softmax")
    maps = hinge.attention_maps(model, IMAGES)
    assert maps.keys() == {"blocks.0.attn", "blocks.1.attn"}
    assert maps["blocks.1.attn"].shape == (2, 3, 17, 17) and maps["blocks.1.attn"].sum(-1) == pytest.approx(1, abs=1e-5)

    def gradients():
        model.zero_grad()
        model.train()(IMAGES).sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    expected = gradients()
    model.set_grad_checkpointing()
    torch.testing.assert_close(gradients(), expected)


def test_what_cannot_be_replaced_is_an_error_and_changes_nothing(timm):
    model = tiny_vit(timm, global_pool="map", class_token=False)
    with pytest.raises(ValueError, match=r"attn_pool \(timm.layers.attention_pool.AttentionPoolLatent\).*model.blocks"):
        hinge.replace_attention(model)
    assert not any(isinstance(module, hinge.Attention) for module in model.modules())
    expected = model(IMAGES)
    assert hinge.replace_attention(model.blocks, h="softmax") == ["0.attn", "1.attn"]
    torch.testing.assert_close(model(IMAGES), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="found no attention in Linear"):
        hinge.replace_attention(nn.Linear(2, 2))
    replaced = tiny_vit(timm)
    hinge.replace_attention(replaced)
    with pytest.raises(ValueError, match="the attention of VisionTransformer is Hinge's already"):
        hinge.replace_attention(replaced, h="sigmoid")
    with pytest.raises(RuntimeError, match="softmax takes no alpha"):
        hinge.replace_attention(tiny_vit(timm), h="softmax", alpha=2.0)
    with pytest.raises(RuntimeError, match="relu"):
        hinge.replace_attention(tiny_vit(timm), h="rleu")


def test_attention_of_other_models_is_named_once_for_each_class(timm):
    model = timm.models.cait.Cait(img_size=32, patch_size=8, embed_dim=48, depth=4, num_heads=3)
    with pytest.raises(ValueError, match=r"cannot replace blocks.0.attn, blocks.1.attn and 2 more \(timm.models.cait.TalkingHeadAttn\), "):
        hinge.replace_attention(model)
    with pytest.raises(ValueError, match="TalkingHeadAttn"):
        hinge.replace_attention(model.blocks)


def test_an_attention_in_two_places_is_replaced_in_both(timm):
    own = timm.layers.Attention(48, 3)
    model = nn.ModuleDict({"first": own, "second": own})
    assert hinge.replace_attention(model) == ["first", "second"]
    assert isinstance(model["second"], hinge.Attention) and model["first"] is model["second"]


# ---- torch.nn


def encoder(**options):
    layer = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, **({"batch_first": True} | options))
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=options.get("batch_first", True) and not options.get("norm_first", False)).eval()


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer_encoder_with_softmax_equals_its_own(batch_first, norm_first):
    model = encoder(batch_first=batch_first, norm_first=norm_first)
    x = torch.randn(3, 7, 24)
    expected = model(x)
    names = {name: parameter for name, parameter in model.named_parameters()}
    assert hinge.replace_attention(model, h="softmax") == ["layers.0.self_attn", "layers.1.self_attn"]
    torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-5)
    assert all(parameter is names[name] for name, parameter in model.named_parameters())
    with torch.no_grad():  # torch's fused path, which knows only softmax, must not be taken
        relu = encoder(batch_first=batch_first, norm_first=norm_first)
        hinge.replace_attention(relu, h="relu")
        relu.load_state_dict(model.state_dict())
        assert not torch.allclose(relu(x), expected, atol=1e-3)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("masks", ["padding", "causal", "causal hint", "both", "added"])
def test_transformer_encoder_masks(masks, training):
    model = encoder().train(training)
    lengths = torch.tensor([7, 3, 5])
    padding = torch.arange(7) >= lengths[:, None]
    causal = nn.Transformer.generate_square_subsequent_mask(7)
    arguments = {
        "padding": {"src_key_padding_mask": padding},
        "causal": {"mask": causal},
        "causal hint": {"mask": causal, "is_causal": True},
        "both": {"mask": causal.isinf(), "src_key_padding_mask": padding},
        "added": {"mask": torch.randn(12, 7, 7)},
    }[masks]
    x = torch.randn(3, 7, 24)
    expected = model(x, **arguments)
    hinge.replace_attention(model, h="softmax")
    real = ~padding if "src_key_padding_mask" in arguments else torch.ones_like(padding)
    torch.testing.assert_close(model(x, **arguments)[real], expected[real], atol=1e-5, rtol=1e-5)
    if masks == "padding":  # with relu, too, padding changes nothing
        relu = encoder().train(training)
        hinge.replace_attention(relu, h="relu")
        torch.testing.assert_close(relu(x, **arguments)[1, :3], relu(x[1:2, :3])[0], atol=1e-5, rtol=1e-5)


def test_multihead_attention_weights_and_unbatched():
    own = nn.MultiheadAttention(24, 4, batch_first=True).eval()
    ours = hinge.MultiheadAttention(own, {"h": "softmax"})
    q, kv = torch.randn(2, 5, 24), torch.randn(2, 7, 24)
    for arguments in ((q, kv, kv), (q[0], kv[0], kv[0])):
        torch.testing.assert_close(ours(*arguments), own(*arguments), atol=1e-6, rtol=1e-5)


def test_a_causal_hint_means_what_the_mask_says():
    own = nn.MultiheadAttention(24, 4, batch_first=True).eval()
    ours = hinge.MultiheadAttention(own, {"h": "softmax"})
    q, kv, mask = torch.randn(2, 5, 24), torch.randn(2, 7, 24), torch.ones(5, 7, dtype=torch.bool).triu(1)
    arguments = {"attn_mask": mask, "is_causal": True, "need_weights": False}
    torch.testing.assert_close(ours(q, kv, kv, **arguments)[0], own(q, kv, kv, **arguments)[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("options, message", [({"add_bias_kv": True}, "add_bias_kv"), ({"kdim": 8}, "kdim"), ({"add_zero_attn": True}, "add_zero_attn")])
def test_multihead_attention_that_cannot_be_honoured(options, message):
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(24, 4, **options)})
    with pytest.raises(ValueError, match=message):
        hinge.replace_attention(model)
    assert isinstance(model["attention"], nn.MultiheadAttention)


def test_transformer_encoder_trains_with_relu():
    model = encoder().train()
    hinge.replace_attention(model, h="relu")
    x = torch.randn(2, 7, 24)
    history = losses(model, lambda: model(x).mean(1)[:, :5])
    assert history[-1] < 0.8 * history[0]
