"""Where a model computes: names that are refused, what auto chooses, and every model on a device of its own.

A second device is imitated (`other_device`); the tests marked gpu have a real one.
"""

from __future__ import annotations

import copy
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from examples import examples, mixed, ngram, recurrent
from laws import tokens
from octavo.core import LanguageModel, device_of, scan, seeded_generator, tensors_of
from octavo.decode import Beam, Greedy, Method, Sample, generate
from octavo.errors import UserError
from octavo.models import GRU, spec_of
from octavo.scoring.range_coder import decode_tokens, encode_tokens
from octavo.scoring.token_costs import token_costs
from octavo.tasks.device import MIN_GPU_FLOPS, device_for, pick_device
from other_device import CPU, OTHER, WrongDeviceError, mark_all, other_device, place_of

EXAMPLES = examples()
CASES = [pytest.param(m, id=f"{name}:{v}") for name, variants in EXAMPLES.items() for v, m in variants.items()
         if spec_of(m).gpu_use != "none"]  # fmt: skip
METHODS: tuple[Method, ...] = (Greedy(), Sample(), Beam(2))
TOLERANCE = 1e-4  # of the bits of a text, where weights are of single precision


def bits_of(model: LanguageModel[Any], x_N: NDArray[np.int32]) -> NDArray[np.float64]:
    return np.concatenate([bits for _, bits in token_costs(model, [x_N])])


# ---------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "message"),
    [("gpu", "no kind of device called 'gpu'; try --device auto, cpu, cuda, cuda:N or mps"),
     ("xpu", "device must be auto, cpu, cuda, cuda:N or mps: device=xpu; try --device auto"),
     ("meta", "device must be auto, cpu"), ("cpu:1", "device must be auto, cpu"), ("cuda:x", "no kind of device"),
     ("mps", "device mps needs an Apple GPU"), ("", "no kind of device")],
)  # fmt: skip
def test_an_unknown_device_is_refused_in_one_line_with_a_remedy(name: str, message: str) -> None:
    with patch("torch.backends.mps.is_available", return_value=False), pytest.raises(UserError) as error:
        pick_device(name)
    assert message in str(error.value)
    assert "try" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [("cuda", 0, "device cuda needs a CUDA GPU: 0 are here; try --device cpu"),
     ("cuda:7", 2, "device cuda:7 needs a CUDA GPU: 2 are here, cuda:0 to cuda:1; try --device cpu or --device cuda"),
     ("cuda:1", 1, "device cuda:1 needs a CUDA GPU: 1 are here, cuda:0; try --device cpu or --device cuda")],
)  # fmt: skip
def test_a_gpu_that_is_not_here_is_refused(name: str, count: int, message: str) -> None:
    with (
        patch("torch.cuda.is_available", return_value=count > 0),
        patch("torch.cuda.device_count", return_value=count),
        pytest.raises(UserError, match=f"^{message}$"),
    ):
        pick_device(name)


def test_a_gpu_that_is_here_is_taken_by_name_and_by_number() -> None:
    with patch("torch.cuda.is_available", return_value=True), patch("torch.cuda.device_count", return_value=2):
        assert pick_device("auto") == pick_device("cuda") == torch.device("cuda")
        assert pick_device("cuda:1") == torch.device("cuda", 1)
        assert pick_device("cpu") == CPU


# ---------------------------------------------------------------------- what auto chooses


def test_auto_takes_a_gpu_for_much_work_and_never_for_models_of_counts() -> None:
    gpu, gru, ngram = torch.device("cuda"), EXAMPLES["gru"]["tied"], EXAMPLES["ngram"]["kneser-ney-5"]
    voted = EXAMPLES["mix"]["4-gram and gru"]
    numbers = sum(one.numel() for one in gru.parameters())
    enough = int(MIN_GPU_FLOPS / 2 / numbers) + 1
    with patch("torch.cuda.is_available", return_value=True), patch("torch.cuda.device_count", return_value=1):
        assert device_for(gru, "auto", enough) == device_for(gru, "auto") == gpu
        assert device_for(gru, "auto", enough - 2) == CPU
        assert device_for(gru, "cuda", 1) == gpu
        assert device_for(ngram, "auto", 1 << 40) == device_for(voted, "auto", 1 << 40) == CPU
        assert device_for(ngram, "cuda", 1) == gpu
    assert device_for(gru, "auto", 1 << 40) == CPU


def test_a_model_that_computes_on_the_cpu_alone_says_so() -> None:
    adaptive = EXAMPLES["adaptive-ngram"]["order-5"]
    with patch("torch.cuda.is_available", return_value=True), patch("torch.cuda.device_count", return_value=1):
        assert device_for(adaptive, "auto") == CPU
        with pytest.raises(
            UserError, match=r"^a adaptive-ngram computes on the CPU alone: device=cuda; try --device cpu$"
        ):
            device_for(adaptive, "cuda")


