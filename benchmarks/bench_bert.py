"""BERT: what each pretraining task is good for, and how fast pretraining is beside transformers + compile.

python benchmarks/bench_bert.py --ablation           (some minutes on two cores; needs sentence-polarity, scikit-learn)
python benchmarks/bench_bert.py --ablation --usual --corpus enwiki --steps 20000        (on a GPU: the usual model)
python benchmarks/bench_bert.py --speed              (on a GPU: BERT-base, rows of 512 tokens, bfloat16)
python benchmarks/bench_bert.py --speed --tiny       (the same code on any machine, to see that it runs)

Speed: a training step is forward, backward and AdamW (fused), under autocast to bfloat16, on the same rows. Both get
full rows, so transformers pads nothing either; its model is compiled whole, ours layer by layer. Rounds alternate
between the two, and the medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
SMALL = BertConfig(width=64, layers=2, heads=4, context=64), 1024, 0.015  # and the vocabulary and the learning rate
USUAL = BertConfig(), 4096, 0.004
ROUNDS, STEPS = 5, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="a small shape, for machines without a GPU")
    parser.add_argument("--steps", type=int, default=500, help="of each model of the ablation")
    parser.add_argument("--usual", action="store_true", help="ablation: 4 layers of width 128, rows of 128 tokens")
    parser.add_argument("--tasks", nargs="*", help="ablation: the row of these tasks alone; without any, of none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", default="shakespeare")
    parser.add_argument("--rows", type=int, default=64, help="of a step of the speed test")
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    if args.ablation:
        rows = ((), *ABLATED) if args.tasks is None else (tuple(args.tasks),)
        ablation(args.corpus, args.steps, rows, USUAL if args.usual else SMALL, args.seed)
    if args.speed:
        speed(args.corpus, args.tiny, args.rows)


# ---------------------------------------------------------------------- which task is good for what


def ablation(
    corpus: str,
    steps: int,
    rows: Sequence[tuple[Any, ...]],
    setting: tuple[BertConfig, int, float],
    seed: int,
) -> None:
    """The same model, text, steps and seed; only the tasks differ."""
    model, vocab_size, rate = setting
    print(
        f"{corpus}, {steps} steps of {TASK.loop.batch_size} rows of {model.context} tokens, "
        f"{model.layers} layers of width "
        f"{model.width}, {vocab_size:,} tokens known, rate {rate}, seed {seed}"
    )
    print(
        f"{'tasks':<30}{'words':>8}{'perpl.':>9}{'next':>8}{'order':>8}{'repl.':>8}{'polarity':>10}{'order probe':>13}"
    )
    for tasks in rows:
        config = replace(model, tasks=tasks or ("words",))
        rates = {"learning_rate": rate} if tasks else {"learning_rate": 1e-9, "muon_learning_rate": 1e-9}
        how = {"vocab_size": vocab_size, "budget": f"{steps if tasks else 1}steps", "evaluations": 4, **rates}
        recipe = TASK.recipe("bert", asdict(config) | how, seed)
        encoder = train_run(TASK, recipe, [corpus], quiet=True)
        told = encoder.record["result"]
        shown = [
            f"{told[key]:.1%}" if key in told else ""
            for key in ("words_accuracy", "next_accuracy", "order_accuracy", "replaced_balanced")
        ]
        probes = polarity_probe(encoder), order_probe(encoder, corpus)
        name = " ".join(tasks) or "none: the first weights"
        print(
            f"{name:<30}{shown[0]:>8}{told['words_perplexity']:>9.0f}{shown[1]:>8}{shown[2]:>8}{shown[3]:>8}"
            f"{probes[0]:>10.1%}{probes[1]:>13.1%}",
            flush=True,
        )


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
    return _probed(vectors_ND, label_N, train)


def order_probe(encoder: Encoder, corpus: str, train: int = 1200) -> float:
    """Accuracy of a logistic regression on the frozen vectors of two neighbours of the held-out part: in order?"""
    sentences = [one for _, text in documents(open_corpus(corpus).valid) for one in split_sentences(text)]
    vectors_ND = encoder.encode(sentences).numpy()
    swapped = np.random.default_rng(0).random(len(sentences) // 2) < 0.5
    pairs = [
        np.concatenate([vectors_ND[2 * i + s], vectors_ND[2 * i + 1 - s]]) for i, s in enumerate(swapped.astype(int))
    ]
    order = np.random.default_rng(1).permutation(len(pairs))
    return _probed(np.stack(pairs)[order], swapped[order], min(train, 2 * len(pairs) // 3))


def _probed(x_ND: Any, y_N: Any, train: int) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fitted = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000)).fit(x_ND[:train], y_N[:train])
    return float(fitted.score(x_ND[train:], y_N[train:]))


# ---------------------------------------------------------------------- speed


def speed(corpus: str, tiny: bool, rows: int) -> None:
    """Tokens a second of training steps, ours and transformers'."""
    import transformers

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape = (64, 2, 4, 256, 64) if tiny else (768, 12, 12, 3072, 512)
    width, layers, heads, inner, length = shape
    rows, vocab = (4, 2048) if tiny else (rows, 30522)
    batch = rows_of(corpus, rows, length).to(device)
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
        told: Tensor = theirs(
            batch.x_BT, token_type_ids=batch.segment_BT, labels=labels_BT, next_sentence_label=answer_B
        ).loss
        return told

    ours = ours.to(device)
    Precision(LoopConfig(compile="parts"), ours, device, fixed_shapes=True).compiled(ours, ours)
    steps = {
        "octavo": stepper(ours, our_loss, device),
        "transformers + compile": stepper(theirs, their_loss, device),
    }
    took = timed(steps, device)
    pairs = len(batch.first_P) / rows
    print(f"{rows} rows of {length} tokens, {pairs:.1f} pairs a row, {batch.waste:.2%} padding, {device}")
    rates = {name: rows * length * STEPS / statistics.median(seconds) for name, seconds in took.items()}
    for name, seconds in took.items():
        spread = f"{rows * length * STEPS / max(seconds):,.0f} to {rows * length * STEPS / min(seconds):,.0f}"
        print(f"{name:<24}{rates[name]:>12,.0f} tokens/s ({spread})")
    print(f"ratio {rates['octavo'] / rates['transformers + compile']:.2f}")


def rows_of(corpus: str, rows: int, length: int) -> Any:
    """One batch of real text; the model's vocabulary may be larger than the text's."""
    train = open_corpus(corpus).train
    tokenizer = WordPiece.learn(train.chunks(), WordPieceSettings(2048))
    return Masked(Sentences.of(documents(train), tokenizer), tokenizer, ("words", "next"), rows, length, 0).at(0)


def stepper(model: Any, loss: Callable[[], Tensor], device: torch.device) -> Callable[[], None]:
    """One training step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            paid = loss()
        paid.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def timed(steps: dict[str, Callable[[], None]], device: torch.device) -> dict[str, list[float]]:
    """Seconds of STEPS steps, round by round, each in turn; the first steps, which compile, are not counted."""
    took: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(3):
            step()
    for _ in range(ROUNDS):
        for name, step in steps.items():
            _wait(device)
            began = time.perf_counter()
            for _ in range(STEPS):
                step()
            _wait(device)
            took[name].append(time.perf_counter() - began)
    return took


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
