"""hinge.load_run and hinge.save_run against the hinge command: the same logits, and runs that the command goes on with."""

import json
import math
import subprocess

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from command import HINGE, needs_hinge, write_png

import hinge

pytestmark = needs_hinge
pytest.importorskip("safetensors")

VISION = """
[model]
image_size = 16
channels = 1
patch = 4
width = 32
depth = 3
ffn.width = 48
heads = 4
classes = 0
[data]
format = "synthetic"
synthetic_count = 48
synthetic_classes = 5
synthetic_size = 16
synthetic_channels = 1
[optim]
batch = 16
steps = 3
lr = 0.05
[train]
threads = 1
workers = 1
"""

# What a model can have, in few runs. The head starts at zero: a large learning rate moves everything away from where it started.
VARIANTS = {
    "defaults": {},
    "class token, gates, learned per head": {"pool": "tok", "attention.gate": "sigmoid", "attention.learn_alpha": "head", "attention.learn_bias": "layer"},
    "map pooling, one alpha for all": {"pool": "map", "attention.learn_alpha": "model", "attention.qk_norm": "false", "attention.gate": "linear"},
    "stem, sines, tanh layer, post-norm": {"stem": "conv", "position": "sinusoidal", "rep_size": "-1", "norm": "post"},
    "other first block, mean first, softmax ffn": {"attention.preset": "softmax", "attention.first.blocks": "1", "attention.first.preset": "sigmoid",
                                                   "pool_first": "true", "ffn.activation": "softmax_norm"},
    "entmax, relu2": {"attention.preset": "entmax15", "ffn.activation": "relu2", "attention.qk_norm_bias": "false"},
    "rela, sparsemax first": {"attention.preset": "rela", "attention.first.blocks": "2", "attention.first.preset": "sparsemax", "pool": "map"},
    "parts of the first": {"attention.alpha": "0.5", "attention.gain": "1.5", "attention.first.blocks": "1", "attention.first.h": "gelu",
                           "attention.first.length": "fixed", "attention.first.length_n": "9"},
}  # fmt: skip


