"""BERT as Hugging Face writes it, both ways: config.json, model.safetensors and tokenizer.json.

The encoder stands under `bert.` or under nothing, the heads under `cls.`. Nothing in a folder is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.exchange.formats import CONFIG, is_huggingface, read_object
from octavo.exchange.huggingface_export import check_target, write_folder
from octavo.exchange.huggingface_import import TOKENIZER, TOKENIZER_CONFIG, read_weights
from octavo.exchange.shapes import Names, Settings
from octavo.models.bert import Bert, BertConfig
from octavo.models.loading import filled
from octavo.text.tokenizers.wordpiece import END, FIRST, MASK, PAD, UNKNOWN, WordPiece

SETTINGS = Settings(
    {"vocab_size": ("vocab", 30522), "hidden_size": ("width", 768), "num_hidden_layers": ("layers", 12),
     "num_attention_heads": ("heads", 12), "intermediate_size": ("feed_forward_width", 3072),
     "hidden_act": ("feed_forward", "gelu"), "hidden_dropout_prob": ("dropout", 0.1),
     "max_position_embeddings": ("context", 512), "type_vocab_size": ("segments", 2),
     "layer_norm_eps": ("norm_eps", 1e-12), "tie_word_embeddings": ("tied", True)},
    {"position_embedding_type": ("absolute",), "is_decoder": (False,), "add_cross_attention": (False,)},
)  # fmt: skip
NAMES = Names(
    owner="BERT",
    prefix="bert.",
    layer="encoder.layer",
    top={
        "embeddings.word_embeddings.weight": "embedding_VD", "embeddings.position_embeddings.weight": "positions_CD",
        "embeddings.token_type_embeddings.weight": "segments_CD", "embeddings.LayerNorm.weight": "norm.weight_D",
        "embeddings.LayerNorm.bias": "norm.bias_D",
    },
    inner={
        "attention.self.query.weight": "attention.query_DD", "attention.self.query.bias": "attention.query_bias",
        "attention.self.key.weight": "attention.key_ED", "attention.self.key.bias": "attention.key_bias",
        "attention.self.value.weight": "attention.value_ED", "attention.self.value.bias": "attention.value_bias",
        "attention.output.dense.weight": "attention.out_DD", "attention.output.dense.bias": "attention.out_bias",
        "attention.output.LayerNorm.weight": "norm1.weight_D", "attention.output.LayerNorm.bias": "norm1.bias_D",
        "intermediate.dense.weight": "feed_forward.up_FD", "intermediate.dense.bias": "feed_forward.up_bias_F",
        "output.dense.weight": "feed_forward.down_DF", "output.dense.bias": "feed_forward.down_bias_D",
        "output.LayerNorm.weight": "norm2.weight_D", "output.LayerNorm.bias": "norm2.bias_D",
    },
    ignored=r"embeddings\.position_ids",  # which old files hold
)  # fmt: skip
POOLER = {"pooler.dense.weight": "pooler.weight_DD", "pooler.dense.bias": "pooler.bias_D"}
BIAS = "cls.predictions.bias"
WORDS = {
    "cls.predictions.transform.dense.weight": "words.dense.weight_DD",
    "cls.predictions.transform.dense.bias": "words.dense.bias_D",
    "cls.predictions.transform.LayerNorm.weight": "words.norm.weight_D",
    "cls.predictions.transform.LayerNorm.bias": "words.norm.bias_D",
    BIAS: "words.bias_V",
}
NEXT = {"cls.seq_relationship.weight": "next.weight_CD", "cls.seq_relationship.bias": "next.bias_C"}
OUTPUT, OUTPUT_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # names of the first releases
OLD_NAME = re.compile("|".join(map(re.escape, OLD)))


def is_bert(folder: str | Path) -> bool:
    """Whether a folder is one of Hugging Face's with a BERT in it."""
    folder = Path(folder)
    return is_huggingface(folder) and read_object(folder / CONFIG).get("model_type") == "bert"


def read_bert(folder: str | Path) -> tuple[Bert, WordPiece, dict[str, Any]]:
    """The BERT and the tokenizer in a folder, and the beginning of a run's record."""
    folder = Path(folder)
    values = read_object(folder / CONFIG)
    try:
        if values.get("model_type") != "bert":
            raise UserError(f"this must be a BERT: {CONFIG} says model_type={values.get('model_type')!r}")
        settings = SETTINGS.read(values)
        vocab = settings.pop("vocab")
        config, ours = to_ours(read_weights(folder), BertConfig(**settings, pooler=False, tasks=()))
        model = filled(lambda: Bert(config, vocab), ours, config.layers)
        if not (folder / TOKENIZER).is_file():
            raise UserError(f"there is no {TOKENIZER}; put the one that the model was trained with into the folder")
        tokenizer = WordPiece(read_object(folder / TOKENIZER))
        if tokenizer.vocab > vocab:
            raise UserError(f"every token must have an embedding: {tokenizer.vocab:,} tokens, vocab_size={vocab:,}")
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    record = {"corpus": {"name": folder.absolute().name}, "imported": {"file": str(folder), "format": "hf"}}
    return model, tokenizer, record


