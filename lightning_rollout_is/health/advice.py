"""What to say of each rule: what it means, why it may hold, what to do. Keys are verl's, as in ``conf/``."""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """The words of a rule."""

    meaning: str
    causes: tuple[str, ...]
    remedy: str


LOG_PROBS = "actor_rollout_ref.rollout.calculate_log_probs: true"
GEOMETRIC = (
    "algorithm.rollout_is_level: geometric with algorithm.rollout_is_threshold: 1.001 (algorithm=geometric_mask; for "
    "long responses of engines that agree closely: look at rollout_is_masked_fraction, it drops most of short ones)"
)
APART = "the engine is coarsely quantised, or of low precision"
STALE = "the engine's weights are stale: they are synchronised too seldom, or the synchronisation fails"

SPREAD = (
    f"at sequence level go to {GEOMETRIC}; at token level adjust algorithm.rollout_is_threshold within 1.5 to 5.0; "
    "check that the two policies are not too different: synchronise the engine's weights before each rollout, and "
    "try an engine of higher precision"
)
MEAN = (
    f"check that the rollout's log-probs are computed ({LOG_PROBS}) and passed on correctly: index t of "
    "old_log_prob, rollout_log_prob and response_mask must be the same token; look for a systematic bias, such as "
    "another temperature; meanwhile algorithm.rollout_is_mode: mask leaves out the worst"
)
SAMPLING = (
    "give both sides the same sampling settings: actor_rollout_ref.rollout.temperature: 1.0, top_p: 1.0 and top_k: -1, "
    "or divide the trainer's logits by the same temperature; have the engine return log-probs after its temperature "
    "(vLLM: logprobs_mode=processed_logprobs)"
)

