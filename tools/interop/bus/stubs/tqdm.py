class tqdm:
    def __init__(self, all, desc=""):
        self.all = all

    def __iter__(self):
        return iter(self.all)

    @staticmethod
    def write(text):
        print(text)
