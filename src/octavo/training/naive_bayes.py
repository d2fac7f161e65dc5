"""The linear model's fit: Naive Bayes weights, then scaled one by one until the texts' labels are most probable.

B texts, V rows of the table, C classes. The loss is the mean of -ln p plus a penalty on leaving Naive Bayes
(Wang and Manning 2012 mix the two in the same spirit); the fit is L-BFGS with the gradient written out, on sparse
matrices: seconds where a stochastic fit takes minutes.
"""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.models.dan import Linear, LinearConfig, lengths_scale
from octavo.text.bag_of_ngrams import UNSEEN, Bags


def fit_linear(
    config: LinearConfig, bags: Bags, y_B: Tensor, share_B: Tensor, rows: int, classes: int
) -> Linear:  # fmt: skip
    """The model of these texts, whose shares in the loss sum to one."""
    ratio_VC = log_ratios(bags, y_B, share_B, rows, classes, config.smooth)
    # How often each n-gram is in each text, over √(their number); and the same transposed.
    value_N = lengths_scale(bags).repeat_interleave(bags.sizes)
    x_BV = _csr(bags.offsets_B1, bags.ids_N, value_N, (len(bags), rows))
    order_N, text_N = bags.ids_N.argsort(stable=True), torch.arange(len(bags)).repeat_interleave(bags.sizes)
    ends_V1 = F.pad(torch.bincount(bags.ids_N, minlength=rows).cumsum(0), (1, 0))
    x_VB = _csr(ends_V1, text_N[order_N], value_N[order_N], (rows, len(bags)))
    truth_BC = F.one_hot(y_B, classes).to(torch.float32)
    scale_VC = torch.ones_like(ratio_VC, requires_grad=True)
    bias_C = torch.zeros(classes, requires_grad=True)
    penalty = config.penalty / max(1, len(bags))

    def loss() -> float:
        with torch.no_grad():
            logp_BC = (x_BV @ (scale_VC * ratio_VC) + bias_C).log_softmax(1)
            error_BC = (logp_BC.exp() - truth_BC) * share_B[:, None]
            scale_VC.grad = (x_VB @ error_BC) * ratio_VC + penalty * (scale_VC - 1)
            bias_C.grad = error_BC.sum(0)
            paid = -(logp_BC * truth_BC).sum(1) @ share_B
            return float(paid + penalty / 2 * (scale_VC - 1).square().sum())

    if config.steps:
        optimizer = torch.optim.LBFGS(
            [scale_VC, bias_C], max_iter=config.steps, history_size=8, line_search_fn="strong_wolfe"
        )
        optimizer.step(loss)
    model = Linear(config, rows, classes)
    with torch.no_grad():
        model.weights_VC.copy_(scale_VC * ratio_VC)
        model.bias_C.copy_(bias_C)
    return model


def log_ratios(bags: Bags, y_B: Tensor, share_B: Tensor, rows: int, classes: int, smooth: float) -> Tensor:
    """log p(n-gram | class) / p(n-gram | another class), halved for two classes, which have one between them."""
    weight_N = (share_B * len(bags)).repeat_interleave(bags.sizes).double()
    cell_N = bags.ids_N * classes + y_B.repeat_interleave(bags.sizes)
    count_VC = torch.bincount(cell_N, weight_N, minlength=rows * classes).view(rows, classes) + smooth
    other_VC = count_VC.sum(1, keepdim=True) - count_VC
    ratio_VC = (count_VC / count_VC.sum(0)).log() - (other_VC / other_VC.sum(0)).log()
    ratio_VC[UNSEEN] = 0
    return (ratio_VC / (2 if classes == 2 else 1)).float()


def _csr(ends: Tensor, columns_N: Tensor, value_N: Tensor, size: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of torch's, that this layout is young
        return torch.sparse_csr_tensor(ends, columns_N, value_N, size, check_invariants=False)
