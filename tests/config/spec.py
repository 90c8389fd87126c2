"""The four ``algorithm:`` blocks of the specification's section 7, and what each must mean."""

FULL_CORRECTION = """
algorithm: {rollout_is_threshold: 2.0, rollout_is: true, rollout_is_level: token, rollout_is_mode: truncate}
"""
MONITOR_ONLY = """
algorithm: {rollout_is_threshold: 2.0, rollout_is: false, rollout_is_level: token, rollout_is_mode: truncate}
"""
GEOMETRIC_MASK = """
algorithm: {rollout_is_threshold: 1.0002, rollout_is: true, rollout_is_threshold_lower: 0.9998, \
rollout_is_level: geometric, rollout_is_mode: mask}
"""
ASYMMETRIC = """
algorithm: {rollout_is_threshold: 5.0, rollout_is: true, rollout_is_threshold_lower: 0.8, rollout_is_level: token, \
rollout_is_mode: mask}
"""

# (block, the preset of the same meaning, (threshold, applied, lower, level, mode, veto))
BLOCKS = [
    (FULL_CORRECTION, "token_truncate", (2.0, True, None, "token", "truncate", 1e-4)),
    (MONITOR_ONLY, "monitor", (2.0, False, None, "token", "truncate", 1e-4)),
    (GEOMETRIC_MASK, "geometric_mask", (1.0002, True, 0.9998, "geometric", "mask", 1e-4)),
    (ASYMMETRIC, "asymmetric", (5.0, True, 0.8, "token", "mask", 1e-4)),
]
