"""The cases that the reference implementation computed: three inputs, a configuration, weights and metrics."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.reference.oracle import Rows

VECTORS = Path(__file__).parents[1] / "vectors" / "reference_cases.json"


class Case(NamedTuple):
    name: str
    config: dict[str, Any]
    inputs: tuple[Rows, Rows, Rows]
    weights: Rows
    metrics: dict[str, float]

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration under the names of the functional interface."""
        return {
            "level": self.config["rollout_is_level"],
            "mode": self.config["rollout_is_mode"],
            "upper": self.config["rollout_is_threshold"],
            "lower": self.config["rollout_is_threshold_lower"],
            "veto": self.config["rollout_is_veto_threshold"],
        }


def read_cases() -> list[Case]:
    return [
        Case(
            name=entry["name"],
            config=entry["config"],
            inputs=(entry["old_log_prob"], entry["rollout_log_prob"], entry["response_mask"]),
            weights=entry["weights"],
            metrics=entry["metrics"],
        )
        for entry in json.loads(VECTORS.read_text())
    ]


CASES = read_cases()
