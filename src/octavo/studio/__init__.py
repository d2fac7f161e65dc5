"""The studio: a local web page that looks inside the models of one folder."""

from octavo.studio.app import Studio, make_app
from octavo.studio.serving import serve
from octavo.studio.shelf import Shelf

__all__ = ["Shelf", "Studio", "make_app", "serve"]
