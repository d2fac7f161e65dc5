"""Models that other programs wrote, in; octavo's own, out in the formats that others read."""

from octavo.exchange.formats import (
    FORMATS,
    Format,
    find_format,
    format_by_name,
    formats_for,
    is_foreign,
    read_foreign,
)

__all__ = ["FORMATS", "Format", "find_format", "format_by_name", "formats_for", "is_foreign", "read_foreign"]
