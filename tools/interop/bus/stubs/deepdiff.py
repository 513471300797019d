def DeepDiff(a, b):
    """LeRobot uses the result only as a truth value."""
    return {} if a == b else {"values_changed": True}
