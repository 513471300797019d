"""The one error that the command reports without a traceback."""


class ExportError(Exception):
    """Says what was got, what was wanted and what to do."""
