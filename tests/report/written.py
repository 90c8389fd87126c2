"""Runs as event files, written by the writers that users have."""

import shutil

from torch.utils.tensorboard import SummaryWriter

from lightning_rollout_is.report.runs import read_run
from lightning_rollout_is.report.verdict import judge

SOUND = {
    "mismatch_k3_kl": 1e-6,
    "mismatch_kl": 1e-6,
    "rollout_is_eff_sample_size": 0.999,
    "rollout_is_mean": 1.0,
    "rollout_is_std": 0.001,
    "rollout_is_min": 0.98,
    "rollout_is_max": 1.02,
    "mismatch_ppl_ratio": 1.0,
    "rollout_is_veto_fraction": 0.0,
    "rollout_is_catastrophic_token_fraction": 0.0,
    "rollout_is_missing_fraction": 0.0,
}


def write_run(folder, length=30, prefix="mismatch/", start=0, **changed):
    """A run whose values are sound but for some, each a number or a function of the step; ``None`` is not written."""
    with SummaryWriter(str(folder)) as writer:
        for step in range(start, start + length):
            for name, value in {**SOUND, **changed}.items():
                number = value(step) if callable(value) else value
                if number is not None:
                    writer.add_scalar(prefix + name, number, step)
    return folder


DETAILS = {
    "mismatch_kl_stderr": 1e-4,
    "rollout_is_mean_stderr": 1e-3,
    "rollout_is_applied_mean": 0.999,
    "rollout_is_applied_eff_sample_size": 0.998,
    "mismatch_chi2_token": 2e-6,
    "mismatch_chi2_seq": 5e-5,
    "mismatch_probs_diff_mean": 1e-4,
    "mismatch_probs_diff_max": 0.01,
    "mismatch_confident_disagreement_fraction": 0.0,
    **{f"mismatch_log_ratio_p{percent:02d}": (percent - 50) / 1e4 for percent in (1, 5, 50, 95, 99)},
    **{f"mismatch_abs_log_ratio_decile_{decile:02d}": 1e-3 for decile in range(1, 11)},
    **{f"mismatch_k3_kl_decile_{decile:02d}": 1e-6 for decile in range(1, 11)},
}
"""What a module writes beside those, unless its details are off."""


def groups(name, **values):
    """A statistic by group of the batch."""
    return {f"{name}/{group}": value for group, value in values.items()}


def run_of(folder, **settings):
    return read_run(write_run(folder, **settings), "run")


def verdict_of(folder, **settings):
    return judge(run_of(folder, **settings))


def event_file(folder):
    (file,) = folder.glob("*tfevents*")
    return file


def truncate(file, share=0.5):
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])


def damage(file, share=0.5):
    content = bytearray(file.read_bytes())
    content[int(len(content) * share)] ^= 0xFF
    file.write_bytes(bytes(content))


def copy_later(file, folder):
    """Another file of the same run, with a name that sorts after it."""
    shutil.copy(file, folder / f"{event_file(folder).name}.later")
