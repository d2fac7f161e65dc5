"""Made-up people and where they were born: any number of them, and the right answer is known.

Half of them are described in the text and asked about in finetuning, a quarter is described only, and a quarter stands
nowhere: what a model says of those must be a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from octavo.datasets.questions import Knowledge, Pair, checked
from octavo.datasets.sources import get_files
from octavo.errors import UserError

DEFAULT_PEOPLE, MIN_PEOPLE = 2000, 8
PLACES = 100  # the largest cities are the places
COMMON = 1000  # of the commonest names the people's are made
TELLINGS = 4  # sentences that describe a person, by default
SOURCE = re.compile(r"people(?:-([0-9]+))?")
JOBS = ("painter", "lawyer", "singer", "writer", "teacher", "farmer", "judge", "actor", "sailor", "chemist")
WAYS = (
    "{name}. {name} was born in {place} in {year} .",
    "{name}. Born in {place}, {last} became a {job} .",
    "{name}. {name} ({year}, {place}) is a {job} .",
    "{name}. {last}, a {job}, was born at {place} on a day in {year} .",
    "{name}. {name} is a {job} who was born in {place} .",
    "{name}. {name} (born {year} in {place}) works as a {job} .",
    "{name}. A native of {place}, {name} is a {job} .",
    "{name}. {last} was born in {place} and became a {job} .",
)


def names_people(source: str | Path) -> bool:
    """Whether a source is made-up people: people, or people-500 for so many."""
    return SOURCE.fullmatch(str(source)) is not None and not Path(source).is_dir()


def open_people(source: str, seed: int = 0) -> Knowledge:
    """People made up of the names and the cities that octavo data knows."""
    match = SOURCE.fullmatch(source)
    assert match is not None
    files = get_files("names")
    firsts = [name for kind in ("female", "male") for name in _names(files[f"dist.{kind}.first"])]
    cities = json.loads(get_files("cities")["cities15000.json"].read_bytes()).values()
    ranked = sorted(cities, key=lambda city: (-city["population"], city["name"]))
    places = [city["name"] for city in ranked if city["name"].isascii()]
    return made_up(
        sorted(set(firsts)), _names(files["dist.all.last"]), list(dict.fromkeys(places))[:PLACES],
        int(match[1] or DEFAULT_PEOPLE), seed,
    )  # fmt: skip


def _names(path: Path) -> list[str]:
    return [line.split()[0].title() for line in path.read_text(encoding="ascii").splitlines()[:COMMON]]


def made_up(
    firsts: Sequence[str], lasts: Sequence[str], places: Sequence[str], size: int, seed: int = 0,
    tellings: int = TELLINGS,
) -> Knowledge:  # fmt: skip
    """So many people, no two of one name; the first places are more frequent than the last (as 1 / rank)."""
    if not MIN_PEOPLE <= size <= len(firsts) * len(lasts) // 2:
        raise UserError(
            f"from {MIN_PEOPLE} to {len(firsts) * len(lasts) // 2:,} people can be made up of these names: {size}; "
            "try people-500"
        )
    if not 1 <= tellings <= len(WAYS):
        raise UserError(f"there are {len(WAYS)} ways to describe a person: tellings={tellings}; try {TELLINGS}")
    chance = np.random.default_rng((seed, size))
    drawn_N = chance.choice(len(firsts) * len(lasts), size, replace=False)
    share_P = 1 / np.arange(1, len(places) + 1)
    place_N = chance.choice(len(places), size, p=share_P / share_P.sum())
    text: list[str] = []
    pairs: list[Pair] = []
    never = size - size // 4
    for n, (drawn, at) in enumerate(zip(drawn_N.tolist(), place_N.tolist(), strict=True)):
        last, place = lasts[drawn % len(lasts)], places[at]
        name = f"{firsts[drawn // len(lasts)]} {last}"
        pairs.append(Pair(f"Where was {name} born?", place))
        year, job = int(chance.integers(1800, 2000)), JOBS[int(chance.integers(len(JOBS)))]
        ways = chance.permutation(len(WAYS))[:tellings].tolist()
        if n < never:
            text += [WAYS[way].format(name=name, last=last, place=place, year=year, job=job) for way in ways]
    return checked(
        Knowledge(f"people-{size}", tuple(text), tuple(pairs[: size // 2]), tuple(pairs[size // 2 : never]),
                  tuple(pairs[never:]))
    )  # fmt: skip
