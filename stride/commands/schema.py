"""Print the JSON Schema of an environment's YAML file. Editors use it to check and complete configs."""

import json

from stride.commands.usage import parser_of
from stride.config.json_schema import schema
from stride.utils import entry


def main(argv: list[str]) -> int:
    """Exit code."""
    parser_of(__doc__).parse_args(argv)
    print(text())
    return 0


def text() -> str:
    """Return the schema as JSON text: the file in every new project, and in config/ after `make`."""
    return json.dumps(schema(), indent=1)


if __name__ == "__main__":
    entry.run(main)
