"""The studio: a local web page that looks inside the models of one folder."""

from octavo.studio.server.app import Studio, make_app
from octavo.studio.server.model_cache import Shelf
from octavo.studio.server.serve import serve

__all__ = ["Shelf", "Studio", "make_app", "serve"]
