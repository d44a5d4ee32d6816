import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import torchvision_operators  # noqa: E402

torchvision_operators.define_missing()


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)