ADVICE = {
    "all_missing": Advice(
        "no token has a usable rollout log-prob: nothing is corrected and nothing can be measured",
        (
            "the engine does not return log-probs",
            "they are lost on their way to the trainer, and filled with NaN or -9999",
        ),
        LOG_PROBS,
    ),
    "missing_fraction": Advice(
        "some tokens have no usable log-prob: their weight is 0 and they train nothing",
        (
            "the engine leaves out the log-prob of some tokens, often the first or the last of a response",
            "response_mask is 1 on tokens that the policy did not generate, such as tool output",
            "NaN in the trainer's log-probs",
        ),
        f"have the engine return the log-prob of each sampled token ({LOG_PROBS}), and set response_mask to 0 on "
        "every token that the policy did not generate",
    ),
    "unchanged": Advice(
        "every weight has been exactly 1, which two policies in different programs never are",
        (
            "old_log_prob and rollout_log_prob are the same tensor, or one is a copy of the other",
            "the trainer's log-probs are used in place of the engine's",
            "engine and trainer agree bit for bit, which takes batch-invariant kernels",
        ),
        f"pass the engine's own log-probs as rollout_log_prob ({LOG_PROBS}); if both agree bit for bit by design, turn "
        "this rule off (unchanged: null)",
    ),
    "saturation": Advice(
        "a raw weight has run into the clamp of 20 nats: weights of such sequences say nothing any more",
        (
            "sequence level with responses so long that their length times the KL comes to 20 nats",
            "a token that one of the policies finds all but impossible: look at the catastrophic fraction",
        ),
        f"go to {GEOMETRIC}, or to algorithm.rollout_is_level: token (algorithm=token_truncate); or shorten the "
        "responses (data.max_response_length)",
    ),
    "mean_low": Advice(
        "the mean importance weight is far under 1: training finds the sampled tokens less likely than rollout did",
        (
            "the rollout's log-probs are of another distribution: top-p, top-k or a temperature on one side alone",
            "the log-probs are of other tokens: shifted by one, or of another response",
            STALE,
        ),
        MEAN,
    ),
    "mean_high": Advice(
        "the mean importance weight is far over 1: training finds the sampled tokens more likely than rollout did",
        (
            "the rollout's log-probs are of another distribution: a temperature on one side alone",
            "the log-probs are of other tokens: shifted by one, or of another response",
            "a few weights explode: sequence level on long responses",
        ),
        MEAN,
    ),
    "constant_shift": Advice(
        "all tokens have nearly the same log ratio: the log-probs are shifted, which is no noise of an engine",
        (
            "top-p or top-k in the engine, whose log-probs are renormalised over the tokens that it keeps",
            "another temperature on one side where the policy is nearly uniform",
            "a normalising constant that one side lacks",
        ),
        SAMPLING,
    ),
    "negative_kl": Advice(
        "the KL is clearly negative, which the log-probs of the sampled distribution never make it: "
        "rollout_log_prob is not what the tokens were drawn from",
        (
            "the engine samples at another temperature than the one its log-probs are of",
            "old_log_prob was computed after an update on the same tokens",
            "the two log-probs have changed places",
        ),
        f"{SAMPLING}; compute old_log_prob before the first update on a batch",
    ),
    "eff_sample_size": Advice(
        "the effective sample size is small: a few tokens carry the whole gradient",
        ("sequence level on long responses", APART, STALE),
        SPREAD,
    ),
    "std": Advice(
        "the importance weights are spread widely: the gradient is noisy",
        ("sequence level on long responses", APART, STALE),
        SPREAD,
    ),
    "kl": Advice(
        "the two policies are far apart",
        (
            APART,
            STALE,
            "other sampling settings on one side: temperature, top-p, top-k",
            "the policies are not the same model",
        ),
        "correct it (algorithm.rollout_is: true, algorithm.rollout_is_threshold: 2.0) if that is not done yet; "
        "synchronise the engine's weights before each rollout, try an engine of higher precision, and compare the "
        "sampling settings",
    ),
    "confident_disagreement": Advice(
        "the trainer contradicts the engine on tokens of which the engine was sure: it gives them a seventh of the "
        "probability, or less",
        (
            "the two sides score the tokens in another context: the chat template, a BOS token or the positions differ",
            STALE,
            "a mixture of experts sends tokens to other experts on one side",
            APART,
        ),
        "score one response on both sides and compare token ids and log-probs one by one; synchronise the engine's "
        "weights before each rollout; with a mixture of experts replay the engine's choices "
        "(actor_rollout_ref.rollout.enable_rollout_routing_replay: true); meanwhile leave such tokens out of the loss: "
        "algorithm.rollout_is_mode: mask with algorithm.rollout_is_level: token (algorithm=token_mask)",
    ),
    "growing_with_position": Advice(
        "the mismatch grows along the response: late tokens disagree far more than early ones",
        (
            "the engine's KV cache is of low precision (fp8), whose faults add up over the context",
            "positions are encoded differently: RoPE scaling, or a sliding window on one side",
            "the engine goes on with responses that older weights began, or scores later turns in another context",
            "the policy itself is less sure of late tokens, which makes every fault of the engine larger there",
        ),
        "keep the KV cache in the precision of the model (actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_dtype: "
        "auto); compare rope_scaling and sliding_window of both sides; shorten the responses "
        f"(data.max_response_length); at sequence level go to {GEOMETRIC}",
    ),
    "chi2_token": Advice(
        "the raw weights vary by more than their own mean: the gradient holds more noise than signal",
        ("a few weights explode: tokens that the trainer finds far more likely than the engine", APART, STALE),
        SPREAD,
    ),
    "applied_eff_sample_size": Advice(
        "little is left of what multiplies the loss: after bounds and veto a few tokens carry the whole gradient",
        (
            "bounds and veto reject most tokens: look at the masked and the vetoed fraction",
            "sequence level on long responses, most of whose weights are next to 0",
            APART,
            STALE,
        ),
        "bound without rejecting (algorithm.rollout_is_mode: truncate) or widen algorithm.rollout_is_threshold and "
        "algorithm.rollout_is_threshold_lower; veto less (algorithm.rollout_is_veto_threshold: 1.0e-5); at sequence "
        f"level go to {GEOMETRIC}",
    ),
    "veto_fraction": Advice(
        "many sequences are vetoed and train nothing",
        (
            "a numeric fault in one of the log-prob computations",
            "the policies are not the same model",
            "the veto is too strict for the noise of the engine",
        ),
        "relax the veto: algorithm.rollout_is_veto_threshold: 1.0e-5 vetoes less, 1.0e-3 vetoes more; look for numeric "
        "faults in the log-prob computation; check that the policies are the same model",
    ),
    "catastrophic_fraction": Advice(
        "many tokens are under the veto threshold: training finds them all but impossible",
        (
            "a numeric fault in one of the log-prob computations",
            "the log-probs are of other tokens: shifted by one, or of another response",
            "the policies are not the same model",
        ),
        "look for numeric faults in the log-prob computation; check that index t is the same token on both sides, and "
        "that the policies are the same model",
    ),
    "masked_fraction": Advice(
        "the bounds reject many tokens, which train nothing",
        ("the thresholds are too narrow for this level", APART, STALE),
        "widen algorithm.rollout_is_threshold and algorithm.rollout_is_threshold_lower within what is recommended for "
        "the level (token 1.5 to 5.0, sequence 2.0 to 10.0, geometric 1.0002 to 1.001), or bound without rejecting: "
        "algorithm.rollout_is_mode: truncate",
    ),
    "falling_eff_sample_size": Advice(
        "the effective sample size keeps falling: the two policies drift apart",
        (
            STALE,
            "the policy becomes more peaked, which makes every fault of the engine larger",
            "the responses grow longer, at sequence level",
        ),
        "synchronise the engine's weights before each rollout; lower the learning rate "
        f"(actor_rollout_ref.actor.optim.lr); at sequence level go to {GEOMETRIC}",
    ),
    "jump": Advice(
        "the mismatch has jumped",
        (
            "the last synchronisation of weights failed, or is only partly done",
            "the engine was restarted with other settings: precision, temperature, top-p",
            "the data has changed: another task, or much longer responses",
        ),
        "look at what happened at that step: engine logs, weight synchronisation, data; go back to the last checkpoint "
        "before it if the reward falls",
    ),
}
