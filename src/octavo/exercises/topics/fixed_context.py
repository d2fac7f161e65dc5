"""Networks with a fixed context: the parameters of a neural n-gram, and how far dilated convolutions see.

V tokens, D size of a vector, H hidden units, n the order; L layers, K taps of a kernel.
"""

from __future__ import annotations

from itertools import pairwise, product

import torch

from octavo.core import seeded_generator
from octavo.exercises import Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import tabulated
from octavo.models.conv import Conv, ConvConfig
from octavo.models.nnlm import NNLM, NNLMConfig
from octavo.pages.figures.charts import Series, lines

SHAPES = ((11, 3, 5, 4), (257, 8, 20, 2), (30, 16, 7, 9))  # V, D, H, n
STACKS = ((1, 2), (3, 2), (4, 3), (2, 5))  # L, K
SIZES = {"V": "whole", "D": "whole", "H": "whole", "n": "whole"}
WANTED = 1000  # tokens


def parameters(V: int, D: int, H: int, n: int, direct: bool = False) -> int:
    """The parameters of octavo's neural n-gram, counted."""
    with torch.device("meta"):
        model = NNLM(NNLMConfig(order=n, width=D, hidden=H, direct=direct), V)
    return sum(p.numel() for p in model.parameters())


@tabulated("V D H n", SHAPES, "the parameters of octavo's neural n-gram, counted for three shapes")
def all_parameters(V: int, D: int, H: int, n: int) -> int:
    return parameters(V, D, H, n)


@tabulated("V D H n", SHAPES, "octavo's neural n-gram with the direct connection, less the one without")
def direct_parameters(V: int, D: int, H: int, n: int) -> int:
    return parameters(V, D, H, n, True) - parameters(V, D, H, n)


@tabulated("V n", ((2, 3), (5, 4), (11, 2)), "all sequences of n tokens, listed")
def table_entries(V: int, n: int) -> int:
    return sum(1 for _ in product(range(V), repeat=n))


def grows_as_a_table() -> Finding:
    counts = [parameters(257, 16, 64, n) for n in (4, 8, 16)]
    steps = [after - before for before, after in pairwise(counts)]
    note = f"orders 4, 8, 16: {', '.join(f'{one:,}' for one in counts)} parameters"
    return Finding(verdict(steps[1] > 2 * steps[0]), note)


NGRAM = Exercise(
    id="neural-ngram-parameters", title="The parameters of a neural n-gram",
    where={"table": 257**5, "V": 257, "D": 64, "H": 512, "n": 5, "count": lambda V, D, H, n: parameters(V, D, H, n)},
    question="A neural n-gram gives each of V tokens a vector of D numbers, puts the vectors of the tokens before the "
    "next one, as many as n less one, side by side, and has one hidden layer of H units with biases. The output has "
    "a bias for each token; its weights are not the vectors.",
    answer="Vectors, hidden layer and output together have `V*D + H*((n - 1)*D + 1) + V*(H + 1)`{parameters} "
    "parameters, which grow with n in proportion. A table has a probability for each of `V^n`{table} sequences.",
    parts=[
        Part("parameters", "How many parameters are there?", Formula("V*D + H*((n-1)*D + 1) + V*(H + 1)", SIZES),
             "counted", all_parameters, where={"table": lambda V, n: V**n},
             why="A vector for each token; for each hidden unit a weight for every number beside one another and a "
             "bias; for each token as many weights as there are units and a bias.",
             wrong={"gave every place its own vectors": ("(n-1)*V*D + H*((n-1)*D + 1) + V*(H + 1)",
                        lambda V, D, H, n: sum(V * D for _ in range(int(n) - 1)) + H * ((n - 1) * D + 1) + V * (H + 1)),
                    "counted n tokens of context": ("V*D + H*(n*D + 1) + V*(H + 1)",
                        lambda V, D, H, n: V * D + H * (sum(D for _ in range(int(n))) + 1) + V * (H + 1)),
                    "left out the biases": ("V*D + H*(n-1)*D + V*H",
                        lambda V, D, H, n: V * D + H * (n - 1) * D + sum(V for _ in range(int(H))))}),
        Part("direct", "The output may also see the vectors directly, past the hidden layer. How many weights does "
             "that add?", Formula("V*(n-1)*D", SIZES), "counted", direct_parameters,
             why="One for each token and each number of the vectors side by side.",
             wrong={"connected the last token alone": ("V*D", lambda V, D: V * D),
                    "connected the hidden layer again": ("V*H", lambda V, H: V * H)}),
        Part("table", "How many sequences of n tokens are there, each of which has a probability of its own in a full "
             "table?", Formula("V^n", {"V": "whole", "n": "whole"}), "counted", table_entries,
             why="V choices in each of the n places.",
             wrong={"left out the token that is predicted": ("V^(n-1)", lambda V, n: V ** (n - 1)),
                    "added the choices": ("n*V", lambda V, n: sum(V for _ in range(int(n))))}),
        Part("growth", "From order to order, the number of parameters is multiplied by a factor, as that of the "
             "table is.", Truth("false"), "counted", grows_as_a_table,
             why="Each further token of context adds `H*D` weights, however many there are already.",
             wrong={"thought that more context multiplies the parameters": True}),
    ])  # fmt: skip


def random_network(layers: int, kernel: int, dilation: int) -> Conv:
    model = Conv(ConvConfig(width=2, layers=layers, kernel=kernel, dilation=dilation), 5)
    generator = seeded_generator(1)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    return model.double()


