"""Runs of a real Trainer whose health is known: the KL of each step is chosen."""

import re
import warnings

import lightning_rollout_is.callbacks.health as room
from lightning_rollout_is import RolloutISCallback, RolloutISHealth
from lightning_rollout_is.health import Rules
from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import fit

COUNT = "mismatch/health_findings"
RULES = Rules(
    constant_shift=None, masked_fraction=None, applied_eff_sample_size=None, jump=None, unchanged=None, recovery=2
)
"""What remains of a shift is the KL's own rule, and the mean's for a shift of a nat."""
OK, SICK, WORSE = 0.0, 0.3, 1.0


def batch(shift, seed=0):
    """Every log ratio is minus the shift, so that the KL is the shift."""
    made = rollout_batch(seed)
    return {**made, "rollout_log_prob": made["old_log_prob"] + shift}


def batches(*shifts):
    return [batch(shift, seed) for seed, shift in enumerate(shifts)]


class Told:
    """What a run said: the warnings of :class:`RolloutISHealth`, and the ends of its episodes."""

    def __init__(self, warned, ended):
        self.warned = warned
        self.ended = ended

    @property
    def begun(self):
        """(step, rules) of each warning."""
        return [
            (int(re.search(r"at step (\d+)", text)[1]), re.findall(r"^\[(\w+)\]", text, re.M)) for text in self.warned
        ]


def run(monkeypatch, folder, shifts, health=None, module=None, source=None, **settings):
    """Train on batches with these shifts; the Trainer, or what it raised, and what was said."""
    health = health or RolloutISHealth(RULES)
    ended = []
    monkeypatch.setattr(room, "rank_zero_info", ended.append)
    settings.setdefault("callbacks", [source or RolloutISCallback(), health])
    data = settings.pop("data", None) or batches(*shifts)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            outcome = fit(module or Policy(), data, folder, **settings)
        except RuntimeError as error:
            outcome = error
    texts = [str(warning.message) for warning in said]
    return outcome, Told([text for text in texts if text.startswith("RolloutISHealth")], ended)
