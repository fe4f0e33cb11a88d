# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What reading a general encoder costs: G-MAP (chunk-gated) beside the domain encoder alone, in one run.

The general encoder is kept in bf16 on a GPU. `..._cached` rows read its states instead of running it. The floor of
`train` is 1.17: a frozen forward pass beside a training step. On a GPU, `..._kernels` is the time of all kernels,
copies and fills: what the GPU does, whatever the host; `..._launches` is how many they are.

    python benchmarks/gmap.py --output docs/results/benchmarks/gmap_h200.json     # on a GPU
    python benchmarks/gmap.py --small                                             # anywhere, to see that it runs
"""

import argparse

from record import write_result
from timing import compare, compare_kernels, inference, peak, training_step, workload

AGAINST = "RobertaForSequenceClassification"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tiny encoder and short rows")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of measurements (default: %(default)s)")
    parser.add_argument("--no-graphs", dest="graphs", action="store_false", help="leave the CUDA graphs out")
    parser.add_argument("--output", help="write the JSON here as well")
    return parser.parse_args()


def make_models(small: bool, device: str):
    """RoBERTa-base's shape with random weights: the domain encoder alone, and with a general one to read."""
    import torch
    from transformers import RobertaConfig, RobertaForSequenceClassification

    from hf_memaug import GMAPConfig, GMAPForSequenceClassification

    sizes = {"max_position_embeddings": 514}
    if small:
        sizes |= {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 128}
    torch.manual_seed(0)
    plain = RobertaForSequenceClassification(RobertaConfig(**sizes)).to(device)
    encoders = {name: RobertaConfig(**sizes) for name in ("general", "domain")}
    # The same head as the plain model's, of two layers.
    gmap = GMAPForSequenceClassification(GMAPConfig(**encoders, classifier_layers=2)).to(device)
    if device == "cuda":
        gmap.gmap.general.to(torch.bfloat16)
    return plain, gmap


def main() -> None:
    options = parse_arguments()
    import torch

    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    batch, length = (4, 16) if options.small else (32, 256)
    name, inputs, labels, autocast = workload(batch, length, device)
    rows = []
    if on_gpu:
        # Each by itself: two models in memory would hide what one needs.
        peaks = []
        for place in (0, 1):
            model = make_models(options.small, device)[place]
            torch.cuda.empty_cache()
            peaks.append(peak(training_step(model, inputs, labels, autocast)))
            del model
        row = {"what": "train_memory", "value": round(peaks[1], 3), "unit": "GiB"}
        rows.append({**row, "against": f"{AGAINST} {peaks[0]:.2f} GiB", "ratio": round(peaks[1] / peaks[0], 4)})
        print(f"train_memory {peaks[1]:.2f} GiB, ratio {peaks[1] / peaks[0]:.3f}", flush=True)
    for graphed in (False, True) if on_gpu and options.graphs else (False,):
        suffix = "_graphs" if graphed else ""
        # A mask would be looked at, which a graph cannot; here nothing is padded.
        inputs = {name: value for name, value in inputs.items() if name != "attention_mask" or not graphed}
        plain, gmap = make_models(options.small, device)
        with torch.no_grad(), autocast():
            states = torch.stack(gmap.gmap.general_states(**inputs), dim=1).to(torch.float16)
        known = {**inputs, "general_hidden_states": states}
        repeats = 10 if on_gpu else 1
        theirs = training_step(plain, inputs, labels, autocast, graphed)
        for what, given in (("train", inputs), ("train_cached", known)):
            ours = training_step(gmap, given, labels, autocast, graphed)
            rows.append(compare(f"{what}{suffix}", AGAINST, theirs, ours, device, options.rounds, repeats))
            rows += compare_kernels(what, AGAINST, theirs, ours) if on_gpu and not graphed else []
        theirs = inference(plain, inputs, autocast, graphed)
        for what, given in (("infer", inputs), ("infer_cached", known)):
            ours = inference(gmap, given, autocast, graphed)
            rows.append(compare(f"{what}{suffix}", AGAINST, theirs, ours, device, 3 * options.rounds, repeats))
            rows += compare_kernels(what, AGAINST, theirs, ours) if on_gpu and not graphed else []
        # After each: what was measured stays, also where the rest is broken off.
        setting = f"{'tiny' if options.small else 'RoBERTa-base'} shape, batch {batch} x {length}"
        write_result("gmap", name, f"{setting}, {'bf16 autocast' if on_gpu else 'fp32'}", rows, options.output)


if __name__ == "__main__":
    main()
