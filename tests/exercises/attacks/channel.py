"""Attacks on the results: what is written into the grader's pipe, and objects that pretend to be right."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, NoReturn

World = dict[str, Any]
ACHIEVED = "achieved"
PIPE = 3


def write(text: str) -> None:
    """Write into the pipe of the results."""
    data = text.encode("utf-8", "surrogatepass")
    while data:
        data = data[os.write(PIPE, data) :]


def flood_standard_output(world: World) -> str:
    """Must not fill the grader's memory by printing.

    Reported: was stopped
    """
    while True:
        print("x" * 1_000_000)


def flood_standard_error(world: World) -> str:
    """Must not fill the grader's memory through the other stream.

    Reported: was stopped
    """
    while True:
        os.write(2, b"x" * 1_000_000)


def flood_the_pipe(world: World) -> str:
    """Must not fill the grader's memory through the pipe.

    Reported: channel
    """
    while True:
        write("x" * 100_000)


def flood_the_pipe_with_lines(world: World) -> str:
    """Must not keep the grader busy with lines.

    Reported: channel
    """
    while True:
        write("{}\n")


def write_garbage(world: World) -> str:
    """Must not confuse the grader with bytes that are no JSON.

    Reported: channel
    """
    os.write(PIPE, bytes(range(256)) + b"\n")
    return ""


def write_deep_lists(world: World) -> str:
    """Must not exhaust the grader's stack.

    Reported: channel
    """
    write("[" * 100_000 + "\n")
    return ""


def write_a_deep_value(world: World) -> str:
    """Must not exhaust the grader's stack by a value in the right place.

    Reported: channel|deep
    """
    write('{"at": [0, 0], "value": ' + "[" * 500 + "]" * 500 + "}\n")
    return ""


def write_many_empty_lists(world: World) -> str:
    """Must not make the grader build a million lists.

    Reported: channel
    """
    write('{"at": [0, 0], "value": [' + "[]," * 1_000_000 + "[]]}\n")
    return ""


def write_a_huge_number(world: World) -> str:
    """Must not make the grader convert a number of a million digits.

    Reported: channel
    """
    write('{"at": [0, 0], "value": ' + "9" * 1_000_000 + "}\n")
    return ""


def write_no_number(world: World) -> str:
    """Must not send what JSON does not have.

    Reported: channel
    """
    write('{"at": [0, 0], "value": NaN}\n')
    return ""


def write_an_overflow(world: World) -> str:
    """Must not send a number that becomes infinite when it is read.

    Reported: channel
    """
    write('{"at": [0, 0], "value": 1e999}\n')
    return ""


def write_an_object(world: World) -> str:
    """Must not send anything but numbers, strings and lists.

    Reported: channel
    """
    write('{"at": [0, 0], "value": {"points": 100}}\n')
    return ""


def write_more_than_asked(world: World) -> str:
    """Must not add fields to a reply.

    Reported: channel
    """
    write('{"at": [0, 0], "value": 1, "points": 100}\n')
    return ""


def write_out_of_order(world: World) -> str:
    """Must not answer another case than the one that was asked.

    Reported: channel
    """
    write('{"at": [7, 7], "value": 1}\n')
    return ""


def write_two_replies(world: World) -> str:
    """Must not answer twice: the second reply would be taken for that of the next case.

    Reported: channel
    """
    write('{"at": [0, 0], "value": 1}\n')
    return ""


def write_a_forged_error(world: World) -> str:
    """Must not send an error with other things than a type, a line and a message.

    Reported: channel
    """
    write('{"at": [0, 0], "error": [["x"], {}, 3]}\n')
    return ""


def close_the_pipe(world: World) -> str:
    """Must not count as right without a reply.

    Reported: ended without an answer
    """
    os.close(PIPE)
    return ""


def replace_json(world: World) -> str:
    """Must not achieve more by replacing the runner's functions than by returning the same value."""
    json.dumps = lambda value: '{"at": [0, 0], "value": "replaced"}'  # type: ignore[assignment]
    return ""


def write_later(world: World) -> str:
    """Must not write a reply from a thread after its own.

    Reported: channel
    """

    def later() -> None:
        for _ in range(100):
            write('{"at": [0, 0], "value": 1}\n')
            time.sleep(0.001)

    threading.Thread(target=later).start()
    time.sleep(0.1)
    return ""


class EqualToAll(float):
    """A number that says it equals every other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "42.0"


def return_what_equals_everything(world: World) -> float:
    """Must not be right by redefining equality: the number that it holds is compared."""
    return EqualToAll(-1.0)


def return_an_array_that_lies(world: World) -> Any:
    """Must not be right by an object that pretends to be an array.

    Reported: must be a number
    """

    class Array:
        def tolist(self) -> object:
            return self

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    return Array()


def return_an_endless_list(world: World) -> Any:
    """Must not send an endless list.

    Reported: may hold
    """

    class Endless(list[int]):
        def __iter__(self) -> Any:
            while True:
                yield 0

    return Endless()


def return_a_list_in_itself(world: World) -> Any:
    """Must not send a list that contains itself.

    Reported: RecursionError|may hold
    """
    endless: list[Any] = []
    endless.append(endless)
    return endless


def return_a_huge_integer(world: World) -> int:
    """Must not make the grader convert a huge number.

    Reported: ValueError|channel
    """
    sys.set_int_max_str_digits(0)
    return 10**100_000


def return_half_a_character(world: World) -> str:
    """Must not put text into the reports that cannot be written to a file."""
    return "\ud800" * 10


def return_a_long_text(world: World) -> str:
    """Must not fill the reports with text.

    Reported: characters
    """
    return "x" * 100_000


def raise_with_a_file(world: World) -> str:
    """Must not carry a file of the runtime into the report: a message is one short line.

    Reported: ValueError
    """
    with open(os.__file__, encoding="utf-8") as file:
        raise ValueError(file.read())


def raise_with_escapes(world: World) -> str:
    """Must not send control characters to the terminal of whoever grades.

    Reported: red
    """
    raise ValueError("\x1b[31mred\x07\r\n\u202e`x`")


def raise_what_cannot_be_shown(world: World) -> str:
    """Must not end the grading by an exception whose text cannot be computed.

    Reported: ended without an answer|channel
    """

    class Nasty(Exception):
        def __str__(self) -> NoReturn:
            raise KeyError("no text")

    raise Nasty


def raise_a_type_with_a_long_name(world: World) -> str:
    """Must not put a long or forged name into the report.

    Reported: channel
    """
    raise type("x" * 10_000, (Exception,), {})("message")
