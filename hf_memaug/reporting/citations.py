# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The papers behind the families, by the family's module."""

METHODS = {
    "kv_memory": {
        "title": "Memory-Based Invariance Learning for Out-of-Domain Text Classification",
        "url": "https://aclanthology.org/2023.emnlp-main.101/",
        "tags": ["memory", "domain-generalization"],
        "what": "a key-value memory after the last layer augments the encoder's feature",
        "how": (
            "A query network asks the feature g(x) of a table of keys, and the values that answer are mixed in: "
            "g_m(x) = (1 - λ) g(x) + λ m(g(x)) (Eq. 1-3), with λ = `memory_weight`."
        ),
        "bibtex": """
@inproceedings{jia-zhang-2023-memory,
    title = "Memory-Based Invariance Learning for Out-of-Domain Text Classification",
    author = "Jia, Chen and Zhang, Yue",
    booktitle = "Proceedings of the 2023 Conference on Empirical Methods in Natural Language Processing",
    year = "2023",
    publisher = "Association for Computational Linguistics",
}
""",
    },
}
