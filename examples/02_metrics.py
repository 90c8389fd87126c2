"""The statistics in a training loop of your own: micro-batches merge exactly, whatever their sizes."""

import torch
from torchmetrics import MetricCollection

from lightning_rollout_is import EffectiveSampleSize, RolloutISConfig, RolloutISMetrics, RolloutKL

config = RolloutISConfig(rollout_is_threshold=2.0, rollout_is_mode="mask")
metrics = RolloutISMetrics(config)  # all 29, and the missing fraction
few = MetricCollection({"ess": EffectiveSampleSize(config), "kl": RolloutKL(config, estimator="k3")})

torch.manual_seed(0)
for rows in (8, 2, 5):  # three micro-batches of one optimizer step
    old_log_prob = -3 * torch.rand(rows, 16)
    rollout_log_prob = old_log_prob + 0.2 * torch.randn(rows, 16)  # what an engine would report
    response_mask = torch.arange(16) < torch.randint(4, 17, (rows, 1))
    metrics.update(old_log_prob, rollout_log_prob, response_mask)
    few.update(old_log_prob, rollout_log_prob, response_mask)

# On several ranks `compute()` gathers their sums first: call it on all of them.
for name, value in metrics.compute().items():
    print(f"{name:50} {value:10.5f}")
print({name: round(value.item(), 5) for name, value in few.compute().items()})
metrics.reset()
