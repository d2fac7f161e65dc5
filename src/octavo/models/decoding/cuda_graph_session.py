"""Decoding one sequence on a GPU: a fixed row of kernels, captured once and replayed for every token.

H heads, G heads of keys and values, K size of a head, D width, E = (H + 2 G) K, F inner width, S slots, V vocabulary,
P parts that the keys are split into, M blocks of the vocabulary, N tokens chosen.

The token and its slot are in the GPU's memory and move on inside the graph, so a step is one launch and needs no
answer. Sums, scores and the stream are float32 whatever the weights are; so are the logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.models.decoding import triton_kernels as kernels
from octavo.models.decoding.kv_cache import KVCache, KVSession, added_positions, rotary_factors

if TYPE_CHECKING:
    from octavo.models.gpt import GPT
    from octavo.models.parts.feed_forward import Norm

PROGRAMS = 264  # two for each of an H200's multiprocessors: fewer leave some idle, many more only repeat the norm
TILE = 1 << 14  # weights that a program holds in registers at once, at most
KEYS, PARTS = 128, 16  # keys that a program reads in one go; parts that keys are split into, at most
CHOSEN = 1024  # tokens that are chosen before the first of them is read back, at most


class Launch(NamedTuple):
    """A kernel with everything it is called with."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    tensors: tuple[Any, ...]
    constants: dict[str, Any]

    def __call__(self) -> None:
        self.kernel[self.grid](*self.tensors, **self.constants)


def served(model: GPT) -> bool:
    """Whether the kernels know the model's parts and precision."""
    config = model.config
    return (
        config.attention in ("full", "local")
        and not config.experts
        and config.positions != "alibi"
        and model.embedding_VD.dtype in (torch.float32, torch.bfloat16, torch.float16)
    )


