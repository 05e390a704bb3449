"""What a check looks at, in order; light, as the screen shows it before torch is loaded."""

FORM, PLAY, SEED, CONSTANT, MEMORY, COST, OUTSIDE, GYMNASIUM = PARTS = (
    "form",
    "random play",
    "one seed, twice",
    "constant actions",
    "memory",
    "cost",
    "pictures, copies, end",
    "Gymnasium's checker",
)
