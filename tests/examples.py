"""A few small trained models of each kind, for the laws."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from octavo.core import LanguageModel, seeded_generator
from octavo.models import find_spec
from octavo.models.adaptive_mix import AdaptiveMix, AdaptiveMixConfig
from octavo.models.bag import Bag, BagConfig
from octavo.models.baum_welch import BaumWelchConfig, BaumWelchHMM, fit_hidden_markov
from octavo.models.bigram import BigramConfig
from octavo.models.bigram_training import fit_bigram
from octavo.models.context_tree import ContextTree, ContextTreeConfig
from octavo.models.context_tree_fit import fit_context_tree
from octavo.models.conv import Conv, ConvConfig
from octavo.models.gpt import GPT
from octavo.models.hidden_markov import HMM, HMMConfig
from octavo.models.linear_attention import SPECS as LINEAR_ATTENTION
from octavo.models.linear_recurrent import LRU, RGLRU, LinearRecurrent, MinGRU, MinLSTM
from octavo.models.mix import Mix, MixConfig
from octavo.models.ngram import AdaptiveNGram, AdaptiveNGramConfig, NGram, NGramConfig
from octavo.models.nnlm import NNLM, NNLMConfig
from octavo.models.parts.config import GPTConfig
from octavo.models.recurrent import GRU, LSTM, RNN, Recurrent, RecurrentConfig
from octavo.models.rnn_attention import RNNAttention, RNNAttentionConfig

M = TypeVar("M", bound=LanguageModel[Any])
VOCAB, NEWLINE = 13, 3  # the last id, 12, is begin


def text(length: int = 600, seed: int = 1, vocab: int = VOCAB) -> Tensor:
    """A sequence that repeats itself now and then, opened by begin: each token follows one of two by a rule."""
    generator = torch.Generator().manual_seed(seed)
    choice = torch.randint(0, 4, (length,), generator=generator).tolist()
    x = [0]
    for c in choice:
        x.append((3 * x[-1] + (0, 0, 1, 5)[c]) % (vocab - 1))
    return torch.tensor([vocab - 1, *x[1:]], dtype=torch.int32)


def ngram(**config: Any) -> NGram:
    return NGram.fit(text(), NGramConfig(**config), VOCAB, NEWLINE)


def adaptive_ngram(**config: Any) -> AdaptiveNGram:
    return AdaptiveNGram.fit(text(), AdaptiveNGramConfig(**config), VOCAB, NEWLINE)


def mixed(*parts: LanguageModel[Any]) -> Mix:
    """Of a bag and a 4-gram, where nothing else is said."""
    mix = Mix(MixConfig(), parts or (Bag.fit(text(), BagConfig(), VOCAB), ngram(order=4)))
    x_1T = text(seed=2)[None, 1:].long()
    opened = mix.prepend_begin(x_1T)
    logp_IBT, _ = mix.part_log_probs(mix.start(1), opened)
    mix.learn(logp_IBT[:, 0], mix.token_context_classes(mix.start(1), opened)[0])
    return mix


def adaptively_mixed(*parts: LanguageModel[Any], **config: Any) -> AdaptiveMix:
    """Weights that have learnt from a little text, with small calibration tables."""
    mix = AdaptiveMix(AdaptiveMixConfig(**{"calibration_bits": 6, "rate": 0.05} | config), parts)
    mix.learn_pieces(text(80, seed=8)[1:].long().view(2, 40))
    return mix


def recurrent(cls: type[Recurrent], vocab: int = VOCAB, **config: Any) -> Recurrent:
    """A small network with weights drawn at random, for use, not for training."""
    model = cls(RecurrentConfig(**{"width": 6, "layers": 2} | config), vocab)
    model.initialise(seeded_generator(1))
    return model.double().requires_grad_(False)


def attentive(**config: Any) -> RNNAttention:
    model = RNNAttention(RNNAttentionConfig(**{"width": 6, "memory": 5} | config), VOCAB)
    model.initialise(seeded_generator(1))
    return model.double().requires_grad_(False)


def linear_recurrent(cls: type[LinearRecurrent], **config: Any) -> LinearRecurrent:
    model = cls(find_spec(cls.kind).config(**{"width": 6, "layers": 2, "state_width": 5} | config), VOCAB)
    return randomised(model)


def neural_ngram(**config: Any) -> NNLM:
    return randomised(NNLM(NNLMConfig(**{"order": 4, "width": 3, "hidden": 5} | config), VOCAB))


def convolutional(**config: Any) -> Conv:
    return randomised(Conv(ConvConfig(**{"width": 6, "layers": 3} | config), VOCAB))


def context_tree(vocab: int = VOCAB, **config: Any) -> ContextTree:
    return fit_context_tree(text(vocab=vocab), ContextTreeConfig(**config), vocab)


def hidden_markov(**config: Any) -> HMM:
    model = HMM(HMMConfig(**{"states": 5} | config), VOCAB)
    model.initialise(seeded_generator(1))
    return model.double().requires_grad_(False)


def baum_welch(**config: Any) -> BaumWelchHMM:
    settings = BaumWelchConfig(**{"states": 4, "iterations": 5, "sequence_length": 50} | config)
    return fit_hidden_markov(text(), settings, VOCAB, seeded_generator(1)).double().requires_grad_(False)


def randomised(model: M) -> M:
    """A small network of which every part adds something, for use, not for training."""
    model.initialise(seeded_generator(1))
    generator = seeded_generator(2)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.double().requires_grad_(False)


def linear_attention(name: str, **config: Any) -> LanguageModel[Any]:
    """A small one whose parts all add something."""
    spec = next(spec for spec in LINEAR_ATTENTION if spec.name == name)
    own = {"state_size": 5} if name == "mamba2" else {"decay_rank": 3} if name == "gla" else {}
    model: Any = spec.model(spec.config(**{"width": 8, "layers": 2, "heads": 2} | own | config), VOCAB)
    made: LanguageModel[Any] = randomised(model)
    return made


def gpt(vocab: int = VOCAB, **config: Any) -> GPT:
    """A small transformer whose parts all add something, with a context shorter than the laws' longest text."""
    model = GPT(
        GPTConfig(**{"width": 8, "layers": 2, "heads": 2, "context": 11, "attention_window": 4} | config), vocab
    )
    return randomised(model)


