"""A metric with ``compile=True``: the same values, one graph for all shapes, and a way on without a compiler."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from lightning_rollout_is import RolloutISMetrics
from lightning_rollout_is.metrics import compiled
from tests.compiled.test_compiled import random_tensors
from tests.metrics.test_small_mismatch import NAMES, mismatched
from tests.reference import oracle
from tests.reference.batches import as_seen, lay_out
from tests.reference.metric_values import TOKEN, config_of, update, values

# The compiler itself imports what torch has deprecated.
pytestmark = [pytest.mark.plain, pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    compiled.compiled_measure.cache_clear()
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    compiled.compiled_measure.cache_clear()
    torch.compiler.reset()


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def metric(compile: bool = True, **settings: Any) -> RolloutISMetrics:
    return RolloutISMetrics(config_of(TOKEN | {"upper": 5.0} | settings), compile=compile)


def test_machine_code_measures_as_eager_mode_does_for_any_shape() -> None:
    fast, plain = metric(), metric(compile=False)
    for rows, length in ((4, 7), (5, 90), (33, 12)):
        tensors = random_tensors(rows, length, "right")
        torch.testing.assert_close(fast.weigh(*tensors[:3]), plain.weigh(*tensors[:3]), rtol=1e-6, atol=0.0)
    assert values(fast) == pytest.approx(values(plain), rel=1e-6, abs=1e-9, nan_ok=True)
    assert fast.update_count == 3
    assert graphs() == 1


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_machine_code_measures_details_and_groups_as_eager_mode_does(level: str) -> None:
    settings = config_of(TOKEN | {"level": level})
    fast, plain = (
        RolloutISMetrics(settings, details=True, groups=["math", "code"], compile=compile) for compile in (True, False)
    )
    for rows, length in ((4, 30), (5, 90), (33, 12)):
        tensors = random_tensors(rows, length, "right")
        for each in (fast, plain):
            each.weigh(*tensors[:3], groups=torch.arange(rows) % 3)
    # A log that rounds otherwise may put a token into the next bin.
    assert values(fast) == pytest.approx(values(plain), rel=0.2, abs=1e-9, nan_ok=True)
    exact = {name: value for name, value in values(plain).items() if "log_ratio_p" not in name}
    found = values(fast)
    assert {name: found[name] for name in exact} == pytest.approx(exact, rel=1e-5, abs=1e-7, nan_ok=True)
    assert graphs() == 1


def test_machine_code_keeps_the_digits_of_a_small_mismatch() -> None:
    """``exp(x) - 1`` in the place of ``expm1`` would be off by half here."""
    settings: dict[str, Any] = TOKEN | {"upper": 1.5}
    batch = mismatched(1e-4)
    tensors = lay_out(batch, "right", torch.float32)
    expected = oracle.metrics(*as_seen(batch, tensors, "right"), **settings)
    fast = metric(**settings)
    update(fast, tensors)
    for name in NAMES:
        assert values(fast)[name] == pytest.approx(expected[name], rel=1e-3, abs=0.0), name


def test_copies_share_what_was_compiled() -> None:
    tensors = random_tensors(4, 7, "right")
    first = metric()
    first.weigh(*tensors[:3])
    copy = pickle.loads(pickle.dumps(first))
    copy.weigh(*tensors[:3])
    assert graphs() == 1


def test_without_a_compiler_it_warns_once_and_goes_on() -> None:
    fast, plain = metric(), metric(compile=False)
    tensors = random_tensors(4, 7, "right")
    with (
        torch._inductor.config.patch({"cpp.cxx": ("/no/such/compiler",), "fx_graph_cache": False}),
        pytest.warns(UserWarning, match="could not be compiled .* leave out compile=True") as warned,
    ):
        weight = fast.weigh(*tensors[:3])
    assert len(warned) == 1
    torch.testing.assert_close(weight, plain.weigh(*tensors[:3]), rtol=0.0, atol=0.0)
    fast.weigh(*tensors[:3])  # warnings are errors: there is no second one


def test_what_does_not_fit_is_refused_as_without_a_compiler() -> None:
    old, rollout, mask = torch.zeros(2, 3), torch.zeros(2, 4), torch.ones(2, 3)
    fast = metric()
    with pytest.raises(ValueError, match="must have one shape"):
        fast.weigh(old, rollout, mask)
    assert fast.weigh(old, old, mask).sum() == 6.0, "a refused batch is no reason to do without the compiler"
    assert graphs() == 1


def test_inside_a_compiled_step_it_is_part_of_that_graph() -> None:
    fast, plain = metric(), metric(compile=False)
    tensors = random_tensors(4, 7, "right")[:3]
    step = torch.compile(lambda *batch: fast.measure(*batch).weight, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(step(*tensors), plain.weigh(*tensors))
    assert graphs() == 1
    assert not compiled.compiled_measure.cache_info().currsize
