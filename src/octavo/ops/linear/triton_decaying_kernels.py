"""The Triton programs of linear attention that forgets, one decay for each head and token; `triton_decaying` launches
them and says what they are for.

B batch, H heads, T tokens, N chunks of C tokens, K size of a key, V size of a value, R rows read at once. G_t is the
sum of a chunk's log-decays up to token t, E that of all of them: no exponential here is of a number above zero.
A program's place in the grid is (chunk, b * H + h), if it does not say otherwise.

What a product returns is never transposed here: on Hopper, Triton 3.4 to 3.7.0 miscompile a product whose left side is
the transpose of another product's result (issue 640 of flash-linear-attention). The transposed map is computed instead.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc, unused-ignore"

from __future__ import annotations

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

from octavo.ops.linear.triton_kernels import column, of_chunk, put, put_column, row_of_chunk, tile


@triton.jit
def decay_sums(g_C, C: tl.constexpr):
    """G, the sums of the log-decays up to each token, and E, that of all."""
    up_to = tl.arange(0, C)[:, None] >= tl.arange(0, C)[None, :]
    return tl.sum(tl.where(up_to, g_C[None, :], 0.0), 1), tl.sum(g_C, 0)


@triton.jit
def sums_from(x_C, C: tl.constexpr):
    """The sum of x from each token to the last."""
    from_here = tl.arange(0, C)[:, None] <= tl.arange(0, C)[None, :]
    return tl.sum(tl.where(from_here, x_C[None, :], 0.0), 1)


@triton.jit
def decay_between(G_C, C: tl.constexpr, TRANSPOSED: tl.constexpr):
    """exp(G_t - G_s) for s <= t, else 0; t along the rows, or along the columns if TRANSPOSED."""
    row, col = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    if TRANSPOSED:
        return tl.where(row <= col, tl.exp(tl.minimum(G_C[None, :] - G_C[:, None], 0.0)), 0.0)
    else:
        return tl.where(row >= col, tl.exp(tl.minimum(G_C[:, None] - G_C[None, :], 0.0)), 0.0)


@triton.jit
def decay_to_end(G_C, E):
    """What the end of the chunk retains of each token."""
    return tl.exp(tl.minimum(E - G_C, 0.0))[:, None]


@triton.jit
def sum_chunks(
    k, v, k_at, v_at, g, S, z, E, T, H,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SUMS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """What each chunk adds to the state after it: S = kᵀ (v decayed), z = the sum of k decayed; and its E."""
    k_CK = tile(k, k_at, T, H, C, K)
    v_CV = tile(v, v_at, T, H, C, V)
    G_C, end = decay_sums(column(g, T, C), C)
    keep_C1 = decay_to_end(G_C, end)
    decayed_CV = (v_CV * keep_C1).to(v_CV.dtype)
    tl.store(S + of_chunk(K, V), tl.dot(tl.trans(k_CK), decayed_CV, input_precision=EXACT))
    tl.store(E + tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0), end)
    if SUMS:
        tl.store(z + row_of_chunk(K), tl.sum(k_CK.to(tl.float32) * keep_C1, 0))


@triton.jit
def scan_columns(
    x, E, first, before, last, N, column0, SIZE: tl.constexpr, BLOCK: tl.constexpr, R: tl.constexpr, BACK: tl.constexpr
):
    """before[n + 1] = exp(E[n]) before[n] + x[n] with before[0] = first, for a block of columns, and last with all of
    x; from the end if BACK.

    R rows at once are a product with the decays between them; each row is read with the x and E of the one before.
    """
    bh = tl.program_id(1).to(tl.int64)
    c = column0 + tl.arange(0, BLOCK)
    there = c < SIZE
    x += bh * N * SIZE
    before += bh * N * SIZE
    E += bh * N
    carry_B = tl.load(first + bh * SIZE + c, mask=there, other=0.0)
    i = 0
    while i < N:  # not a range: the interpreter cannot take its end from an argument with numpy 2.4
        n = i + tl.arange(0, R)
        row = (N - 1 - n if BACK else n).to(tl.int64)
        earlier = (N - n if BACK else n - 1).to(tl.int64)
        inside = (n > 0) & (n < N)
        x_RB = tl.load(x + earlier[:, None] * SIZE + c[None, :], mask=inside[:, None] & there[None, :], other=0.0)
        G_R, end = decay_sums(tl.load(E + earlier, mask=inside, other=0.0), R)
        between_RR = decay_between(G_R, R, False)
        sum_RB = tl.dot(between_RR, x_RB, input_precision="ieee") + tl.exp(G_R)[:, None] * carry_B[None, :]
        tl.store(
            before + row[:, None] * SIZE + c[None, :],
            sum_RB.to(before.dtype.element_ty),
            mask=(n < N)[:, None] & there[None, :],
        )
        carry_B = tl.exp(end) * carry_B + tl.sum(x_RB * decay_to_end(G_R, end), 0)
        i += R
    end = 0 if BACK else N - 1
    carry_B = tl.exp(tl.load(E + end)) * carry_B + tl.load(x + end * SIZE + c, mask=there, other=0.0)
    tl.store(last + bh * SIZE + c, carry_B, mask=there)


@triton.jit
def scan_chunks(
    S, z, E, S_first, z_first, S_before, z_before, S_last, z_last, N,
    K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr, R: tl.constexpr, BACK: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """The state before each chunk, and after the last; a program is (block of columns, b * H + h), the last is z's."""
    block = tl.program_id(0)
    if block < K * V // BLOCK:
        scan_columns(S, E, S_first, S_before, S_last, N, block * BLOCK, K * V, BLOCK, R, BACK)
    elif SUMS:
        scan_columns(z, E, z_first, z_before, z_last, N, 0, K, BLOCK, R, BACK)


