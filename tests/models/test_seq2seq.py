"""Encoder-decoders: PyTorch's own layers as the reference, the laws of language models, and counted work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import laws
from lstm_by_hand import show_products
from octavo.core import seeded_generator, select
from octavo.decode import Beam, Greedy, Sample, beam_search, generate
from octavo.errors import UserError
from octavo.models.cost.parts import Part, Shape
from octavo.models.encoder_decoder import EncoderDecoder, Memory, Sizes
from octavo.models.seq2seq import SOURCE_SIDE, CrossAttention, Seq2Seq, Seq2SeqConfig, seq2seq_cost
from octavo.models.seq2seq_recurrent import RecurrentSeq2Seq, RecurrentSeq2SeqConfig, recurrent_seq2seq_cost
from octavo.ops.bidirectional import reversed_places
from octavo.ops.tracing import trace
from octavo.tasks.pair_batches import IGNORE, PairBatch
from octavo.tasks.translation import PairLoss

V, END = 23, 22
TINY: dict[str, Any] = {"width": 16, "layers": 2, "heads": 2, "dropout": 0.0}
AS_TORCH: dict[str, Any] = {
    "positions": "none", "norm": "layer", "bias": True, "feed_forward": "gelu-exact", "qk_norm": False, "tied": "none",
}  # fmt: skip
KINDS: dict[str, Callable[[], EncoderDecoder]] = {
    "transformer": lambda: Seq2Seq(Seq2SeqConfig(**TINY), V, V, 2),
    "transformer, learned positions": lambda: Seq2Seq(
        Seq2SeqConfig(**TINY, positions="learned", norm="layer", bias=True, feed_forward="gelu", tied="none"), V, V, 2
    ),
    "transformer, sinusoidal, more readers": lambda: Seq2Seq(
        Seq2SeqConfig(**TINY | {"layers": 3}, decoder_layers=1, positions="sinusoidal", tied="target"), V + 4, V, 2
    ),
    **{
        f"{cell}, {score}": lambda cell=cell, score=score: RecurrentSeq2Seq(  # type: ignore[misc]
            RecurrentSeq2SeqConfig(cell=cell, score=score, width=8, layers=2, dropout=0.0), V, V, 2
        )
        for cell in ("gru", "lstm")
        for score in ("dot", "additive", "none")
    },
}
SOURCES = [[3, 4, 5, END], [1, END], [7, 8, 9, 7, 8, 9, END]]


def built(kind: str) -> EncoderDecoder:
    """With weights that are all something, so that every part has a say."""
    model = KINDS[kind]()
    model.initialise(seeded_generator(0))
    for n, parameter in enumerate(model.parameters()):
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=seeded_generator(n))
    return model.double().eval()


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> EncoderDecoder:
    return built(request.param)


# ---------------------------------------------------------------------- against PyTorch


def as_torch(config: Seq2SeqConfig) -> tuple[Seq2Seq, nn.Transformer]:
    """Both with the same weights."""
    D, ours = config.width, Seq2Seq(config, V, V)
    theirs = nn.Transformer(
        D, config.heads, config.layers, config.decoder_depth, 4 * D, 0.0, "gelu", batch_first=True, norm_first=True,
        dtype=torch.float64,
    )  # fmt: skip
    ours.initialise(seeded_generator(0))
    ours.double()
    for n, parameter in enumerate(theirs.parameters()):
        parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=seeded_generator(n), dtype=torch.float64))
    with torch.no_grad():
        for mine, other in zip(ours.encoder_blocks, theirs.encoder.layers, strict=True):
            _copy_attention(mine.attention, other.self_attn)
            _copy_rest(mine, other, (("norm1", "norm1"), ("norm2", "norm2")))
        for mine, other in zip(ours.decoder_blocks, theirs.decoder.layers, strict=True):
            _copy_attention(mine.attention, other.self_attn)
            _copy_attention(mine.cross_attention, other.multihead_attn)
            _copy_rest(mine, other, (("norm1", "norm1"), ("norm2", "norm2"), ("norm3", "norm3")))
        _copy_norm(ours.encoder_norm, theirs.encoder.norm)
        _copy_norm(ours.norm, theirs.decoder.norm)
    return ours, theirs


def _copy_attention(mine: Any, other: nn.MultiheadAttention) -> None:
    for name, part in zip(("query", "key", "value"), other.in_proj_weight.chunk(3), strict=True):
        getattr(mine, f"{name}_DD" if name == "query" else f"{name}_ED").copy_(part)
    for name, part in zip(("query", "key", "value"), other.in_proj_bias.chunk(3), strict=True):
        getattr(mine, f"{name}_bias").copy_(part)
    mine.out_DD.copy_(other.out_proj.weight)
    mine.out_bias.copy_(other.out_proj.bias)


def _copy_norm(mine: Any, other: Any) -> None:
    mine.weight_D.copy_(other.weight)
    mine.bias_D.copy_(other.bias)


def _copy_rest(mine: Any, other: Any, norms: Any) -> None:
    for own, name in norms:
        _copy_norm(getattr(mine, own), getattr(other, name))
    mine.feed_forward.up_FD.copy_(other.linear1.weight)
    mine.feed_forward.up_bias_F.copy_(other.linear1.bias)
    mine.feed_forward.down_DF.copy_(other.linear2.weight)
    mine.feed_forward.down_bias_D.copy_(other.linear2.bias)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_transformer_is_pytorchs_in_value_and_gradient() -> None:
    config = Seq2SeqConfig(**TINY, **AS_TORCH, decoder_layers=3)
    ours, theirs = as_torch(config)
    source_BS, before_BT = (torch.randint(0, END, (3, n), generator=seeded_generator(n)) for n in (7, 5))
    lengths_B = torch.tensor([7, 4, 1])
    assert ours.source_VD is not None
    embedded = [ours.source_VD[source_BS].detach(), ours.target_VD[before_BT].detach()]
    sources, targets = (one.requires_grad_() for one in embedded)
    fill_BS = torch.arange(7) >= lengths_B[:, None]
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    expected = theirs(sources, targets, tgt_mask=causal, src_key_padding_mask=fill_BS,
                      memory_key_padding_mask=fill_BS, tgt_is_causal=True)  # fmt: skip
    found = ours.hidden(source_BS, lengths_B, before_BT)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    weight = torch.randn(expected.shape, generator=seeded_generator(9), dtype=torch.float64)
    (expected * weight).sum().backward()
    (found * weight).sum().backward()
    pairs = [
        (ours.encoder_blocks[0].attention.value_ED.grad, theirs.encoder.layers[0].self_attn.in_proj_weight.grad[32:]),
        (ours.decoder_blocks[0].cross_attention.key_ED.grad,
            theirs.decoder.layers[0].multihead_attn.in_proj_weight.grad[16:32]),
        (ours.decoder_blocks[2].attention.query_DD.grad, theirs.decoder.layers[2].self_attn.in_proj_weight.grad[:16]),
        (ours.encoder_blocks[1].feed_forward.up_FD.grad, theirs.encoder.layers[1].linear1.weight.grad),
        (ours.encoder_norm.weight_D.grad, theirs.encoder.norm.weight.grad),
    ]  # fmt: skip
    for mine, other in pairs:
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-8)
    summed = torch.zeros_like(ours.target_VD).index_add_(0, before_BT.flatten(), targets.grad.flatten(0, 1))
    torch.testing.assert_close(ours.target_VD.grad, summed, rtol=1e-8, atol=1e-8)


def cross_attention_by_hand(layer: Any, x_BTD: Tensor, h_BSD: Tensor, length_B: list[int]) -> Tensor:
    """Row by row and head by head: q and k at a mean square of one, softmax(q kᵀ / √K) v over the source's own."""
    K, rows = layer.config.width // layer.config.heads, []
    for x_TD, h_SD in ((x, h[:length]) for x, h, length in zip(x_BTD, h_BSD, length_B, strict=True)):
        heads = []
        for at in (slice(head * K, (head + 1) * K) for head in range(layer.config.heads)):
            q_TK = x_TD @ layer.query_DD[at].T + layer.query_bias[at]
            k_SK = h_SD @ layer.key_ED[at].T + layer.key_bias[at]
            v_SK = h_SD @ layer.value_ED[at].T + layer.value_bias[at]
            q_TK, k_SK = (one / (one.square().mean(-1, keepdim=True) + 1e-5).sqrt() for one in (q_TK, k_SK))
            heads.append((q_TK @ k_SK.T / K**0.5).softmax(-1) @ v_SK)
        rows.append(torch.cat(heads, -1) @ layer.out_DD.T + layer.out_bias)
    return torch.stack(rows)


