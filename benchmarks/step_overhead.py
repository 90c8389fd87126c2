"""What the whole plugin adds to a training step: mixin, metric, callback and TensorBoard, in a real Trainer.

The step is forward, backward and AdamW on a causal transformer of 4 layers and width 256, over 32 x 256 tokens in
float32.
"""

from timing import Row

# isort: split
import logging
import tempfile
import warnings

import lightning
import torch
from apart import apart
from lightning.pytorch.loggers import TensorBoardLogger
from toggling import fit_toggled

from lightning_rollout_is import RolloutISCallback, RolloutISMixin, token_log_probs

ROWS, LENGTH, VOCABULARY, WIDTH, LAYERS = 32, 256, 1024, 256, 4
STEPS, BUDGET = 80, 60.0
ALGORITHM = {"rollout_is_threshold": 2.0, "rollout_is": True}


class Policy(RolloutISMixin, lightning.LightningModule):
    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.body = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)
        self.causal = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.configure_rollout_is(ALGORITHM)

    def training_step(self, batch, batch_idx):
        ids, rollout_log_prob, mask = batch
        hidden = self.body(self.embed(ids), mask=self.causal, is_causal=True)
        log_prob = token_log_probs(self.head(hidden), ids.roll(-1, 1))
        token_loss = self.rollout_is_loss(-log_prob, log_prob.detach(), rollout_log_prob, mask)
        return token_loss.sum() / mask.sum()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def measure() -> list[Row]:
    quieten()
    torch.manual_seed(0)
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH))
    batch = ids, -7 + 0.1 * torch.randn(ROWS, LENGTH), torch.ones_like(ids, dtype=torch.bool)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=1,
            log_every_n_steps=1,
            logger=TensorBoardLogger(folder),
            callbacks=[RolloutISCallback()],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        toggled = fit_toggled(trainer, Policy(), BUDGET, [batch] * STEPS)
    return toggled.rows(f"{LAYERS} layers of width {WIDTH}, {ROWS} x {LENGTH} tokens")


def quieten() -> None:
    """Leave the table alone on the screen."""
    warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
    warnings.filterwarnings("ignore", message=".*does not have many workers")
    warnings.filterwarnings("ignore", message=".*fits old_log_prob much better when it is shifted")
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)


def rows() -> list[Row]:
    return apart(measure)


def main():
    for row in rows():
        print(*row, sep=" | ")


if __name__ == "__main__":
    main()