def to_ours(theirs: Mapping[str, Tensor], config: BertConfig) -> tuple[BertConfig, dict[str, Tensor]]:
    """Their tensors as ours, and the config with the pooler and the heads that are among them."""
    left = {OLD_NAME.sub(lambda found: OLD[found[0]], name): tensor for name, tensor in theirs.items()}
    pooled = {name: ours for theirs, ours in POOLER.items() for name in (theirs, "bert." + theirs) if name in left}
    ours = {mine: left.pop(name) for name, mine in pooled.items()}
    _one_bias(left, config.tied)
    tasks: list[Any] = []
    for task, names in (("words", WORDS), ("next", NEXT)):
        if set(names) <= set(left):
            tasks.append(task)
            ours |= {mine: left.pop(name) for name, mine in names.items()}
    output = left.pop(OUTPUT, None)
    ours |= NAMES.to_ours(left, config.layers, tied=True)
    if "words" in tasks:
        same = output is None or torch.equal(output, ours["embedding_VD"])
        config = replace(config, tied=same)
        ours |= {} if same or output is None else {"output_VD": output}
    return replace(config, pooler="pooler.weight_DD" in ours, tasks=tuple(tasks)), ours


def _one_bias(tensors: dict[str, Tensor], tied: bool) -> None:
    """Leave of the two biases of the words the one that logits are computed with.

    transformers adds `decoder.bias`. Tied, the other is the same tensor; untied, the other is never trained.
    """
    decoder = tensors.pop(OUTPUT_BIAS, None)
    if decoder is None:
        return
    if tied and BIAS in tensors and not torch.equal(decoder, tensors[BIAS]):
        raise UserError(
            f"tied biases of the words are the same, and the file has two that differ, {BIAS} and {OUTPUT_BIAS}; "
            f"set tie_word_embeddings in {CONFIG} to false, and the second is taken"
        )
    tensors[BIAS] = decoder


def write_bert(model: Bert, tokenizer: WordPiece, folder: str | Path) -> list[str]:
    """Write a folder that transformers loads, in place of one that octavo wrote before; returns what is to be known."""
    check_target(Path(folder))
    config, tasks = model.config, model.config.tasks
    kind = "BertForMaskedLM" if "words" in tasks else "BertModel"
    kind = "BertForPreTraining" if "words" in tasks and "next" in tasks else kind
    theirs = to_theirs({name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}, config)
    write_folder(Path(folder), theirs, {
        CONFIG: SETTINGS.write(config, config.parts, model.vocab) | {
            "model_type": "bert", "architectures": [kind], "attention_probs_dropout_prob": config.dropout,
            "pad_token_id": tokenizer.pad, "dtype": "float32",
        },
        TOKENIZER: framed(tokenizer),
        TOKENIZER_CONFIG: {
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config.context, "pad_token": PAD,
            "unk_token": UNKNOWN, "cls_token": FIRST, "sep_token": END, "mask_token": MASK,
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        },
    })  # fmt: skip
    left_out = [task for task in tasks if task not in ("words", "next") or (task == "next" and "words" not in tasks)]
    return [f"transformers has no such head, so it is left out: {', '.join(left_out)}"] if left_out else []


def to_theirs(ours: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    """Our tensors as theirs; what they have no head for is left out."""
    headed = "words" in config.tasks
    names = {mine: theirs if headed else theirs.removeprefix("bert.")
             for mine, theirs in NAMES.to_theirs(config.layers, tied=True).items()}  # fmt: skip
    if config.pooler:
        names |= {mine: ("bert." if headed else "") + theirs for theirs, mine in POOLER.items()}
    if headed:
        names |= {mine: theirs for theirs, mine in WORDS.items()}
        names |= {} if config.tied else {"output_VD": OUTPUT}
        names |= {mine: theirs for theirs, mine in NEXT.items()} if "next" in config.tasks else {}
    found = {theirs: ours[mine].contiguous() for mine, theirs in names.items()}
    return found | ({OUTPUT_BIAS: ours["words.bias_V"].clone()} if headed else {})


def framed(tokenizer: WordPiece) -> dict[str, Any]:
    """The tokenizer.json, with the special tokens put around a text and between two."""
    first, end = [FIRST, tokenizer.first], [END, tokenizer.end]
    return tokenizer.huggingface_json() | {"post_processor": {"type": "BertProcessing", "cls": first, "sep": end}}