@triton.jit
def answer(
    q, k, v, q_at, k_at, v_at, g, S, z, y, y_at, den, T, H,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SUMS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """y = p v + exp(G) q S with p = q kᵀ, causal and decayed; den = p 1 + exp(G) q z."""
    q_CK = tile(q, q_at, T, H, C, K)
    k_CK = tile(k, k_at, T, H, C, K)
    v_CV = tile(v, v_at, T, H, C, V)
    S_KV = tl.load(S + of_chunk(K, V))
    G_C, _ = decay_sums(column(g, T, C), C)
    p_CC = tl.dot(q_CK, tl.trans(k_CK), input_precision=EXACT) * decay_between(G_C, C, False)
    y_CV = tl.dot(q_CK, S_KV, input_precision=EXACT) * tl.exp(G_C)[:, None]
    y_CV += tl.dot(p_CC.to(v_CV.dtype), v_CV, input_precision=EXACT)
    put(y, y_at, T, H, y_CV, C, V)
    if SUMS:
        z_K = tl.load(z + row_of_chunk(K))
        put_column(den, T, tl.sum(p_CC, 1) + tl.exp(G_C) * tl.sum(q_CK.to(tl.float32) * z_K[None, :], 1), C)


@triton.jit
def sum_gradients(
    q, dy, q_at, dy_at, g, dden, S, z, T, H,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SUMS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """What each chunk adds to the gradients of the state before it: qᵀ (dy decayed), and qᵀ (dden decayed)."""
    q_CK = tile(q, q_at, T, H, C, K)
    dy_CV = tile(dy, dy_at, T, H, C, V)
    G_C, _ = decay_sums(column(g, T, C), C)
    decayed_CV = (dy_CV * tl.exp(G_C)[:, None]).to(dy_CV.dtype)
    tl.store(S + of_chunk(K, V), tl.dot(tl.trans(q_CK), decayed_CV, input_precision=EXACT))
    if SUMS:
        dden_C = column(dden, T, C) * tl.exp(G_C)
        tl.store(z + row_of_chunk(K), tl.sum(q_CK.to(tl.float32) * dden_C[:, None], 0))


@triton.jit
def query_gradients(
    q, k, v, dy, q_at, k_at, v_at, dy_at, g, dden, S, z, dq, dq_at, dG, T, H,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SUMS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dq of a chunk, and dG as far as queries make it: each number that exp(G_t) multiplies, times its gradient.

    A token's weight for itself does not depend on G, and is left out. Queries and keys have a program each, because the
    tiles of both together are more than the registers hold.
    """
    q_CK = tile(q, q_at, T, H, C, K)
    k_CK = tile(k, k_at, T, H, C, K)
    dy_CV = tile(dy, dy_at, T, H, C, V)
    G_C, _ = decay_sums(column(g, T, C), C)
    dp_CC = tl.dot(dy_CV, tl.trans(tile(v, v_at, T, H, C, V)), input_precision=EXACT)
    dq_CK = tl.dot(dy_CV, tl.trans(tl.load(S + of_chunk(K, V))), input_precision=EXACT)
    if SUMS:
        dden_C = column(dden, T, C)
        dp_CC += dden_C[:, None]
        dq_CK += dden_C[:, None] * tl.load(z + row_of_chunk(K))[None, :]
    dp_CC *= decay_between(G_C, C, False)
    dq_CK *= tl.exp(G_C)[:, None]
    dG_C = tl.sum(q_CK * dq_CK, 1)
    pairs_CC = tl.dot(q_CK, tl.trans(k_CK), input_precision=EXACT) * dp_CC
    dG_C += tl.sum(tl.where(tl.arange(0, C)[:, None] > tl.arange(0, C)[None, :], pairs_CC, 0.0), 1)
    put_column(dG, T, dG_C, C)
    dq_CK += tl.dot(dp_CC.to(k_CK.dtype), k_CK, input_precision=EXACT)
    put(dq, dq_at, T, H, dq_CK, C, K)


@triton.jit
def key_gradients(
    q, k, v, dy, q_at, k_at, v_at, dy_at, g, dden, S, z, R, r, dk, dv, dw, dk_at, dv_at, dw_at, dG, dg, T, H,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SUMS: tl.constexpr, DELTA: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dk, dv and dg of a chunk, with R and r the gradients of the state after it; dw = -dv Sᵀ if DELTA.

    What exp(-G_t) multiplies counts against G_t, and g_t counts in G_t and all later ones.
    """
    q_CK = tile(q, q_at, T, H, C, K)
    k_CK = tile(k, k_at, T, H, C, K)
    v_CV = tile(v, v_at, T, H, C, V)
    dy_CV = tile(dy, dy_at, T, H, C, V)
    S_KV = tl.load(S + of_chunk(K, V))
    R_KV = tl.load(R + of_chunk(K, V))
    G_C, end = decay_sums(column(g, T, C), C)
    dE = tl.sum(tl.sum(S_KV.to(tl.float32) * R_KV.to(tl.float32), 1), 0)
    dv_CV = tl.dot(k_CK, R_KV, input_precision=EXACT) * decay_to_end(G_C, end)
    p_CC = tl.dot(k_CK, tl.trans(q_CK), input_precision=EXACT) * decay_between(G_C, C, True)
    dv_CV += tl.dot(p_CC.to(v_CV.dtype), dy_CV, input_precision=EXACT)
    put(dv, dv_at, T, H, dv_CV, C, V)
    if DELTA:
        put(dw, dw_at, T, H, -tl.dot(dv_CV.to(v_CV.dtype), tl.trans(S_KV), input_precision=EXACT), C, K)
    dp_CC = tl.dot(v_CV, tl.trans(dy_CV), input_precision=EXACT)
    dk_CK = tl.dot(v_CV, tl.trans(R_KV), input_precision=EXACT)
    if SUMS:
        dp_CC += column(dden, T, C)[None, :]
        r_K = tl.load(r + row_of_chunk(K))
        dk_CK += r_K[None, :]
        dE += tl.sum(tl.load(z + row_of_chunk(K)) * r_K, 0)
    pairs_CC = tl.where(tl.arange(0, C)[:, None] < tl.arange(0, C)[None, :], p_CC * dp_CC, 0.0)
    dp_CC *= decay_between(G_C, C, True)
    dk_CK *= decay_to_end(G_C, end)
    written_C = tl.sum(k_CK * dk_CK, 1)
    dk_CK += tl.dot(dp_CC.to(v_CV.dtype), q_CK, input_precision=EXACT)
    put(dk, dk_at, T, H, dk_CK, C, K)
    dG_C = column(dG, T, C) - tl.sum(pairs_CC, 1) - written_C
    dE = dE * tl.exp(end) + tl.sum(written_C, 0)
    put_column(dg, T, sums_from(dG_C, C) + dE, C)


# ---------------------------------------------------------------------- the delta rule


@triton.jit
def places_of(x_at, n, T, H, first, C: tl.constexpr, W: tl.constexpr):
    """Where the tile of chunk n of C tokens by W columns from the first lies, and which of it there is; a program is
    (block of columns, b * H + h)."""
    bh = tl.program_id(1).to(tl.int64)
    t_C = n * C + tl.arange(0, C)
    columns_1W = first + tl.arange(0, W)[None, :]
    at_CW = (bh // H) * x_at[0] + (bh % H) * x_at[1] + t_C[:, None].to(tl.int64) * x_at[2] + columns_1W
    return at_CW, (t_C < T)[:, None]


@triton.jit
def tile_of(x, x_at, n, T, H, first, C: tl.constexpr, W: tl.constexpr):
    """Columns of chunk n of x."""
    at_CW, there = places_of(x_at, n, T, H, first, C, W)
    return tl.load(x + at_CW, mask=there, other=0.0)


@triton.jit
def column_of(x, n, T, C: tl.constexpr):
    """One number for each token of chunk n, of x_(BH)T."""
    t_C = n * C + tl.arange(0, C)
    return tl.load(x + tl.program_id(1).to(tl.int64) * T + t_C, mask=t_C < T, other=0.0)


@triton.jit
def delta_states(
    k, u, w, k_at, u_at, w_at, g, S_first, S_before, S_last, written, written_at, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, W: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """What is written, u - w S, and the state before each chunk, S = exp(E) S + kᵀ (u - w S, decayed): chunk by chunk,
    for W columns of the values."""
    bh, first = tl.program_id(1).to(tl.int64), tl.program_id(0) * W
    at_KW = tl.arange(0, K)[:, None] * V + first + tl.arange(0, W)[None, :]
    S_KW = tl.load(S_first + bh * K * V + at_KW)
    n = 0
    while n < N:
        k_CK = tile_of(k, k_at, n, T, H, 0, C, K)
        w_CK = tile_of(w, w_at, n, T, H, 0, C, K)
        u_CW = tile_of(u, u_at, n, T, H, first, C, W).to(tl.float32)
        G_C, end = decay_sums(column_of(g, n, T, C), C)
        low_KW = S_KW.to(k_CK.dtype)
        tl.store(S_before + (bh * N + n) * K * V + at_KW, low_KW)
        u_CW -= tl.dot(w_CK, low_KW, input_precision=EXACT)
        at_CW, there = places_of(written_at, n, T, H, first, C, W)
        tl.store(written + at_CW, u_CW.to(written.dtype.element_ty), mask=there)
        decayed_CW = (u_CW * decay_to_end(G_C, end)).to(k_CK.dtype)
        S_KW = tl.exp(end) * S_KW + tl.dot(tl.trans(k_CK), decayed_CW, input_precision=EXACT)
        n += 1
    tl.store(S_last + bh * K * V + at_KW, S_KW)


@triton.jit
def delta_gradient_states(
    q, k, w, dy, q_at, k_at, w_at, dy_at, g, R_last, R_after, R_first, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, W: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """R, the gradient of the state after each chunk, from the end: R = exp(E) R + qᵀ (dy decayed) - wᵀ du, with
    du = pᵀ dy + (k decayed) R the gradient of what is written."""
    bh, first = tl.program_id(1).to(tl.int64), tl.program_id(0) * W
    at_KW = tl.arange(0, K)[:, None] * V + first + tl.arange(0, W)[None, :]
    R_KW = tl.load(R_last + bh * K * V + at_KW)
    n = N - 1
    while n >= 0:
        q_CK = tile_of(q, q_at, n, T, H, 0, C, K)
        k_CK = tile_of(k, k_at, n, T, H, 0, C, K)
        w_CK = tile_of(w, w_at, n, T, H, 0, C, K)
        dy_CW = tile_of(dy, dy_at, n, T, H, first, C, W)
        G_C, end = decay_sums(column_of(g, n, T, C), C)
        low_KW = R_KW.to(k_CK.dtype)
        tl.store(R_after + (bh * N + n) * K * V + at_KW, low_KW)
        p_CC = tl.dot(k_CK, tl.trans(q_CK), input_precision=EXACT) * decay_between(G_C, C, True)
        du_CW = tl.dot(k_CK, low_KW, input_precision=EXACT) * decay_to_end(G_C, end)
        du_CW += tl.dot(p_CC.to(k_CK.dtype), dy_CW, input_precision=EXACT)
        decayed_CW = (dy_CW * tl.exp(G_C)[:, None]).to(k_CK.dtype)
        R_KW = tl.exp(end) * R_KW + tl.dot(tl.trans(q_CK), decayed_CW, input_precision=EXACT)
        R_KW -= tl.dot(tl.trans(w_CK), du_CW.to(k_CK.dtype), input_precision=EXACT)
        n -= 1
    tl.store(R_first + bh * K * V + at_KW, R_KW)
