"""The hinge command against a plain PyTorch vision transformer that runs the same weights, under timm's names: logits, and weights after training steps."""

import json
import struct
import subprocess

import numpy as np
import pytest
import torch
from command import HINGE, needs_hinge, write_png
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

pytestmark = needs_hinge

CLASSES, SIZE, PATCH, WIDTH, DEPTH, MLP, HEADS = 5, 16, 4, 32, 2, 64, 2


class Attention(nn.Module):
    def __init__(self, h, qk_norm):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.q_norm = nn.LayerNorm(WIDTH // HEADS, eps=1e-6) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(WIDTH // HEADS, eps=1e-6) if qk_norm else nn.Identity()

    def forward(self, x):  # [B, L, C]
        B, L, C = x.shape
        q, k, v = self.qkv(x).reshape(B, L, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4)  # [B, H, L, D] each
        scores = self.q_norm(q) @ self.k_norm(k).transpose(-2, -1) / (C // HEADS) ** 0.5
        weights = scores.softmax(-1) if self.h == "softmax" else scores.relu() / L
        return self.proj((weights @ v).transpose(1, 2).reshape(B, L, C))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(WIDTH, MLP)
        self.fc2 = nn.Linear(MLP, WIDTH)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, h, qk_norm):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.attn = Attention(h, qk_norm)
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.mlp = Mlp()

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.proj = nn.Conv2d(channels, WIDTH, PATCH, PATCH)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class PlainVit(nn.Module):
    """pool: token (class token), avg (mean, then fc_norm) or norm_avg (norm, then mean)."""

    def __init__(self, pool, h, qk_norm, channels):
        super().__init__()
        self.pool = pool
        self.patch_embed = PatchEmbed(channels)
        self.pos_embed = nn.Parameter(torch.zeros(1, (SIZE // PATCH) ** 2 + (pool == "token"), WIDTH))
        if pool == "token":
            self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.blocks = nn.ModuleList(Block(h, qk_norm) for _ in range(DEPTH))
        last = nn.LayerNorm(WIDTH, eps=1e-6)
        if pool == "avg":
            self.fc_norm = last
        else:
            self.norm = last
        self.head = nn.Linear(WIDTH, CLASSES)
        # Numbers that are not 0 or 1 anywhere, so that no tensor can be left out without notice.
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                noise = torch.randn_like(parameter)
                parameter.copy_(1 + 0.2 * noise if "norm" in name and "weight" in name else noise * (0.5 if name == "pos_embed" else 0.2))

    def forward(self, images):  # [B, channels, SIZE, SIZE]
        x = self.patch_embed(images)
        if self.pool == "token":
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        x = x + self.pos_embed
        for block in self.blocks:
            x = block(x)
        if self.pool == "token":
            x = self.norm(x[:, 0])
        elif self.pool == "avg":
            x = self.fc_norm(x.mean(1))
        else:
            x = self.norm(x).mean(1)
        return self.head(x)


def hinge(*arguments):
    done = subprocess.run([HINGE, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_idx(path, array):
    path.write_bytes(struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


def make_images(count, channels, seed=0):
    images = np.random.default_rng(seed).integers(0, 256, (count, SIZE, SIZE, channels), dtype=np.uint8)
    numbers = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
    return images if channels == 3 else images[..., 0], numbers


def write_config(path, model, data, optim=""):
    path.write_text(
        f"""
[model]
image_size = {SIZE}
channels = {model.patch_embed.proj.in_channels}
classes = {CLASSES}
patch = {PATCH}
width = {WIDTH}
depth = {DEPTH}
ffn.width = {MLP}
heads = {HEADS}
pool = "{"tok" if model.pool == "token" else "gap"}"
pool_first = {"true" if model.pool == "avg" else "false"}
[model.attention]
preset = "{"softmax" if model.blocks[0].attn.h == "softmax" else "relu-vit"}"
qk_norm = {"true" if isinstance(model.blocks[0].attn.q_norm, nn.LayerNorm) else "false"}
[data]
format = "idx"
path = "{data}"
train = "all"
eval = "all"
[optim]
{optim}
"""
    )


def predicted_logits(run, images, folder, *options):
    paths = []
    for i, image in enumerate(images):
        paths.append(folder / f"{i}.png")
        write_png(paths[-1], image)
    answer = json.loads(hinge("predict", run, *paths, "--top", CLASSES, "--json", *options))
    logits = torch.zeros(len(images), CLASSES)
    for row, image in zip(logits, answer):
        for prediction in image["predictions"]:
            row[prediction["label"]] = prediction["logit"]
    return logits


VARIANTS = [
    ("token", "softmax", False, 3),
    ("token", "relu", True, 1),
    ("avg", "softmax", True, 1),
    ("avg", "relu", False, 3),
    ("norm_avg", "softmax", False, 1),
    ("norm_avg", "relu", True, 3),
]


@pytest.mark.parametrize("pool, h, qk_norm, channels", VARIANTS)
def test_logits_equal_pytorchs_and_weights_come_back(tmp_path, pool, h, qk_norm, channels):
    model = PlainVit(pool, h, qk_norm, channels)
    images, numbers = make_images(4, channels)
    save_file(model.state_dict(), tmp_path / "timm.safetensors")
    write_config(tmp_path / "config.toml", model, tmp_path)
    hinge("weights", "import", tmp_path / "timm.safetensors", "--config", tmp_path / "config.toml", "--out", tmp_path / "run")
    with torch.no_grad():
        logits = model(numbers)
    assert logits.std() > 0.1
    torch.testing.assert_close(predicted_logits(tmp_path / "run", images, tmp_path), logits, atol=1e-4, rtol=0)

    hinge("weights", "export", tmp_path / "run", tmp_path / "back.safetensors")
    back = load_file(tmp_path / "back.safetensors")
    expected = model.state_dict()
    if pool == "token":  # the class token's position is part of the class token
        expected["cls_token"] = expected["cls_token"] + expected["pos_embed"][:, :1]
        expected["pos_embed"] = torch.cat([torch.zeros(1, 1, WIDTH), expected["pos_embed"][:, 1:]], 1)
    assert back.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(back[name], value, atol=0, rtol=0, msg=name)


@pytest.mark.parametrize("pool, h, qk_norm, channels, loss", [(*v, ("softmax", "sigmoid")[i // 2 % 2]) for i, v in enumerate(VARIANTS)])
def test_training_steps_equal_pytorchs(tmp_path, pool, h, qk_norm, channels, loss):
    # The whole set is one batch, so that its order does not matter. eps is large because Adam's first step is g / (|g| + eps): with a
    # small one, gradients that are zero but for rounding would step by their sign.
    steps, lr, eps, decay, clip, count = 2, 1e-2, 1e-2, 1e-2, 1.0, 12
    images, numbers = make_images(count, channels)
    labels = np.arange(count, dtype=np.uint8) % CLASSES
    write_idx(tmp_path / f"all-images-idx{images.ndim}-ubyte", images)
    write_idx(tmp_path / "all-labels-idx1-ubyte", labels)

    model = PlainVit(pool, h, qk_norm, channels)
    if pool == "token":
        with torch.no_grad():
            model.pos_embed[:, 0] = 0  # not a parameter of its own in Hinge
    save_file(model.state_dict(), tmp_path / "timm.safetensors")
    optim = f'lr = {lr}\neps = {eps}\nweight_decay = {decay}\nclip = {clip}\nbatch = {count}\nsteps = {steps}\nschedule = "constant"\nloss = "{loss}"\n'
    write_config(tmp_path / "config.toml", model, tmp_path, optim)
    run = tmp_path / "run"
    hinge("weights", "import", tmp_path / "timm.safetensors", "--config", tmp_path / "config.toml", "--out", run)
    hinge("train", "--resume", run)

    adam = torch.optim.Adam(model.parameters(), lr=lr, eps=eps)
    target = torch.from_numpy(labels.astype(np.int64))
    start = {name: value.clone() for name, value in model.state_dict().items()}
    for _ in range(steps):
        adam.zero_grad()
        logits = model(numbers)
        if loss == "softmax":
            value = F.cross_entropy(logits, target)
        else:
            value = F.binary_cross_entropy_with_logits(logits, F.one_hot(target, CLASSES).float(), reduction="none").sum(1).mean()
        value.backward()
        if pool == "token":
            model.pos_embed.grad[:, 0] = 0
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        with torch.no_grad():
            kept = {name: p * (1 - decay) for name, p in model.named_parameters() if p.ndim in (2, 4)}
            before = {name: p.clone() for name, p in model.named_parameters()}
        adam.step()
        with torch.no_grad():
            for name, p in model.named_parameters():
                if name in kept:
                    p.add_(kept[name] - before[name])

    hinge("weights", "export", run, tmp_path / "trained.safetensors", "--checkpoint", "latest")
    trained = load_file(tmp_path / "trained.safetensors")
    for name, value in model.state_dict().items():
        torch.testing.assert_close(trained[name], value, atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
    assert max((model.state_dict()[name] - start[name]).abs().max() for name in start) > 1e-3  # something was learned
    with torch.no_grad():
        expected = model(numbers)
    got = predicted_logits(run, images, tmp_path, "--checkpoint", "latest")
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


def numpy_probe_accuracy(support, support_labels, test, test_labels, classes, l2=1024.0):
    mean, std = support.mean(0), support.std(0) + 1e-5

    def prepared(x):
        return np.hstack([(x - mean) / std, np.full((len(x), 1), 100.0)])

    x, y = prepared(support), np.where(np.arange(classes) == support_labels[:, None], 1.0, -1.0)
    w = np.linalg.solve(x.T @ x + l2 * np.eye(x.shape[1]), x.T @ y)
    return ((prepared(test) @ w).argmax(1) == test_labels).mean()


def test_probe_equals_numpys(tmp_path):
    # As many shots as a class has images: which ones are chosen does not matter then, and every seed gives the same.
    model = PlainVit("avg", "relu", True, 1)
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 256, (CLASSES, SIZE, SIZE))
    data = {}
    for split, count in (("train", 40), ("test", 200)):
        labels = np.arange(count, dtype=np.uint8) % CLASSES
        noise = rng.normal(0, 250, (count, SIZE, SIZE))
        images = np.clip(patterns[labels] + noise, 0, 255).astype(np.uint8)
        write_idx(tmp_path / f"{split}-images-idx3-ubyte", images)
        write_idx(tmp_path / f"{split}-labels-idx1-ubyte", labels)
        with torch.no_grad():
            features = model.fc_norm(run_blocks(model, torch.from_numpy(images)[:, None].float() / 127.5 - 1).mean(1))
        data[split] = features.double().numpy(), labels.astype(np.int64)
    save_file(model.state_dict(), tmp_path / "timm.safetensors")
    write_config(tmp_path / "config.toml", model, tmp_path)
    hinge("weights", "import", tmp_path / "timm.safetensors", "--config", tmp_path / "config.toml", "--out", tmp_path / "run")
    answer = json.loads(hinge("probe", tmp_path / "run", "--data", f"idx:{tmp_path}", f"idx:{tmp_path}", "--shots", "1,8", "--seeds", 2, "--json"))
    expected = numpy_probe_accuracy(*data["train"], *data["test"], CLASSES)
    assert 0.3 < expected < 0.97, "the task says nothing about the probe"
    assert answer["sets"][0]["name"] == tmp_path.name
    one, eight = answer["sets"][0]["results"]
    assert eight["accuracies"] == pytest.approx([expected, expected], abs=1e-9)
    assert one["mean"] < eight["mean"]
    assert answer["means"][1]["mean"] == pytest.approx(expected, abs=1e-9)


def run_blocks(model, images):
    x = model.patch_embed(images) + model.pos_embed
    for block in model.blocks:
        x = block(x)
    return x
