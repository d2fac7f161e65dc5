"""Linear recurrent models: a matrix for each head as state, S_t = A_t S_{t-1} + k_t v_tᵀ. They differ in A_t.

Each file has one mixer and its model; `model` has the blocks, `octavo.ops.linear.decaying` the recurrence.
"""

from __future__ import annotations

from octavo.models.linear_attention import delta, gla, mamba2, mlstm, retention

SPECS = (retention.SPEC, gla.SPEC, mamba2.SPEC, delta.DELTA_SPEC, delta.GATED_DELTA_SPEC, mlstm.SPEC)
