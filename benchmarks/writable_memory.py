# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What a writable memory costs: a forward pass beside the classifier alone, writing beside a pass over the rows, and the
search for the nearest rows.

    python benchmarks/writable_memory.py --output docs/results/benchmarks/writable_memory_cpu.json     # on a CPU
    python benchmarks/writable_memory.py --output docs/results/benchmarks/writable_memory_h200.json    # on a GPU
"""

import argparse
import statistics
import time
from contextlib import nullcontext

from record import write_result
from timing import compare, compare_kernels, inference

LENGTH, WRITTEN = 128, 512
# Width, layers, and width inside a layer.
SHAPES = {"tiny": (48, 2, 64), "minilm": (384, 6, 1536), "bert-base": (768, 12, 3072)}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, help="rows (default: 32 on a GPU, 4 on a CPU)")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of measurements (default: %(default)s)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[512, 100_000], help="written rows (default: %(default)s)"
    )
    parser.add_argument("--nearest", type=int, help="search the nearest of this many rows, such as 1000000, and stop")
    parser.add_argument("--shape", choices=SHAPES, default="minilm", help="of the encoder (default: %(default)s)")
    parser.add_argument("--output", help="write the JSON here as well")
    return parser.parse_args()


def make_classifier(shape: str, device: str):
    """Random weights."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    width, layers, inside = SHAPES[shape]
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "intermediate_size": inside}
    return BertForSequenceClassification(BertConfig(**sizes, initializer_range=0.1)).to(device).eval()


class Tokenizer:
    """Stands for a tokenizer that takes no time: the text is a number."""

    def get_vocab(self):
        return {"a": 0}

    def __call__(self, texts, pairs=None, **kwargs):
        import torch

        generator = torch.Generator().manual_seed(int(texts[0]))
        ids = torch.randint(1000, 30000, (len(texts), LENGTH), generator=generator)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


tokenizer = Tokenizer()


def filled(classifier, rows: int):
    """The classifier with a memory of random rows."""
    import torch

    from hf_memaug import WritableMemoryForSequenceClassification

    model = WritableMemoryForSequenceClassification.from_classifier(classifier)
    given = [{"text": str(row), "label": row % 2} for row in range(WRITTEN)]
    model.write(given, domain="new", tokenizer=tokenizer)
    memory = model.memory
    labels = torch.arange(rows) % 2
    keys = torch.randn(rows, *memory.keys.shape[1:])
    keys[:, 0, 0] += 40 * (2 * labels - 1)
    keys = torch.nn.functional.normalize(keys, dim=-1)
    found = {"keys": keys.to(torch.float16).view(torch.int16), "probabilities": torch.full((rows, 2), 0.5)}
    found |= {"labels": labels, "domains": torch.zeros(rows, dtype=torch.long), "row_ids": torch.randperm(rows)}
    found["domains"][: rows // 4] = -1
    memory.set_rows({name: value.to(classifier.device) for name, value in found.items()})
    assert memory.solve() is not None, "the memory would be read by nothing"
    return model


def search(rows: int, rounds: int) -> dict:
    """A query for the 5 nearest of many rows in clusters, through FAISS, beside comparing with all."""
    import torch

    from hf_memaug.layers import nearest_rows
    from hf_memaug.layers.writable_memory import WritableMemory

    generator, parts, width = torch.Generator().manual_seed(0), 6, 384
    memory = WritableMemory(parts, width, 2, rows)
    centers = torch.randn(1000, parts, width, generator=generator)
    for some in torch.arange(rows).split(10_000):
        keys = centers[some % 1000] + torch.randn(len(some), parts, width, generator=generator)
        memory.keys[some] = torch.nn.functional.normalize(keys, dim=-1).to(torch.float16).view(torch.int16)
    queries = memory.keys[torch.randperm(rows, generator=generator)[:200]].view(torch.float16).float()
    queries = torch.nn.functional.normalize(queries + 0.02 * torch.randn(queries.shape, generator=generator), dim=-1)
    begin = time.perf_counter()
    nearest = nearest_rows.NearestRows(memory)
    seconds = time.perf_counter() - begin
    times = []
    for query in queries[: 10 * rounds]:
        begin = time.perf_counter()
        nearest(query[None], 5)
        times.append(1000 * (time.perf_counter() - begin))
    found = nearest(queries, 5)[1].tolist()
    nearest.index = None
    begin = time.perf_counter()
    exact = nearest(queries[:20], 5)[1].tolist()
    alone = 1000 * (time.perf_counter() - begin)
    recall = sum(len(set(one) & set(other)) for one, other in zip(found, exact, strict=False)) / (5 * len(exact))
    value = statistics.median(times)
    return {
        "what": f"nearest_{rows}",
        "value": round(value, 3),
        "unit": "ms",
        "against": "comparing 20 queries at once with all rows",
        "ratio": round(value / alone, 4),
        "recall": round(recall, 3),
        "seconds_to_index": round(seconds, 1),
        "rounds": len(times),
    }


def main() -> None:
    options = parse_arguments()
    import torch

    from hf_memaug import WritableMemoryForSequenceClassification

    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    name = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    batch, repeats = options.batch or (32 if on_gpu else 4), 10 if on_gpu else 2
    classifier = make_classifier(options.shape, device)
    setting = f"{options.shape} shape, {LENGTH} tokens, batch {batch}, fp32"
    inputs = {name: value.to(device) for name, value in tokenizer(["7"] * batch).items()}
    rows = []
    if options.nearest:
        rows.append(search(options.nearest, options.rounds))
        write_result("writable_memory", name, "keys of 6 × 384, 1000 clusters", rows, options.output)
        return
    for size in options.sizes:
        pair, against = (classifier, filled(classifier, size)), "the classifier"
        for graphed in (False, True) if on_gpu else (False,):
            # A mask would be looked at, which a graph cannot; here nothing is padded.
            read = {"input_ids": inputs["input_ids"]} if graphed else inputs
            steps = [inference(model, read, nullcontext, graphed) for model in pair]
            what = f"infer_{size}{'_graphs' if graphed else ''}"
            rows.append(compare(what, against, *steps, device, options.rounds, repeats))
            rows += compare_kernels(what, against, *steps) if on_gpu and not graphed else []
            write_result("writable_memory", name, setting, rows, options.output)
    given = [{"text": str(row), "label": row % 2} for row in range(WRITTEN)]
    batches = [
        {name: value.to(device) for name, value in tokenizer([str(start)] * 64).items()}
        for start in range(0, WRITTEN, 64)
    ]

    @torch.no_grad()
    def forward_all():
        for one in batches:
            classifier(**one)

    model = WritableMemoryForSequenceClassification.from_classifier(classifier)

    def write():
        # Rows that are written again count once.
        model.write(given, domain="new", tokenizer=tokenizer, append=True)

    against = f"one forward pass over {WRITTEN} rows"
    rows.append(compare(f"write_{WRITTEN}", against, forward_all, write, device, max(2, options.rounds // 5), 1))
    write_result("writable_memory", name, setting, rows, options.output)


if __name__ == "__main__":
    main()