class GraphSession(KVSession):
    """A session of a transformer with full or local attention, for one sequence.

    `overlap` lets a kernel start while the one before it ends (programmatic dependent launch): None, where the GPU
    can. `programs` is how many a product is divided into, at least. On a CPU, where Triton's interpreter runs the
    kernels, nothing is captured.
    """

    def __init__(self, model: GPT, state: Any, overlap: bool | None = None, programs: int = PROGRAMS) -> None:
        if not served(model):
            raise ValueError(
                "the kernels serve full and local attention without alibi and experts; take a CachedSession"
            )
        if len(state[0]) != 1:
            raise ValueError(f"the kernels decode one sequence: the state has {len(state[0])}; take a CachedSession")
        super().__init__(model)
        device = model.embedding_VD.device
        self.captures = device.type == "cuda"
        if overlap is None:
            overlap = self.captures and torch.cuda.get_device_capability(device) >= (9, 0)
        self.overlap, self.programs = overlap, programs
        with torch.no_grad():
            self.weights = [_weights(block) for block in model.blocks]
            self.positions_CD = added_positions(model)
            self._open(KVCache(model, state))

    def _open(self, cache: KVCache) -> None:
        """Buffers of its own, at the cache's place; graphs are captured when they are first needed."""
        self.cache, config, like = cache, self.gpt.config, self.gpt.embedding_VD  # which the launches read
        H, G, K = config.heads, config.groups, config.head_size
        # Two goes a part: more parts would be over sooner, but every program of the next kernel must add them up.
        self.parts = min(PARTS, _up(-(-cache.seen // (2 * KEYS))))
        sizes = {
            "x": config.width, "qkv": (H + 2 * G) * K, "inner": config.inner, "logits": self.gpt.vocab,
            "sum": self.parts * H * K, "best": self.parts * H, "total": self.parts * H,
        }  # fmt: skip
        self.of = {name: torch.zeros(size, device=like.device) for name, size in sizes.items()}
        self.token_1, self.at_1, self.count_1 = (torch.zeros(1, dtype=torch.long, device=like.device) for _ in range(3))
        self.chosen_N = torch.zeros(CHOSEN, dtype=torch.long, device=like.device)
        self.rotations = rotary_factors(self.gpt, cache.base, cache.slots)
        self.graphs: dict[str, Any] = {}
        step = self.step_launches()
        self.rows = {"step": step, "greedy": step + self.choice_launches()}
        super()._open(cache)

    # ------------------------------------------------------------------ what a session can do

    @torch.no_grad()
    def step(self, x_B: Tensor) -> Tensor:
        """Absorb one token: logits_1V of the token after it, valid until the next step."""
        self.token_1.copy_(x_B)
        self._run("step")
        return self.of["logits"][None]

    def absorb(self, x_BT: Tensor) -> Tensor:
        """Token by token: the kernels know no other way."""
        return torch.stack([self.step(x_B).clone() for x_B in x_BT.unbind(1)], 1)

    @torch.no_grad()
    def greedy(self, x_B: Tensor, count: int) -> Tensor:
        """Process a token and continue with the most probable one: chosen_N, the last of which is not absorbed yet.

        The tokens come from the GPU in one piece; begin is never among them.
        """
        self.token_1.copy_(x_B)
        pieces = []
        for done in range(0, count, CHOSEN):
            self.count_1.zero_()
            piece = min(CHOSEN, count - done)
            for _ in range(piece):
                self._run("greedy")
            pieces.append(self.chosen_N[:piece].clone())
        chosen_N = torch.cat(pieces) if pieces else self.chosen_N[:0].clone()
        if bool((chosen_N >= self.gpt.vocab).any()):
            raise UserError(
                "a next token needs a probability above zero, and the logits are not numbers; train the model again"
            )
        return chosen_N

    def rewind(self, count: int) -> None:
        super().rewind(count)
        self.at_1.fill_(self.cache.end)

    # ------------------------------------------------------------------ a step is a row of kernels

    def _run(self, name: str) -> None:
        """All kernels of one token."""
        self._make_room()
        if self.captures:
            if name not in self.graphs:
                self.graphs[name] = self._captured(name)
            self.graphs[name].replay()
        else:
            for launch in self.rows[name]:
                launch()
        self.cache.added()

    def _captured(self, name: str) -> Any:
        """The row as a graph. It is run once before, to be compiled, which the token and the slot must survive."""
        before_values = [one.clone() for one in (self.token_1, self.at_1, self.count_1)]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for launch in self.rows[name]:
                launch()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch in self.rows[name]:
                launch()
        for one, before in zip((self.token_1, self.at_1, self.count_1), before_values, strict=True):
            one.copy_(before)
        return graph

    def _place(self) -> None:
        """What depends on where the slots are: the next one, and their positions."""
        self.at_1.fill_(self.cache.end)
        now = rotary_factors(self.gpt, self.cache.base, self.cache.slots)
        if now is not None and self.rotations is not None:
            self.rotations[0].copy_(now[0])
            self.rotations[1].copy_(now[1])

    def step_launches(self) -> list[Launch]:
        """From a token to logits."""
        model, of = self.gpt, self.of
        D = model.config.width
        placed = self.positions_CD is not None
        tensors = of["x"], self.token_1, self.at_1, self.cache.tokens_BS, model.embedding_VD.detach()
        constants = {"D": D, "D_UP": _up(D), "PLACED": placed}
        row = [
            self._launch("embed", kernels.embed, (1,), (*tensors, self.positions_CD if placed else of["x"]), constants)
        ]
        for weights, kv in zip(self.weights, self.cache.kv_L2BGSK, strict=True):
            row.append(self._product("qkv", weights["qkv"], of["qkv"]))
            row.append(self._attention(kv))
            row.append(self._added("out", weights["out"], "attention"))
            row.append(self._product("up", weights["up"], of["inner"]))
            row.append(self._added("down", weights["down"], "inner"))
        logits = Product(model.output_weight.detach(), norm=model.norm)
        return [*row, self._product("logits", logits, of["logits"], last=True)]

    def choice_launches(self) -> list[Launch]:
        """From logits to the most probable token."""
        V, block = self.gpt.vocab, 1024
        M = -(-V // block)
        best_M = torch.zeros(M, device=self.at_1.device)
        where_M = torch.zeros(M, dtype=torch.int32, device=self.at_1.device)
        logits = self.of["logits"]
        choice = self.token_1, self.chosen_N, self.count_1, best_M, where_M
        return [
            self._launch("choose", kernels.choose_in_blocks, (M,), (best_M, where_M, logits, self.gpt.begin),
                         {"V": V, "BLOCK": block}),
            self._launch("choose", kernels.choose, (1,), choice, {"V": V, "M": M, "M_UP": _up(M)}),
        ]  # fmt: skip

    def _launch(
        self, name: str, kernel: Any, grid: tuple[int, ...], tensors: tuple[Any, ...], constants: dict[str, Any]
    ) -> Launch:
        # The first of a step has nothing before it that could still be running.
        options = {"launch_pdl": True} if self.overlap and name != "embed" else {}
        return Launch(name, kernel, grid, tensors, {**constants, "OVERLAP": self.overlap, **options})

    def _product(self, name: str, product: Product, y_N: Tensor, last: bool = False) -> Launch:
        """y = f(W norm(x) + b)."""
        norm, weight, gated = product.norm, product.weight_NI, product.gate_NI is not None
        assert norm is not None
        tensors = (
            y_N, self.of["x"], weight, _or(product.bias_N, y_N), _or(product.gate_NI, weight),
            norm.weight_D.detach(), _or(norm.bias_D, norm.weight_D).detach(), self.at_1, norm.eps,
        )  # fmt: skip
        constants = {
            **_tiles(weight, self.programs, 2 if gated else 1), "NORM": norm.kind,
            "NORM_BIASED": norm.bias_D is not None, "BIASED": product.bias_N is not None,
            "ACTIVATION": product.activation, "GATED": gated, "LAST": last,
        }  # fmt: skip
        return self._launch(name, kernels.normed_product, _programs(weight, constants), tensors, constants)

    def _added(self, name: str, product: Product, given: str) -> Launch:
        """x + W y + b, in place; y may still be in the parts that attention left."""
        config, of, weight = self.gpt.config, self.of, product.weight_NI
        bias_N = _or(product.bias_N, of["x"])
        constants = {**_tiles(weight, self.programs), "BIASED": product.bias_N is not None}
        grid = _programs(weight, constants)
        if given != "attention":
            return self._launch(name, kernels.added_product, grid, (of["x"], of[given], weight, bias_N), constants)
        constants |= {"HEADS": config.heads, "SIZE": config.head_size, "PARTS": self.parts}
        constants |= {"HEADS_UP": _up(config.heads), "SIZE_UP": _up(config.head_size)}
        tensors = of["x"], of["sum"], of["best"], of["total"], weight, bias_N
        return self._launch(name, kernels.added_attention, grid, tensors, constants)

    def _attention(self, kv_21GSK: Tensor) -> Launch:
        """One query against the keys of one layer."""
        config, of, K = self.gpt.config, self.of, self.gpt.config.head_size
        cos_SK, sin_SK = self.rotations or (of["x"], of["x"])
        tensors = (
            of["sum"], of["best"], of["total"], of["qkv"], kv_21GSK[0], kv_21GSK[1], cos_SK, sin_SK, self.at_1,
            config.norm_eps, K**-0.5,
        )  # fmt: skip
        constants = {
            "H": config.heads, "G": config.groups, "K": K, "K_UP": _up(K), "SLOTS": self.cache.slots,
            "SEEN": self.cache.seen, "PARTS": self.parts, "BLOCK": min(KEYS, _up(self.cache.seen)),
            "BLOCKS": -(-self.cache.seen // (self.parts * KEYS)), "NORMED": config.qk_norm,
            "TURNED": self.rotations is not None, "num_warps": 4,
        }  # fmt: skip
        return self._launch("attention", kernels.attend_cached, (config.heads, self.parts), tensors, constants)


class Product(NamedTuple):
    """A matrix and what stands around it."""

    weight_NI: Tensor
    bias_N: Tensor | None = None
    norm: Norm | None = None
    gate_NI: Tensor | None = None
    activation: str = "none"


def _weights(block: Any) -> dict[str, Product]:
    """The four products of a block."""
    attention, mlp, kind = block.attention, block.feed_forward, block.attention.config.feed_forward
    qkv_ED, bias_E = attention.joined()
    gated = kind == "gated"
    return {
        "qkv": Product(qkv_ED, bias_E, block.norm1),
        "out": Product(attention.out_DD.detach(), attention.out_bias),
        "up": Product(mlp.up_FD.detach(), norm=block.norm2, gate_NI=mlp.gate_FD.detach()) if gated
        else Product(mlp.up_FD.detach(), mlp.up_bias_F, block.norm2, activation=kind),
        "down": Product(mlp.down_DF.detach(), None if gated else mlp.down_bias_D),
    }  # fmt: skip


def _tiles(weight_NI: Tensor, programs: int, matrices: int = 1) -> dict[str, int]:
    """How many whole rows a program takes, and how many warps it has: by the shape, so nothing is searched for."""
    rows, inner = weight_NI.shape
    block = 1
    while block < 16 and rows >= 2 * block * programs and 2 * block * _up(inner) * matrices <= TILE:
        block *= 2
    warps = min(16, max(2, block * _up(inner) * matrices // 2048))
    return {"ROWS": rows, "INNER": inner, "INNER_UP": _up(inner), "BLOCK": block, "num_warps": warps}


def _programs(weight_NI: Tensor, constants: dict[str, Any]) -> tuple[int]:
    return (-(-len(weight_NI) // int(constants["BLOCK"])),)


def _up(size: int) -> int:
    """The power of two that is not below the size."""
    return 1 << (size - 1).bit_length()


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """A kernel wants some address even for what it will not read."""
    return (other if tensor is None else tensor).detach()
