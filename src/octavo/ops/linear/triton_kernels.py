"""The Triton programs of linear attention; `kernel` launches them and says what they are for.

B batch, H heads, T tokens, N chunks of C tokens, K features, V size of a value. A program's place in the grid is
(chunk, b * H + h). x_at is the step in memory from one b, h and t to the next; tokens after the end are read as
zeros, which add nothing to any sum.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc, unused-ignore"

from __future__ import annotations

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]


@triton.jit
def places(x_at, T, H, C: tl.constexpr, W: tl.constexpr):
    """Where a chunk's tile of C tokens by W columns lies, and which of it there is."""
    chunk, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    t_C = chunk * C + tl.arange(0, C)
    place_CW = (bh // H) * x_at[0] + (bh % H) * x_at[1] + t_C[:, None].to(tl.int64) * x_at[2] + tl.arange(0, W)[None, :]
    return place_CW, (t_C < T)[:, None]


@triton.jit
def tile(x, x_at, T, H, C: tl.constexpr, W: tl.constexpr):
    """This chunk of x."""
    place_CW, there = places(x_at, T, H, C, W)
    return tl.load(x + place_CW, mask=there, other=0.0)


@triton.jit
def put(x, x_at, T, H, value_CW, C: tl.constexpr, W: tl.constexpr):
    """Write this chunk of x."""
    place_CW, there = places(x_at, T, H, C, W)
    tl.store(x + place_CW, value_CW.to(x.dtype.element_ty), mask=there)


@triton.jit
def column(x, T, C: tl.constexpr):
    """One number for each token of this chunk, of x_(BH)T."""
    t_C = tl.program_id(0) * C + tl.arange(0, C)
    return tl.load(x + tl.program_id(1).to(tl.int64) * T + t_C, mask=t_C < T, other=0.0)


@triton.jit
def put_column(x, T, value_C, C: tl.constexpr):
    """Write one number for each token of this chunk."""
    t_C = tl.program_id(0) * C + tl.arange(0, C)
    tl.store(x + tl.program_id(1).to(tl.int64) * T + t_C, value_C, mask=t_C < T)


@triton.jit
def of_chunk(K: tl.constexpr, V: tl.constexpr):
    """Where this chunk's K x V numbers lie in x_(BH)NKV."""
    n = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    return n * K * V + tl.arange(0, K)[:, None] * V + tl.arange(0, V)[None, :]


@triton.jit
def row_of_chunk(K: tl.constexpr):
    """Where this chunk's K numbers lie in x_(BH)NK."""
    return (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * K + tl.arange(0, K)


@triton.jit
def inverse(den_C, MIN_DENOMINATOR: tl.constexpr):
    """1 / den, and 0 where a query matches nothing."""
    return tl.where(den_C > MIN_DENOMINATOR, 1.0 / tl.where(den_C > MIN_DENOMINATOR, den_C, 1.0), 0.0)


@triton.jit
def causal(p_CC, C: tl.constexpr):
    """The pairs whose key is not after the query."""
    return tl.where(tl.arange(0, C)[:, None] >= tl.arange(0, C)[None, :], p_CC, 0.0)


@triton.jit
def sum_chunks(k, v, k_at, v_at, S, z, T, H, C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, EXACT: tl.constexpr):
    """What each chunk adds: S = kᵀ v and z = the sum of k."""
    k_CK = tile(k, k_at, T, H, C, K)
    v_CV = tile(v, v_at, T, H, C, V)
    tl.store(S + of_chunk(K, V), tl.dot(tl.trans(k_CK), v_CV, input_precision=EXACT))
    tl.store(z + row_of_chunk(K), tl.sum(k_CK.to(tl.float32), 0))


@triton.jit
def scan_columns(
    x, first, before, last, N, column0, SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, BACK: tl.constexpr
):
    """before[n] = first + x[0] + ... + x[n - 1] for a block of columns, last with all of x; from the end if BACK.

    The rows are read one place earlier: a sum that had this row's own taken off again would lose digits.
    """
    bh = tl.program_id(1).to(tl.int64)
    c = column0 + tl.arange(0, BLOCK)
    there = c < SIZE
    x += bh * N * SIZE
    before += bh * N * SIZE
    carry = tl.load(first + bh * SIZE + c, mask=there, other=0.0)
    i = 0
    while i < N:  # not a range: the interpreter cannot take its end from an argument with numpy 2.4
        n = i + tl.arange(0, ROWS)
        row = (N - 1 - n if BACK else n).to(tl.int64)
        earlier = (N - n if BACK else n - 1).to(tl.int64)
        x_RC = tl.load(
            x + earlier[:, None] * SIZE + c[None, :], mask=((n > 0) & (n < N))[:, None] & there[None, :], other=0.0
        )
        sum_RC = carry[None, :] + tl.cumsum(x_RC, 0)
        tl.store(
            before + row[:, None] * SIZE + c[None, :],
            sum_RC.to(before.dtype.element_ty),
            mask=(n < N)[:, None] & there[None, :],
        )
        carry += tl.sum(x_RC, 0)
        i += ROWS
    end = 0 if BACK else N - 1
    carry += tl.load(x + end * SIZE + c, mask=there, other=0.0)
    tl.store(last + bh * SIZE + c, carry, mask=there)


@triton.jit
def scan_chunks(
    S, z, S_first, z_first, S_before, z_before, S_last, z_last, N,
    K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """The state before each chunk, and after the last; the grid's last block of columns is z's."""
    block = tl.program_id(0)
    if block < K * V // BLOCK:
        scan_columns(S, S_first, S_before, S_last, N, block * BLOCK, K * V, BLOCK, ROWS, BACK)
    else:
        scan_columns(z, z_first, z_before, z_last, N, 0, K, BLOCK, ROWS, BACK)


@triton.jit
def answer(
    q, k, v, q_at, k_at, v_at, S, z, y, y_at, den, T, H,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, EXACT: tl.constexpr, MIN_DENOMINATOR: tl.constexpr,
):  # fmt: skip
    """y = ((q kᵀ, causal) v + q S) / ((q kᵀ, causal) 1 + q z)."""
    q_CK = tile(q, q_at, T, H, C, K)
    k_CK = tile(k, k_at, T, H, C, K)
    v_CV = tile(v, v_at, T, H, C, V)
    S_KV = tl.load(S + of_chunk(K, V))
    z_K = tl.load(z + row_of_chunk(K))
    p_CC = causal(tl.dot(q_CK, tl.trans(k_CK), input_precision=EXACT), C)
    num_CV = tl.dot(q_CK, S_KV, input_precision=EXACT)
    num_CV = tl.dot(p_CC.to(v_CV.dtype), v_CV, acc=num_CV, input_precision=EXACT)
    den_C = tl.sum(p_CC, 1) + tl.sum(q_CK.to(tl.float32) * z_K[None, :], 1)
    put_column(den, T, den_C, C)
    put(y, y_at, T, H, num_CV * inverse(den_C, MIN_DENOMINATOR)[:, None], C, V)


@triton.jit
def sum_gradients(
    q, y, dy, q_at, y_at, dy_at, den, dden, R, r, T, H,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, EXACT: tl.constexpr, MIN_DENOMINATOR: tl.constexpr,
):  # fmt: skip
    """What each chunk asks of the states before it: R = qᵀ dnum and r = qᵀ dden."""
    q_CK = tile(q, q_at, T, H, C, K)
    dy_CV = tile(dy, dy_at, T, H, C, V).to(tl.float32)
    y_CV = tile(y, y_at, T, H, C, V).to(tl.float32)
    inverse_C = inverse(column(den, T, C), MIN_DENOMINATOR)
    dden_C = -tl.sum(dy_CV * y_CV, 1) * inverse_C
    put_column(dden, T, dden_C, C)
    dnum_CV = (dy_CV * inverse_C[:, None]).to(q_CK.dtype)
    tl.store(R + of_chunk(K, V), tl.dot(tl.trans(q_CK), dnum_CV, input_precision=EXACT))
    tl.store(r + row_of_chunk(K), tl.sum(q_CK.to(tl.float32) * dden_C[:, None], 0))


@triton.jit
def gradients(
    q, k, v, dy, q_at, k_at, v_at, dy_at, S, z, R, r, den, dden, dq, dk, dv, dq_at, dk_at, dv_at, T, H,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, EXACT: tl.constexpr, MIN_DENOMINATOR: tl.constexpr,
):  # fmt: skip
    """dq, dk and dv of a chunk, one after the other so that few of them are held at once."""
    q_CK = tile(q, q_at, T, H, C, K)
    k_CK = tile(k, k_at, T, H, C, K)
    v_CV = tile(v, v_at, T, H, C, V)
    dnum_CV = tile(dy, dy_at, T, H, C, V) * inverse(column(den, T, C), MIN_DENOMINATOR)[:, None]
    dnum_CV = dnum_CV.to(v_CV.dtype)
    dden_C = column(dden, T, C)
    R_KV = tl.load(R + of_chunk(K, V))
    p_CC = causal(tl.dot(q_CK, tl.trans(k_CK), input_precision=EXACT), C).to(v_CV.dtype)
    dv_CV = tl.dot(k_CK, R_KV, input_precision=EXACT)
    dv_CV = tl.dot(tl.trans(p_CC), dnum_CV, acc=dv_CV, input_precision=EXACT)
    put(dv, dv_at, T, H, dv_CV, C, V)
    dp_CC = tl.dot(dnum_CV, tl.trans(v_CV), input_precision=EXACT)
    dp_CC = causal(dp_CC + dden_C[:, None], C).to(v_CV.dtype)
    dk_CK = tl.dot(v_CV, tl.trans(R_KV), input_precision=EXACT)
    dk_CK = tl.dot(tl.trans(dp_CC), q_CK, acc=dk_CK, input_precision=EXACT)
    put(dk, dk_at, T, H, dk_CK + tl.load(r + row_of_chunk(K))[None, :], C, K)
    dq_CK = tl.dot(dnum_CV, tl.trans(tl.load(S + of_chunk(K, V))), input_precision=EXACT)
    dq_CK = tl.dot(dp_CC, k_CK, acc=dq_CK, input_precision=EXACT)
    put(dq, dq_at, T, H, dq_CK + dden_C[:, None] * tl.load(z + row_of_chunk(K))[None, :], C, K)
