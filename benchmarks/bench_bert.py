"""BERT: what each pretraining task is good for, and how fast pretraining is beside transformers + compile.

python benchmarks/bench_bert.py --ablation           (some minutes on two cores; needs sentence-polarity, scikit-learn)
python benchmarks/bench_bert.py --ablation --usual --corpus enwiki --steps 20000        (on a GPU: the larger model)
python benchmarks/bench_bert.py --speed              (on a GPU: BERT-base, rows of 512 tokens, bfloat16)
python benchmarks/bench_bert.py --speed --tiny       (the same code on any machine, to see that it runs)

Speed: a training step is forward, backward and AdamW (fused), under autocast to bfloat16, on the same rows. Both get
full rows, so transformers pads nothing either; its model is compiled whole, ours layer by layer. Rounds alternate
between the two, and the medians are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from measure import median_spread, parser, print_header, print_machine, print_row, rates, time_rounds
from octavo.core import seeded_generator
from octavo.datasets.sources import get_files
from octavo.models.bert import Bert, BertConfig
from octavo.tasks.encoder import Encoder
from octavo.tasks.masked import TASK, losses_of
from octavo.tasks.masking import Masked
from octavo.tasks.sentences import Sentences, documents, split_sentences
from octavo.tasks.training_run import train_run
from octavo.text import open_corpus
from octavo.text.tokenizers.wordpiece import WordPiece, WordPieceSettings
from octavo.training.loop_config import LoopConfig
from octavo.training.precision import Precision

ABLATED: tuple[tuple[Any, ...], ...] = (
    ("words",), ("words", "next"), ("words", "order"), ("words", "replaced"), ("words", "next", "order", "replaced"),
)  # fmt: skip
SMALL = BertConfig(width=64, layers=2, heads=4, context=64), 1024, 0.015  # model, vocabulary size, learning rate
LARGE = BertConfig(), 4096, 0.004
ROUNDS, STEPS = 5, 10


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--ablation", action="store_true")
    arguments.add_argument("--speed", action="store_true")
    arguments.add_argument("--tiny", action="store_true", help="a small shape, for machines without a GPU")
    arguments.add_argument("--steps", type=int, default=500, help="of each model of the ablation")
    arguments.add_argument("--usual", action="store_true", help="ablation: 4 layers of width 128, rows of 128 tokens")
    arguments.add_argument("--tasks", nargs="*", help="ablation: the row of these tasks alone; without any, of none")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--corpus", default="shakespeare")
    arguments.add_argument("--rows", type=int, default=64, help="of a step of the speed test")
    args = arguments.parse_args()
    print_machine()
    if args.ablation:
        rows = ((), *ABLATED) if args.tasks is None else (tuple(args.tasks),)
        ablation(args.corpus, args.steps, rows, LARGE if args.usual else SMALL, args.seed)
    if args.speed:
        speed(args.corpus, args.tiny, args.rows)


# ---------------------------------------------------------------------- ablation of the pretraining tasks


def ablation(
    corpus: str,
    steps: int,
    rows: Sequence[tuple[Any, ...]],
    setting: tuple[BertConfig, int, float],
    seed: int,
) -> None:
    """The same model, text, steps and seed; only the tasks differ."""
    model, vocab_size, learning_rate = setting
    print(
        f"{corpus}, {steps} steps of {TASK.loop.batch_size} rows of {model.context} tokens, "
        f"{model.layers} layers of width "
        f"{model.width}, vocabulary {vocab_size:,}, learning rate {learning_rate}, seed {seed}\n"
    )
    print_header("tasks", "words", "next", "order", "replaced", "perplexity", "polarity probe", "order probe")
    for tasks in rows:
        config = replace(model, tasks=tasks or ("words",))
        settings = {"vocab_size": vocab_size, "budget": f"{steps if tasks else 1}steps", "evaluations": 4}
        settings |= {"learning_rate": learning_rate} if tasks else {"learning_rate": 1e-9, "muon_learning_rate": 1e-9}
        recipe = TASK.recipe("bert", asdict(config) | settings, seed)
        encoder = train_run(TASK, recipe, [corpus], quiet=True)
        result = encoder.record["result"]
        accuracies = [
            f"{result[key]:.1%}" if key in result else ""
            for key in ("words_accuracy", "next_accuracy", "order_accuracy", "replaced_balanced")
        ]
        probes = f"{polarity_probe(encoder):.1%}", f"{order_probe(encoder, corpus):.1%}"
        name = " ".join(tasks) or "none: the initial weights"
        print_row(name, *accuracies, f"{result['words_perplexity']:.0f}", *probes)


def polarity_probe(encoder: Encoder, train: int = 4000, test: int = 2000) -> float:
    """Accuracy of a logistic regression on frozen vectors: is a film review's sentence favourable?"""
    files = get_files("sentence-polarity")
    texts, labels = [], []
    for name, label in (("rt-polarity.pos", 1), ("rt-polarity.neg", 0)):
        lines = files[name].read_text(encoding="utf-8", errors="replace").splitlines()[: (train + test) // 2]
        texts += lines
        labels += [label] * len(lines)
    order = np.random.default_rng(0).permutation(len(texts))
    vectors_ND, label_N = encoder.encode([texts[i] for i in order]).numpy(), np.array(labels)[order]
    return _fit_probe(vectors_ND, label_N, train)


def order_probe(encoder: Encoder, corpus: str, train: int = 1200) -> float:
    """Accuracy of a logistic regression on the frozen vectors of two neighbours of the held-out part: in order?"""
    sentences = [each for _, text in documents(open_corpus(corpus).valid) for each in split_sentences(text)]
    vectors_ND = encoder.encode(sentences).numpy()
    swapped = np.random.default_rng(0).random(len(sentences) // 2) < 0.5
    pairs = [
        np.concatenate([vectors_ND[2 * i + s], vectors_ND[2 * i + 1 - s]]) for i, s in enumerate(swapped.astype(int))
    ]
    order = np.random.default_rng(1).permutation(len(pairs))
    return _fit_probe(np.stack(pairs)[order], swapped[order], min(train, 2 * len(pairs) // 3))


def _fit_probe(x_ND: Any, y_N: Any, train: int) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fitted = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000)).fit(x_ND[:train], y_N[:train])
    return float(fitted.score(x_ND[train:], y_N[train:]))


# ---------------------------------------------------------------------- speed


def speed(corpus: str, tiny: bool, rows: int) -> None:
    """Tokens a second of training steps, ours and transformers'."""
    transformers: Any = import_module("transformers")

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape = (64, 2, 4, 256, 64) if tiny else (768, 12, 12, 3072, 512)
    width, layers, heads, inner, length = shape
    rows, vocab = (4, 2048) if tiny else (rows, 30522)
    batch = make_batch(corpus, rows, length).to(device)
    ours = Bert(BertConfig(width=width, layers=layers, heads=heads, feed_forward_width=inner, context=length), vocab)
    ours.initialise(seeded_generator(0))
    settings = transformers.BertConfig(
        vocab_size=vocab, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=inner, max_position_embeddings=length, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="sdpa",
    )  # fmt: skip
    theirs: Any = torch.compile(transformers.BertForPreTraining(settings).to(device))
    labels_BT = torch.full_like(batch.x_BT, -100)
    labels_BT.view(-1)[batch.chosen_N] = batch.target_N
    answer_B = torch.zeros(rows, dtype=torch.long, device=device)

    def our_loss() -> Tensor:
        return torch.stack(list(losses_of(ours, batch).values())).sum()

    def their_loss() -> Tensor:
        loss: Tensor = theirs(
            batch.x_BT, token_type_ids=batch.segment_BT, labels=labels_BT, next_sentence_label=answer_B
        ).loss
        return loss

    ours = ours.to(device)
    Precision(LoopConfig(compile="parts"), ours, device, fixed_shapes=True).compiled(ours, ours)
    steps = {
        "octavo": make_step(ours, our_loss, device),
        "transformers + compile": make_step(theirs, their_loss, device),
    }
    pairs = len(batch.first_P) / rows
    print(f"{rows} rows of {length} tokens, {pairs:.1f} pairs a row, {batch.waste:.2%} padding, {device}\n")
    print_header("", "tokens/s")
    speeds = {name: rates(rows * length, each) for name, each in time_rounds(steps, ROUNDS, STEPS).items()}
    for name, values in speeds.items():
        print_row(name, median_spread(values, 0))
    print(f"\nratio {median(speeds['octavo']) / median(speeds['transformers + compile']):.2f}")


def make_batch(corpus: str, rows: int, length: int) -> Any:
    """One batch of real text; the model's vocabulary may be larger than the text's."""
    train = open_corpus(corpus).train
    tokenizer = WordPiece.learn(train.chunks(), WordPieceSettings(2048))
    return Masked(Sentences.of(documents(train), tokenizer), tokenizer, ("words", "next"), rows, length, 0).at(0)


def make_step(model: Any, loss: Callable[[], Tensor], device: torch.device) -> Callable[[], None]:
    """A function that takes one training step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main()
