"""The gradients of recurrent layers through time, derived by hand; a test holds each to autograd of the plain step.

T time, B batch, I inputs, D hidden units; G is D for the RNN, 3D (r, z, n) for the GRU.

Every layer has the same three parts. Forward, one product W x for all t, then a loop that adds U h and applies the
gates. Backward, a loop from the last t to the first that gives the gradient of the gates, a; it works on slices that
fit into the processor's cache. Then one product each for dW, dU and dx, over all t.

Writing d for the gradient of the loss by what follows it:
    sigmoid' = s (1 - s)    tanh' = 1 - t²    dW = sum over t of da_t x_tᵀ    dU = sum over t of da_t h_{t-1}ᵀ
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from octavo.ops import recurrent_loops as loops
from octavo.ops.compiled import HAS_NUMBA

through_sigmoid = torch.ops.aten.sigmoid_backward.grad_input  # (d, s) to s (1 - s) d
through_tanh = torch.ops.aten.tanh_backward.grad_input  # (d, t) to (1 - t²) d


class RNNThroughTime(Function):
    """h = tanh(a), a = W x + U h_{t-1}.

    da = (1 - h²) dh
    dh_{t-1} = (from the loss) + Uᵀ da
    """

    @staticmethod
    def forward(ctx: Any, low: torch.dtype | None, x_TBI: Tensor, h_BD: Tensor, *w: Tensor) -> Tensor:
        ih, hh, bias_ih, bias_hh = w
        h_TBD = opened(x_TBI, h_BD)
        product(x_TBI.flatten(0, 1), ih.t(), low, bias=bias_ih + bias_hh, out=h_TBD[1:].flatten(0, 1))
        recur = Recurrence(hh.t(), h_BD, low)
        for before, h in forwards(h_TBD[:-1], h_TBD[1:]):
            recur.add_to(h, before)
            tanh_(h)
        ctx.save_for_backward(x_TBI, h_TBD, ih, hh)
        ctx.low = low
        return h_TBD[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_TBD: Tensor) -> tuple[Tensor | None, ...]:
        x_TBI, h_TBD, ih, hh = ctx.saved_tensors
        da_TBD = torch.empty_like(h_TBD[1:])
        dh = torch.zeros_like(h_TBD[0])
        back = Recurrence(hh, dh, ctx.low)
        for dout, h, da in backwards(dout_TBD, h_TBD[1:], da_TBD):
            dh.add_(dout)
            through_tanh(dh, h, grad_input=da)
            back.put_into(dh, da)
        return None, *weight_gradients(ctx, dh, da_TBD, da_TBD, x_TBI, h_TBD[:-1], ih)


class GRUThroughTime(Function):
    """r, z = sigmoid(ar), sigmoid(az); n = tanh(an), an = Wn x + r u, u = Un h_{t-1}; h = (1 - z) n + z h_{t-1}.

    dan = (1 - n²) (1 - z) dh            du = r dan
    dar = r (1 - r) u dan                daz = z (1 - z) (h_{t-1} - n) dh
    dh_{t-1} = (from the loss) + z dh + Uᵀ (dar, daz, du)
    """

    @staticmethod
    def forward(ctx: Any, low: torch.dtype | None, x_TBI: Tensor, h_BD: Tensor, *w: Tensor) -> Tensor:
        ih, hh, bias_ih, bias_hh = w
        T, B, D = *x_TBI.shape[:2], hh.shape[1]
        x_NI = x_TBI.flatten(0, 1)
        rzu_TBG = x_TBI.new_empty(T, B, 3 * D)  # U h of all three is added to it in one product
        rz_TBG, u_TBD = rzu_TBG.split([2 * D, D], -1)
        product(x_NI, ih[: 2 * D].t(), low, bias=(bias_ih + bias_hh)[: 2 * D], out=rz_TBG.flatten(0, 1))
        u_TBD.copy_(bias_hh[2 * D :].expand_as(u_TBD))
        n_TBD = torch.empty_like(u_TBD, memory_format=torch.contiguous_format)
        product(x_NI, ih[2 * D :].t(), low, bias=bias_ih[2 * D :], out=n_TBD.flatten(0, 1))
        h_TBD = opened(x_TBI, h_BD)
        recur = Recurrence(hh.t(), h_BD, low)
        r_TBD, z_TBD = rz_TBG.chunk(2, -1)
        if is_one_sequence(h_TBD, low):
            loops.gru_forward(*in_numpy(rzu_TBG, n_TBD, h_TBD, hh.t()[:, None]))
            return GRUThroughTime.keep(ctx, low, x_TBI, h_TBD, ih, hh, rzu_TBG, n_TBD)
        for rzu, rz, r, z, u, n, before, h in forwards(
            rzu_TBG, rz_TBG, r_TBD, z_TBD, u_TBD, n_TBD, h_TBD[:-1], h_TBD[1:]
        ):
            recur.add_to(rzu, before)
            rz.sigmoid_()
            tanh_(n.addcmul_(r, u))
            torch.lerp(n, before, z, out=h)
        return GRUThroughTime.keep(ctx, low, x_TBI, h_TBD, ih, hh, rzu_TBG, n_TBD)

    @staticmethod
    def keep(ctx: Any, low: torch.dtype | None, *saved: Tensor) -> Tensor:
        """What the gradient needs; the states after each input are given back."""
        ctx.save_for_backward(*saved)
        ctx.low = low
        return saved[1][1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_TBD: Tensor) -> tuple[Tensor | None, ...]:
        x_TBI, h_TBD, ih, hh, rzu_TBG, n_TBD = ctx.saved_tensors
        D = hh.shape[1]
        da_TBG, dh_side_TBG = torch.empty_like(rzu_TBG), torch.empty_like(rzu_TBG)  # (r, z, n) and (r, z, u)
        carried = torch.zeros_like(h_TBD[0])
        if is_one_sequence(h_TBD, ctx.low):
            arrays = (dout_TBD, rzu_TBG, n_TBD, h_TBD, hh[:, None], da_TBG, dh_side_TBG, carried.t())
            loops.gru_backward(*in_numpy(*arrays))
            return None, *weight_gradients(ctx, carried, da_TBG, dh_side_TBG, x_TBI, h_TBD[:-1], ih)
        back = Recurrence(hh, carried, ctx.low)
        dh, kept = torch.empty_like(carried), torch.empty_like(carried)
        saved = (rzu_TBG[..., : 2 * D], *rzu_TBG.chunk(3, -1), n_TBD, h_TBD[:-1])
        wanted = (da_TBG[..., : 2 * D], *da_TBG.chunk(3, -1), dh_side_TBG, *dh_side_TBG.split([2 * D, D], -1))
        for dout, rz, r, z, u, n, before, drz, dr, dz, dn, dh_side, dh_side_rz, du in backwards(
            dout_TBD, *saved, *wanted
        ):
            torch.add(dout, carried, out=dh)
            torch.mul(dh, z, out=carried)
            through_tanh(torch.sub(dh, carried, out=kept), n, grad_input=dn)
            torch.mul(dn, r, out=du)
            torch.mul(dn, u, out=dr)
            torch.sub(before, n, out=dz).mul_(dh)
            dh_side_rz.copy_(through_sigmoid(drz, rz, grad_input=drz))
            back.add_to(carried, dh_side)
        return None, *weight_gradients(ctx, carried, da_TBG, dh_side_TBG, x_TBI, h_TBD[:-1], ih)


class GRURecorded(Function):
    """The same of a sequence whose states and gates are known already: only the gradient is computed."""

    @staticmethod
    def forward(ctx: Any, recorded: tuple[Tensor, Tensor, Tensor], x_TBI: Tensor, *w: Tensor) -> Tensor:
        h_TBD, rzu_TBG, n_TBD = recorded
        return GRUThroughTime.keep(ctx, None, x_TBI, h_TBD, w[0], w[1], rzu_TBG, n_TBD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_TBD: Tensor) -> tuple[Tensor | None, ...]:
        _, dx, _, *weights = GRUThroughTime.backward(ctx, dout_TBD)
        return None, dx, *weights


def replay_gru_layer(recorded: tuple[Tensor, Tensor, Tensor], x_TBI: Tensor, *w: Tensor) -> Tensor:
    """h_TBD of a GRU whose states (with the first in front), r z u and n are known."""
    h_TBD: Tensor = GRURecorded.apply(recorded, x_TBI, *w)  # type: ignore[no-untyped-call]
    return h_TBD


# Not the LSTM: oneDNN has a kernel for it that a loop of ours does not beat.
BY_HAND: dict[str, Any] = {"rnn": RNNThroughTime, "gru": GRUThroughTime}


def is_one_sequence(h_TBD: Tensor, low: torch.dtype | None) -> bool:
    """Whether a step is a product of a matrix and one vector, for which there are compiled loops."""
    plain = h_TBD.device.type == "cpu" and h_TBD.dtype in (torch.float32, torch.float64) and low is None
    return HAS_NUMBA and plain and h_TBD.shape[1] == 1 and not torch.compiler.is_compiling()


def in_numpy(*tensors: Tensor) -> list[Any]:
    """Tensors of one sequence as arrays, which share their memory where it lies in a row."""
    return [tensor.detach()[:, 0].contiguous().numpy() for tensor in tensors]


class Recurrence:
    """h W, step after step; in low precision only the product is, what it is added to is not."""

    def __init__(self, w_DG: Tensor, like_BD: Tensor, low: torch.dtype | None) -> None:
        self.low = low
        self.w_DG = w_DG if low is None else w_DG.to(low)
        if low is not None:
            self.h_BD, self.product_BG = (self.w_DG.new_empty(len(like_BD), size) for size in w_DG.shape)

    def add_to(self, out_BG: Tensor, h_BD: Tensor) -> None:
        if self.low is None:
            out_BG.addmm_(h_BD, self.w_DG)
        else:
            out_BG.add_(torch.mm(self.h_BD.copy_(h_BD), self.w_DG, out=self.product_BG))

    def put_into(self, out_BG: Tensor, h_BD: Tensor) -> None:
        if self.low is None:
            torch.mm(h_BD, self.w_DG, out=out_BG)
        else:
            out_BG.copy_(torch.mm(self.h_BD.copy_(h_BD), self.w_DG, out=self.product_BG))


def product(a: Tensor, b: Tensor, low: torch.dtype | None, bias: Tensor, out: Tensor) -> None:
    """Write a b + bias into out; the product alone in low precision."""
    if low is None:
        torch.addmm(bias, a, b, out=out)
    else:
        torch.add(torch.mm(a.to(low), b.to(low)), bias, out=out)


def weight_gradients(
    ctx: Any, dh_BD: Tensor, dx_side_TBG: Tensor, dh_side_TBG: Tensor,
    x_TBI: Tensor, h_before_TBD: Tensor, ih: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of x, of the first state and of the four weights, from those of the gates."""
    same, full = dx_side_TBG is dh_side_TBG, ih.dtype
    dx_NG, dh_NG = dx_side_TBG.flatten(0, 1), dh_side_TBG.flatten(0, 1)
    dbias_ih = dx_NG.sum(0)
    dbias_hh = dbias_ih if same else dh_NG.sum(0)
    x_NI, h_ND = x_TBI.flatten(0, 1), h_before_TBD.flatten(0, 1)
    if ctx.low is not None:
        dx_NG, x_NI, h_ND, ih = (tensor.to(ctx.low) for tensor in (dx_NG, x_NI, h_ND, ih))
        dh_NG = dx_NG if same else dh_NG.to(ctx.low)
    dx = torch.mm(dx_NG, ih).to(full).view_as(x_TBI) if ctx.needs_input_grad[1] else None
    return dx, dh_BD, torch.mm(dx_NG.t(), x_NI).to(full), torch.mm(dh_NG.t(), h_ND).to(full), dbias_ih, dbias_hh


def tanh_(x: Tensor) -> Tensor:
    """tanh in place, as 2 sigmoid(2x) - 1: PyTorch's sigmoid is several times faster on a CPU than its tanh."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


def opened(x_TBI: Tensor, first_BD: Tensor) -> Tensor:
    """Room for a state after each step, with the one before the first in front."""
    states = first_BD.new_empty(len(x_TBI) + 1, *first_BD.shape)
    states[0] = first_BD
    return states


def forwards(*tensors: Tensor) -> Any:
    """The slices of each t, made at once: indexing inside a loop costs as much as the sum it serves."""
    return zip(*(tensor.unbind(0) for tensor in tensors), strict=True)


def backwards(*tensors: Tensor) -> Any:
    """The slices from the last t to the first."""
    return zip(*(reversed(tensor.unbind(0)) for tensor in tensors), strict=True)
