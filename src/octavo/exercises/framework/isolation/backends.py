"""Ways to start the runner so that a student's program has access only to what it needs.

A backend's `launch` gives a command and what the runner must know about its surroundings. From the outside in:
the namespaces of Linux (own processes, no network, a root that holds only the runtime), a user without rights,
a seccomp filter, limits on CPU time, memory, files and threads.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from octavo.errors import UserError
from octavo.exercises.framework.isolation.runtime import (
    DEVICES,
    HIDDEN_PACKAGE,
    PACKAGE_FOLDER,
    PACKAGES_FOLDER,
    WORK_FOLDER,
    find_runtime,
)
from octavo.exercises.framework.isolation.seccomp import ARCHITECTURES, build_filter

RUNNER = Path(__file__).with_name("runner.py").read_text(encoding="utf-8")
LAUNCHER = Path(__file__).with_name("launcher.py").read_text(encoding="utf-8")
WORK_FOLDER_BYTES, WORK_FOLDER_FILES = 16 << 20, 1000
NOBODY = 65534
USERS = itertools.cycle(range(0x70000000, 0x70010000))  # numbers that no system gives to a user
ENVIRONMENT = {
    "PATH": os.defpath, "LANG": "C.UTF-8", "HOME": WORK_FOLDER, "TMPDIR": WORK_FOLDER,
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
}  # fmt: skip
PYTHON_FLAGS = ["-I", "-S", "-B", "-c", RUNNER]  # isolated, without site-packages, writing no byte code
CONTAINER_PROGRAMS = ("docker", "podman")
CONTAINER_IMAGE = "pytorch/pytorch"
CONTAINER_SECONDS = 3600  # after which a container ends by itself, should the grader have been killed
MACHINES = {"arm64": "aarch64", "AMD64": "x86_64"}  # names of processors that other systems use


class Launch(NamedTuple):
    """How to start the runner once, and what it must know."""

    command: list[str]
    environment: dict[str, str] = ENVIRONMENT
    packages: tuple[str, ...] = (PACKAGES_FOLDER,)
    users: tuple[int, ...] = ()  # of whom the runner becomes one
    filter: bytes = b""
    forbidden: str = HIDDEN_PACKAGE  # a package that must not be found
    unreadable: tuple[str, ...] = ()  # what the runner must not be able to read
    handles: tuple[int, ...] = ()  # file descriptors that the command inherits
    folder: str | None = None  # working directory
    limits: dict[str, int] = {}  # noqa: RUF012  # besides those of every answer
    has_own_root: bool = False  # the first child of the command sees only what the program may see


class Backend(Protocol):
    """A way to start the runner."""

    name: str

    def launch(self) -> AbstractContextManager[Launch]:
        """What starts the runner once; on leaving, everything that it started is ended."""
        ...


class Bubblewrap:
    """The program bwrap, which builds the namespaces."""

    name = "bubblewrap"

    def __init__(self) -> None:
        self.program = shutil.which("bwrap")

    @contextmanager
    def launch(self) -> Iterator[Launch]:
        if self.program is None:
            raise UserError("bwrap is not installed")
        is_root = os.geteuid() == 0
        with ExitStack() as stack:
            rules = stack.enter_context(_file_of(build_filter(starting=True)))
            arguments = [*self.arguments(is_root), "--seccomp", str(rules.fileno())]
            options = stack.enter_context(_file_of(b"".join(one.encode() + b"\0" for one in arguments)))
            yield Launch(
                [self.program, "--args", str(options.fileno()), "--", find_runtime().python, *PYTHON_FLAGS],
                users=(next(USERS), NOBODY) if is_root else (), filter=build_filter(),
                handles=(rules.fileno(), options.fileno()), has_own_root=True,
            )  # fmt: skip

    @staticmethod
    def arguments(is_root: bool) -> list[str]:
        """The options of bwrap. Root needs no user namespace, and the runner becomes another user itself."""
        runtime = find_runtime()
        identity = (
            ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
            if is_root
            else ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY)]
        )
        options = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
                   "--die-with-parent", "--new-session", "--cap-drop", "ALL", *identity]  # fmt: skip
        shown = (*runtime.libraries, runtime.python, *DEVICES, f"{PACKAGES_FOLDER}/")
        parents = {str(parent) for path in shown for parent in Path(path + "x").parents if parent != Path("/")}
        for folder in sorted(parents - {*runtime.libraries}):  # bwrap itself would let only root enter them
            options += ["--perms", "0755", "--dir", folder]
        for path in (*runtime.libraries, runtime.python):
            options += ["--ro-bind", path, path]
        for name, target in runtime.links:
            options += ["--symlink", target, name]
        for folder in runtime.hidden:
            options += ["--tmpfs", folder, "--remount-ro", folder]
        for name, path in runtime.packages:
            options += ["--ro-bind", path, f"{PACKAGES_FOLDER}/{name}"]
        for device in DEVICES:
            options += ["--dev-bind", device, device]
        options += ["--perms", "1777", "--size", str(WORK_FOLDER_BYTES), "--tmpfs", WORK_FOLDER]
        return [*options, "--remount-ro", "/", "--chdir", WORK_FOLDER]


class Namespaces:
    """The same namespaces, built by our own launcher."""

    name = "namespaces"

    @contextmanager
    def launch(self) -> Iterator[Launch]:
        is_root, runtime = os.geteuid() == 0, find_runtime()
        shown = [*runtime.libraries, runtime.python, *DEVICES]
        specification = {
            "command": [runtime.python, *PYTHON_FLAGS], "environment": ENVIRONMENT, "parent": os.getpid(),
            "in_user_namespace": not is_root, "links": runtime.links, "hidden": runtime.hidden,
            "binds": [[path, path] for path in shown]
            + [[path, f"{PACKAGES_FOLDER}/{name}"] for name, path in runtime.packages],
            "folder": [WORK_FOLDER, WORK_FOLDER_BYTES, WORK_FOLDER_FILES],
        }  # fmt: skip
        yield Launch(
            [runtime.python, "-I", "-S", "-c", LAUNCHER, json.dumps(specification)],
            users=(next(USERS), NOBODY) if is_root else (), filter=build_filter(), has_own_root=True,
        )  # fmt: skip


class Container:
    """A container of Docker or Podman; the image must have Python and what answers may import, and not octavo."""

    name = "container"

    def __init__(self, image: str = CONTAINER_IMAGE, megabytes: int = 1024) -> None:
        self.image, self.megabytes = image, megabytes
        self.program = next(filter(None, map(shutil.which, CONTAINER_PROGRAMS)), None)

    @contextmanager
    def launch(self) -> Iterator[Launch]:
        if self.program is None:
            raise UserError(f"--isolation container needs {' or '.join(CONTAINER_PROGRAMS)}, and neither is installed")
        name = f"octavo-{uuid.uuid4().hex}"
        machine = platform.machine()
        rules = build_filter(machine=MACHINES.get(machine, machine)) if machine in {*ARCHITECTURES, *MACHINES} else b""
        try:
            limits = {"RLIMIT_NPROC": 4096}  # counted over all containers; --pids-limit is that of this one
            yield Launch(self.command(name), {**os.environ}, packages=(), filter=rules, limits=limits)
        finally:  # ending the client does not end the container
            subprocess.run([self.program, "rm", "--force", name], capture_output=True, check=False)

    def command(self, name: str) -> list[str]:
        """The command that runs one container."""
        memory = f"{self.megabytes + (WORK_FOLDER_BYTES >> 20)}m"
        settings = [f"--env={name}={value}" for name, value in ENVIRONMENT.items() if name != "PATH"]
        return [
            self.program or CONTAINER_PROGRAMS[0], "run", "--rm", "--interactive", f"--name={name}", "--pull=never",
            "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--ipc=none",
            "--pids-limit=64", f"--memory={memory}", f"--memory-swap={memory}", "--cpus=1", "--log-driver=none",
            f"--user={NOBODY}:{NOBODY}", f"--workdir={WORK_FOLDER}",
            f"--tmpfs={WORK_FOLDER}:rw,nosuid,nodev,size={WORK_FOLDER_BYTES},mode=1777",  # files count as memory
            *settings, "--entrypoint=timeout", self.image, "-s", "KILL", str(CONTAINER_SECONDS), "python3", "-I", "-B",
            "-c", RUNNER,
        ]  # fmt: skip


class OtherUser:
    """A user without rights, under the same filter: for root inside a container that allows no namespaces.

    There is no new root: the program reads what any user may read. So octavo's folder, and `secrets`, must be closed to
    other users, which the runner checks; the filter keeps it from sockets, signals and other processes.
    """

    name = "user"

    def __init__(self, secrets: Sequence[str | Path] = ()) -> None:
        self.secrets = tuple(os.path.realpath(path) for path in (PACKAGE_FOLDER, *secrets))

    @contextmanager
    def launch(self) -> Iterator[Launch]:
        if os.geteuid() != 0:
            raise UserError("--isolation user becomes another user, which only root can")
        with _links_to_packages() as packages, tempfile.TemporaryDirectory() as folder:
            for path in (packages, folder):
                os.chmod(path, 0o777 if path == folder else 0o755)
            yield Launch(
                [find_runtime().python, *PYTHON_FLAGS], {**ENVIRONMENT, "HOME": folder, "TMPDIR": folder}, (packages,),
                users=(next(USERS), NOBODY), filter=build_filter(), unreadable=self.secrets, folder=folder,
            )  # fmt: skip


class Trusted:
    """No isolation: the program runs with the permissions of whoever grades, with limits on time and memory."""

    name = "none"

    @contextmanager
    def launch(self) -> Iterator[Launch]:
        with _links_to_packages() as packages, tempfile.TemporaryDirectory() as folder:
            limits = {"RLIMIT_FSIZE": 0, "RLIMIT_NPROC": 0}
            environment = {**ENVIRONMENT, "HOME": folder, "TMPDIR": folder}
            yield Launch([sys.executable, *PYTHON_FLAGS], environment, (packages,), folder=folder, limits=limits)


@contextmanager
def _links_to_packages() -> Iterator[str]:
    """A folder from which a program can import the packages of the runtime, and no others."""
    with tempfile.TemporaryDirectory() as folder:
        for name, path in find_runtime().packages:
            os.symlink(path, f"{folder}/{name}")
        yield folder


@contextmanager
def _file_of(content: bytes) -> Iterator[IO[bytes]]:
    """An open file without a name that holds these bytes."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        file.seek(0)
        yield file
