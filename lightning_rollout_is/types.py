"""Array shapes that every room of the house speaks of."""

from jaxtyping import Bool, Float, Integer
from torch import Tensor

# A batch of tokens is padded, (batch, seq), or packed, (tokens,): one name for both.
TokenFloat = Float[Tensor, "*tokens"]
TokenBool = Bool[Tensor, "*tokens"]
TokenMask = Bool[Tensor, "*tokens"] | Integer[Tensor, "*tokens"] | Float[Tensor, "*tokens"]
SequenceFloat = Float[Tensor, " sequences"]
SequenceBool = Bool[Tensor, " sequences"]
# A unit is what a weight belongs to: a token, or a sequence.
UnitFloat = Float[Tensor, "*units"]
UnitBool = Bool[Tensor, "*units"]
Scalar = Float[Tensor, ""]
CuSeqlens = Integer[Tensor, " boundaries"]
GroupIds = Integer[Tensor, "*sequences_or_tokens"]
