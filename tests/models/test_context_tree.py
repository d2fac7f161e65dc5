"""Context tree weighting against a tree of dictionaries that is updated bit by bit, and by hand."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import pytest
import torch

import octavo
from examples import VOCAB, context_tree, text
from octavo.core import seeded_generator
from octavo.costs import Shape, cost_of, cost_of_config
from octavo.errors import UserError
from octavo.models import build, describe
from octavo.models.context_tree import ContextTree, ContextTreeConfig, bits_of
from octavo.models.context_tree_fit import SPEC, count_decisions, fit_context_tree, length_weights, weigh
from octavo.models.ngram.counting import Vocabulary, count_ngrams

Context = tuple[int, ...]


class SlowTree:
    """One decision's context tree in dictionaries: P_e and P_w of every node are multiplied up bit by bit.

    The past is filled up with begin, so that every context has D tokens; a node that was never visited has P_w = 1.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.counts: dict[Context, list[int]] = defaultdict(lambda: [0, 0])
        self.estimated: dict[Context, Fraction] = defaultdict(lambda: Fraction(1))
        self.weighted: dict[Context, Fraction] = defaultdict(lambda: Fraction(1))

    def after(self, past: Context, bit: int) -> dict[Context, tuple[Fraction, Fraction]]:
        """P_e and P_w of the nodes along the past, if the bit came."""
        new: dict[Context, tuple[Fraction, Fraction]] = {}
        above = Fraction(1)
        for k in range(self.depth, -1, -1):
            context = past[len(past) - k :]
            n = self.counts[context]
            estimated = self.estimated[context] * Fraction(2 * n[bit] + 1, 2 * (sum(n) + 1))
            if k == self.depth:
                weighted = estimated
            else:
                longer = past[len(past) - k - 1 :]
                product = above
                for other in list(self.weighted):
                    if len(other) == k + 1 and other[1:] == context and other != longer:
                        product *= self.weighted[other]
                weighted = (estimated + product) / 2
            new[context] = estimated, weighted
            above = weighted
        return new

    def probability(self, past: Context, bit: int) -> Fraction:
        return self.after(past, bit)[()][1] / self.weighted[()]

    def learn(self, past: Context, bit: int) -> None:
        for context, (estimated, weighted) in self.after(past, bit).items():
            self.estimated[context], self.weighted[context] = estimated, weighted
            self.counts[context][bit] += 1


class SlowModel:
    """A token as decisions, each with its tree; decisions with one outcome are not taken."""

    def __init__(self, depth: int, vocab: int) -> None:
        self.depth, self.vocab = depth, vocab
        self.width = len(f"{vocab - 2:b}")
        self.trees: dict[str, SlowTree] = defaultdict(lambda: SlowTree(depth))

    def path(self, token: int) -> list[tuple[str, int]]:
        digits = f"{token:0{self.width}b}"
        tokens = [f"{other:0{self.width}b}" for other in range(self.vocab - 1)]
        return [
            (digits[:j], int(digits[j]))
            for j in range(self.width)
            if any(other.startswith(digits[:j] + "1") for other in tokens)
        ]

    def past(self, read: list[int]) -> Context:
        return tuple([self.vocab - 1] * self.depth + read)[-self.depth :]

    def probability(self, read: list[int], token: int) -> Fraction:
        return math.prod(
            (self.trees[u].probability(self.past(read), b) for u, b in self.path(token)), start=Fraction(1)
        )

    def learn(self, read: list[int], token: int) -> None:
        for u, b in self.path(token):
            self.trees[u].learn(self.past(read), b)


@pytest.mark.parametrize(("depth", "vocab"), [(1, 3), (2, 4), (3, 6), (2, 9)])
def test_predictions_are_those_of_the_tree_updated_bit_by_bit(depth: int, vocab: int) -> None:
    """In every context of up to depth tokens, seen or not, after begin too; in exact fractions."""
    documents = [[0, 1, 0, 1, 1, 0, 2 % (vocab - 1), 1], [1, 1, 0], [vocab - 2, 0, 1, vocab - 2, 0, 1]]
    slow, logp = SlowModel(depth, vocab), 0.0
    for document in documents:
        for t, token in enumerate(document):
            logp += math.log(slow.probability(document[:t], token))
            slow.learn(document[:t], token)
    x_N = torch.tensor([token for document in documents for token in (vocab - 1, *document)], dtype=torch.int32)
    model = fit_context_tree(x_N, ContextTreeConfig(depth), vocab)
    levels = list(count_ngrams(x_N, depth + 1, Vocabulary(vocab, vocab - 1)))
    bits = bits_of(vocab)
    total, _ = weigh(levels, [count_decisions(level, vocab, bits) for level in levels], vocab, bits)
    assert total == pytest.approx(logp, abs=1e-12)  # the products of the conditional probabilities telescope to P_w
    generator = seeded_generator(1)
    for _ in range(25):
        read = torch.randint(0, vocab - 1, (int(torch.randint(0, 5, (1,), generator=generator)),), generator=generator)
        expected_V = [float(slow.probability(read.tolist(), token)) for token in range(vocab - 1)]
        found_V = model(model.prepend_begin(read[None].long()))[0, -1].exp()
        torch.testing.assert_close(found_V, torch.tensor([*expected_V, 0.0], dtype=torch.float64), rtol=1e-12, atol=0)


