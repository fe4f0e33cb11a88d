# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Rows from several domains: loading, checking, splitting, and generated data to start with."""

from hf_memaug.configuration.prompting import prompt_tokenizer
from hf_memaug.configuration.words import add_words
from hf_memaug.data.digits import generated_digits, mnist_domains
from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.generated import generated_graphs, generated_reviews
from hf_memaug.data.graphs import GraphCollator, check_graphs, feature_sizes, load_graphs, tu_graphs, undirected_graph
from hf_memaug.data.images import ImageCollator, check_images, decode_image
from hf_memaug.data.loading import load_domains
from hf_memaug.data.molecules import graph_from_smiles, load_molecules, molecule_graphs
from hf_memaug.data.overlap import check_overlap, find_overlap, row_hashes
from hf_memaug.data.splits import DomainParts, DomainSplit, check_given_splits, leave_one_domain_out, split_domains
from hf_memaug.data.words import new_words, read_word_vectors, word_tokenizer

__all__ = [
    "DomainDataset", "DomainParts", "DomainSplit", "GraphCollator", "ImageCollator", "add_words", "check_given_splits",
    "check_graphs", "check_images", "check_overlap", "decode_image", "feature_sizes", "find_overlap",
    "generated_digits", "generated_graphs", "generated_reviews", "graph_from_smiles", "leave_one_domain_out",
    "load_domains", "load_graphs", "load_molecules", "mnist_domains", "molecule_graphs", "new_words",
    "prompt_tokenizer", "read_word_vectors", "row_hashes", "split_domains", "tu_graphs", "undirected_graph",
    "word_tokenizer",
]  # fmt: skip