def tokens_seen(layers: int, kernel: int, dilation: int) -> int:
    """To how many tokens a prediction's gradient reaches, in octavo's convolutions with random weights."""
    model, enough = random_network(layers, kernel, dilation), 2 * kernel * max(dilation, 2) ** layers * layers
    x_1TD = torch.randn(1, enough, 2, generator=seeded_generator(2), dtype=torch.float64).requires_grad_()
    h_1TD = x_1TD
    for layer, past in zip(model.layers, model.start(1), strict=True):
        h_1TD = h_1TD + layer.absorb(h_1TD, past)[0]
    (slope,) = torch.autograd.grad(h_1TD[0, -1].sum(), x_1TD)
    return int(slope[0].any(-1).sum())


@tabulated("L K", STACKS, "the tokens that the gradient of a prediction reaches in octavo's convolutions, four stacks")
def plain_field(L: int, K: int) -> int:
    return tokens_seen(L, K, 1)


@tabulated("L K", STACKS, "the tokens that the gradient of a prediction reaches in octavo's convolutions, four stacks")
def dilated_field(L: int, K: int) -> int:
    return tokens_seen(L, K, 2)


@tabulated("L K", STACKS, "the vectors in the state of octavo's convolutions, counted")
def state_vectors(L: int, K: int) -> int:
    return sum(past.shape[1] for past in random_network(L, K, 2).start(1))


def layers_needed(dilation: int) -> int:
    """How many layers with two taps see so many tokens."""
    layers = 1
    while ConvConfig(layers=layers, kernel=2, dilation=dilation).receptive_field < WANTED:
        layers += 1
    return layers


def needed() -> Finding:
    small = [tokens_seen(layers, 2, 2) == ConvConfig(layers=layers, kernel=2).receptive_field for layers in (1, 4)]
    assert all(small), "the receptive field that is declared is the one that a gradient reaches"
    return Finding(layers_needed(2), "layers added to octavo's network until its receptive field is large enough")


STACK_SYMBOLS = {"L": "whole", "K": "whole"}
DILATED = Exercise(
    id="dilated-receptive-field", title="How far dilated convolutions see",
    where={"wanted": WANTED, "twice": 2, "first": 1, "L": (2, 3, 5), "K": (2, 3, 4), "plain_layers": lambda:
           layers_needed(1), "nine": lambda: ConvConfig(layers=layers_needed(2) - 1, kernel=2).receptive_field,
           "ten": lambda: ConvConfig(layers=layers_needed(2), kernel=2).receptive_field,
           "fewer": lambda: layers_needed(2) - 1},
    question="L causal convolutions stand one on another. Each sees K inputs: its own token's and K less one before "
    "it. Its receptive field is how many tokens a prediction depends on, the last one included.",
    answer="Side by side, each layer adds a token for each further tap: `1 + L*(K - 1)`{plain}. Where the inputs of "
    "each layer are twice as far apart as in the layer below, the additions double too: `1 + (K - 1)*(2^L - "
    "1)`{dilated}. So 10{layers} layers with two taps see what takes 999{plain_layers} without dilation. The state "
    "holds one vector fewer than the receptive field, of all layers together: dilation saves layers, not memory.",
    figure=lambda: lines([
        Series(name, [(layers, ConvConfig(layers=layers, kernel=3, dilation=dilation).receptive_field)
                      for layers in range(1, 11)])
        for name, dilation in (("side by side", 1), ("dilation doubles", 2))],
        "The receptive field of causal convolutions with three taps.", ("layers", "tokens"), False, True),
    parts=[
        Part("plain", "The inputs of each layer stand side by side. How large is the receptive field?",
             Formula("1 + L*(K-1)", STACK_SYMBOLS), "autograd", plain_field,
             why="Each layer sees as many tokens further back as it has taps before the last.",
             wrong={"gave each layer K more": ("1 + L*K", lambda L, K: 1 + sum(K for _ in range(int(L)))),
                    "multiplied the taps": ("K^L", lambda L, K: K**L)}),
        Part("dilated", "In the first layer the inputs stand side by side, in each further one twice as far apart as "
             "in the layer below. How large is the receptive field?",
             Formula("1 + (K-1)*(2^L - 1)", STACK_SYMBOLS), "autograd", dilated_field,
             why="The taps before the last add one, two, four and so on each, in all `(K - 1)*(2^L - 1)`{state}.",
             wrong={"counted the last layer alone": ("1 + (K-1)*2^(L-1)", lambda L, K: 1 + (K - 1) * 2 ** (L - 1)),
                    "doubled once more": ("1 + (K-1)*(2^(L+1) - 1)",
                        lambda L, K: 1 + (K - 1) * sum(2**l for l in range(int(L) + 1)))}),
        Part("layers", "How many such layers with two taps does it take to see 1000{wanted} tokens?",
             Number(10, rel=0), "counted", needed,
             why="With 9{fewer} layers it is 512{nine} tokens, with one more 1024{ten}.",
             wrong={"did not dilate": (999, lambda: layers_needed(1)),
                    "stopped a layer early": (9, lambda: layers_needed(2) - 1)}),
        Part("state", "To go on token by token, each layer of the dilated stack needs its earlier inputs. How many "
             "vectors are that in all?", Formula("(K-1)*(2^L - 1)", STACK_SYMBOLS), "counted", state_vectors,
             why="A layer needs the inputs as far back as its first tap; together these are `(K - 1)*(2^L - 1)`{}.",
             wrong={"kept the taps alone": ("L*(K-1)", lambda L, K: sum(K - 1 for _ in range(int(L)))),
                    "kept what the last layer needs": ("(K-1)*2^(L-1)", lambda L, K: (K - 1) * 2 ** (L - 1))}),
    ])  # fmt: skip

EXERCISES = (NGRAM, DILATED)
