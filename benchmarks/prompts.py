"""Chat prompts of ten kinds in equal parts, written for the benchmarks."""

from __future__ import annotations

PROMPTS: dict[str, tuple[str, ...]] = {
    "code": (
        "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
        "Write a Python class for a bank account with methods deposit, withdraw and balance.",
        (
            "Write a Python function that counts the words of a text file and returns the ten "
            "most frequent."
        ),
        "Write a Java class for a stack of integers with the methods push, pop and isEmpty.",
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
        "Give a JSON array of three animals, each with the keys name, legs and habitat.",
        "Write a JSON object for a train ticket with passenger, date, price and two stops.",
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
        (
            "Write this line for Monday, Tuesday, Wednesday and Thursday, replacing DAY: 'Each "
            "DAY we meet at ten, and each DAY we write down what was decided.'"
        ),
        (
            "Fill in this form for Eva (Rome) and Omar (Cairo): 'Visitor: NAME. Comes from: "
            "CITY. The visitor NAME has read the rules of the house.'"
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
        (
            "Correct the mistakes and give back the whole text: The garden are open all day. "
            "Pleese do not feed the ducks, becuase bread makes them ill. Dogs must be kept on "
            "a leesh near the pond."
        ),
        (
            "Return this text in the past tense, change nothing else: The baker opens the shop "
            "at six. He puts the bread on the shelf and waits for the first guests. They come "
            "at seven and buy rolls."
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
        (
            "Summarise in one sentence: The museum has bought the collection of a retired "
            "teacher. It holds two thousand maps, some of them from the fifteenth century. "
            "From autumn on, visitors can see a part of them in a new hall."
        ),
        (
            "Give the main point in two sentences: Trams returned to the city after sixty "
            "years. The first line has twelve stops and carries nine thousand people a day. "
            "Shops along the line report more customers, and the number of cars has fallen."
        ),
    ),
    "question": (
        "Why is the sky blue?",
        "What is the difference between a lake and a pond?",
        "Why does ice float on water?",
        "How do bees find their way back to the hive?",
    ),
    "story": (
        "Write a short story about a clockmaker who finds a letter inside an old clock.",
        "Write a short story about two foxes who share a den in winter.",
        "Tell a short story about a boy who finds a map in a library book.",
        "Write a short story about a baker whose bread begins to sing.",
    ),
    "mail": (
        "Write a polite mail to a landlord asking for the repair of a broken heater.",
        "Write a mail that invites colleagues to a picnic on Friday afternoon.",
        "Write a mail to a hotel to ask for a room with a view of the lake in June.",
        "Write a short mail that thanks a colleague for her help with a presentation.",
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
        (
            "A tank holds 240 litres and is filled with 15 litres per minute. How long does it "
            "take to fill half of it? Explain step by step."
        ),
        (
            "Three friends share 45 marbles so that each gets 5 more than the one before. How "
            "many does each get? Show the steps."
        ),
    ),
    "explanation": (
        "Explain how a bicycle stays upright.",
        "Explain what an operating system does.",
        "Explain how a thermos flask keeps tea hot.",
        "Explain why we have leap years.",
    ),
}
