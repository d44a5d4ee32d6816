"""hinge.load_run, hinge.save_run: runs of the hinge command as torch modules, and back."""

import json
import os
import shutil
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from .models import TranslationModel, VisionTransformer

_MODELS: dict[str, type[nn.Module]] = {"vision": VisionTransformer, "translation": TranslationModel}
#: What a checkpoint says of a model beside its weights and its training.
_LASTING_STATE = ("classes", "length_rule", "first_length_rule", "vocabulary", "pair", "length_rules", "text")


@dataclass
class Run:
    """Where a model of :func:`hinge.load_run` comes from; it is the attribute ``run`` of the model."""

    folder: Path
    task: str  #: vision or translation
    config: dict[str, Any]  #: all keys of config.toml
    step: int  #: of the checkpoint
    state: dict[str, Any]  #: what the checkpoint says beside its weights
    config_text: str

    @property
    def classes(self) -> list[str]:
        """The names of a vision transformer's classes."""
        return list(self.state["classes"])

    @property
    def vocabulary(self) -> Path:
        """The SentencePiece model of a translation run."""
        return self.folder / "vocabulary.model"


def load_run(run: str | os.PathLike[str], checkpoint: Literal["best", "latest", "averaged"] = "best") -> Any:
    """The model of a run that ``hinge train`` or ``hinge weights import`` has made, in evaluation mode, with the outputs of the command.

    A vision run gives a :class:`hinge.VisionTransformer`, a translation run a :class:`hinge.TranslationModel`. Both are ordinary modules
    and can be trained on. ``model.run`` says where it comes from: the config, the names of the classes, the vocabulary.

    Args:
        run: the folder of the run.
        checkpoint: which weights: those of the highest evaluation score, the latest, or the average of the last ones.
    """
    folder = Path(run)
    config_file = folder / "config.toml"
    if not config_file.is_file():
        raise FileNotFoundError(f"'{folder}' is not a run: it holds no config.toml (hinge train makes runs)")
    text = config_file.read_text()
    config = tomllib.loads(text)
    task = config.get("task")
    if task not in _MODELS:
        raise ValueError(f"'{folder}' is a run of the task {task!r}; {' and '.join(_MODELS)} can be loaded")
    weights, description = _choose_weights(folder, checkpoint)
    model = _MODELS[task](config["model"])
    _load_weights(model, weights)
    model.run = Run(folder, task, config, description["step"], description["state"], text)  # type: ignore[assignment]
    return model.eval()


def save_run(model: nn.Module, run: str | os.PathLike[str]) -> None:
    """Writes a model of :func:`hinge.load_run` as a new run, which the hinge command reads.

    ``hinge eval RUN`` measures it, ``hinge train --resume RUN`` goes on with it. The config is that of the run it was loaded from. The
    optimiser starts anew, at step 0. The folder must not exist yet, or be empty; it appears when everything is written.
    """
    source = getattr(model, "run", None)
    if not isinstance(source, Run):
        raise TypeError("save_run takes models of hinge.load_run: only these have a config that the hinge command knows")
    folder = Path(run)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"'{folder}' already exists: choose another folder")
    weights = {name: value.detach().to("cpu", torch.float32).contiguous() for name, value in model.state_dict().items()}
    for name, value in weights.items():
        if not value.isfinite().all():
            raise ValueError(f"{name} has values that are not finite: such weights would be of no use")
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    state = {key: value for key, value in source.state.items() if key in _LASTING_STATE}
    origin = f"{source.folder.resolve().name}, by hinge.save_run"
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial.mkdir()
    try:
        step = partial / "checkpoints" / "step-00000000"
        step.mkdir(parents=True)
        moments = {f"{moment}.{name}": torch.zeros_like(value) for moment in "mv" for name, value in weights.items()}
        _save(weights, step / "weights.safetensors")
        _save(moments, step / "state.safetensors")
        sizes = {path.name: path.stat().st_size for path in step.iterdir()}
        description = {"step": 0, "score": None, "files": sizes, "state": state | {"imported": origin}, "saved": now}
        (step / "checkpoint.json").write_text(json.dumps(description, indent=2) + "\n")
        steps = source.config["optim"].get("steps")
        status = {"state": "stopped", "step": 0, "steps": steps if isinstance(steps, int) else 0, "best": None, "best_step": None,
                  "message": f"saved from {origin}", "values": {"parameters": sum(value.numel() for value in weights.values())},
                  "started": now, "updated": now, "pid": os.getpid()}  # fmt: skip
        (partial / "status.json").write_text(json.dumps(status, indent=2) + "\n")
        (partial / "imported").write_text(origin)
        if "vocabulary" in source.state:
            (partial / "vocabulary.model").write_bytes(_read_run_file(source.folder, "vocabulary.model"))
        (partial / "config.toml").write_text(source.config_text)
        for path in partial.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _packages() -> tuple[Any, Any]:
    """safetensors, and google_crc32c for its checksums."""
    try:
        import google_crc32c
        import safetensors.torch
    except ImportError as error:
        raise ImportError("runs are safetensors files with checksums: pip install safetensors google-crc32c") from error
    return safetensors, google_crc32c


