"""The public Python names, each with its signature and docstring, which mkdocstrings reads from the source."""

from __future__ import annotations

import inspect

import octavo


def pages() -> dict[str, str]:
    """reference/python.md."""
    lines = ["# Python", "", "Everything that `import octavo` offers. Other modules can be imported too, "
             "but may change ([versions](../versions.md))."]  # fmt: skip
    for name in octavo.__all__:
        value = getattr(octavo, name)
        if inspect.isroutine(value) or inspect.isclass(value):
            lines += ["", f"::: {value.__module__}.{value.__qualname__}", "    options:",
                      f'      heading: "octavo.{name}"', f'      toc_label: "{name}"']  # fmt: skip
    return {"reference/python.md": "\n".join(lines) + "\n"}
