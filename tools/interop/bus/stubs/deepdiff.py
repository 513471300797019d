def DeepDiff(a, b):
    """LeRobot asks only whether there is a difference."""
    return {} if a == b else {"values_changed": True}
