"""Students' programs in isolation: more than a hundred attacks, as root and as an ordinary user, and what each must not
achieve. An attack is a function in attacks/, called as a student's function is; its docstring says what it must not
achieve, and what is reported. It returns "achieved" if it succeeds.
"""

from __future__ import annotations

import ast
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from octavo.exercises.framework.isolation.runner import MAX_MESSAGE_CHARACTERS
from octavo.exercises.framework.isolation.seccomp import is_supported, system_call_numbers

pytestmark = pytest.mark.skipif(not is_supported(), reason="needs isolation: Linux on x86-64 or arm64")

HERE = Path(__file__).parent
BACKENDS = ("bubblewrap", "namespaces")
STOP_SECONDS = 0.5  # for attacks that only the clock ends; others must fail by themselves, within
SECONDS, PATIENCE_SECONDS = 20.0, 40.0
MEMORY = 1 << 28
IN_USER_ID = 61_184  # the range of numbers that systemd keeps for users who exist only for a while


class Attack(NamedTuple):
    file: Path
    function: str
    aim: str  # what it must not achieve
    reported: str  # pattern of what the teacher reads
    works_unisolated: bool


def find_attacks() -> Iterator[Attack]:
    for file in sorted((HERE / "attacks").glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and [one.arg for one in node.args.args] == ["world"]:
                text = ast.get_docstring(node) or ""
                assert text.startswith("Must not "), f"{file.name}: {node.name} says what it must not achieve"
                fields = dict(re.findall(r"^(Reported|Unisolated): (.*)$", text, re.MULTILINE))
                yield Attack(file, node.name, text.splitlines()[0], fields.get("Reported", ""), "Unisolated" in fields)


ATTACKS = [*find_attacks()]


class Service:
    """A grader that can be attacked, and the world that it and the attacks know."""

    def __init__(self, user: int | None, world: dict[str, Any]) -> None:
        command = [sys.executable, str(HERE / "attack_service.py"), *(["--as", str(user)] if user else [])]
        environment = {**os.environ, "OCTAVO_SECRET": world["word"], "OCTAVO_EXPECTED": world["expected"]}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd="/"
        )
        self.world = {name: value for name, value in world.items() if name != "expected"}
        self.why_not: dict[str, str] = {}

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        reply: dict[str, Any] = json.loads(self.process.stdout.readline() or '{"dead": true}')
        return reply

    def attack(self, attack: Attack, backend: str, **more: Any) -> dict[str, Any]:
        if backend not in self.why_not:
            self.why_not[backend] = self.ask(backend=backend).get("problem", "the service does not run")
        if self.why_not[backend]:
            pytest.skip(f"needs isolation: {self.why_not[backend]}")
        seconds = STOP_SECONDS if "was stopped" in attack.reported else SECONDS
        return self.ask(backend=backend, file=str(attack.file), function=attack.function, world=self.world,
                        seconds=seconds, memory=MEMORY, **more)  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Iterator[dict[str, Any]]:
    """What attacks are after: a classmate's file, a folder that anybody may write to, a server, a local socket."""
    place = Path(tempfile.mkdtemp(prefix="octavo-attacks-"))
    try:
        for folder, mode in ((place, 0o755), (place / "class" / "ada", 0o755), (place / "open", 0o777)):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)
        secret = place / "class" / "ada" / "mine.py"
        secret.write_text("def double(x):\n    return 'achieved'\n", encoding="utf-8")
        name = f"octavo-{uuid.uuid4().hex}"
        with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server, socket.socket(socket.AF_UNIX) as local:
            local.bind("\0" + name)
            local.listen()
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield {"secret": str(secret), "folder": str(place / "open"), "port": server.server_port, "socket": name,
                   "package": str(HERE.parents[1] / "src" / "octavo"), "word": uuid.uuid4().hex,
                   "expected": uuid.uuid4().hex, "numbers": system_call_numbers()}  # fmt: skip
            server.shutdown()
    finally:
        shutil.rmtree(place)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module", params=["root", "user"])
def service(request: pytest.FixtureRequest, world: dict[str, Any]) -> Iterator[Service]:
    is_root = os.geteuid() == 0
    if request.param == "root" and not is_root:
        pytest.skip("needs root: run the tests as root to attack a grader that is root")
    service = Service(IN_USER_ID + os.getpid() % 1000 if is_root and request.param == "user" else None, world)
    yield service
    assert service.process.stdin is not None
    service.process.stdin.close()
    assert service.process.wait(10) == 0
    assert service.process.stdout is not None
    service.process.stdout.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: f"{one.file.stem}.{one.function}")
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_attack_does_not_achieve_what_it_must_not(service: Service, backend: str, attack: Attack) -> None:
    reply = service.attack(attack, backend, cases=2)
    assert not reply.get("dead"), f"{attack.function} ended the grader"
    shown = json.dumps(reply["value"])
    assert "achieved" not in shown, attack.aim
    assert service_secrets(service).isdisjoint(re.findall(r"[0-9a-f]{32}", shown)), attack.aim
    assert not reply["left"], "a process outlives the grading"
    assert reply["elapsed"] < PATIENCE_SECONDS
    assert os.listdir(service.world["folder"]) == []
    assert "achieved" in Path(service.world["secret"]).read_text(encoding="utf-8")
    message = reply["problem"] or reply["refused"]
    assert re.search(attack.reported, message), message
    assert "was stopped" in attack.reported or "was stopped" not in message, "it had no time to fail by itself"
    assert message.isprintable()
    assert len(message) < MAX_MESSAGE_CHARACTERS + 200


def service_secrets(service: Service) -> set[str]:
    """What no result may contain: the environment's secrets."""
    environment = Path(f"/proc/{service.process.pid}/environ")
    try:
        return set(re.findall(r"OCTAVO_EXPECTED=(\w+)", environment.read_text(encoding="utf-8")))
    except PermissionError:
        return set()


@pytest.mark.parametrize(
    "attack", [one for one in ATTACKS if one.works_unisolated], ids=lambda one: f"{one.file.stem}.{one.function}"
)
def test_the_same_attack_succeeds_without_isolation(service: Service, attack: Attack) -> None:
    reply = service.attack(attack, "none")
    assert "achieved" in json.dumps(reply["value"]), reply


def test_there_are_at_least_sixty_attacks_with_different_aims() -> None:
    assert len(ATTACKS) >= 60
    assert len({one.aim for one in ATTACKS}) == len(ATTACKS)