def test_cross_attention_with_qk_norm_is_the_equation_in_value_and_gradient() -> None:
    parts = Seq2SeqConfig(**TINY, bias=True, qk_norm=True).parts(1)
    layer = CrossAttention(parts).double()
    for n, parameter in enumerate(layer.parameters()):
        parameter.data.copy_(torch.randn(parameter.shape, generator=seeded_generator(n), dtype=torch.float64))
    x_BTD, h_BSD = (torch.randn(3, n, 16, generator=seeded_generator(n), dtype=torch.float64) for n in (5, 7))
    lengths_B = torch.tensor([7, 4, 1])
    found = layer(x_BTD, *layer.keys_values(h_BSD), Memory(lengths_B, ()).pattern)
    expected = cross_attention_by_hand(layer, x_BTD, h_BSD, lengths_B.tolist())
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    ours, theirs = (torch.autograd.grad(y.square().sum(), list(layer.parameters())) for y in (found, expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-8)


def test_rotary_angles_are_as_exact_as_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = Seq2Seq(Seq2SeqConfig(**TINY | {"layers": 1}, positions="rotary"), V, V).double(), []
    model.initialise(seeded_generator(0))
    attention = model.encoder_blocks[0].attention
    project = attention.project
    monkeypatch.setattr(attention, "project", lambda x, place: (seen.append(place), project(x, place))[1])
    model.encode(torch.arange(9)[None] % END)
    angle_TK = torch.arange(9).double()[:, None] * 10_000.0 ** (-torch.arange(4).double() / 4)
    torch.testing.assert_close(
        seen[0].angles_TK, torch.cat([angle_TK.cos(), angle_TK.sin()], -1), rtol=1e-14, atol=1e-15
    )


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_recurrent_encoder_is_pytorchs_on_packed_sequences(cell: str) -> None:
    config = RecurrentSeq2SeqConfig(cell=cell, score="dot", width=8, layers=2, dropout=0.0)  # type: ignore[arg-type]
    ours = RecurrentSeq2Seq(config, V, V)
    ours.initialise(seeded_generator(0))
    ours.double()
    theirs = {"gru": nn.GRU, "lstm": nn.LSTM}[cell](8, 8, 2, bidirectional=True, dtype=torch.float64)
    for n in range(2):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            for stack, end in ((ours.forwards, ""), (ours.backwards, "_reverse")):
                getattr(theirs, f"{name}_l{n}{end}").data.copy_(getattr(stack[n], name).data)
    x_BS, lengths_B = torch.randint(0, END, (3, 6), generator=seeded_generator(1)), torch.tensor([6, 4, 1])
    packed = nn.utils.rnn.pack_padded_sequence(ours.embed_source(x_BS), lengths_B, batch_first=True)
    expected_BSE, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    h_BSE = ours.encode(x_BS, lengths_B).parts[0]
    real_BS1 = (torch.arange(6) < lengths_B[:, None])[..., None]
    torch.testing.assert_close(h_BSE * real_BS1, expected_BSE * real_BS1, rtol=1e-10, atol=1e-10)


def test_reversing_rows_leaves_padding_behind() -> None:
    assert reversed_places(torch.tensor([3, 1]), 4).tolist() == [[2, 1, 0, 3], [0, 1, 2, 3]]


# ---------------------------------------------------------------------- given a source, it is a language model


@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
def test_given_a_source_the_laws_hold(model: EncoderDecoder, law: Callable[..., None]) -> None:
    given = model.given(SOURCES[0])
    with torch.no_grad():
        for length in laws.LENGTHS:
            law(given, length)


def test_several_sources_side_by_side_answer_as_each_alone(model: EncoderDecoder) -> None:
    x_BT = torch.randint(0, END, (3, 5), generator=seeded_generator(4))
    together = model.given(SOURCES, 1)
    found = together(together.prepend_begin(x_BT))
    for row, source in enumerate(SOURCES):
        alone = model.given(source, 1)
        expected = alone(alone.prepend_begin(x_BT[row : row + 1]))[0]
        torch.testing.assert_close(found[row], expected, rtol=1e-9, atol=1e-9)
    state = together.start(3)
    turned_round = select(together.absorb(state, together.prepend_begin(x_BT))[1], torch.tensor([2, 2, 0, 1]))
    last_B = torch.tensor([1, 1, 1, 1])
    expected = together.step(together.absorb(state, together.prepend_begin(x_BT))[1], last_B[:3])[0]
    torch.testing.assert_close(
        together.step(turned_round, last_B)[0], expected[torch.tensor([2, 2, 0, 1])], rtol=1e-9, atol=1e-9
    )


def objective_of(model: EncoderDecoder, smoothing: float, batch: PairBatch) -> torch.Tensor:
    """The nats of a target's token, on average."""
    return PairLoss(model, smoothing)((), batch)[0] / (batch.after_BT != IGNORE).sum()


def test_what_fills_a_batch_up_changes_neither_value_nor_gradient(model: EncoderDecoder) -> None:
    """Two batches that differ only in what stands behind the sources' ends."""
    before_BT, after_BT = torch.tensor([[V, 1, 2], [V + 1, 5, 0]]), torch.tensor([[1, 2, END], [5, END, IGNORE]])
    found = []
    for fill, room in ((0, 4), (9, 7)):
        source_BS = torch.full((2, room), fill)
        source_BS[0, :4], source_BS[1, :2] = torch.tensor(SOURCES[0]), torch.tensor(SOURCES[1])
        model.zero_grad()
        loss = objective_of(model, 0.1, PairBatch(source_BS, torch.tensor([4, 2]), before_BT, after_BT))
        loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_the_loss_is_the_nats_of_each_target_alone(model: EncoderDecoder) -> None:
    source_BS = torch.tensor([[3, 4, 5, END], [1, END, 0, 0]])
    before_BT, after_BT = torch.tensor([[V, 1, 2], [V, 5, 0]]), torch.tensor([[1, 2, END], [5, END, IGNORE]])
    batch = PairBatch(source_BS, torch.tensor([4, 2]), before_BT, after_BT)
    nats = [-model.given(source).score(torch.tensor([target])).sum()
            for source, target in ((SOURCES[0], [1, 2, END]), (SOURCES[1], [5, END]))]  # fmt: skip
    torch.testing.assert_close(objective_of(model, 0.0, batch), (nats[0] + nats[1]) / 5, rtol=1e-9, atol=1e-9)


def test_cross_attention_sees_the_source_and_nothing_else() -> None:
    model = built("transformer")
    memory = model.encode(*model.together(SOURCES))
    with trace() as found:
        model.read(memory, model.start(memory), torch.tensor([[V, 1, 2]] * 3))
    own, cross = found["attention"][0::2], found["attention"][1::2]
    assert len(own) == len(cross) == 2
    for a_BHTS in cross:
        assert a_BHTS.shape == (3, 2, 3, 7)
        torch.testing.assert_close(a_BHTS.sum(-1), torch.ones(3, 2, 3, dtype=torch.float64))
        assert not a_BHTS[0, ..., 4:].any()
        assert not a_BHTS[1, ..., 2:].any()
    for a_BHTS in own:
        assert a_BHTS.shape == (3, 2, 3, 3)
        assert not a_BHTS.triu(1).any()


def test_a_source_that_changes_changes_the_answer(model: EncoderDecoder) -> None:
    one, other = (model.given(source)(torch.tensor([[V, 1]])) for source in ([3, 4, 5, END], [3, 4, 6, END]))
    assert (one[..., :V] - other[..., :V]).abs().max() > 1e-6


# ---------------------------------------------------------------------- decoding


def test_a_beam_of_one_is_greedy_decoding(model: EncoderDecoder) -> None:
    given, prompts = model.given(SOURCES), [()] * 3
    beam, greedy = (generate(given, prompts, 9, method, stop=(END,)) for method in (Beam(1), Greedy()))
    assert [x.tolist() for x in beam] == [x.tolist() for x in greedy]


def test_a_beam_over_several_sources_finds_what_it_finds_for_each_alone(model: EncoderDecoder) -> None:
    together = beam_search(model.given(SOURCES, 1), [()] * 3, 9, Beam(3, 1.0), (END,), best=2)
    for source, found in zip(SOURCES, together, strict=True):
        (alone,) = beam_search(model.given(source, 1), [()], 9, Beam(3, 1.0), (END,), best=2)
        for one, other in zip(found, alone, strict=True):
            assert one.tokens.tolist() == other.tokens.tolist()
            assert one.logp == pytest.approx(other.logp, rel=1e-9)


def test_a_language_is_never_written(model: EncoderDecoder) -> None:
    found = generate(model.given(SOURCES[0], 1), [()] * 20, 30, Sample(temperature=5.0), seeded_generator(1))
    assert max(int(x.max()) for x in found) < V
    assert len({tuple(x.tolist()) for x in found}) > 1


def test_languages_differ_by_their_first_token_alone(model: EncoderDecoder) -> None:
    memory = model.encode(torch.tensor([SOURCES[0]]))
    one, other = (model.given(memory, language)(torch.tensor([[V + language, 1]])) for language in (0, 1))
    assert (one[..., :V] - other[..., :V]).abs().max() > 1e-6
    assert model.given(memory, 1).begin == V + 1


# ---------------------------------------------------------------------- what it costs


def counted(work: Callable[[], Any], grad: bool = False) -> int:
    aten = torch.ops.aten
    counter = FlopCounterMode(display=False, custom_mapping={
        aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        aten.addmm_: lambda _, a, b, **__: 2 * a[0] * a[1] * b[1],
        aten.mv: lambda a, _, **__: 2 * a[0] * a[1],
    })  # fmt: skip
    with torch.set_grad_enabled(grad), counter:
        work()
    return counter.get_total_flops()


@pytest.mark.parametrize(("B", "N", "M"), [(1, 5, 1), (2, 9, 4), (3, 4, 11)])
def test_each_part_costs_what_its_formula_says(B: int, N: int, M: int) -> None:
    model, D = built("transformer"), 16
    assert isinstance(model, Seq2Seq)
    parts = {part.name: part for part in seq2seq_cost(model.config, model.sizes, Shape(B, M, source=N)).parts}
    source_BS, before_BT = torch.randint(0, END, (B, N)), torch.randint(0, END, (B, M))
    memory = model.encode(source_BS)
    x_BND, x_BMD = (torch.randn(B, n, D, dtype=torch.float64) for n in (N, M))
    place = model._place(torch.arange(M), torch.float64)
    readers: list[Any] = list(model.encoder_blocks)
    writers: list[Any] = list(model.decoder_blocks)

    def flops_of(*names: str) -> int:
        return sum(parts[name].forward for name in names)

    reading = counted(lambda: model.encode(source_BS))
    assert reading == flops_of(*SOURCE_SIDE)
    feeds = counted(lambda: [block.feed_forward(x_BND) for block in readers])
    keys = counted(lambda: [block.cross_attention.keys_values(x_BND) for block in writers])
    assert (feeds, keys) == (flops_of("encoder feed-forward"), flops_of("cross-attention, source"))
    assert reading - feeds - keys == flops_of("encoder self-attention") == 2 * (8 * B * N * D**2 + 4 * B * N**2 * D)
    cross_attentions = [block.cross_attention for block in writers]
    cross = counted(
        lambda: [
            attend(x_BMD, *seen, memory.pattern) for attend, seen in zip(cross_attentions, memory.parts, strict=True)
        ]
    )
    assert cross == flops_of("cross-attention") == 2 * (4 * B * M * D**2 + 4 * B * M * N * D)
    own = counted(lambda: [block.attention.absorb(x_BMD, block.attention.start(B), place) for block in writers])
    assert own == flops_of("decoder self-attention") == 2 * (8 * B * M * D**2 + 4 * B * M**2 * D)
    writing = counted(lambda: model.logits(model.read(memory, model.start(memory), before_BT)[0]))
    assert writing == cross + own + flops_of("decoder feed-forward", "output")
    assert parts["decoder self-attention"].needed == 2 * (8 * B * M * D**2 + 4 * B * M * (M + 1) // 2 * D)


def test_a_second_language_costs_no_encoder() -> None:
    """By the formula, by PyTorch's counter, and by how often the encoder's blocks are called."""
    model, N, M = built("transformer"), 9, 4
    assert isinstance(model, Seq2Seq)
    calls: list[int] = []
    for n, block in enumerate(model.encoder_blocks):
        block.register_forward_hook(lambda *_, n=n: calls.append(n))
    before = torch.randint(0, END, (1, M))

    def both() -> None:
        memory = model.encode(torch.randint(0, END, (1, N)))
        for language in (0, 1):
            given = model.given(memory, language)
            given(torch.cat([torch.tensor([[given.begin]]), before[:, 1:]], 1))

    total = counted(both)
    assert calls == [0, 1]
    one, two = (
        seq2seq_cost(model.config, model.sizes, Shape(1, M, source=N, languages=languages)) for languages in (1, 2)
    )
    assert total == two.total("forward")

    def of(parts: tuple[Part, ...], read: bool) -> int:
        return sum(part.forward for part in parts if (part.name in SOURCE_SIDE) == read)

    assert of(one.parts, True) == of(two.parts, True) > 0
    assert 2 * of(one.parts, False) == of(two.parts, False)


@pytest.mark.parametrize(
    "config",
    [
        Seq2SeqConfig(**TINY),
        Seq2SeqConfig(**TINY, **AS_TORCH, decoder_layers=1),
        Seq2SeqConfig(**TINY | {"heads": 4}, positions="learned", tied="target", feed_forward_width=24),
    ],
)
def test_the_formulas_count_every_parameter(config: Seq2SeqConfig) -> None:
    sizes = Sizes(V if config.tied == "all" else V + 3, V, 2)
    model = Seq2Seq(config, *sizes)
    assert seq2seq_cost(config, sizes, Shape(source=1)).parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("score", ["dot", "additive", "none"])
@pytest.mark.parametrize(("cell", "layers"), [("gru", 1), ("gru", 2), ("lstm", 2)])
def test_a_recurrent_translator_costs_what_its_formulas_say(
    cell: str, layers: int, score: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The LSTM's kernel shows nothing of itself to PyTorch's counter; our reference implementation does."""
    show_products(monkeypatch)
    config = RecurrentSeq2SeqConfig(cell=cell, width=8, layers=layers, score=score, tied="target", dropout=0.0)  # type: ignore[arg-type]
    sizes, shape = Sizes(V + 3, V, 1), Shape(3, 4, source=5)
    model = RecurrentSeq2Seq(config, *sizes)
    model.initialise(seeded_generator(0))
    cost = recurrent_seq2seq_cost(config, sizes, shape)
    source_BS, before_BT = torch.randint(0, END, (3, 5)), torch.randint(0, END, (3, 4))
    assert counted(lambda: model(source_BS, None, before_BT)) == cost.total("forward")
    logits = model(source_BS, None, before_BT)[..., :V]
    assert counted(logits.sum().backward, grad=True) == cost.total("backward")
    assert cost.parameters == sum(p.numel() for p in model.parameters())
    twice = recurrent_seq2seq_cost(config, sizes, Shape(3, 4, source=5, languages=2))
    once = {part.name: part.forward for part in cost.parts}
    for part in twice.parts:
        read_once = part.name in ("encoder, both directions", "first states", "attention, source")
        assert part.forward == once[part.name] * (1 if read_once else 2)


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Seq2Seq(Seq2SeqConfig(**TINY), V, V + 1), "one vocabulary"),
        (lambda: Seq2SeqConfig(width=10, heads=4), "heads must divide width"),
        (lambda: Seq2SeqConfig(layers=0), "layers must be at least 1"),
        (lambda: Seq2SeqConfig(decoder_layers=-1), "decoder_layers must be at least 0"),
        (lambda: RecurrentSeq2SeqConfig(score="cosine"), "score must be one of"),  # type: ignore[arg-type]
        (lambda: built("transformer").given([3, V]), f"below {V}"),
        (lambda: built("transformer").given([[3], []]), "a token at least"),
        (lambda: built("transformer").given([3], 2), "2 target languages"),
        (lambda: built("transformer").given(SOURCES).start(2), "one row to start with"),
        (lambda: built("transformer").given([1] * 257), "fit into the context"),
    ],
)
def test_a_mistake_is_refused_with_its_values(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_bfloat16_gives_a_loss_near_that_of_single_precision() -> None:
    source_BS, before_BT = (
        torch.randint(0, END, (4, 6), generator=seeded_generator(1)),
        torch.randint(0, END, (4, 5), generator=seeded_generator(2)),
    )
    batch = PairBatch(source_BS, torch.tensor([6, 5, 3, 2]), before_BT, before_BT)
    for kind in ("transformer", "gru, additive", "lstm, dot"):
        model = built(kind).float().train()
        plain = objective_of(model, 0.1, batch)
        with torch.autocast("cpu", torch.bfloat16):
            low = objective_of(model, 0.1, batch)
        low.backward()
        assert float(low.detach()) == pytest.approx(float(plain.detach()), rel=0.05)
        assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["transformer", "gru, additive", "lstm, dot"])
def test_a_gpu_translates_as_a_cpu_does(kind: str) -> None:
    model = built(kind).float()
    before_BT = torch.tensor([[V, 1, 2]] * 3)
    batch = PairBatch(*model.together(SOURCES), before_BT, before_BT.clamp(max=END))  # type: ignore[arg-type]
    expected = model.given(SOURCES)(before_BT)
    found = beam_search(model.given(SOURCES), [()] * 3, 9, Beam(3, 1.0), (END,))
    on_gpu = built(kind).float().cuda()
    torch.testing.assert_close(on_gpu.given(SOURCES)(before_BT.cuda()).cpu(), expected, rtol=1e-3, atol=1e-3)
    there = beam_search(on_gpu.given(SOURCES), [()] * 3, 9, Beam(3, 1.0), (END,))
    assert [one[0].tokens.tolist() for one in there] == [one[0].tokens.tolist() for one in found]
    plain = objective_of(model, 0.1, batch)
    with torch.autocast("cuda", torch.bfloat16):
        low = objective_of(on_gpu.train(), 0.1, PairBatch(*(one.cuda() for one in batch[:4])))
    low.backward()
    assert float(low.detach()) == pytest.approx(float(plain.detach()), rel=0.05)
    assert all(bool(torch.isfinite(p.grad).all()) for p in on_gpu.parameters() if p.grad is not None)
