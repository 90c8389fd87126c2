import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from lightning_rollout_is.functional import token_log_probs

MODULE = sys.modules[token_log_probs.__module__]
MIB = 1 << 20


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    """Blocks of 48 elements, so that small batches have many of them, and a last one that is not full."""
    monkeypatch.setattr(MODULE, "_BLOCK_PER_CPU_THREAD", 48)
    monkeypatch.setattr(MODULE, "_BLOCK_ON_ACCELERATOR", 48)


@pytest.fixture(params=["cpu", "accelerator"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a CPU does, and what a GPU does, which runs on a CPU as well."""
    if request.param == "accelerator":
        monkeypatch.setattr(MODULE, "_on_cpu", lambda tensor: False)


def batch(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 4.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(sum(shape))
    logits = torch.randn(shape, generator=generator, dtype=torch.float64).mul(scale).to(dtype)
    return logits, torch.randint(0, shape[-1], shape[:-1], generator=generator)


def plain(logits: Tensor, token_ids: Tensor, temperature: float = 1.0) -> Tensor:
    """The formula, in float64, with everything in memory."""
    z = logits.double() / temperature
    return z.gather(-1, token_ids.long().unsqueeze(-1)).squeeze(-1) - z.exp().sum(-1).log()


def gradient(
    fn: Callable[..., Tensor], logits: Tensor, token_ids: Tensor, temperature: float, coming: Tensor
) -> Tensor:
    leaf = logits.detach().clone().requires_grad_()
    fn(leaf, token_ids, temperature).backward(coming)
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.usefixtures("small_blocks", "path")
@pytest.mark.parametrize("temperature", [1.0, 0.6, 3])
@pytest.mark.parametrize("shape", [(7,), (11, 7), (3, 5, 7), (2, 3, 30, 7), (4, 1, 100), (0, 7), (3, 0, 7)], ids=str)
def test_values_and_gradient_of_any_shape(shape: tuple[int, ...], temperature: float) -> None:
    logits, ids = batch(*shape, dtype=torch.float64)
    coming = torch.randn(ids.shape, dtype=torch.float64)
    ours = token_log_probs(logits, ids, float(temperature))
    assert ours.dtype == torch.float64
    torch.testing.assert_close(ours, plain(logits, ids, temperature))
    torch.testing.assert_close(
        gradient(token_log_probs, logits, ids, float(temperature), coming),
        gradient(plain, logits, ids, temperature, coming),
    )


@pytest.mark.usefixtures("small_blocks", "path")
@pytest.mark.parametrize("strided", ["shifted", "transposed", "every_other"])
def test_strided_logits(strided: str) -> None:
    whole, _ = batch(6, 10, 14)
    logits = {"shifted": whole[:, :-1], "transposed": whole.mT, "every_other": whole[..., ::2]}[strided]
    ids = torch.randint(0, logits.shape[-1], logits.shape[:-1])
    coming = torch.randn(ids.shape)
    torch.testing.assert_close(token_log_probs(logits, ids), plain(logits, ids).float())
    expected = gradient(plain, logits, ids, 1.0, coming.double())
    torch.testing.assert_close(gradient(token_log_probs, logits, ids, 1.0, coming), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("small_blocks", "path")
def test_gradcheck() -> None:
    logits, ids = batch(3, 4, 7, dtype=torch.float64, scale=1.0)
    ids[0, 0] = -100

    def masked(z: Tensor) -> Tensor:
        return token_log_probs(z, ids, 0.7).where(ids >= 0, 0.0)

    assert torch.autograd.gradcheck(masked, logits.requires_grad_())


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype, temperature: float) -> None:
    logits, ids = batch(64, 32_000, dtype=dtype)
    ours = token_log_probs(logits, ids, temperature)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.double(), plain(logits, ids, temperature), rtol=0.0, atol=1e-5)
    coming = torch.randn(64)
    grad = gradient(token_log_probs, logits, ids, temperature, coming)
    exact = gradient(plain, logits.double(), ids, temperature, coming.double())
    assert grad.dtype == dtype
    # Rounded to the logits' dtype once: half a unit in the last place, of normal or of subnormal numbers.
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    torch.testing.assert_close(grad.double(), exact, rtol=eps / 2 + 1e-5, atol=eps * tiny + 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_vocabulary_costs_no_accuracy(dtype: torch.dtype) -> None:
    """131072 terms in float32, in the few partial sums of a softmax on a CPU, err by 2e-5."""
    logits, ids = batch(8, 131_072, dtype=dtype)
    logits[0, ids[0]] = -110.0  # a probability that float32 does not hold
    torch.testing.assert_close(token_log_probs(logits, ids).double(), plain(logits, ids), rtol=1.2e-7, atol=3e-6)
    grad = gradient(token_log_probs, logits.float(), ids, 1.0, torch.ones(8))
    exact = gradient(plain, logits.double(), ids, 1.0, torch.ones(8).double())
    torch.testing.assert_close(grad.double(), exact, rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("small_blocks", "path")
@pytest.mark.parametrize("padding", [-100, 7, 2**40])
def test_an_id_outside_the_vocabulary_is_nan_and_harmless_under_a_mask(padding: int) -> None:
    logits, ids = batch(3, 6, 7)
    real = torch.rand(3, 6) > 0.4
    expected = gradient(lambda z, i, t: plain(z, i, t).where(real, 0.0), logits, ids, 1.0, torch.ones(3, 6).double())
    padded_ids = ids.where(real, padding)
    leaf = logits.clone().requires_grad_()
    log_prob = token_log_probs(leaf, padded_ids)
    assert torch.equal(log_prob.isnan(), ~real)
    log_prob.where(real, 0.0).sum().backward()
    torch.testing.assert_close(leaf.grad, expected)
    assert not leaf.grad[~real].any()


@pytest.mark.usefixtures("small_blocks", "path")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_a_position_without_incoming_gradient_gets_exactly_zero(poison: float, dtype: torch.dtype) -> None:
    logits, ids = batch(4, 7, dtype=dtype)
    coming = torch.tensor([0.5, 0.0, -1.0, 0.0])
    clean = gradient(token_log_probs, logits, ids, 1.0, coming)
    logits[1], logits[3, 2] = poison, poison
    poisoned = gradient(token_log_probs, logits, ids, 1.0, coming)
    assert torch.equal(poisoned, clean)
    assert not poisoned[[1, 3]].any()


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("wrong", ["id", "logits"])
def test_a_nan_that_takes_part_in_the_loss_shows_in_its_gradient(wrong: str) -> None:
    logits, ids = batch(3, 7)
    if wrong == "id":
        ids[1] = -100
    else:
        logits[1, 4] = torch.nan
    grad = gradient(token_log_probs, logits, ids, 1.0, torch.ones(3))
    assert grad[1].isnan().all()
    assert grad[[0, 2]].isfinite().all()


@pytest.mark.usefixtures("path")
def test_forbidden_tokens_are_minus_infinity() -> None:
    log_prob = token_log_probs(torch.tensor([[0.0, -torch.inf, 0.0]] * 2), torch.tensor([0, 1]))
    torch.testing.assert_close(log_prob, torch.tensor([-0.6931472, -torch.inf]))


@pytest.mark.usefixtures("path")
def test_what_all_logits_have_in_common_costs_no_accuracy() -> None:
    log_prob = token_log_probs(torch.tensor([[1000.0, 1000.0, -1000.0]] * 2), torch.tensor([1, 2]))
    torch.testing.assert_close(
        log_prob.double(), torch.tensor([-0.69314718, -2000.69314718]).double(), rtol=1e-7, atol=0.0
    )


def peak_bytes(fn: Callable[[], object]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        fn()
    assert profiled.profiler is not None
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = torch.tensor([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])
    return int(held.cumsum(0).max())


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(("threads", "temperature"), [(1, 1.0), (64, 0.7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_is_the_gradient_and_two_blocks(
    dtype: torch.dtype, temperature: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    logits, ids = batch(2, 512, 16_384, dtype=dtype)
    logits.requires_grad_()
    size = logits.numel() * logits.element_size()
    with torch.no_grad():
        assert peak_bytes(lambda: token_log_probs(logits, ids, temperature)) < 0.26 * size
    assert size < peak_bytes(lambda: token_log_probs(logits, ids, temperature).sum().backward()) < 1.26 * size


def test_there_is_no_second_derivative() -> None:
    logits, ids = batch(2, 7)
    (grad,) = torch.autograd.grad(token_log_probs(logits.requires_grad_(), ids).sum(), logits, create_graph=True)
    with pytest.raises(RuntimeError, match="token_log_probs_backward"):
        grad.sum().backward()


@pytest.mark.plain
def test_compiles_to_one_graph() -> None:
    logits, ids = batch(4, 9, 13)
    compiled = torch.compile(token_log_probs, fullgraph=True, backend="aot_eager")
    coming = torch.randn(4, 9)
    assert torch.equal(compiled(logits, ids, 0.7), token_log_probs(logits, ids, 0.7))
    expected = gradient(token_log_probs, logits, ids, 0.7, coming)
    torch.testing.assert_close(gradient(compiled, logits, ids, 0.7, coming), expected)


def test_operators_are_registered_right() -> None:
    logits, ids = batch(3, 4, 7)
    torch.library.opcheck(MODULE._gathered_log_softmax, (logits.requires_grad_(), ids, 0.7))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu(dtype: torch.dtype, temperature: float) -> None:
    logits, ids = (tensor.cuda() for tensor in batch(3, 128, 32_000, dtype=dtype))
    coming = torch.randn(3, 128, device="cuda")
    ours = token_log_probs(logits, ids, temperature)
    torch.testing.assert_close(ours.double(), plain(logits, ids, temperature), rtol=0.0, atol=1e-5)
    grad = gradient(token_log_probs, logits, ids, temperature, coming)
    exact = gradient(plain, logits.double(), ids, temperature, coming.double())
    torch.testing.assert_close(grad.double(), exact, rtol=torch.finfo(dtype).eps / 2 + 1e-5, atol=1e-9)