# ---------------------------------------------------------------------- every model on another device


def test_the_imitated_device_refuses_what_a_gpu_refuses() -> None:
    with other_device():
        x = torch.arange(3).to(OTHER)
        assert (x + 1).device == x[:2].device == torch.zeros_like(x).device == OTHER
        assert x.cpu().device == CPU
        assert (x * torch.tensor(2)).tolist() == x[torch.tensor([0, 1, 2])].mul(2).tolist() == [0, 2, 4]
        linear = mark_all(torch.nn.Linear(3, 1))
        for wrong in (lambda: x + torch.ones(3), lambda: torch.ones(3)[x], x.numpy,
                      lambda: torch.cat([x, torch.ones(1)]), lambda: linear(x.float())):  # fmt: skip
            with pytest.raises(WrongDeviceError):
                wrong()


@pytest.mark.parametrize("model", CASES)
def test_every_model_scores_writes_and_codes_on_another_device(model: LanguageModel[Any]) -> None:
    x_N = tokens(model, 1, 63)[0].clone()
    here = bits_of(model, x_N.numpy().astype(np.int32))
    written = [generate(model, [x_N[:5].tolist()] * 2, 8, one, seeded_generator(0)) for one in METHODS]
    with other_device():
        moved = mark_all(copy.deepcopy(model)).to(OTHER)
        assert device_of(moved) == OTHER
        np.testing.assert_allclose(bits_of(moved, x_N.numpy().astype(np.int32)), here, rtol=1e-9, atol=1e-9)
        for one, expected in zip(METHODS, written, strict=True):
            found = generate(moved, [x_N[:5].tolist()] * 2, 8, one, seeded_generator(0))
            if spec_of(model).trained_by_gradient:  # of counts, several tokens may be as probable
                assert [y_T.tolist() for y_T in found] == [y_T.tolist() for y_T in expected]
        if np.isfinite(here).all():
            words = encode_tokens(moved, x_N, 3)
            assert decode_tokens(moved, words, len(x_N), 3).tolist() == x_N.tolist()


@pytest.mark.gpu
@pytest.mark.parametrize("model", CASES)
def test_a_gpu_gives_the_same_bits_within_1e_4(model: LanguageModel[Any]) -> None:
    x_N = tokens(model, 1, 1000)[0].numpy().astype(np.int32)
    single = copy.deepcopy(model)
    if any(True for _ in single.parameters()):
        single.float()
    here, there = bits_of(single, x_N).sum(), bits_of(single.cuda(), x_N).sum()
    assert here == there or abs(here - there) <= TOLERANCE * here


class _Crossings(TorchFunctionMode):
    """The tensors, by their number of values, that go from one device to the other."""

    def __init__(self) -> None:
        super().__init__()
        self.there: list[int] = []
        self.back: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in ("to", "cpu") and place_of(args[0]) != place_of(result):
            (self.there if name == "to" else self.back).append(result.numel())
        return result


def test_counts_in_a_mixture_compute_on_the_cpu_and_send_one_distribution_a_token() -> None:
    mix = mixed(ngram(order=3), recurrent(GRU))
    x_1T = tokens(mix, 1, 12)
    expected = scan(mix, mix.start(1), x_1T)[0].log_softmax(-1)
    with other_device(), torch.no_grad():
        moved = mark_all(copy.deepcopy(mix)).to(OTHER)
        session, there_1T = moved.session(moved.start(1)), x_1T.to(OTHER)
        session.step(there_1T[:, 0])
        with _Crossings() as crossings:
            said = [session.step(x_1) for x_1 in there_1T[:, 1:].unbind(1)]
        assert crossings.back == [1] * 11  # the token
        assert crossings.there == [mix.vocab, 1] * 11  # what the counts say, and the class of the context
        torch.testing.assert_close(torch.stack(said, 1).log_softmax(-1).cpu(), expected[:, 1:], rtol=1e-9, atol=1e-9)
        fork = session.fork()
        session.rewind(3)
        for at in (9, 10, 11):
            again = session.step(there_1T[:, at]).log_softmax(-1).cpu()
            torch.testing.assert_close(again, expected[:, at], rtol=1e-9, atol=1e-9)
        assert all(one.device == OTHER for one in tensors_of(fork.state))


def test_tables_that_change_are_copied_anew() -> None:
    model, other = ngram(order=3), ngram(order=3, estimator="mle")
    x_1T = tokens(model, 1, 5)
    with other_device(), torch.no_grad():
        moved = mark_all(copy.deepcopy(model)).to(OTHER)
        moved.session(moved.start(1)).step(x_1T[:, 0].to(OTHER))
        moved.set_tables({name: tensor.to(OTHER) for name, tensor in mark_all(other).named_buffers()})
        said = moved.session(moved.start(1)).predict(x_1T[:, 0].to(OTHER)).cpu()
    torch.testing.assert_close(said, other.predict(other.start(1), x_1T[:, 0])[0])