def examples() -> dict[str, dict[str, LanguageModel[Any]]]:
    """By the registered name, then by variant."""
    return {
        "bag": {"add-one": Bag.fit(text(), BagConfig(), VOCAB), "mle": Bag.fit(text(), BagConfig(k=0), VOCAB)},
        "ngram": {
            **{f"kneser-ney-{n}": ngram(order=n) for n in (1, 2, 5)},
            "mle": ngram(order=3, estimator="mle"),
            "add-k": ngram(order=3, estimator="add-k", k=0.1),
            "stupid": ngram(order=4, estimator="stupid"),
            **{f"ppm-{escape}": ngram(order=4, estimator="ppm", escape=escape) for escape in "acd"},
            "ppm, no exclusion": ngram(order=3, estimator="ppm", exclusion=False),
            "pruned": ngram(order=4, prune=(0, 1, 2)),
            "sentences": ngram(order=4, sentences=True),
        },
        "adaptive-ngram": {
            **{f"order-{n}": adaptive_ngram(order=n) for n in (1, 2, 5)},
            "fixed discounts": adaptive_ngram(order=4, discount_rate=0.0),
            "sentences": adaptive_ngram(order=4, sentences=True),
        },
        "bigram": {
            "trained": fit_bigram(text(), BigramConfig(dim=4, hidden=6, steps=100), VOCAB, seeded_generator(1))
            .double()
            .requires_grad_(False)
        },
        "mix": {
            "bag and 4-gram": mixed(),
            "4-gram and gru": mixed(ngram(order=4), recurrent(GRU)),
        },
        "adaptive-mix": {
            "ngram and gru": adaptively_mixed(adaptive_ngram(order=3), recurrent(GRU)),
            "fixed ngram and bag": adaptively_mixed(ngram(order=3), Bag.fit(text(), BagConfig(), VOCAB)),
        },
        "rnn": {"tied": recurrent(RNN), "he": recurrent(RNN, init="he", layers=1)},
        "gru": {"tied": recurrent(GRU), "untied": recurrent(GRU, tied=False, layers=1)},
        "lstm": {"tied": recurrent(LSTM), "untied": recurrent(LSTM, tied=False, init="xavier")},
        "rnn-attention": {
            "scaled": attentive(),
            "additive": attentive(score="additive", tied=False, norm=False),
            "gru, all": attentive(cell="gru", score="dot", memory=0),
        },
        "mingru": {"tied": linear_recurrent(MinGRU), "no convolution": linear_recurrent(MinGRU, convolution=1)},
        "minlstm": {"untied": linear_recurrent(MinLSTM, tied=False, layers=1, state_width=0)},
        "lru": {"tied": linear_recurrent(LRU), "untied": linear_recurrent(LRU, tied=False, state_width=9)},
        "rglru": {"tied": linear_recurrent(RGLRU), "untied": linear_recurrent(RGLRU, tied=False, layers=1)},
        "nnlm": {"4-gram": neural_ngram(), "bigram": neural_ngram(order=2, direct=True)},
        "conv": {
            "WaveNet": convolutional(),
            "GLU": convolutional(kernel=2, cycle=2, gate="linear", tied=False),
            "no dilation": convolutional(dilation=1, layers=2),
        },
        "ctw": {f"depth-{n}": context_tree(depth=n) for n in (1, 2, 5)} | {"bytes": context_tree(257, depth=3)},
        "hmm": {"drawn": hidden_markov(), "one state": hidden_markov(states=1)},
        "hmm-em": {"fitted": baum_welch()},
        "gpt": {
            "full": gpt(),
            "as GPT-2": gpt(positions="learned", norm="layer", bias=True, feed_forward="gelu", qk_norm=False),
            "as Llama": gpt(feed_forward="gated", kv_heads=1, qk_norm=False, tied=False, stride=3),
            "alibi": gpt(positions="alibi", feed_forward="gelu-exact"),
            "sinusoidal": gpt(positions="sinusoidal"),
            "no positions": gpt(positions="none"),
            **{
                attention: gpt(attention=attention)
                for attention in ("local", "strided", "block", "global", "dense", "random")
            },
            **{f"linear, {phi}": gpt(attention="linear", features=phi) for phi in ("elu", "relu", "random")},
            "linear, decay": gpt(attention="linear", head_decay="fixed"),
            "latent": gpt(attention="latent"),
            "latent, alibi": gpt(attention="latent", latent_width=3, positions="alibi", qk_norm=False),
            "latent, learned": gpt(attention="latent", latent_width=9, positions="learned", heads=1),
            "experts": gpt(experts=4),
            "one expert of three": gpt(experts=3, experts_per_token=1, feed_forward="gelu", bias=True),
            "latent, experts, stride": gpt(attention="latent", experts=5, experts_per_token=3, stride=3),
        },
        **{spec.name: {"usual": linear_attention(spec.name)} for spec in LINEAR_ATTENTION},
        "mamba2": {
            "usual": linear_attention("mamba2"),
            "feed-forward, no convolution": linear_attention("mamba2", feed_forward="relu2", convolution=0, tied=False),
        },
        "retention": {
            "usual": linear_attention("retention"),
            "no convolution": linear_attention("retention", convolution=0),
        },
    }