def _checksums(file: bytes) -> Iterator[tuple[str, str]]:
    """The name of each tensor of a safetensors file, and the CRC-32C of its data."""
    safetensors, crc32c = _packages()
    for name, tensor in safetensors.deserialize(file):
        yield name, f"{crc32c.value(bytes(tensor['data'])):08x}"


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    safetensors, _ = _packages()
    checksums = {f"crc32c.{name}": checksum for name, checksum in _checksums(safetensors.torch.save(tensors))}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"} | checksums)


def _verify(path: Path) -> None:
    """The checksums that a file has, against its data."""
    safetensors, _ = _packages()
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            expected = file.metadata() or {}
        found = dict(_checksums(path.read_bytes()))
    except safetensors.SafetensorError as error:
        raise ValueError(f"'{path}' is damaged: {error}") from error
    for name, checksum in found.items():
        if expected.get(f"crc32c.{name}", checksum) != checksum:
            raise ValueError(f"'{path}' is damaged: tensor '{name}' has the checksum {checksum}, not {expected[f'crc32c.{name}']}")


def _read_run_file(folder: Path, name: str) -> bytes:
    """A file that a run was made with."""
    content = (folder / name).read_bytes()
    checksums = folder / "checksums.json"
    if checksums.exists():
        found = f"{_packages()[1].value(content):08x}"
        if (expected := json.loads(checksums.read_text()).get(name, found)) != found:
            raise ValueError(f"'{folder / name}' is damaged: it has the checksum {found}, not {expected}; put a copy of it there")
    return content


def _choose_weights(folder: Path, which: str) -> tuple[Path, dict[str, Any]]:
    """The file of the weights and its checkpoint's description, as the command chooses them (src/train/run_folder.cc)."""
    if which not in ("best", "latest", "averaged"):
        raise ValueError(f"checkpoint must be best, latest or averaged, got {which!r}")
    usable: list[tuple[Path, dict[str, Any]]] = []  # the latest first
    problems: list[str] = []

    def skip(error: Exception) -> None:
        problems.append(str(error))
        warnings.warn(f"skipping a checkpoint: {error}", stacklevel=4)

    for step in sorted(folder.glob("checkpoints/step-*"), reverse=True):
        try:
            description = json.loads((step / "checkpoint.json").read_text())
            for name, size in description["files"].items():
                if (found := (step / name).stat().st_size) != size:
                    raise ValueError(f"'{step / name}' has {found} bytes, not {size}")
            usable.append((step, description))
        except (OSError, ValueError, KeyError) as error:
            skip(error)
    while usable:
        step, description, name = _chosen(folder, usable, which)
        try:
            _verify(step / name)
            return step / name, description
        except ValueError as error:
            skip(error)
            usable = [one for one in usable if one[0] != step]
    raise FileNotFoundError(f"'{folder}' holds no usable checkpoint" + (f": {problems[0]}" if problems else " yet"))


def _chosen(folder: Path, usable: list[tuple[Path, dict[str, Any]]], which: str) -> tuple[Path, dict[str, Any], str]:
    """The folder, description and file of weights out of those that can be used, the latest first."""
    latest = usable[0]
    averaged = latest[1]["state"].get("averaged_score")
    if which == "averaged" and "averaged_score" not in latest[1]["state"]:
        raise FileNotFoundError(f"'{folder}' has no averaged weights: a run makes them at its end, if train.average is at least 2")
    chosen, mean = latest, which == "averaged"
    if which == "best":
        scored = [one for one in usable if one[1]["score"] is not None]
        if scored:
            chosen = max(reversed(scored), key=lambda one: float(one[1]["score"]))  # the earliest of equals
            if averaged is not None and averaged > chosen[1]["score"]:
                chosen, mean = latest, True
    return *chosen, "averaged.safetensors" if mean else "weights.safetensors"


def _load_weights(model: nn.Module, path: Path) -> None:
    weights = _packages()[0].torch.load_file(path)
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    wrong = [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]
    if wrong:
        name = min(wrong)
        shapes = f"{name} has the shape {found.get(name)}, the model's has {expected.get(name)}"
        raise ValueError(f"{path}: {shapes}; the file belongs to another config")
    model.load_state_dict(weights)