def test_the_tree_of_a_short_text_by_hand() -> None:
    """begin 0 1 0 of two tokens, depth 1. The empty context: n = (2, 1), P_e = 1/2 · 1/4 · 1/2 = 1/16. Above it begin
    with (1, 0), 0 with (0, 1), 1 with (1, 0): P_w = 1/2 each. So P_w = (1/16 + 1/8) / 2 = 3/32, and β = 1/3.
    After 0: p(1) = 1/3 · 3/8 + 2/3 · 3/4 = 5/8."""
    model = fit_context_tree(torch.tensor([2, 0, 1, 0], dtype=torch.int32), ContextTreeConfig(1), 3)
    assert model.stop_E.tolist() == pytest.approx([1 / 3, 1, 1, 1])
    p_V = model(torch.tensor([[2, 0]]))[0, -1].exp()
    assert p_V.tolist() == pytest.approx([3 / 8, 5 / 8, 0])


def test_a_tree_that_fits_gains_the_weight() -> None:
    """Bits that the last token alone decides: at depth 1 the tree nearly always splits, below it nearly never."""
    x_N = torch.cat([torch.tensor([2]), torch.arange(3000) % 2]).int()
    model = fit_context_tree(x_N, ContextTreeConfig(3), 3)
    _, share_NK = length_weights(model, [0, 1] * 10)
    assert share_NK[5:, 0].max() < 1e-6
    assert share_NK[5:, 1].min() > 0.49  # the deterministic contexts above say the same, so each has half of the rest
    torch.testing.assert_close(share_NK.sum(1), torch.ones(20, dtype=torch.float64))


def test_decisions_that_lead_to_no_token_are_not_taken() -> None:
    model = context_tree(vocab=6, depth=1)  # ids 0 to 4 are three bits: 4 is 100, and 101, 11 are not there
    assert {0b11, 0b110, 0b111}.isdisjoint(model.decision_E.tolist())  # a 1 before the bits read
    assert model(torch.tensor([[5, 4]]))[0, -1, :5].logsumexp(0).item() == pytest.approx(0, abs=1e-12)


def test_look_ups_equal_distributions() -> None:
    model = context_tree(depth=4)
    x_BT = torch.randint(0, VOCAB - 1, (3, 50), generator=seeded_generator(2))
    logp_BTV = model(model.prepend_begin(x_BT))[:, :-1]
    torch.testing.assert_close(model.score(x_BT), logp_BTV.gather(-1, x_BT[..., None])[..., 0], rtol=1e-12, atol=1e-12)


def test_the_view_shows_lengths_that_sum_to_one() -> None:
    model, x_N = context_tree(depth=3), text(20)[1:].tolist()
    table = SPEC.views[0].source(model, x_N)  # type: ignore[operator]
    bits_N = model.score(torch.tensor([x_N]))[0] / -math.log(2)
    for bits, detail in zip(bits_N.tolist(), table.details, strict=True):
        assert detail.title.startswith(f"{bits:.2f} bits")
        assert len(detail.rows) == 5
        assert sum(detail.shares) == pytest.approx(1)
        assert 0 <= detail.shade <= 1
    assert SPEC.details is not None
    bars = SPEC.details(model, str)
    assert [row[0] for row in bars.rows] == ["0", "1", "2", "3"]  # type: ignore[union-attr]
    assert bars.rows[-1][1] == 100  # the tree never grows beyond its depth


def test_tables_are_within_the_bound() -> None:
    model = context_tree(depth=3)
    real = cost_of(model, Shape())
    bound = cost_of_config("ctw", ContextTreeConfig(3), VOCAB, Shape(text=len(text())))
    assert 0 < real.table_bytes <= bound.table_bytes
    assert real.table_entries == len(model.decision_E) <= bound.table_entries


@pytest.mark.parametrize("change", ["one_E", "stop_E", "decision_E", "entry_M", "word_M"])
def test_damaged_tables_are_refused(change: str) -> None:
    model = context_tree(depth=2)
    tensors = dict(model.state_dict())
    tensors[change] = tensors[change] + 9000
    with pytest.raises(UserError, match="damaged"):
        build(describe(model), tensors)


def test_it_is_trained_compressed_and_restored(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat and the dog ran to the door\n" * 40)
    run = octavo.train("ctw", tmp_path / "text.txt", depth=3, out=tmp_path / "run")
    again = octavo.load(tmp_path / "run")
    assert isinstance(again.model, ContextTree)
    assert run.record["result"]["bits_per_byte"] < 1
    with pytest.raises(UserError, match="depth must be at least 1"):
        octavo.train("ctw", tmp_path / "text.txt", depth=0)
