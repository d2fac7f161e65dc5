"""The attacks by name, in the order in which a campaign runs them."""

from __future__ import annotations

from torture import disturbances, downloads, file_attacks, kills, network_attacks
from torture.campaign import Attack

PARTS = (kills.ATTACKS, downloads.ATTACKS, disturbances.ATTACKS, file_attacks.ATTACKS, network_attacks.ATTACKS)
ATTACKS: dict[str, Attack] = {attack.name: attack for part in PARTS for attack in part}


def choose(names: str) -> list[Attack]:
    """The attacks of names with commas between, or of beginnings of names; all of them for ""."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if not any(known.startswith(name) for known in ATTACKS)]:
        raise ValueError(f"no such class: {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    return [attack for name, attack in ATTACKS.items() if not wanted or any(name.startswith(word) for word in wanted)]
