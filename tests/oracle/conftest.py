"""The same weights in every run: a layer's first ones do not depend on which tests came before."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
