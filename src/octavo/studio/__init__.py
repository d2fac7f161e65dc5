"""The studio: a local web application that inspects and trains the models of one folder."""

from octavo.studio.server.app import Studio, make_app
from octavo.studio.server.model_cache import ModelCache
from octavo.studio.server.serve import serve

__all__ = ["ModelCache", "Studio", "make_app", "serve"]
