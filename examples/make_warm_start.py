"""Make the checkpoint that the demo starts from: a short supervised phase on sorted digits, by a sloppy demonstrator.

One digit in seven of the demonstrations is replaced by a random one, so that most of them are wrong. The policy
learns to sort and to be as sloppy; reinforcement learning then makes it better than its demonstrator. About a
minute on two cores::

    python examples/make_warm_start.py
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy

from lightning_rollout_is import recipes
from lightning_rollout_is.recipes.byte_tokens import END, PAD, encode_prompt
from lightning_rollout_is.recipes.policy import WARM_START, tiny_llama
from lightning_rollout_is.recipes.tasks import SortDigits, TaskItem

IGNORED = -100
SLOPPINESS = 0.15
ZERO = ord("0")


def demonstrate(item: TaskItem, generator: torch.Generator) -> list[int]:
    """Token ids of the answer, each digit replaced by a random one with probability ``SLOPPINESS``."""
    answer = torch.tensor(list(item.answer.encode()))
    slip = torch.rand(len(answer), generator=generator) < SLOPPINESS
    other = ZERO + torch.randint(10, (len(answer),), generator=generator)
    return [*torch.where(slip, other, answer).tolist(), END]


def tokens_and_targets(items: list[TaskItem], generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts with demonstrated answers, and what to predict at each position: the answer and the end token."""
    prompts = [encode_prompt(item.prompt) for item in items]
    answers = [demonstrate(item, generator) for item in items]
    length = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
    tokens = torch.full((len(items), length), PAD)
    targets = torch.full((len(items), length), IGNORED)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        end = len(prompt) + len(answer)
        tokens[row, :end] = torch.tensor(prompt + answer)
        targets[row, len(prompt) : end] = torch.tensor(answer)
    return tokens[:, :-1], targets[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path(recipes.__file__).with_name(WARM_START))
    arguments = parser.parse_args()

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    task, policy = SortDigits(), tiny_llama(warm_start=False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=arguments.steps)
    for step in range(1, arguments.steps + 1):
        tokens, targets = tokens_and_targets(task.sample(64, generator), generator)
        loss = cross_entropy(policy(tokens).logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.3f} nats a token")
    # Half precision halves the file; the first decimals of the weights are all that a warm start needs.
    save_file({name: weight.half().contiguous() for name, weight in policy.state_dict().items()}, arguments.out)
    print(f"wrote {arguments.out} ({arguments.out.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
