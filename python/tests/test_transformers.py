"""hinge.register_transformers in tiny models with random weights: equal with softmax, trained and generating with relu, masks, refusals."""

import pytest
import torch

import hinge

transformers = pytest.importorskip("transformers")
hinge.register_transformers()

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {"vocab_size": 50, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None} | SIZES


def make(config_class, model_class, implementation, **options):
    """The model with the same weights for every implementation."""
    torch.manual_seed(7)
    model = model_class._from_config(config_class(**options), attn_implementation=implementation)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def llama(implementation, **options):
    return make(transformers.LlamaConfig, transformers.LlamaForCausalLM, implementation, **(TEXT | {"num_key_value_heads": 2} | options))


def bert(implementation):
    return make(transformers.BertConfig, transformers.BertModel, implementation, **TEXT)


def vit(implementation):
    return make(transformers.ViTConfig, transformers.ViTForImageClassification, implementation, image_size=16, patch_size=4, num_labels=3, **SIZES)


def tokens(*lengths, left=False):
    """Random tokens and their mask, padded to the longest."""
    longest = max(lengths)
    ids, mask = torch.zeros(len(lengths), longest, dtype=torch.long), torch.zeros(len(lengths), longest, dtype=torch.long)
    for row, n in enumerate(lengths):
        place = slice(longest - n, None) if left else slice(0, n)
        ids[row, place], mask[row, place] = torch.randint(1, 50, (n,)), 1
    return {"input_ids": ids, "attention_mask": mask}


def close(got, expected, mask=None):
    if mask is not None:
        got, expected = got[mask.bool()], expected[mask.bool()]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_names():
    names = hinge.register_transformers()
    assert {"hinge_relu", "hinge_relu2", "hinge_sigmoid", "hinge_silu", "hinge_softmax", "hinge_reluformer"} <= set(names)
    assert {f"hinge_{h}" for h in hinge.activations()} | {f"hinge_{p}" for p in hinge.presets()} == set(names)
    assert set(names) <= set(transformers.AttentionMaskInterface().valid_keys()), "without a mask function a model hands over no mask"


@torch.no_grad()
def test_vit_with_softmax_equals_sdpa_and_relu_is_the_formula(monkeypatch):
    images = torch.randn(2, 3, 16, 16)
    close(vit("hinge_softmax")(images).logits, vit("sdpa")(images).logits)
    import eager

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda q, k, v, scale, **_: eager.attention(q, k, v, h="relu", scale=scale))
    expected = vit("sdpa")(images).logits
    monkeypatch.undo()
    close(vit("hinge_relu")(images).logits, expected)


@pytest.mark.parametrize("left", [False, True])
@torch.no_grad()
def test_llama_and_bert_with_padding_equal_sdpa(left):
    batch = tokens(5, 9, 2, left=left)
    for model in (llama, bert):
        got, expected = (model(name)(**batch)[0] for name in ("hinge_softmax", "sdpa"))
        close(got, expected, batch["attention_mask"])


@pytest.mark.parametrize("name", ["hinge_relu", "hinge_sigmoid", "hinge_identity", "hinge_softplus", "hinge_reluformer"])
@torch.no_grad()
def test_padding_changes_nothing(name):
    batch = tokens(5, 9, 2, left=False)
    for model in (llama(name), bert(name)):
        padded = model(**batch)[0]
        for row, n in enumerate((5, 9, 2)):
            close(padded[row, :n], model(batch["input_ids"][row : row + 1, :n])[0][0])


@pytest.mark.parametrize("name", ["hinge_softmax", "hinge_relu", "hinge_sigmoid"])
@torch.no_grad()
def test_llama_generates_with_its_cache(name):
    model = llama(name)
    batch = tokens(5, 9, 3, left=True)
    options = {"max_new_tokens": 8, "do_sample": False}
    generated = model.generate(**batch, **options)
    assert torch.equal(generated, model.generate(**batch, use_cache=False, **options)), "a step of the cache is the last row of the whole"
    assert torch.equal(generated, model.generate(**batch, cache_implementation="static", **options))
    for row, n in enumerate((5, 9, 3)):
        alone = model.generate(batch["input_ids"][row : row + 1, -n:], **options)
        assert torch.equal(alone[0, n:], generated[row, 9:]), "padding on the left changes nothing"
    if name == "hinge_softmax":
        assert torch.equal(generated, llama("sdpa").generate(**batch, **options))


@torch.no_grad()
def test_a_prompt_in_parts_is_the_whole_prompt():
    model, ids = llama("hinge_relu"), tokens(9)["input_ids"]
    whole = model(ids).logits
    first = model(ids[:, :4], use_cache=True)
    rest = model(ids[:, 4:], past_key_values=first.past_key_values, use_cache=True)
    close(torch.cat([first.logits, rest.logits], 1), whole)


def packed(model):
    return model(torch.arange(1, 12)[None], position_ids=torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4]]), use_cache=False).logits


