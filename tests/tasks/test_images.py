"""Vision transformers compute what PyTorch's do, patterns are what they say, and a run is kept and taken up."""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import octavo
from flop_counter import flop_counter
from image_files import idx_folder, stripes, write_idx
from octavo.core import seeded_generator
from octavo.costs import Shape, cost_of_config
from octavo.datasets.images import Images, held_out, open_images, shifted
from octavo.errors import Stopped, UserError
from octavo.models.vit import Channels, DaVit, DaVitConfig, Vit, VitConfig, side_of_patch
from octavo.ops import channel_attention as channel
from octavo.ops.attention import FULL, Axial, Neighbourhood, attend
from octavo.ops.attention import image_patterns as grid
from octavo.ops.patches import cut, embed, rotary_2d, sinusoids_2d
from octavo.ops.positions import rotate
from octavo.tasks import images as task
from octavo.tasks.image_attention import attend_to_image, rollout
from octavo.tasks.images import TASK, ImageBatches, ImageRun, Scaling, classify, evaluate_run
from octavo.tasks.images_page import lens_page
from octavo.tasks.run import load as load_run
from octavo.tasks.task import Recipe
from octavo.tasks.training_run import resume_run, train_run
from octavo.training.stage import RowBatch

SMALL = {"width": 16, "layers": 2, "heads": 2, "dropout": 0.0}
PATTERNS = ("full", "local", "global", "axial")
QUICK: dict[str, Any] = {"budget": "6steps", "batch_size": 8, "evaluations": 2, "precision": "float32"}


