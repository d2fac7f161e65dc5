"""Attacks through the network and through sockets of this machine."""

from __future__ import annotations

import socket
import urllib.request
from typing import Any

World = dict[str, Any]
ACHIEVED = "achieved"


def connect_to_this_machine(world: World) -> str:
    """Must not connect to a server on this machine.

    Unisolated: achieved
    """
    socket.create_connection(("127.0.0.1", world["port"]), 1).close()
    return ACHIEVED


def connect_by_version_six(world: World) -> str:
    """Must not open a socket of the newer internet protocol."""
    socket.socket(socket.AF_INET6).close()
    return ACHIEVED


def connect_to_an_abstract_socket(world: World) -> str:
    """Must not reach a local socket, which has no file: those of the desktop are such.

    Unisolated: achieved
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + world["socket"])
    return ACHIEVED


def send_a_packet(world: World) -> str:
    """Must not send a single packet, such as a question to a name server."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", world["port"]))
    return ACHIEVED


def send_a_raw_packet(world: World) -> str:
    """Must not send packets past the protocols."""
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    return ACHIEVED


def ask_the_kernel_for_routes(world: World) -> str:
    """Must not talk to the kernel by netlink."""
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()
    return ACHIEVED


def use_the_machines_socket(world: World) -> str:
    """Must not reach the host of a virtual machine."""
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    return ACHIEVED


def listen(world: World) -> str:
    """Must not wait for others to connect."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
    return ACHIEVED


def pass_files_between_sockets(world: World) -> str:
    """Must not use a pair of sockets, by which open files can be passed and hidden."""
    socket.socketpair()
    return ACHIEVED


def fetch_a_page(world: World) -> str:
    """Must not fetch a page from the network.

    Unisolated: achieved
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{world['port']}", timeout=1):
        return ACHIEVED
