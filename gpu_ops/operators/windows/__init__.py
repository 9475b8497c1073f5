"""Windows over time: which slots there are and what each holds, in a batch and step by step."""
