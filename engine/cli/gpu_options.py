"""What can be typed behind `bench --gpu`."""

import argparse


def gpu_options(parser: argparse.ArgumentParser) -> None:
    gpu = parser.add_argument_group("the GPU check")
    gpu.add_argument(
        "--gpu",
        action="store_true",
        help="try every backend that is installed on this machine's card, and write a page about "
        "it; of the options above it takes --model and --json",
    )
    gpu.add_argument("--quick", action="store_true", help="small sizes, a few minutes")
    gpu.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="this check, or those whose names begin so (hello, 2048-torch, trl); repeatable",
    )
    gpu.add_argument(
        "--out",
        default="gpu-report",
        metavar="FOLDER",
        help="for gpu-report.md and gpu-report.json (default: gpu-report here)",
    )
    gpu.add_argument(
        "--processor", action="store_true", help="without a card: the same checks on the processor"
    )
