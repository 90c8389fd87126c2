"""``RolloutISHealth`` on several ranks: all decide alike, and rank 0 alone says so."""

import warnings

import lightning
import pytest

from lightning_rollout_is import RolloutISCallback, RolloutISHealth
from lightning_rollout_is.callbacks import UnhealthyError
from lightning_rollout_is.callbacks.transfer import Transfer
from tests.distributed.ranks import WORLD
from tests.health.runs import OK, RULES, batches
from tests.trainer.late import LateTransfer
from tests.trainer.policy import Policy
from tests.trainer.runs import QUIET, Batches

pytestmark = pytest.mark.timeout(120)

# The second rank alone is sick at step 2; over all of them the KL is then 0.3.
SHARES = [batches(OK, OK, OK, OK, OK), batches(OK, OK, 0.9, OK, OK), batches(OK, OK, OK, OK, OK)]


def train_judged(rank, group, shares, action, late):
    """Optimizer steps, the words of the error, and of the warnings of this rank."""
    both = [RolloutISHealth(RULES, action), RolloutISCallback()]
    RolloutISCallback.transfer = LateTransfer if late else Transfer
    trainer = lightning.Trainer(
        **{**QUIET, "devices": WORLD, "strategy": "ddp", "max_epochs": 1},
        callbacks=both,
        logger=False,
    )
    error = None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            trainer.fit(Policy(), Batches(shares[rank]))
        except UnhealthyError as raised:
            error = str(raised)
        finally:
            RolloutISCallback.transfer = Transfer
    texts = [str(warning.message) for warning in said if "RolloutISHealth" in str(warning.message)]
    return trainer.global_step, error, texts


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("action", ["warn", "stop", "raise"])
def test_all_ranks_decide_alike(ranks, action, late):
    outcomes = ranks.call(train_judged, SHARES, action, late)
    steps, errors, warned = zip(*outcomes, strict=True)
    assert set(steps) == {5 if action == "warn" else 3 + late}
    assert len(set(errors)) == 1
    assert [len(texts) for texts in warned] == ([0, 0, 0] if action == "raise" else [1, 0, 0])
    (text,) = warned[0] if action != "raise" else errors[:1]
    assert text.startswith("RolloutISHealth at step 2:\n[kl] ")