def model_of(kind: type[Vit] = Vit, config: VitConfig | None = None, size: int = 8, channels: int = 1) -> Vit:
    """A small one in double precision, with weights everywhere."""
    config = config or VitConfig(**SMALL)
    model = kind(config, size, size, channels, 3).double()
    model.initialise(seeded_generator(0))
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=seeded_generator(1)).double() * 0.3)
    return model.eval()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of PNG files, a folder for each class."""
    x_NHW, y_N = stripes()
    for n, (x, y) in enumerate(zip(x_NHW, y_N, strict=True)):
        path = tmp_path / "pictures" / ("lying", "standing")[y] / f"{n:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x).save(path)
    return tmp_path / "pictures"


def recipe(name: str = "vit", **changes: Any) -> Recipe:
    return TASK.recipe(name, {**SMALL, **QUICK, **changes}, seed=3, device="cpu")


def train_images(made: Recipe, pictures: Path, out: Path | None = None) -> ImageRun:
    run: ImageRun = train_run(TASK, made, [str(pictures)], out, quiet=True)
    return run


# ---------------------------------------------------------------------- what is computed


@pytest.mark.parametrize(("patch", "channels"), [(1, 1), (2, 3), (4, 1)])
def test_a_patch_embedding_is_a_convolution_that_steps_by_its_own_width(patch: int, channels: int) -> None:
    conv = nn.Conv2d(channels, 5, patch, stride=patch).double()
    x_BCHW = torch.randn(2, channels, 8, 12, generator=seeded_generator(0)).double()
    theirs_BND = conv(x_BCHW).flatten(2).mT
    torch.testing.assert_close(embed(x_BCHW, conv.weight, conv.bias), theirs_BND, atol=1e-12, rtol=0)


def test_patches_are_cut_in_reading_order() -> None:
    x_1CHW = torch.arange(16).view(1, 1, 4, 4)
    assert cut(x_1CHW, 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]


def test_a_block_is_that_of_pytorch() -> None:
    config = VitConfig(
        width=16, layers=1, heads=4, feed_forward="gelu-exact", norm="layer", bias=True, qk_norm=False, dropout=0.0
    )
    block: Any = model_of(config=config).blocks[0]
    theirs = nn.TransformerEncoderLayer(16, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True).double().eval()
    attention, mlp = block.attention, block.feed_forward
    theirs.load_state_dict({
        "self_attn.in_proj_weight": torch.cat([attention.query_DD, attention.key_ED, attention.value_ED]),
        "self_attn.in_proj_bias": torch.cat([attention.query_bias, attention.key_bias, attention.value_bias]),
        "self_attn.out_proj.weight": attention.out_DD, "self_attn.out_proj.bias": attention.out_bias,
        "linear1.weight": mlp.up_FD, "linear1.bias": mlp.up_bias_F,
        "linear2.weight": mlp.down_DF, "linear2.bias": mlp.down_bias_D,
        "norm1.weight": block.norm1.weight_D, "norm1.bias": block.norm1.bias_D,
        "norm2.weight": block.norm2.weight_D, "norm2.bias": block.norm2.bias_D,
    })  # fmt: skip
    x_BTD = torch.randn(2, 9, 16, generator=seeded_generator(0)).double()
    torch.testing.assert_close(block(x_BTD), theirs(x_BTD), atol=1e-10, rtol=0)


GRIDS: list[Axial | Neighbourhood] = [
    Axial(5, 7), Axial(5, 7, 2), Axial(1, 4), Neighbourhood(5, 7, 1), Neighbourhood(5, 7, 2, 1),
    Neighbourhood(3, 7, 4, 1), Neighbourhood(4, 4, 0), Neighbourhood(1, 1, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("pattern", GRIDS, ids=str)
def test_attention_by_rows_and_columns_is_masked_attention_in_value_and_gradient(pattern: Any) -> None:
    S = pattern.height * pattern.width + pattern.globals
    inputs = [torch.randn(2, 3, S, 4, generator=seeded_generator(i)).double().requires_grad_() for i in range(3)]
    weight = torch.randn(2, 3, S, 4, generator=seeded_generator(9)).double()
    results = []
    for path in ("grid", "masked"):
        y_BHSK = grid.attend_patches(*inputs, pattern, path)  # type: ignore[arg-type]
        results.append([y_BHSK, *torch.autograd.grad((y_BHSK * weight).sum(), inputs)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


@pytest.mark.parametrize("pattern", GRIDS, ids=str)
def test_a_pattern_has_the_pairs_of_its_formula(pattern: Any) -> None:
    S = pattern.height * pattern.width + pattern.globals
    assert grid.pairs(pattern) == pattern.pairs(S, S) == int(pattern.mask(S, S).sum())


@pytest.mark.parametrize("pattern", [Axial(16, 16, 1), Neighbourhood(16, 16, 1), Neighbourhood(16, 20, 2, 1)], ids=str)
def test_the_grid_path_computes_the_pairs_it_says(pattern: Any) -> None:
    S, K = pattern.height * pattern.width + pattern.globals, 8
    q, k, v = (torch.randn(2, 3, S, K, generator=seeded_generator(i)) for i in range(3))
    with flop_counter() as counted:
        grid.attend_patches(q, k, v, pattern, "grid")
    assert counted.get_total_flops() == 2 * 3 * 4 * K * grid.computed(pattern)
    assert grid.is_faster(pattern)


def test_a_small_grid_is_masked_and_a_large_one_is_cut() -> None:
    assert [grid.is_faster(Axial(n, n)) for n in (4, 7, 16, 32)] == [False, False, True, True]
    assert not grid.is_faster(FULL)
    assert not grid.is_faster(Neighbourhood(16, 16, 8))  # nearly all rows are seen


def seen_from(model: Vit, patch: int) -> list[int]:
    """The patches whose pixels can change what the first layer makes of a patch."""
    x_1CHW = torch.randn(1, 1, 8, 8, generator=seeded_generator(4)).double().requires_grad_()
    x_1TD = model.blocks[0](model._embed(x_1CHW))
    (slope_1CHW,) = torch.autograd.grad(x_1TD[0, model.config.tokens + patch].sum(), x_1CHW)
    return cut(slope_1CHW, 2)[0].abs().sum(1).gt(1e-9).nonzero().flatten().tolist()


def test_a_patch_sees_what_the_pattern_says() -> None:
    by_hand = {"full": list(range(16)), "local": [0, 1, 2, 4, 5, 6, 8, 9, 10], "axial": [1, 4, 5, 6, 7, 9, 13]}
    for pattern, seen in by_hand.items():
        config = VitConfig(**SMALL, attention=pattern)  # type: ignore[arg-type]
        assert seen_from(model_of(config=config), 5) == seen


def test_a_corner_has_fewer_neighbours() -> None:
    assert seen_from(model_of(config=VitConfig(**SMALL, attention="local")), 0) == [0, 1, 4, 5]


def test_a_global_token_sees_all_and_carries_it_to_everyone_in_two_layers() -> None:
    far = torch.zeros(1, 1, 8, 8).double()
    far[0, 0, 7, 7] = 5.0
    for pattern, arrives in (("local", False), ("global", True)):
        model = model_of(config=VitConfig(**SMALL, attention=pattern))  # type: ignore[arg-type]
        change = (model.read(far) - model.read(torch.zeros_like(far)))[0, model.config.tokens]
        assert bool(change.abs().max() > 1e-9) is arrives


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_mean_is_over_the_patches_and_leaves_a_global_token_out(pattern: Any) -> None:
    model = model_of(config=VitConfig(**SMALL, attention=pattern, pool="mean", patch=2))
    x_BCHW = torch.randn(2, 1, 8, 8, generator=seeded_generator(3)).double()
    h_BTD = model.norm(model.read(x_BCHW))
    patches = 16  # of 2 x 2 pixels
    assert h_BTD.shape[1] == patches + (pattern == "global")
    torch.testing.assert_close(model.encode(x_BCHW), h_BTD[:, -patches:].sum(1) / patches, rtol=1e-12, atol=1e-12)


def test_without_positions_the_order_of_the_patches_does_not_matter() -> None:
    x_BCHW = torch.randn(2, 1, 8, 8, generator=seeded_generator(0)).double()
    moved_BCHW = x_BCHW.unflatten(2, (4, 2)).flip(2).flatten(2, 3)  # rows of patches from the bottom up
    for positions, same in (("none", True), ("learned", False), ("sinusoidal", False), ("rotary", False)):
        for kind, config in ((Vit, VitConfig), (DaVit, DaVitConfig)):
            made = config(**SMALL, positions=positions, attention="full")  # type: ignore[arg-type]
            model = model_of(kind, made)
            assert torch.allclose(model(x_BCHW), model(moved_BCHW), atol=1e-10) is same


def test_rotary_scores_depend_on_rows_and_columns_between_alone() -> None:
    angles_NK = rotary_2d(4, 5, 8, dtype=torch.float64)
    q_K, k_K = (torch.randn(8, generator=seeded_generator(i)).double() for i in (1, 2))
    q_NK, k_NK = (rotate(x.expand(20, -1), angles_NK) for x in (q_K, k_K))
    scores = (q_NK @ k_NK.mT).view(4, 5, 4, 5)
    torch.testing.assert_close(scores[0, 0, 2, 3], scores[1, 1, 3, 4])
    torch.testing.assert_close(scores[2, 4, 1, 1], scores[3, 3, 2, 0])
    assert not torch.isclose(scores[0, 0, 0, 1], scores[0, 0, 1, 0])


def test_sinusoids_tell_every_patch_apart_by_its_row_and_column() -> None:
    p_ND = sinusoids_2d(3, 4, 16)
    assert len(p_ND.unique(dim=0)) == 12
    torch.testing.assert_close(p_ND[0, :8], p_ND[3, :8])  # one row
    torch.testing.assert_close(p_ND[0, 8:], p_ND[4, 8:])  # one column


def test_davit_alternates_and_channel_attention_is_attention_with_the_roles_exchanged() -> None:
    model = model_of(DaVit, DaVitConfig(**(SMALL | {"layers": 4})))
    assert [isinstance(block.attention, Channels) for block in model.blocks] == [False, True, False, True]
    q, k, v = (torch.randn(2, 2, 9, 8, generator=seeded_generator(i)).double() for i in range(3))
    dual = attend(q.mT, k.mT, v.mT, FULL, path="plain").mT  # a channel is a token, its nine values are its vector
    torch.testing.assert_close(channel.attend_channels(q, k, v), dual, atol=1e-12, rtol=0)


def test_channel_attention_sees_all_of_the_image_where_local_patches_do_not() -> None:
    far = torch.zeros(1, 1, 8, 8).double()
    far[0, 0, 7, 7] = 5.0
    for kind, config, arrives in ((Vit, VitConfig, False), (DaVit, DaVitConfig, True)):
        model = model_of(kind, config(**SMALL, attention="local"))
        change = (model.read(far) - model.read(torch.zeros_like(far)))[0, 0]
        assert bool(change.abs().max() > 1e-9) is arrives


def test_images_of_a_batch_do_not_touch_each_other() -> None:
    x_BCHW = torch.randn(3, 1, 8, 8, generator=seeded_generator(0)).double()
    for kind, config in ((Vit, VitConfig(**SMALL, pool="token")), (DaVit, DaVitConfig(**SMALL))):
        model = model_of(kind, config)
        torch.testing.assert_close(model(x_BCHW)[1:2], model(x_BCHW[1:2]))


def test_the_side_of_a_patch_divides_the_image() -> None:
    assert [side_of_patch(0, n, n) for n in (8, 28, 32, 64, 7)] == [2, 4, 4, 8, 7]
    with pytest.raises(UserError, match="try --patch 7 or --patch 14 or --patch 28"):
        side_of_patch(5, 28, 28)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"heads": 5}, "heads must divide width"),
        ({"attention": "sparse"}, "attention must be one of"),
        ({"attention": "local", "pool": "token"}, "try --attention global"),
        ({"positions": "rotary", "width": 12, "heads": 2}, "multiple of 4"),
        ({"patch": -1}, "patch must be at least 0"),
        ({"layers": 0}, "layers"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        VitConfig(**settings)


# ---------------------------------------------------------------------- what it costs


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("kind", "config"), [(Vit, VitConfig), (DaVit, DaVitConfig)])
@pytest.mark.parametrize("side", [8, 64])
def test_the_cost_by_formula_is_what_pytorch_counts(
    kind: type[Vit], config: type[VitConfig], pattern: Any, side: int
) -> None:
    made = config(**SMALL, attention=pattern, patch=4 if side == 64 else 2)
    model = kind(made, side, side, 1, 3)
    model.initialise(seeded_generator(0))
    with flop_counter() as counted:
        logits = model.eval()(torch.randn(2, 1, side, side, generator=seeded_generator(0)))
    with flop_counter() as back:
        logits.sum().backward()
    cost = cost_of_config("davit" if kind is DaVit else "vit", made, model.sizes, Shape(2))
    assert cost.parameters == sum(p.numel() for p in model.parameters())
    assert cost.total("forward") == counted.get_total_flops()
    assert cost.total("backward") == back.get_total_flops()
    assert cost.total("needed") <= cost.total("forward")


def test_what_is_needed_grows_with_the_patches_as_the_pattern_says() -> None:
    def needed(pattern: Any, side: int) -> int:
        sizes = {"height": side, "width": side, "channels": 1, "classes": 2}
        cost = cost_of_config("vit", VitConfig(attention=pattern, patch=1), sizes, Shape(1))
        return next(part.needed for part in cost.parts if part.name == "attention")

    growth = {pattern: needed(pattern, 32) / needed(pattern, 16) for pattern in PATTERNS}  # four times the patches
    assert growth["full"] == 16
    assert 4 < growth["local"] < 4.3
    assert 4 < growth["global"] < 4.3
    assert growth["axial"] == pytest.approx(4 * 63 / 31)


# ---------------------------------------------------------------------- the images


def test_a_fifth_of_each_class_is_held_out_of_a_sorted_file() -> None:
    y_N = np.array([0] * 10 + [1] * 5 + [2] * 7)
    assert np.flatnonzero(held_out(y_N, "last")).tolist() == [8, 9, 14, 21]
    drawn_N = held_out(y_N)
    assert [int(drawn_N[y_N == one].sum()) for one in range(3)] == [2, 1, 1]
    assert np.array_equal(drawn_N, held_out(y_N))  # whatever the seed of a run
    assert np.flatnonzero(drawn_N).tolist() != [8, 9, 14, 21]


def test_a_shift_moves_every_image_by_its_own_amount() -> None:
    x_BCHW = torch.arange(1, 19, dtype=torch.uint8).view(2, 1, 3, 3)
    moved = shifted(x_BCHW, torch.tensor([1, 0]), torch.tensor([0, -1]))
    assert moved[0, 0].tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    assert moved[1, 0].tolist() == [[11, 12, 0], [14, 15, 0], [17, 18, 0]]


def test_a_batch_depends_on_its_number_alone_and_an_epoch_has_every_image_once(pictures: Path) -> None:
    images = open_images(pictures)
    made = dataclasses.replace(recipe(shift=0), seed=1)
    batches = ImageBatches(images.train_NCHW, images.train_N, made, torch.device("cpu"))
    assert batches.steps == 4
    ahead = batches(7)
    assert all(torch.equal(a, b) for a, b in zip(ahead.tensors, batches(7).tensors, strict=True))
    seen = torch.cat([batches(n).tensors[0] for n in range(4)]).flatten(1)
    assert sorted(map(tuple, seen.tolist())) == sorted(map(tuple, images.train_NCHW.flatten(1).tolist()))


def test_a_folder_of_pictures_is_read_class_by_class(pictures: Path) -> None:
    images = open_images(pictures)
    assert images.labels == ("lying", "standing")
    assert images.sizes == {"height": 8, "width": 8, "channels": 1, "classes": 2}
    assert (len(images.train_N), len(images.test_N)) == (32, 8)
    assert torch.equal(open_images(pictures, split="last").train_NCHW[0, 0], torch.from_numpy(stripes()[0][0]))
    assert open_images(pictures, 16).sizes["width"] == 16


def test_a_train_and_a_test_folder_are_taken_as_they_are(pictures: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    both.mkdir()
    pictures.rename(both / "train")
    (both / "test" / "lying").mkdir(parents=True)
    Image.new("RGB", (9, 9), "red").save(both / "test" / "lying" / "a.png")
    images = open_images(both)
    assert (len(images.train_N), images.test_N.tolist()) == (40, [0])
    assert images.sizes == {"height": 32, "width": 32, "channels": 3, "classes": 2}  # sizes differ, one is coloured
    assert images.test_NCHW[0, :, 5, 5].tolist() == [255, 0, 0]


def test_idx_files_are_read_plain_or_compressed_and_fashion_is_such_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idx_folder(tmp_path / "fashion")
    monkeypatch.setenv("OCTAVO_DATA", str(tmp_path))
    images = open_images("fashion")
    assert torch.equal(images.test_NCHW[:, 0], torch.from_numpy(stripes()[0][1::2]))
    assert images.test_N.tolist() == stripes()[1][1::2].tolist()
    assert images.split == "the 20 images of its own test files"


def test_an_idx_folder_that_is_not_complete_says_what_is_missing(tmp_path: Path) -> None:
    folder = idx_folder(tmp_path / "some")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(UserError, match=r"all four IDX files: t10k-labels-idx1-ubyte \(or .gz\) is not there"):
        open_images(folder)


def test_a_folder_called_fashion_has_its_classes_by_name_wherever_it_lies(tmp_path: Path) -> None:
    folder = idx_folder(tmp_path / "elsewhere" / "fashion")
    for part in ("train", "t10k"):
        (folder / f"{part}-labels-idx1-ubyte.gz").unlink(missing_ok=True)
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(20) % 10)
    assert open_images(folder).labels[-1] == "ankle boot"


def test_fashion_that_is_not_there_says_which_files_go_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=rf"t10k-labels-idx1-ubyte .*put them into {tmp_path}/fashion"):
        open_images("fashion")


def damaged_png(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def bomb(path: Path) -> None:
    """A header that promises far more pixels than the file has bytes."""
    body = b"IHDR" + struct.pack(">IIBBBBB", 60000, 60000, 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body)))


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (damaged_png, "damaged|no picture"),
        (bomb, "no picture that can be read|may have"),
        (lambda path: path.write_bytes(b"MZ not a picture"), "no picture that can be read"),
        (lambda path: path.write_bytes(b""), "no picture that can be read"),
    ],
)
def test_a_hostile_picture_is_refused_by_name(pictures: Path, harm: Callable[[Path], Any], complaint: str) -> None:
    path = pictures / "lying" / "003.png"
    harm(path)
    with pytest.raises(UserError, match=complaint) as caught:
        open_images(pictures)
    assert "003.png" in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08\x03" + b"\0\0\0\x02" * 3,
        b"\0\0\x0d\x01\0\0\0\x01\0",
        b"\0\0\x08\x03" + b"\xff" * 12 + b"x",
        b"PK\3\4" * 9,
    ],
)
def test_an_idx_file_that_is_not_whole_is_refused(tmp_path: Path, content: bytes) -> None:
    folder = idx_folder(tmp_path / "idx")
    (folder / "t10k-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(UserError, match="t10k-images-idx3-ubyte is"):
        open_images(folder)


def test_labels_without_images_are_refused(tmp_path: Path) -> None:
    folder = idx_folder(tmp_path / "idx")
    write_idx(folder / "t10k-labels-idx1-ubyte", np.zeros(3))
    with pytest.raises(UserError, match="a label for each image"):
        open_images(folder)


@pytest.mark.parametrize("name", ["nothing-here", "lying"])
def test_a_folder_without_classes_is_refused(pictures: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"there is no folder|folder of pictures for each"):
        open_images(pictures / name)


# ---------------------------------------------------------------------- training and the folder


@pytest.mark.parametrize("name", ["vit", "davit"])
def test_a_model_learns_to_tell_bars_apart(name: str, pictures: Path) -> None:
    run = train_images(recipe(name, budget="60steps", batch_size=32, shift=1), pictures)
    assert run.record["result"]["accuracy"] == 1.0
    assert classify(run, pictures / "standing" / "039.png")["standing"] > 0.5


def test_a_saved_run_answers_as_before_and_language_models_refuse_it(pictures: Path, tmp_path: Path) -> None:
    run = train_images(recipe("davit"), pictures, tmp_path / "run")
    again = ImageRun.load(tmp_path / "run")
    assert (again.model_name, again.labels, again.pixels) == ("davit", run.labels, run.pixels)
    x_NCHW = open_images(pictures).test_NCHW
    assert torch.equal(again.classify(x_NCHW), run.classify(x_NCHW))
    with pytest.raises(UserError, match="classify images"):
        load_run(tmp_path / "run")


def weights_of(path: Path) -> dict[str, Tensor]:
    return dict(ImageRun.load(path).model.state_dict())


def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(dropout=0.2)
    train_images(made, pictures, tmp_path / "whole")

    class Interrupted(ImageBatches):
        def __call__(self, step: int) -> RowBatch:
            if step == 3:
                import os
                import signal

                os.kill(os.getpid(), signal.SIGTERM)
            return super().__call__(step)

    with monkeypatch.context() as patched:
        patched.setattr(task, "ImageBatches", Interrupted)
        with pytest.raises(Stopped, match=rf"stopped at step 4; go on with: octavo resume {tmp_path}/cut"):
            train_images(made, pictures, tmp_path / "cut")
    assert octavo.load(tmp_path / "cut").unfinished
    run = resume_run(tmp_path / "cut", quiet=True)
    assert run.record["training"]["steps"] == 6
    whole = weights_of(tmp_path / "whole")
    assert all(torch.equal(tensor, whole[name]) for name, tensor in weights_of(tmp_path / "cut").items())


def test_other_images_are_not_gone_on_with(pictures: Path, tmp_path: Path) -> None:
    train_images(recipe(), pictures, tmp_path / "run")
    Image.new("L", (8, 8)).save(pictures / "lying" / "zzz.png")
    with pytest.raises(UserError, match="has changed since"):
        resume_run(tmp_path / "run", "9steps", quiet=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", "gpt"), ("config", {"width": 1 << 40, "heads": 1}), ("config", {"layers": 1 << 40}), ("config", []),
        ("sizes", {"height": 8}), ("sizes", {"height": 1 << 60, "width": 1 << 60, "channels": 1, "classes": 2}),
        ("labels", ["one"]), ("labels", [1, 2]), ("pixels", {"mean": [0.0], "deviation": [0.0]}), ("pixels", None),
        ("sizes", {"height": 8, "width": 16, "channels": 1, "classes": 2}), ("task", "translate"),
    ],
)  # fmt: skip
def test_a_forged_run_is_refused(pictures: Path, tmp_path: Path, key: str, value: Any) -> None:
    untrained(pictures).save(tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {key: value}))
    with pytest.raises(UserError):
        ImageRun.load(tmp_path / "run")


def untrained(pictures: Path, **settings: Any) -> Any:
    images = open_images(pictures)
    model = Vit(VitConfig(**SMALL, **settings), **images.sizes)
    model.initialise(seeded_generator(0))
    return ImageRun(model.eval(), images.labels, Scaling.of(images.train_NCHW))


# ---------------------------------------------------------------------- the lens and the page


def test_rollout_is_a_mean_over_the_image_and_by_hand_for_one_layer() -> None:
    a_HTT = torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])
    assert rollout([a_HTT]).tolist() == [[0.75, 0.25], [0.25, 0.75]]
    torch.testing.assert_close(rollout([a_HTT, a_HTT]).sum(1), torch.ones(2))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_maps_are_attention_weights(pictures: Path, pattern: Any) -> None:
    run = untrained(pictures, attention=pattern)
    attention = attend_to_image(run, open_images(pictures).test_NCHW[0])
    assert [(head.layer, head.head) for head in attention.heads] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for head in attention.heads:
        assert head.seen_hw.shape == (4, 4)
        share = float(head.seen_hw.sum())
        assert share < 1.0 if run.model.config.tokens else share == pytest.approx(1.0)  # the rest is the token's
    torch.testing.assert_close(attention.p_V, run.classify(open_images(pictures).test_NCHW[:1])[0])


def test_the_page_says_what_the_measurement_says_and_holds_no_foreign_code(pictures: Path, tmp_path: Path) -> None:
    (pictures / "lying").rename(pictures / "<script>")
    run = octavo.train("vit", pictures, out=tmp_path / "run", budget="4steps", batch_size=8, device="cpu", **SMALL)
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"{run.record['result']['accuracy']:.2%}" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert page.count('preserveAspectRatio="none"') == 2 * 5  # for each class, two layers of two heads and the rollout
    images = open_images(pictures)
    measured = evaluate_run(run, images.test_NCHW, images.test_N)
    assert measured.scores.accuracy == run.record["result"]["accuracy"]
    assert len(measured.wrong) == round((1 - measured.scores.accuracy) * 8)
    assert lens_page(run, "one", images.test_NCHW[0], 0) == lens_page(run, "one", images.test_NCHW[0], 0)


def test_the_command_line_trains_measures_and_looks(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from octavo.cli import main

    out, page = str(tmp_path / "run"), tmp_path / "look.html"
    small = ["--width", "16", "--layers", "2", "--heads", "2", "--batch", "8", "--budget", "4steps", "--device", "cpu"]
    assert main(["train", "davit", str(pictures), *small, "--out", out, "--json"]) == 0
    accuracy = json.loads(capsys.readouterr().out)["accuracy"]
    assert main(["eval", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == accuracy
    assert main(["inspect", out, "--image", "1", "--out", str(page)]) == 0
    assert "channel group 2" in capsys.readouterr().out
    assert page.read_text().startswith("<!doctype html>")
    assert main(["inspect", out, "--image", str(pictures / "lying" / "000.png"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["truth"] is None
    assert main(["resume", out, "--budget", "6steps"]) == 0
    assert "6 steps" in capsys.readouterr().out
    assert main(["inspect", out, "--image", "99"]) == 2
    assert "from 0 to 7" in capsys.readouterr().err
    assert main(["eval", out]) == 0
    assert "lying" in capsys.readouterr().out


@pytest.mark.data("digits", "mnist5k")
@pytest.mark.parametrize(("name", "train", "test"), [("digits", 1442, 355), ("mnist5k", 4000, 1000)])
def test_the_named_images_are_what_they_say(name: str, train: int, test: int) -> None:
    images: Images = open_images(name)
    assert (len(images.train_N), len(images.test_N)) == (train, test)
    assert int(images.train_NCHW.max()) == 255
    assert set(images.test_N.tolist()) == set(range(10))
