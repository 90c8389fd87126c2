"""What the plugin adds to a training step: the same step with and without it, interleaved in one run.

The step is forward, backward and AdamW on a causal transformer of 4 layers and width 256, over 32 x 256 tokens in
float32. With the plugin it also weighs the loss, records the statistics, and reads all of them back.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin while they wait would be measured as work

import statistics
import time

import torch

from lightning_rollout_is import RolloutISConfig, RolloutISMetrics, importance_weights, token_log_probs

ROWS, LENGTH, VOCABULARY, WIDTH, LAYERS = 32, 256, 1024, 256, 4
ROUNDS = 15
CONFIG = RolloutISConfig(rollout_is_threshold=2.0, rollout_is=True)


def make_model():
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
    body = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    return torch.nn.ModuleList([torch.nn.Embedding(VOCABULARY, WIDTH), body, torch.nn.Linear(WIDTH, VOCABULARY)])


def step(model, optimizer, batch, metrics):
    ids, rollout_log_prob, mask = batch
    embed, body, head = model
    causal = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH)
    log_prob = token_log_probs(head(body(embed(ids), mask=causal, is_causal=True)), ids.roll(-1, 1))
    token_loss = -log_prob
    if metrics is not None:
        inputs = log_prob.detach(), rollout_log_prob, mask
        weights = importance_weights(*inputs, **CONFIG.weight_options)
        metrics.update(*inputs, weights=weights)
        token_loss = token_loss * weights.weight
        torch.stack(list(metrics.compute().values())).tolist()
        metrics.reset()
    (token_loss.sum() / mask.sum()).backward()
    optimizer.step()
    optimizer.zero_grad()


def seconds(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def main():
    torch.manual_seed(0)
    model, metrics = make_model(), RolloutISMetrics(CONFIG)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH))
    batch = ids, -7 + 0.1 * torch.randn(ROWS, LENGTH), torch.ones_like(ids)
    pairs = [
        (seconds(step, model, optimizer, batch, None), seconds(step, model, optimizer, batch, metrics))
        for _ in range(ROUNDS)
    ]
    pairs = pairs[2:]  # the first rounds allocate
    plain = statistics.median(a for a, _ in pairs)
    difference = statistics.median(b - a for a, b in pairs)
    print(f"step without the plugin  {plain * 1e3:8.1f} ms (median of {len(pairs)})")
    print(f"added by the plugin      {difference * 1e3:8.1f} ms (median of paired differences)")
    print(f"ratio                    {1 + difference / plain:8.4f}")


if __name__ == "__main__":
    main()
