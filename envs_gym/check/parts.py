"""What a check looks at, in order; light, as the screen shows it before torch is loaded."""

FORM, PLAY, SEED, CONSTANT, MEMORY, COST, END, GYMNASIUM, PICTURES = PARTS = (
    "form",
    "random play",
    "one seed, twice",
    "constant actions",
    "memory",
    "cost",
    "copies and the end",
    "Gymnasium's checker",
    "pictures",
)
