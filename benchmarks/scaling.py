"""How the cost grows: time a token from a small batch to a huge one, memory over a long accumulation window."""

from timing import Row, interleaved, median

# isort: split
import memory
from apart import apart
from workload import batch, weighing

LENGTH = 4096
EXPONENTS = range(14, 26)
ROUNDS = 5
FLAT = 1.5
PAST_CACHES, LARGEST = 20, 25
MICRO_BATCHES, EARLY = 1024, 64
GROWTH_BYTES = 1 << 20
FIXED_COST = "the smallest batch pays the fixed cost of the calls into torch: "


def nanoseconds() -> dict[int, float]:
    """Nanoseconds a token of eager weights and statistics, by the binary logarithm of the token count."""
    tensors = batch(2**LARGEST // LENGTH, LENGTH)
    weigh = weighing("eager", "token")
    calls = {
        str(exponent): _call(weigh, [tensor[: 2**exponent // LENGTH] for tensor in tensors]) for exponent in EXPONENTS
    }
    tiny = batch(2, 16)
    seconds = interleaved(calls, ROUNDS, warmup=1, before=lambda: weigh(*tiny))  # after the largest, code is cold
    return {exponent: median(seconds[str(exponent)]) / 2**exponent * 1e9 for exponent in EXPONENTS}


def growth() -> int:
    """Bytes by which the process grows from the 64th to the 1024th micro-batch of one window."""
    weigh = weighing("eager", "token")
    early = 0
    for number in range(MICRO_BATCHES):
        weigh(*batch(8, 512))
        if number + 1 == EARLY:
            early = memory.resident_bytes()
    return memory.resident_bytes() - early


def _call(function, tensors):
    return lambda: function(*tensors)


def rows() -> list[Row]:
    return [*_time_rows(apart(nanoseconds, threads=1)), _memory_row()]


def _time_rows(found: dict[int, float]) -> list[Row]:
    slowest = max(found, key=lambda exponent: found[exponent])
    whole = max(found.values()) / min(found.values())
    tail = found[LARGEST] / found[PAST_CACHES]
    figures = ", ".join(f"2^{exponent} {value:.1f}" for exponent, value in found.items())
    what = "eager, token level, ns a token, one thread"
    return [
        Row(
            f"{what}: slowest over fastest from 2^{EXPONENTS[0]} to 2^{LARGEST} tokens",
            f"{whole:.2f}x",
            f"flat, <= {FLAT}x",
            whole <= FLAT,
            (FIXED_COST if whole > FLAT and slowest == EXPONENTS[0] else "") + figures,
        ),
        Row(
            f"{what}: 2^{LARGEST} over 2^{PAST_CACHES} tokens",
            f"{tail:.2f}x",
            f"flat, <= {FLAT}x",
            tail <= FLAT,
            f"{found[LARGEST]:.1f} and {found[PAST_CACHES]:.1f} ns",
        ),
    ]


def _memory_row() -> Row:
    what = f"growth of the process from micro-batch {EARLY} to {MICRO_BATCHES} of one window, (8, 512) each"
    target = f"flat, <= {GROWTH_BYTES >> 20} MiB"
    if not memory.measurable():
        return Row(what, "not measured", target, None, "needs Linux's record of resident sizes")
    grown = apart(growth, threads=1)
    return Row(what, f"{grown / 1024:.0f} KiB", target, grown <= GROWTH_BYTES, "resident size, free memory given back")


def main():
    for row in rows():
        print(*row, sep=" | ")


if __name__ == "__main__":
    main()
