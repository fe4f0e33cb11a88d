# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`python -m hf_memaug.app CHECKPOINT`"""

import argparse
from collections.abc import Sequence

from hf_memaug.inference.errors import InferenceError


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m hf_memaug.app",
        description="Serves a checkpoint in the browser: the prediction, the memory slots or experts that were read, "
        "and the prediction without the memory.",
    )
    parser.add_argument("checkpoint", help="a folder, or a repository of the hub")
    parser.add_argument(
        "--baseline", help="a checkpoint of the plain model (default: the same model without its memory)"
    )
    parser.add_argument("--port", type=int, help="the port (default: the first free one from 7860 on)")
    parser.add_argument("--share", action="store_true", help="make a public address on Gradio's servers")
    given = parser.parse_args(arguments)
    from hf_memaug.app.page import launch

    try:
        launch(given.checkpoint, given.port, given.share, given.baseline)
    except (ImportError, InferenceError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
