"""Thirty chat prompts of ten kinds, written after the guesses were tuned, never used for that."""

from __future__ import annotations

FRESH: dict[str, tuple[str, ...]] = {
    "code": (
        "Write a Python function that checks whether a string is a palindrome, ignoring spaces.",
        "Write a JavaScript function that groups an array of objects by the value of a key.",
        "Write a SQL query that lists the ten customers with the highest total of orders in 2023.",
    ),
    "json": (
        "Give a JSON array of three recipes, each with the keys title, minutes and ingredients.",
        (
            "Write a JSON object for a weather report with city, temperature, wind and a "
            "forecast of three days."
        ),
        (
            "Return a JSON list of five employees, each with an id, a name, a department and a "
            "salary."
        ),
    ),
    "template": (
        (
            "Write this sentence once for each day from Monday to Friday, replacing DAY: 'On "
            "DAY the shop opens at eight and on DAY the shop closes at six.'"
        ),
        (
            "Fill in this form for Anna (age 31, Oslo) and Pedro (age 45, Lima): 'Name: NAME. "
            "Age: AGE. City: CITY. I hereby confirm that the data above are correct.'"
        ),
        (
            "Make four invitations from this pattern, for Ben, Carla, Dora and Emil: 'Dear "
            "NAME, you are invited to our summer party on 12 July. Please bring a salad, NAME.'"
        ),
    ),
    "copy-edit": (
        (
            "Fix the typos and give back the complete text: The musem is opne from Tuesday to "
            "Sunday. Vistors can by tickets at the entrence or on the website. Children under "
            "six do not pay, and studnets get a discount."
        ),
        (
            "Rewrite this text with the name 'Harris' in place of 'Miller': Miller arrived "
            "late. Nobody had seen Miller for a week. When Miller opened the door, everyone in "
            "the room stood up and cheered for Miller."
        ),
        (
            "Add the missing full stops and capital letters, change nothing else: the river "
            "rose during the night in the morning the bridge was closed the school bus had to "
            "take the long way through the hills the children were happy about it"
        ),
    ),
    "summary": (
        (
            "Summarise in one sentence: The council voted to turn the old brewery into flats "
            "and workshops. Building starts in March and will take two years. A third of the "
            "flats are reserved for families with low incomes."
        ),
        (
            "Give the main point of this text in two sentences: Swifts spend most of their "
            "lives in the air. They eat, drink and even sleep while flying, and land only to "
            "nest. Ringed birds have stayed aloft for ten months without a break."
        ),
        (
            "Sum up in two sentences: The factory replaced its gas furnaces with electric ones "
            "last year. Energy costs rose at first but fell below the old level after a new "
            "contract. Staff report that the halls are cooler and less noisy."
        ),
    ),
    "question": (
        "Why do leaves change colour in autumn?",
        "What is the difference between a virus and a bacterium?",
        "How many players are there in a volleyball team, and what do they do?",
    ),
    "story": (
        "Tell a short story about a lighthouse keeper who receives a parcel without a sender.",
        "Write a short tale about a girl who teaches a crow to count.",
        "Write a short story that takes place in a night train across the desert.",
    ),
    "mail": (
        "Write a mail to a customer apologising for a delayed delivery of a sofa.",
        "Write a short mail to a teacher to explain why my son was absent on Thursday.",
        "Draft a mail that asks a supplier for a quote for 200 office chairs.",
    ),
    "maths": (
        (
            "A shop sells pens at 3 euros each and gives a discount of 10 percent from 20 pens "
            "on. What do 25 pens cost? Explain step by step."
        ),
        (
            "A rectangle is 12 cm long and its area is 84 square cm. What is its perimeter? "
            "Show the steps."
        ),
        (
            "Lisa is twice as old as Tim. In five years their ages will add up to 40. How old "
            "are they now? Explain."
        ),
    ),
    "explanation": (
        "Explain how a refrigerator keeps food cold.",
        "Explain what inflation is to a teenager.",
        "Explain how sailors found their way before there were satellites.",
    ),
}
