"""Which metric can be trusted: does it tell memorised models from retrained ones, and still once they are disturbed?"""
