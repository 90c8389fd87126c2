"""Rollout engines: what samples the responses, and says with which log-prob it sampled each token.

Every engine has two methods, ``generate`` and ``sync_weights``: see :class:`RolloutEngine`. The mismatch with the
training policy comes from an engine's own arithmetic, or from weights that it really holds; none is ever added.
"""

from lightning_rollout_is.engines.ctranslate2 import CTranslate2Engine
from lightning_rollout_is.engines.interface import Completion, RolloutEngine
from lightning_rollout_is.engines.llama_cpp import LlamaCppEngine
from lightning_rollout_is.engines.rounded import RoundedWeights
from lightning_rollout_is.engines.stale import StaleEngine
from lightning_rollout_is.engines.transformers import TransformersEngine
from lightning_rollout_is.engines.vllm import VLLMEngine
from lightning_rollout_is.engines.vllm_server import VLLMServerEngine

__all__ = [
    "CTranslate2Engine",
    "Completion",
    "LlamaCppEngine",
    "RolloutEngine",
    "RoundedWeights",
    "StaleEngine",
    "TransformersEngine",
    "VLLMEngine",
    "VLLMServerEngine",
]
