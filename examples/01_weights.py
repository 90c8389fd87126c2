"""Tensors in, weights out: no Trainer, no Hydra, no torchmetrics.

Two responses were sampled by an inference engine; the trainer scores the same tokens a little differently. On the third
token of the second response it disagrees badly. Each level answers differently.
"""

import torch

from lightning_rollout_is import importance_weights

# Log-prob of each sampled token: by the trainer (`old_log_prob`), and as the engine reported it.
old_log_prob = torch.tensor([[-0.51, -1.22, -0.08, -2.31], [-0.95, -0.40, -6.00, 0.0]])
rollout_log_prob = torch.tensor([[-0.50, -1.25, -0.08, -2.20], [-1.00, -0.38, -1.50, 0.0]])
response_mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])  # the second response is one token shorter

for level, upper in (("token", 2.0), ("sequence", 5.0), ("geometric", 1.001)):
    for mode in ("truncate", "mask"):
        result = importance_weights(
            old_log_prob, rollout_log_prob, response_mask, level=level, mode=mode, upper=upper, veto=1e-4
        )
        print(f"\n{level}, {mode}, threshold {upper:g}")
        print(result.weight)

# The same batch packed end to end, as flash-attention takes it: the same weights.
inside = response_mask.bool()
packed = importance_weights(
    old_log_prob[inside],
    rollout_log_prob[inside],
    response_mask[inside],
    upper=2.0,
    cu_seqlens=torch.tensor([0, 4, 7], dtype=torch.int32),
)
print("\ntoken, truncate, packed")
print(packed.weight)
