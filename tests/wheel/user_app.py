"""An application of a stranger who installed the wheel: his own Hydra app, his own module, one optimizer step."""

import hydra
import lightning
import torch
from hydra.utils import instantiate

import lightning_rollout_is
from lightning_rollout_is import RolloutISMixin


class Policy(RolloutISMixin, lightning.LightningModule):
    def __init__(self, algorithm):
        super().__init__()
        self.configure_rollout_is(algorithm)
        self.logits = torch.nn.Parameter(torch.zeros(5))

    def training_step(self, batch, batch_idx):
        tokens, rollout_log_prob, response_mask = batch
        log_prob = self.logits.log_softmax(-1)[tokens]
        loss = self.rollout_is_loss(-log_prob, log_prob.detach(), rollout_log_prob, response_mask)
        self.log("loss", loss.mean())
        return loss.mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@hydra.main(version_base="1.3", config_path="conf", config_name="main")
def main(config):
    rows = (torch.randint(5, (4, 3)), torch.rand(4, 3) - 2.0, torch.ones(4, 3, dtype=torch.bool))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*rows), batch_size=4)
    loggers, callbacks = instantiate(config.logger).values(), instantiate(config.callbacks).values()
    trainer = instantiate(config.trainer, logger=list(loggers), callbacks=list(callbacks))
    trainer.fit(Policy(config.algorithm), loader)
    print("PACKAGE", lightning_rollout_is.__file__)
    print("STEPS", trainer.global_step)


if __name__ == "__main__":
    main()
