"""`nnunet_gpuaug`: one command with subcommands."""

import argparse
import sys

from nnunet_gpuaug import AugmentationError
from nnunet_gpuaug.cli import show

PROG = "nnunet_gpuaug"
COMMANDS = (show,)  # each adds its parser, and names in it the function that runs it


def build_parser() -> argparse.ArgumentParser:
    """The command with all its subcommands."""
    parser = argparse.ArgumentParser(prog=PROG, description="nnU-Net's training augmentation: look at it, change it.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command; the exit code is 0, or 2 for anything the user can mend.

    Args:
        argv: the arguments; by default those of the process.
    """
    args = build_parser().parse_args(argv)
    try:
        args.run(args)
    except (AugmentationError, OSError) as err:
        print(f"{PROG} {args.command}: error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