def given_mask(kind):
    allowed = torch.rand(2, 1, 8, 8) < 0.5
    allowed |= torch.eye(8, dtype=torch.bool)  # softmax of nothing is nothing that sdpa defines
    return allowed if kind == "bool" else torch.zeros(2, 1, 8, 8).masked_fill(~allowed, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("case", ["sliding window", "sliding window and padding", "packed", "4-D bool", "4-D float"])
@torch.no_grad()
def test_masks_of_transformers(case):
    def logits(implementation):
        torch.manual_seed(3)
        if case.startswith("sliding"):
            options = TEXT | {"num_key_value_heads": 2, "sliding_window": 3}
            model = make(transformers.MistralConfig, transformers.MistralForCausalLM, implementation, **options)
            batch = tokens(8, 5, left=True) if "padding" in case else tokens(8, 8)
            return model(**batch).logits[batch["attention_mask"].bool()]
        model = llama(implementation)
        if case == "packed":
            return packed(model)
        return model(torch.randint(1, 50, (2, 8)), attention_mask=given_mask(case.split()[1])).logits

    close(logits("hinge_softmax"), logits("sdpa"))
    if case == "packed":  # each sequence as if it were alone
        model = llama("hinge_relu")
        close(packed(model)[0, 4:6], model(torch.tensor([[5, 6]])).logits[0])


@torch.no_grad()
def test_position_bias_of_t5():
    options = {"vocab_size": 50, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    source, target = tokens(7, 4), torch.randint(1, 50, (2, 5))

    def logits(name):
        return make(transformers.T5Config, transformers.T5ForConditionalGeneration, name, **options)(**source, decoder_input_ids=target).logits

    close(logits("hinge_softmax"), logits("eager"))


@pytest.mark.parametrize("name", ["hinge_relu", "hinge_softmax"])
def test_they_train(name):
    image_model, text_model = vit(name).train(), llama(name).train()
    images, batch = torch.randn(4, 3, 16, 16), tokens(9, 6)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    for model, arguments in ((image_model, {"pixel_values": images, "labels": torch.tensor([0, 1, 2, 0])}), (text_model, batch | {"labels": labels})):
        adam, history = torch.optim.Adam(model.parameters(), lr=3e-3), []
        for _ in range(15):
            adam.zero_grad()
            loss = model(**arguments).loss
            loss.backward()
            adam.step()
            history.append(loss.item())
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
        assert history[-1] < 0.7 * history[0]


@torch.no_grad()
def test_weights_on_request():
    batch = tokens(5, 9)
    ours, theirs = (bert(name)(**batch, output_attentions=True).attentions for name in ("hinge_softmax", "eager"))
    close(ours[1][1], theirs[1][1])
    maps = hinge.attention_maps(bert("hinge_relu"), **batch)
    assert len(maps) == 2 and all(weights.shape == (2, 4, 9, 9) for weights in maps.values())
    assert all((weights[0, :, :, 5:] == 0).all() for weights in maps.values())


@torch.no_grad()
def test_what_cannot_be_honoured_is_an_error():
    options = TEXT | {"num_key_value_heads": 2, "head_dim": 8}
    gemma = make(transformers.Gemma2Config, transformers.Gemma2ForCausalLM, "hinge_relu", attn_logit_softcapping=30.0, **options)
    with pytest.raises(ValueError, match="Gemma2Attention asks its attention for softcap .*hinge_relu does not have"):
        gemma(**tokens(4))
    gpt = make(transformers.GptOssConfig, transformers.GptOssForCausalLM, "hinge_relu", num_local_experts=2, num_experts_per_tok=1, **options)
    with pytest.raises(ValueError, match="s_aux .attention sinks."):
        gpt(**tokens(4))
    with pytest.raises(ValueError, match="the model gives is_causal"):
        hinge.register_transformers(hinge_mine={"h": "relu", "is_causal": True})


@torch.no_grad()
def test_models_that_do_not_ask_for_an_attention_are_errors():
    # BLOOM takes its masks from transformers, but not its attention: it would take a mask that means something else to it.
    sizes = {"vocab_size": 50, "hidden_size": 32, "n_layer": 1, "n_head": 4}
    with pytest.raises(ValueError, match="BloomModel has an attention of its own and ignores attn_implementation='hinge_relu'; choose \"eager\""):
        make(transformers.BloomConfig, transformers.BloomForCausalLM, "hinge_relu", **sizes)(**tokens(4))
    with pytest.raises(ValueError, match="BloomModel has an attention of its own that cannot be set"):
        hinge.replace_attention(make(transformers.BloomConfig, transformers.BloomModel, "eager", **sizes))
    with pytest.raises(ValueError, match="found no attention in MambaModel"):
        hinge.replace_attention(transformers.MambaModel(transformers.MambaConfig(vocab_size=50, hidden_size=32, num_hidden_layers=1)))


@torch.no_grad()
def test_an_attention_of_ones_own_and_replace_attention():
    hinge.register_transformers(hinge_half={"h": "relu", "alpha": 0.5})
    images = torch.randn(2, 3, 16, 16)
    model = vit("sdpa")
    expected = vit("hinge_half")(images).logits
    names = hinge.replace_attention(model, h="relu", alpha=0.5)
    assert names == ["vit.layers.0.attention", "vit.layers.1.attention"]
    close(model(images).logits, expected)
    own = vit("sdpa")(images).logits
    hinge.replace_attention(model, h="softmax")
    close(model(images).logits, own)
