"""Chat prompts of ten kinds in equal parts, written for the benchmarks."""

from __future__ import annotations

PROMPTS: dict[str, tuple[str, ...]] = {
    "code": (
        "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
        "Write a Python class for a bank account with methods deposit, withdraw and balance.",
    ),
    "json": (
        (
            "Give a JSON list of four cities, each an object with the keys name, country and "
            "population."
        ),
        (
            "Write a JSON object that describes a book with title, author, year and a list of "
            "chapters."
        ),
    ),
    "template": (
        (
            "Fill in this template for Maria, Tom and Li: 'Dear NAME, your order has been "
            "shipped and will arrive on Monday. Thank you, NAME, for shopping with us.' Write "
            "all three letters."
        ),
        (
            "Repeat this line for the numbers one to five, replacing N: 'Room N is cleaned every "
            "day at nine and room N is locked at noon.'"
        ),
    ),
    "copy-edit": (
        (
            "Correct the spelling and return the whole text: The ship saild out of the harbor at "
            "dawn. The captin stood on deck and lookd at the horizon. The wind was strong and "
            "the waves were high, but the crew was redy for the long voyage."
        ),
        (
            "Return this text with every 'colour' changed to 'color': The colour of the sky was "
            "grey. The colour of the sea was green. The colour of the sand was white, and the "
            "colour of the houses was red."
        ),
    ),
    "summary": (
        (
            "Summarise in two sentences: The town library opened in 1912. It was closed during "
            "the flood of 1953 and rebuilt on higher ground. Today it holds eighty thousand "
            "books, lends tools and instruments, and is visited by four hundred people a day."
        ),
        (
            "Summarise in one sentence: Bees visited the orchard in large numbers this spring. "
            "The farmer had planted clover between the trees two years ago. The apple harvest is "
            "expected to be the largest in a decade."
        ),
    ),
    "question": (
        "Why is the sky blue?",
        "What is the difference between a lake and a pond?",
    ),
    "story": (
        "Write a short story about a clockmaker who finds a letter inside an old clock.",
        "Write a short story about two foxes who share a den in winter.",
    ),
    "mail": (
        "Write a polite mail to a landlord asking for the repair of a broken heater.",
        "Write a mail that invites colleagues to a picnic on Friday afternoon.",
    ),
    "maths": (
        (
            "A train travels 60 miles in one hour. How far does it travel in three and a half "
            "hours? Explain step by step."
        ),
        (
            "There are 24 apples in 4 equal boxes. Two boxes are sold. How many apples are left? "
            "Explain step by step."
        ),
    ),
    "explanation": (
        "Explain how a bicycle stays upright.",
        "Explain what an operating system does.",
    ),
}
