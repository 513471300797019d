"""The one error that the command reports without a traceback."""


class ExportError(Exception):
    """Its text gives the value found, the expected value and the remedy."""
