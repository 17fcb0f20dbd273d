"""Was there anything to erase, was anything erased, and which texts are left?"""
