"""Sums fall back to float32 where a device has no float64."""

from types import SimpleNamespace

import pytest
import torch

from lightning_rollout_is.functional.layout import accumulation_dtype


@pytest.mark.plain
@pytest.mark.parametrize(("device", "dtype"), [("mps", torch.float32), ("cpu", torch.float64), ("cuda", torch.float64)])
def test_sums_are_float32_where_a_device_has_no_float64(device: str, dtype: torch.dtype) -> None:
    assert accumulation_dtype(SimpleNamespace(device=torch.device(device))) == dtype