def command(*arguments):
    done = subprocess.run([HINGE, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(folder, config, changes):
    (folder / "config.toml").write_text(config)
    settings = [part for key, value in changes.items() for part in ("--set", f"model.{key}={value}")]
    command("train", folder / "config.toml", "--out", folder / "run", *settings)
    return folder / "run"


def predicted_logits(run, pixels, folder, classes, *options):
    paths = []
    for i, image in enumerate(pixels):
        paths.append(folder / f"{i}.png")
        write_png(paths[-1], image)
    logits = torch.zeros(len(pixels), classes)
    for row, image in zip(logits, json.loads(command("predict", run, *paths, "--top", classes, "--json", *options))):
        for prediction in image["predictions"]:
            row[prediction["label"]] = prediction["logit"]
    return logits


PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16), dtype=np.uint8)
IMAGES = torch.from_numpy(PIXELS)[:, None].float() / 127.5 - 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_vision_run_has_the_commands_logits(tmp_path, variant):
    run = train(tmp_path, VISION, VARIANTS[variant])
    model = hinge.load_run(run)
    assert model.run.classes == [f"class {i}" for i in range(5)] and model.run.task == "vision" and not model.training
    with torch.no_grad():
        logits = model(IMAGES)
    assert logits.std() > 0.05
    torch.testing.assert_close(predicted_logits(run, PIXELS, tmp_path, 5), logits, atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        assert not torch.allclose(hinge.VisionTransformer(model.run.config["model"])(IMAGES), logits, atol=1e-2), "weights matter"


def test_damaged_weights_are_skipped(tmp_path):
    run = train(tmp_path, VISION + "checkpoint_every = 0.3\nkeep = 3\n", {})
    assert hinge.load_run(run, "latest").run.step == 3

    def damage(step):
        file = run / f"checkpoints/step-{step:08}/weights.safetensors"
        content = bytearray(file.read_bytes())
        content[-5] ^= 0x10
        file.write_bytes(content)

    damage(3)
    with pytest.warns(UserWarning, match="skipping a checkpoint: '.*step-00000003/weights.safetensors' is damaged: tensor '.*' has the checksum"):
        model = hinge.load_run(run, "latest")
    assert model.run.step == 2
    with torch.no_grad():
        torch.testing.assert_close(predicted_logits(run, PIXELS, tmp_path, 5, "--checkpoint", "latest"), model(IMAGES), atol=1e-4, rtol=1e-4)
    damage(2), damage(1)
    with pytest.warns(UserWarning), pytest.raises(FileNotFoundError, match="no usable checkpoint: .* is damaged"):
        hinge.load_run(run, "latest")


def test_a_run_goes_to_python_and_back(tmp_path):
    run = train(tmp_path, VISION, {"attention.learn_alpha": "model"})
    model = hinge.load_run(run, "latest").train()
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        adam.zero_grad()
        F.cross_entropy(model(IMAGES), torch.arange(4)).backward()
        adam.step()
    hinge.save_run(model, tmp_path / "saved")
    with torch.no_grad():
        expected = model.eval()(IMAGES)
    torch.testing.assert_close(predicted_logits(tmp_path / "saved", PIXELS, tmp_path, 5), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(hinge.load_run(tmp_path / "saved")(IMAGES), expected)
    verified = command("runs", "--verify", tmp_path / "saved")
    assert "sound" in verified and "1 of its files" in verified, "all but the description of its checkpoint have checksums"
    command("train", "--resume", tmp_path / "saved")
    assert json.loads((tmp_path / "saved/status.json").read_text())["state"] == "done"
    with pytest.raises(FileExistsError, match="already exists"):
        hinge.save_run(model, tmp_path / "saved")
    with pytest.raises(TypeError, match="models of hinge.load_run"):
        hinge.save_run(torch.nn.Linear(2, 2), tmp_path / "other")
    with torch.no_grad():
        model.head.bias[0] = math.nan
    with pytest.raises(ValueError, match="head.bias has values that are not finite"):
        hinge.save_run(model, tmp_path / "other")
    assert not (tmp_path / "other").exists() and not list(tmp_path.glob(".*partial"))


def test_damaged_runs_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run"):
        hinge.load_run(tmp_path)
    run = train(tmp_path, VISION, {})
    weights = next(run.glob("checkpoints/*/weights.safetensors"))
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with pytest.raises(FileNotFoundError, match="no usable checkpoint.*bytes"):
        hinge.load_run(run)
    weights.write_bytes(whole)
    with pytest.raises(FileNotFoundError, match="no averaged weights"):
        hinge.load_run(run, "averaged")
    config = run / "config.toml"
    config.write_text(config.read_text().replace("heads = 4", "heads = 2"))
    with pytest.raises(ValueError, match="belongs to another config"):
        hinge.load_run(run)


# ---- translation

WORDS = "the a red blue green cat dog bird house tree sees likes finds eats".split()
TRANSLATION = """
task = "translation"
[model]
width = 32
depth = 2
heads = 4
ffn.width = 48
max_length = 64
[data]
kind = "files"
path = "{folder}"
pair = "en-de"
longest_tokens = 32
[data.vocabulary]
size = 60
[optim]
batch = 512
steps = 6
lr = 1e-2
warmup_steps = 1
[train]
threads = 1
workers = 1
"""

TRANSLATION_VARIANTS = {
    "transformer": {},
    "reluformer, pre-norm": {"attention.preset": "reluformer", "attention.gamma": "2", "norm": "pre", "attention.qk_norm": "true"},
    "untied, learned positions": {"attention.preset": "relu-vit", "tied": "false", "position": "learned", "decoder.depth": "1", "ffn.activation": "softmax"},
    "three attentions": {"attention.preset": "reluformer", "attention.learn_gain": "model", "cross.attention.preset": "softmax",
                         "decoder.attention.h": "relu2", "encoder.attention.gate": "sigmoid"},
    "sparse": {"attention.preset": "sparsemax", "decoder.attention.preset": "entmax15", "cross.attention.preset": "rela"},
}  # fmt: skip


def write_text(folder, name, seed, count):
    rng = np.random.default_rng(seed)
    source = [" ".join(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(count)]
    target = [" ".join(reversed(line.split())) for line in source]
    for language, lines in (("en", source), ("de", target)):
        (folder / f"{name}.{language}").write_text("\n".join(lines) + "\n")
    return source, target


@pytest.mark.parametrize("variant", TRANSLATION_VARIANTS)
def test_translation_run_has_the_commands_perplexity(tmp_path, variant):
    sentencepiece = pytest.importorskip("sentencepiece")
    write_text(tmp_path, "train", 0, 80)
    source, target = write_text(tmp_path, "valid", 1, 12)
    run = train(tmp_path, TRANSLATION.format(folder=tmp_path), TRANSLATION_VARIANTS[variant])
    expected = json.loads(command("eval", run, "--json"))
    model = hinge.load_run(run)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model.run.vocabulary))
    begin, end = [pieces.bos_id()], [pieces.eos_id()]
    target_tokens = [pieces.encode(line) for line in target]
    with torch.no_grad():
        logits = model([pieces.encode(line) + end for line in source], [begin + row for row in target_tokens])
    loss = F.cross_entropy(torch.cat(logits), torch.cat([torch.tensor(row + end) for row in target_tokens])).item()
    assert loss < math.log(pieces.get_piece_size()), "it has learned something"
    assert loss == pytest.approx(expected["loss"], rel=1e-4)

    hinge.save_run(model, tmp_path / "saved")
    assert json.loads(command("eval", tmp_path / "saved", "--json"))["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    with pytest.raises(ValueError, match="target 0 has tokens"):
        model([[1]], [[10**6]])
    with pytest.raises(ValueError, match="1 source sequences and 2 target sequences"):
        model([[1]], [[1], [1]])
