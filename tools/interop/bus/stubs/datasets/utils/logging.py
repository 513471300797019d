def disable_progress_bar():
    pass


def enable_progress_bar():
    pass
