"""Weight minus 1, in the form that compiled CPU code takes."""

import pytest
import torch

from lightning_rollout_is.functional.excess import LOG_WEIGHT_LIMIT, _series_near_zero


@pytest.mark.parametrize(("dtype", "relative"), [(torch.float32, 5e-7), (torch.float64, 2e-14)])
def test_the_series_is_expm1_over_the_whole_range(dtype: torch.dtype, relative: float) -> None:
    magnitude = torch.logspace(-9, torch.tensor(LOG_WEIGHT_LIMIT).log10().item(), 5000, dtype=torch.float64)
    log_weight = torch.cat([magnitude, -magnitude]).clamp(-LOG_WEIGHT_LIMIT, LOG_WEIGHT_LIMIT).to(dtype)
    expected = torch.expm1(log_weight.double())
    error = (_series_near_zero(log_weight).double() / expected - 1.0).abs()
    assert error.max() < relative


def test_nothing_is_nothing_and_nan_stays() -> None:
    computed = _series_near_zero(torch.tensor([0.0, float("nan")]))
    assert computed[0] == 0.0
    assert computed[1].isnan()
