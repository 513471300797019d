class Accelerator:
    pass
