"""The figures of the answer: who pays least, how sure that is, and what each level of erasure costs."""
